//! A sweep as a picture: what changed along the bottom, each run a dot, the means joined.

use super::{Axis, Curve, Panel, Picture, Stroke};
use crate::figures::rate_unit;
use crate::palette::colour_of;
use crate::reduce::{distinct, place, varied_path};
use fullpipe_experiment::Results;
use fullpipe_experiment::recording::{Recording, Varied};
use std::collections::HashMap;

/// The figures of a sweep over what was varied; none if nothing was.
pub fn of_sweep(results: &Results) -> Option<Picture> {
    let at: Vec<String> = results.runs.iter().map(place).collect();
    let places = distinct(at.iter().map(String::as_str));
    let ccs = distinct(results.runs.iter().map(|r| r.cc.as_str()));
    if places.len() < 2 {
        return None;
    }
    // One varied key names the axis, and its values the ticks.
    let key = only_key(results);
    let value = |place: &str| key.map_or(place, |k| place[k.len()..].trim_start()).to_owned();
    let names: Vec<String> = places.iter().map(|place| value(place)).collect();
    let column: HashMap<&str, usize> = places.iter().copied().zip(0..).collect();
    let top = results.runs.iter().map(|r| r.summary.goodput_bps).fold(0.0, f64::max);
    let (unit, size) = rate_unit(top);
    let panel = |title: &str, unit: &str, figure: &dyn Fn(&Recording) -> Option<f64>| {
        let mut curves = Vec::new();
        for (i, cc) in ccs.iter().enumerate() {
            // Beside each other, so that dots of several controllers do not hide one another.
            let shift = (i as f64 - (ccs.len() - 1) as f64 / 2.0) * 0.06;
            let across = |x: usize| x as f64 + shift;
            let mut dots = Vec::new();
            let mut means = Vec::new();
            let mut columns = vec![Vec::new(); places.len()];
            for (run, place) in results.runs.iter().zip(&at).filter(|(r, _)| r.cc == *cc) {
                columns[column[place.as_str()]].extend(figure(run));
            }
            for (x, values) in columns.iter().enumerate() {
                dots.extend(values.iter().map(|v| (across(x), *v)));
                means.push((across(x), values.iter().sum::<f64>() / values.len() as f64));
            }
            let colour = colour_of(cc).light;
            let mean = Curve { dash: 0, ..Curve::line(*cc, colour, means) };
            let dots = Curve { stroke: Stroke::Dots, label: String::new(), ..Curve::line("", colour, dots) };
            curves.extend([mean, dots]);
        }
        Panel {
            title: title.to_owned(),
            x: Axis::named(key.unwrap_or_default(), names.clone()),
            y: Axis::linear(unit),
            curves,
            marks: Vec::new(),
        }
    };
    let share = |n: u64, of: u64| (of > 0).then(|| n as f64 / of as f64 * 100.0);
    let panels = vec![
        panel("Goodput", unit, &|r| Some(r.summary.goodput_bps / size)),
        panel("Median round-trip time", "ms", &|r| r.summary.rtt_ms.p50),
        panel("Retransmitted", "%", &|r| share(r.summary.packets_retransmitted, r.summary.packets_sent)),
        panel("Queueing delay, 95th percentile", "ms", &|r| r.summary.queue_ms.p95),
    ];
    Some(Picture { panels, columns: 2, ..Picture::default() })
}

/// The last part of the key that is varied, if it is the same one in all runs.
fn only_key(results: &Results) -> Option<&str> {
    let mut keys = results.runs.iter().map(|run| {
        let mut varied = varied_path(run);
        varied.next().filter(|_| varied.next().is_none()).map(Varied::short_key)
    });
    let first = keys.next()??;
    keys.all(|key| key == Some(first)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support;

    #[test]
    fn the_varied_key_names_the_axis_and_its_values_the_ticks() {
        let mut results = support::race(0.5);
        for (i, run) in results.runs.iter_mut().enumerate() {
            run.cc = ["bbr", "cubic"][i % 2].to_owned();
            run.varied = vec![Varied::new("path.loss", ["0.1%", "5%"][i / 2])];
        }
        let picture = of_sweep(&results).unwrap();
        assert_eq!(picture.panels[0].x.names, ["0.1%", "5%"]);
        assert_eq!(picture.panels[0].x.label, "loss");
        assert_eq!(picture.panels[0].curves.len(), 4);
        let svg = picture.svg();
        assert!(svg.contains("aria-label=\"loss\"") && svg.contains("aria-label=\"5%\""));
    }

    #[test]
    fn runs_on_one_path_are_no_sweep() {
        assert_eq!(of_sweep(&support::race(0.5)), None);
        assert_eq!(of_sweep(&Results::new(vec![])), None);
    }
}
