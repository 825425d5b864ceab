//! A sweep as a picture: what changed along the bottom, each run a dot, the means joined.

use super::{Axis, Curve, Panel, Picture, Stroke};
use crate::figures::rate_unit;
use crate::palette::colour_of;
use crate::reduce::place;
use fullpipe_experiment::Results;
use fullpipe_experiment::recording::Recording;

/// The figures of a sweep over what was varied; none if nothing was.
pub fn of_sweep(results: &Results) -> Option<Picture> {
    let mut places: Vec<&str> = Vec::new();
    let mut ccs: Vec<&str> = Vec::new();
    for run in &results.runs {
        if !places.contains(&place(run)) {
            places.push(place(run));
        }
        if !ccs.contains(&run.cc.as_str()) {
            ccs.push(&run.cc);
        }
    }
    if places.len() < 2 {
        return None;
    }
    // One varied key names the axis, and its values the ticks.
    let key = places[0].split_once(' ').map(|(key, _)| key).filter(|key| {
        let rest = |p: &&str| {
            p.strip_prefix(*key).and_then(|r| r.strip_prefix(' ')).is_some_and(|r| !r.contains(", "))
        };
        places.iter().all(rest)
    });
    let names =
        places.iter().map(|p| key.map_or(*p, |k| p[k.len()..].trim_start()).to_owned()).collect::<Vec<_>>();
    let top = results.runs.iter().map(|r| r.summary.goodput_bps).fold(0.0, f64::max);
    let (unit, size) = rate_unit(top);
    let panel = |title: &str, unit: &str, figure: &dyn Fn(&Recording) -> Option<f64>| {
        let mut curves = Vec::new();
        for (i, cc) in ccs.iter().enumerate() {
            // Beside each other, so that dots of several controllers do not hide one another.
            let shift = (i as f64 - (ccs.len() - 1) as f64 / 2.0) * 0.06;
            let at = |x: usize| x as f64 + shift;
            let mut dots = Vec::new();
            let mut means = Vec::new();
            for (x, at_place) in places.iter().enumerate() {
                let own = results.runs.iter().filter(|r| r.cc == *cc && place(r) == *at_place);
                let values: Vec<f64> = own.filter_map(figure).collect();
                dots.extend(values.iter().map(|v| (at(x), *v)));
                means.push((at(x), values.iter().sum::<f64>() / values.len() as f64));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support;

    #[test]
    fn the_varied_key_names_the_axis_and_its_values_the_ticks() {
        let mut results = support::race(0.5);
        for (i, run) in results.runs.iter_mut().enumerate() {
            run.cc = ["bbr", "cubic"][i % 2].to_owned();
            run.label = format!("{}, loss {}", run.cc, ["0.1%", "5%"][i / 2]);
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
