//! A sweep as a picture: one swept parameter on the x axis, one panel for each combination of the
//! others.
//!
//! Quantities have a linear or, over a wide range, a logarithmic axis, and their means are
//! connected. Categories are dots without connecting lines.

use super::{Axis, Curve, Panel, Picture, Scale, Stroke};
use crate::reduce::{distinct, half_interval, path_label, varied_path};
use fullpipe_experiment::Results;
use fullpipe_experiment::recording::{Recording, Variation};
use fullpipe_presentation::numbers::rate_unit;
use fullpipe_presentation::palette::controller_colour;
use fullpipe_units::{Bytes, Fraction, Rate, Span};

/// Ratio of the largest to the smallest value from which an x axis is logarithmic.
const LOG_RATIO: f64 = 10.0;
/// The same for measured values on the y axis.
const LOG_RATIO_MEASURED: f64 = 100.0;
/// Panels per row.
const MAX_COLUMNS: usize = 4;
/// With more combinations of the other parameters, only goodput and round-trip time are drawn.
const MAX_FACETS_WITH_ALL_METRICS: usize = 6;
/// Repeats from which an interval is drawn.
const MIN_REPEATS_WITH_INTERVAL: usize = 3;

/// A metric of a run, with the title and unit of its panels.
struct Metric<'a> {
    title: &'static str,
    unit: &'a str,
    value: &'a dyn Fn(&Recording) -> Option<f64>,
}

/// The parameter on the x axis, and the position of its values.
struct XAxis<'a> {
    key: &'a str,
    axis: Axis,
    /// Position of each value.
    positions: Vec<(&'a str, f64)>,
    is_quantity: bool,
}

/// The picture of a sweep; `None` if no parameter was varied.
pub fn sweep_picture(results: &Results) -> Option<Picture> {
    let places = distinct(results.runs.iter().map(path_label));
    if places.len() < 2 {
        return None;
    }
    let x = x_axis(results);
    // The other parameters of a run, without controller and repeat.
    let facet = |run: &Recording| -> String {
        let others = varied_path(run).filter(|varied| varied.key != x.key);
        others.map(Variation::label).collect::<Vec<_>>().join(", ")
    };
    let facets = distinct(results.runs.iter().map(facet));
    let top = results.runs.iter().map(|r| r.summary.goodput_bps).fold(0.0, f64::max);
    let (unit, size) = rate_unit(top);
    let share = |n: u64, of: u64| (of > 0).then(|| n as f64 / of as f64 * 100.0);
    let goodput = |r: &Recording| Some(r.summary.goodput_bps / size);
    let rtt = |r: &Recording| r.summary.rtt_ms.p50;
    let retransmitted = |r: &Recording| share(r.summary.packets_retransmitted, r.summary.packets_sent);
    let queue = |r: &Recording| r.summary.queue_ms.p95;
    let mut metrics = vec![
        Metric { title: "Goodput", unit, value: &goodput },
        Metric { title: "Median round-trip time", unit: "ms", value: &rtt },
        Metric { title: "Retransmitted", unit: "%", value: &retransmitted },
        Metric { title: "Queueing delay, 95th percentile", unit: "ms", value: &queue },
    ];
    if facets.len() > MAX_FACETS_WITH_ALL_METRICS {
        metrics.truncate(2);
    }
    let columns = if facets.len() > 1 { facets.len().min(MAX_COLUMNS) } else { 2 };
    let mut panels = Vec::new();
    for metric in &metrics {
        // All panels of a metric share a scale, to be comparable.
        let y = y_axis(results, metric);
        for name in &facets {
            let runs: Vec<&Recording> = results.runs.iter().filter(|run| facet(run) == *name).collect();
            let title = match name.as_str() {
                "" => metric.title.to_owned(),
                name => format!("{} · {name}", metric.title),
            };
            panels.push(Panel {
                title,
                x: x.axis.clone(),
                y: y.clone(),
                curves: curves(&runs, &x, metric),
                marks: Vec::new(),
            });
        }
        // Each metric starts a new row.
        if facets.len() > 1 {
            panels.resize_with(panels.len().next_multiple_of(columns), Panel::default);
        }
    }
    Some(Picture { panels, columns, ..Picture::default() })
}

/// Selects the quantity with the most values, otherwise the category with the most. Runs without
/// parameters are placed by their path.
fn x_axis(results: &Results) -> XAxis<'_> {
    let keys = distinct(results.runs.iter().flat_map(varied_path).map(|varied| varied.key.as_str()));
    let values = |key: &str| distinct(results.runs.iter().filter_map(|run| run.varied(key)));
    let quantities = |key: &str| -> Option<Vec<f64>> {
        let all = values(key);
        let found: Vec<(&str, f64)> = all.iter().filter_map(|value| quantity(value)).collect();
        let alike = found.len() == all.len() && found.windows(2).all(|w| w[0].0 == w[1].0);
        (alike && found.len() > 1).then(|| found.into_iter().map(|(_, v)| v).collect())
    };
    // On a tie the first.
    let chosen = keys.iter().rev().max_by_key(|key| (quantities(key).is_some(), values(key).len()));
    let Some(&key) = chosen else {
        let names = distinct(results.runs.iter().map(|run| run.path.description.as_str()));
        let at = names.iter().zip(0..).map(|(name, i)| (*name, f64::from(i))).collect();
        let names = names.into_iter().map(str::to_owned).collect();
        return XAxis { key: "", axis: Axis::named("", names), positions: at, is_quantity: false };
    };
    let label = key.rsplit('.').next().unwrap_or(key);
    let names = values(key);
    match quantities(key) {
        Some(metrics) => {
            let at: Vec<(&str, f64)> = names.into_iter().zip(metrics).collect();
            let (axis, at) = quantity_axis(label, at);
            XAxis { key, axis, positions: at, is_quantity: true }
        }
        None => {
            let at = names.iter().zip(0..).map(|(name, i)| (*name, f64::from(i))).collect();
            let names = names.into_iter().map(str::to_owned).collect();
            XAxis { key, axis: Axis::named(label, names), positions: at, is_quantity: false }
        }
    }
}

/// An axis with ticks at the swept values. On a logarithmic axis, zero is left of all others.
fn quantity_axis<'a>(label: &str, mut at: Vec<(&'a str, f64)>) -> (Axis, Vec<(&'a str, f64)>) {
    at.sort_by(|a, b| a.1.total_cmp(&b.1));
    let positive: Vec<f64> = at.iter().map(|p| p.1).filter(|v| *v > 0.0).collect();
    let (low, high) = (positive.first().copied().unwrap_or(0.0), positive.last().copied().unwrap_or(0.0));
    let is_log = low > 0.0 && high / low >= LOG_RATIO && at.iter().all(|p| p.1 >= 0.0);
    let axis = if is_log {
        let step = (high / low).powf(1.0 / (positive.len() as f64 - 1.0).max(1.0));
        for (_, v) in at.iter_mut().filter(|(_, v)| *v == 0.0) {
            *v = low / step;
        }
        let edge = step.powf(0.25);
        let from = at.first().map_or(low, |p| p.1);
        Axis::log(label).with_range(from / edge, high * edge)
    } else {
        let (from, to) = (at.first().map_or(0.0, |p| p.1), at.last().map_or(1.0, |p| p.1));
        let edge = (to - from) * 0.04;
        Axis::linear(label).with_range(from - edge, to + edge)
    };
    let ticks = at.iter().map(|(name, v)| (*v, (*name).to_owned())).collect();
    (Axis { ticks, ..axis }, at)
}

/// Parses a quantity: its kind, and its value in the base unit.
fn quantity(text: &str) -> Option<(&'static str, f64)> {
    let text = text.trim();
    if let Ok(number) = text.parse::<f64>() {
        return number.is_finite().then_some(("number", number));
    }
    if let Some(number) = text.strip_suffix("bdp").and_then(|n| n.trim().parse().ok()) {
        return Some(("bdp", number));
    }
    let share = || Some(("share", text.parse::<Fraction>().ok()?.as_f64()));
    let rate = || Some(("rate", text.parse::<Rate>().ok()?.as_bytes_per_sec() as f64));
    let time = || Some(("time", text.parse::<Span>().ok()?.as_secs_f64()));
    let size = || Some(("size", text.parse::<Bytes>().ok()?.0 as f64));
    share().or_else(rate).or_else(time).or_else(size)
}

/// The y axis for all panels of a metric.
fn y_axis(results: &Results, metric: &Metric<'_>) -> Axis {
    let values = || results.runs.iter().filter_map(metric.value).filter(|v| v.is_finite());
    let (low, high) =
        values().fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), v| (low.min(v), high.max(v)));
    if low > 0.0 && high / low >= LOG_RATIO_MEASURED {
        return Axis::log(metric.unit).with_range(low / 1.3, high * 1.3);
    }
    Axis::linear(metric.unit).with_range(0.0, if high > 0.0 { high * 1.06 } else { 1.0 })
}

fn curves(runs: &[&Recording], x: &XAxis<'_>, metric: &Metric<'_>) -> Vec<Curve> {
    let contenders = distinct(runs.iter().map(|run| (run.contender(), run.cc.as_str())));
    let mut curves = Vec::new();
    for (i, (contender, cc)) in contenders.iter().enumerate() {
        let nth = contenders[..i].iter().filter(|(_, other)| other == cc).count();
        let colour = controller_colour(cc).light;
        // Dots of several controllers are side by side in a category.
        let aside = if x.is_quantity {
            0.0
        } else {
            (i as f64 - (contenders.len() - 1) as f64 / 2.0) * (0.5 / contenders.len() as f64)
        };
        let (mut dots, mut means, mut bars) = (Vec::new(), Vec::new(), Vec::new());
        for (value, position) in &x.positions {
            let at = position + aside;
            let own =
                runs.iter().filter(|run| run.contender() == *contender && value_of(run, x.key) == *value);
            let values: Vec<f64> =
                own.filter_map(|run| (metric.value)(run)).filter(|v| v.is_finite()).collect();
            if values.is_empty() {
                means.push((at, f64::NAN));
                continue;
            }
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            dots.extend(values.iter().map(|v| (at, *v)));
            means.push((at, mean));
            if let Some(half) = half_interval(&values).filter(|_| values.len() >= MIN_REPEATS_WITH_INTERVAL) {
                bars.push([(at, (mean - half).max(mean / 100.0)), (at, mean + half)]);
            }
        }
        let line = |label: &str, stroke, points| Curve {
            dash: if x.is_quantity { nth } else { 0 },
            stroke,
            ..Curve::line(label, colour, points)
        };
        let zero_apart = |mut points: Vec<(f64, f64)>| {
            // On a logarithmic axis, zero is not connected to the next value.
            if x.axis.scale == Scale::Log && x.axis.ticks.first().is_some_and(|t| is_zero(&t.1)) {
                points.insert(1.min(points.len()), (f64::NAN, f64::NAN));
            }
            points
        };
        if x.is_quantity {
            curves.push(line(contender, Stroke::Line, zero_apart(means)));
            curves.push(line("", Stroke::Dots, dots));
        } else {
            curves.push(line(contender, Stroke::Dots, dots));
            // A short line marks the mean.
            let room = 0.2 / contenders.len() as f64;
            for (at, mean) in means.into_iter().filter(|m| m.1.is_finite()) {
                curves.push(line("", Stroke::Line, vec![(at - room, mean), (at + room, mean)]));
            }
        }
        curves.extend(bars.into_iter().map(|bar| line("", Stroke::Line, bar.to_vec())));
    }
    curves
}

fn is_zero(text: &str) -> bool {
    quantity(text).is_some_and(|(_, v)| v == 0.0)
}

fn value_of<'a>(run: &'a Recording, key: &str) -> &'a str {
    if key.is_empty() { &run.path.description } else { run.varied(key).unwrap_or("") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support;

    /// Runs of bbr and cubic for each combination of these values with falling goodput; the last
    /// parameter varies fastest.
    fn sweep(keys: &[(&str, &[&str])], repeats: u32) -> Results {
        let race = support::race(0.5);
        let mut combinations: Vec<Vec<Variation>> = vec![vec![]];
        for (key, values) in keys {
            let with = |before: &Vec<Variation>, value: &&str| {
                let mut all = before.clone();
                all.push(Variation::new(*key, *value));
                all
            };
            combinations =
                combinations.iter().flat_map(|before| values.iter().map(move |v| with(before, v))).collect();
        }
        let mut runs = Vec::new();
        for (i, varied) in combinations.iter().enumerate() {
            for run in &race.runs[..2] {
                for seed in 1..=repeats {
                    let mut run = run.clone();
                    run.varied = varied.clone();
                    run.varied.push(Variation::new(Variation::SEED, seed.to_string()));
                    run.summary.goodput_bps = 50e6 - 1e6 * i as f64 + 1e5 * f64::from(seed);
                    runs.push(run);
                }
            }
        }
        Results::new(runs)
    }

    /// The curves that are not dots.
    fn connected(panel: &Panel) -> Vec<&Curve> {
        panel.curves.iter().filter(|curve| curve.stroke != Stroke::Dots).collect()
    }

    #[test]
    fn wide_quantities_have_a_logarithmic_axis_with_their_values_as_ticks() {
        let picture = sweep_picture(&sweep(&[("path.loss", &["0.1%", "1%", "10%"])], 1)).unwrap();
        let x = &picture.panels[0].x;
        assert_eq!((x.label.as_str(), x.scale), ("loss", Scale::Log));
        assert_eq!(x.ticks.iter().map(|t| t.1.as_str()).collect::<Vec<_>>(), ["0.1%", "1%", "10%"]);
        assert_eq!(picture.panels.len(), 4);
        let svg = picture.svg();
        assert!(svg.contains("aria-label=\"loss\"") && svg.contains("aria-label=\"10%\""));
        // Sorted by value whatever the order of the sweep; a narrow range is linear.
        let picture = sweep_picture(&sweep(&[("path.rtt", &["40ms", "10ms", "20ms"])], 1)).unwrap();
        let x = &picture.panels[0].x;
        assert_eq!(x.scale, Scale::Linear);
        assert!(x.ticks.windows(2).all(|w| w[0].0 < w[1].0));
        let means = connected(&picture.panels[0])[0];
        assert!(means.points.windows(2).all(|w| w[0].0 < w[1].0), "{means:?}");
    }

    #[test]
    fn values_of_a_second_parameter_are_separate_panels() {
        let picture = sweep_picture(&sweep(
            &[("path.buffer", &["0.5bdp", "2bdp"]), ("path.loss", &["0.1%", "1%", "10%"])],
            1,
        ));
        let picture = picture.unwrap();
        assert_eq!((picture.panels.len(), picture.columns), (8, 2), "four metrics for each of two buffers");
        assert_eq!(picture.panels[0].title, "Goodput · buffer 0.5bdp");
        assert_eq!(picture.panels[1].title, "Goodput · buffer 2bdp");
        assert_eq!(picture.panels[0].y, picture.panels[1].y, "on one scale");
        for panel in &picture.panels {
            assert_eq!(panel.x.label, "loss");
            for curve in connected(panel) {
                assert_eq!(curve.points.len(), 3, "{}: a point for each loss: {curve:?}", panel.title);
            }
        }
        let goodputs = |panel: &Panel| connected(panel)[0].points.iter().map(|p| p.1).collect::<Vec<_>>();
        assert_eq!(goodputs(&picture.panels[0]), [50.1, 49.1, 48.1]);
        assert_eq!(goodputs(&picture.panels[1]), [47.1, 46.1, 45.1]);
        // Five facets take two rows per metric.
        let five = sweep_picture(&sweep(
            &[
                ("path.buffer", &["1bdp", "2bdp", "3bdp", "4bdp", "5bdp"]),
                ("path.loss", &["1%", "2%", "3%", "4%", "5%", "6%"]),
            ],
            1,
        ));
        let five = five.unwrap();
        assert_eq!((five.columns, five.panels.len()), (4, 4 * 8));
        assert_eq!(five.panels[8].title, "Median round-trip time · buffer 1bdp");
        assert_eq!(five.panels[7], Panel::default());
        assert!(five.svg().contains("buffer 5bdp"));
    }

    #[test]
    fn categories_are_not_connected() {
        let picture = sweep_picture(&sweep(&[("path.queue", &["drop-tail", "codel", "pie"])], 3)).unwrap();
        for panel in &picture.panels {
            assert_eq!(panel.x.names, ["drop-tail", "codel", "pie"]);
            for curve in connected(panel) {
                let xs = curve.points.iter().map(|p| p.0);
                let (low, high) =
                    xs.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), x| (l.min(x), h.max(x)));
                assert!(
                    high - low < 0.5 && low.round() == high.round(),
                    "a path from one to the next: {curve:?}"
                );
            }
            let dots = panel.curves.iter().filter(|c| c.stroke == Stroke::Dots).map(|c| c.points.len());
            assert_eq!(dots.sum::<usize>(), 2 * 3 * 3, "every run is a dot");
        }
    }

    #[test]
    fn zero_is_separate_on_a_logarithmic_axis() {
        let picture = sweep_picture(&sweep(&[("path.loss", &["0%", "0.1%", "1%", "10%"])], 1)).unwrap();
        let panel = &picture.panels[0];
        assert_eq!(panel.x.scale, Scale::Log);
        assert_eq!(panel.x.ticks[0].1, "0%");
        assert!(panel.x.ticks[0].0 > 0.0);
        assert!(connected(panel)[0].points[1].0.is_nan(), "not connected to the next");
    }

    #[test]
    fn repeats_have_intervals_and_settings_have_their_own_lines() {
        let mut results = sweep(&[("path.loss", &["1%", "2%"])], 5);
        let bars = |picture: &Picture| {
            connected(&picture.panels[0])
                .iter()
                .filter(|c| c.points.len() == 2 && c.points[0].0 == c.points[1].0)
                .count()
        };
        assert_eq!(bars(&sweep_picture(&results).unwrap()), 4, "two controllers at two losses");
        for run in results.runs.iter_mut().filter(|run| run.cc == "cubic") {
            run.cc = "bbr".into();
            run.contender = Some("bbr:ecn=on".into());
        }
        let picture = sweep_picture(&results).unwrap();
        let labelled: Vec<(&str, usize)> = picture.panels[0]
            .curves
            .iter()
            .filter(|c| !c.label.is_empty())
            .map(|c| (c.label.as_str(), c.dash))
            .collect();
        assert_eq!(labelled, [("bbr", 0), ("bbr:ecn=on", 1)]);
    }

    #[test]
    fn wide_goodputs_have_a_logarithmic_axis() {
        let mut results = sweep(&[("path.loss", &["1%", "2%"])], 1);
        assert_eq!(sweep_picture(&results).unwrap().panels[0].y.scale, Scale::Linear);
        results.runs[3].summary.goodput_bps = 1e5;
        assert_eq!(sweep_picture(&results).unwrap().panels[0].y.scale, Scale::Log);
    }

    #[test]
    fn runs_on_one_path_are_not_a_sweep() {
        assert_eq!(sweep_picture(&support::race(0.5)), None);
        assert_eq!(sweep_picture(&Results::new(vec![])), None);
    }
}
