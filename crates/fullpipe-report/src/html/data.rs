//! The data of the page's plots, as JSON that is safe inside markup.

use crate::reduce::{self, Grid, Line, lines, smoothed, smoothing_s, varied_path};
use fullpipe_experiment::Results;
use fullpipe_experiment::recording::{FlowRecording, PathFacts, Recording, Series, Source, column};
use fullpipe_presentation::numbers::{millis, rate_unit, significant, size_unit};
use fullpipe_presentation::page::escape_json;
use serde::Serialize;
use serde_json::value::RawValue;

/// Maximum number of values in all time series of a page; about six bytes each.
const MAX_VALUES: usize = 330_000;
/// Minimum number of rows per line, however many lines there are.
const MIN_ROWS: usize = 120;
/// Maximum number of state changes of a line.
const MAX_STATES: usize = 4000;

#[derive(Serialize)]
struct Page {
    end: f64,
    smoothing: String,
    /// How goodput is counted.
    counted: &'static str,
    lines: Vec<LineData>,
    t: Box<RawValue>,
    panels: Vec<Panel>,
    states: Vec<States>,
    states_title: &'static str,
}

#[derive(Serialize)]
struct LineData {
    label: String,
    run: usize,
    light: String,
    dark: String,
    dash: usize,
    /// Swept parameters and their values in this run.
    of: Vec<(String, String)>,
}

#[derive(Serialize)]
struct Panel {
    id: &'static str,
    title: &'static str,
    unit: &'static str,
    curves: Vec<Curve>,
    marks: Vec<Mark>,
}

/// Values of a line, or of the link of a run.
#[derive(Serialize)]
struct Curve {
    /// Index of the line; for a link, of the first line of the run.
    line: usize,
    /// Whether the curve belongs to all lines of the run.
    whole_run: bool,
    v: Box<RawValue>,
}

#[derive(Serialize)]
struct Mark {
    y: f64,
    label: &'static str,
    /// Whether the axis includes the mark even if all curves are far from it.
    always: bool,
}

#[derive(Serialize)]
struct States {
    line: usize,
    at: Vec<f64>,
    name: Vec<String>,
}

/// A panel without its values.
struct Spec {
    id: &'static str,
    title: &'static str,
    column: &'static str,
    kind: Kind,
    marks: Vec<(Option<f64>, &'static str, bool)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Rate,
    Millis,
    Size,
    Count,
}

/// The data of the page; it never contains `<`.
pub(super) fn json(results: &Results) -> String {
    let lines = lines(results);
    let same_path = results.runs.windows(2).all(|w| w[0].path == w[1].path);
    let facts = results.runs.first().filter(|_| same_path).map(|r| r.path.clone()).unwrap_or_default();
    let queues: Vec<(usize, &Series)> = results
        .runs
        .iter()
        .enumerate()
        .filter_map(|(i, run)| {
            let line = lines.iter().position(|l| l.run == i)?;
            Some((line, reduce::fullest_queue(run)?))
        })
        .collect();

    let specs = specs(&facts);
    let count: usize = specs
        .iter()
        .map(|s| lines.iter().filter(|l| l.series.get(s.column).is_some()).count())
        .sum::<usize>()
        + queues.len();
    let rows = (MAX_VALUES / count.max(1)).max(MIN_ROWS);
    let all: Vec<&Series> =
        lines.iter().map(|l| l.series.as_ref()).chain(queues.iter().map(|q| q.1)).collect();
    let grid = Grid::new(&all, rows);
    let window = smoothing_s(results);

    let mut panels: Vec<Panel> =
        specs.iter().filter_map(|s| panel(s, &lines, &queues, &grid, window)).collect();
    panels.retain(|p| !p.curves.is_empty());
    // The states of captures and of unknown controllers are what limited the connection; those of a log
    // are the controller's, whether it names it or not.
    let limits = results.runs.iter().all(|r| r.source == Source::Trace)
        || results.runs.iter().all(|r| r.source != Source::Log) && lines.iter().all(|l| l.cc.is_empty());
    let page = Page {
        end: results.runs.iter().map(reduce::end_s).fold(0.0, f64::max),
        smoothing: millis(window * 1e3),
        counted: counted(results),
        t: numbers(grid.t.iter().map(|t| (t * 1e6).round() / 1e6), 9),
        panels,
        states: states(&lines),
        states_title: if limits { "Limited by" } else { "Controller states" },
        lines: lines.iter().map(|line| line_data(line, &results.runs[line.run])).collect(),
    };
    let text = serde_json::to_string(&page).expect("numbers and strings are JSON");
    escape_json(&text)
}

/// How goodput is counted, for the heading of its panel.
fn counted(results: &Results) -> &'static str {
    let simulated = results.runs.iter().filter(|r| r.source == Source::Sim).count();
    match simulated {
        n if n == results.runs.len() => "on arrival at the receiver",
        0 => "in order at the receiver (filled holes appear as peaks)",
        _ => "at the receiver (simulated: on arrival; measured: in order)",
    }
}

fn line_data(line: &Line, run: &Recording) -> LineData {
    let varied = varied_path(run).map(|v| (v.short_key().to_owned(), v.value.clone())).collect();
    let (colour, dash) = line.look;
    LineData {
        label: line.label.clone(),
        run: line.run,
        light: colour.light_hex(),
        dark: colour.dark_hex(),
        dash,
        of: varied,
    }
}

fn specs(facts: &PathFacts) -> Vec<Spec> {
    let bdp = facts.bdp_bytes.map(|b| b as f64);
    let buffer = facts.buffer_bytes.map(|b| b as f64);
    let full = bdp.zip(buffer).map(|(a, b)| a + b);
    let spec = |id, title, column, kind, marks| Spec { id, title, column, kind, marks };
    use Kind::{Count, Millis, Rate, Size};
    vec![
        spec(
            "goodput",
            "Goodput",
            column::GOODPUT_BPS,
            Rate,
            vec![(facts.goodput_limit_bps, "goodput limit", true)],
        ),
        spec("rtt", "Round-trip time", column::RTT_MS, Millis, vec![(facts.base_rtt_ms, "base RTT", true)]),
        spec("queue", "Queue", column::QUEUE_BYTES, Size, vec![(buffer, "buffer", false)]),
        spec(
            "inflight",
            "Inflight",
            column::INFLIGHT_BYTES,
            Size,
            vec![(bdp, "BDP", true), (full, "BDP + buffer", false)],
        ),
        spec("cwnd", "Congestion window", column::CWND_BYTES, Size, vec![(bdp, "BDP", false)]),
        spec("pacing", "Pacing rate", column::PACING_BPS, Rate, vec![(facts.rate_bps, "bottleneck", false)]),
        spec("bw", "Bandwidth estimate", column::BW_BPS, Rate, vec![(facts.rate_bps, "bottleneck", false)]),
        spec(
            "max_bw",
            "Bandwidth filter (max_bw)",
            column::MAX_BW_BPS,
            Rate,
            vec![(facts.rate_bps, "bottleneck", false)],
        ),
        spec(
            "min_rtt",
            "Round-trip propagation estimate",
            column::MIN_RTT_MS,
            Millis,
            vec![(facts.base_rtt_ms, "base RTT", true)],
        ),
        spec(
            "longterm",
            "Long-term bound on inflight",
            column::INFLIGHT_LONGTERM_BYTES,
            Size,
            vec![(bdp, "BDP", false)],
        ),
        spec("retransmitted", "Retransmitted packets (total)", column::RETRANSMITTED_PACKETS, Count, vec![]),
    ]
}

fn panel(
    spec: &Spec,
    lines: &[Line],
    queues: &[(usize, &Series)],
    grid: &Grid,
    window: f64,
) -> Option<Panel> {
    let of_links = spec.column == column::QUEUE_BYTES;
    let sources: Vec<(usize, &Series)> = if of_links {
        queues.to_vec()
    } else {
        lines.iter().enumerate().map(|(i, l)| (i, l.series.as_ref())).collect()
    };
    let drawn = |s: &Series, values: &[f64]| match spec.column {
        column::GOODPUT_BPS => grid.fit(&s.t_s, &smoothed(&s.t_s, values, window)),
        _ => grid.fit(&s.t_s, values),
    };
    let sources: Vec<(usize, Vec<f64>)> =
        sources.into_iter().filter_map(|(i, s)| Some((i, drawn(s, s.get(spec.column)?)))).collect();
    let finite = sources.iter().flat_map(|s| &s.1).copied().filter(|v| v.is_finite());
    let wanted = spec.marks.iter().filter(|m| m.2).filter_map(|m| m.0);
    let highest = finite.chain(wanted).fold(f64::NEG_INFINITY, f64::max);
    if highest == f64::NEG_INFINITY {
        return None;
    }
    let (unit, size) = match spec.kind {
        Kind::Rate => rate_unit(highest),
        Kind::Size => size_unit(highest),
        Kind::Millis => ("ms", 1.0),
        Kind::Count => ("packets", 1.0),
    };
    let digits = if spec.kind == Kind::Count { 9 } else { 4 };
    let curve = |(line, values): &(usize, Vec<f64>)| {
        let known = values.iter().any(|v| v.is_finite());
        let v = numbers(values.iter().map(|v| v / size), digits);
        known.then_some(Curve { line: *line, whole_run: of_links, v })
    };
    let marks = spec.marks.iter();
    Some(Panel {
        id: spec.id,
        title: spec.title,
        unit,
        curves: sources.iter().filter_map(curve).collect(),
        marks: marks
            .filter_map(|&(y, label, always)| y.map(|y| Mark { y: y / size, label, always }))
            .collect(),
    })
}

fn states(lines: &[Line]) -> Vec<States> {
    let mut all = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        // A QUIC stack's own controller reports none.
        let reported = |flow: &&FlowRecording| flow.states.iter().any(|change| !change.state.is_empty());
        let Some(flow) = line.flow.filter(reported) else { continue };
        let mut changes: Vec<(f64, &str)> = Vec::new();
        for change in &flow.states {
            if changes.last().is_none_or(|(_, state)| *state != change.state) {
                changes.push((change.at_s, &change.state));
            }
        }
        changes.truncate(MAX_STATES);
        all.push(States {
            line: index,
            at: changes.iter().map(|c| (c.0 * 1e6).round() / 1e6).collect(),
            name: changes.iter().map(|c| c.1.to_owned()).collect(),
        });
    }
    all
}

/// A JSON array of numbers with `digits` significant digits; values that are not finite are null.
fn numbers(values: impl Iterator<Item = f64>, digits: i32) -> Box<RawValue> {
    let mut out = String::from("[");
    for (i, v) in values.enumerate() {
        if i > 0 {
            out.push(',');
        }
        if v.is_finite() {
            let text = significant(v, digits);
            let short =
                if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
            out += if short.is_empty() || short == "-0" { "0" } else { short };
        } else {
            out += "null";
        }
    }
    out.push(']');
    RawValue::from_string(out).expect("an array of numbers and nulls is JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support;
    use serde_json::Value;

    fn parsed(results: &Results) -> Value {
        serde_json::from_str(&json(results)).unwrap()
    }

    #[test]
    fn every_curve_has_a_value_or_null_at_every_time() {
        for results in [support::race(30.0), support::together(5.0)] {
            let page = parsed(&results);
            let rows = page["t"].as_array().unwrap().len();
            assert!(rows > 100);
            let ids: Vec<&str> =
                page["panels"].as_array().unwrap().iter().map(|p| p["id"].as_str().unwrap()).collect();
            for id in ["goodput", "rtt", "inflight", "cwnd", "pacing", "bw", "queue"] {
                assert!(ids.contains(&id), "{id}");
            }
            for panel in page["panels"].as_array().unwrap() {
                for curve in panel["curves"].as_array().unwrap() {
                    assert_eq!(curve["v"].as_array().unwrap().len(), rows);
                }
            }
        }
    }

    #[test]
    fn states_of_a_log_are_those_of_its_unnamed_controller() {
        let mut results = support::race(1.0);
        results.runs.truncate(1);
        for (source, title) in [(Source::Trace, "Limited by"), (Source::Log, "Controller states")] {
            let run = &mut results.runs[0];
            run.source = source;
            run.cc.clear();
            run.flows.iter_mut().for_each(|flow| flow.cc.clear());
            assert_eq!(parsed(&results)["states_title"], title);
        }
    }

    #[test]
    fn a_hundred_long_runs_stay_within_three_megabytes() {
        let mut results = support::race(30.0);
        let run = results.runs[0].clone();
        results.runs.resize(100, run);
        let size = json(&results).len();
        assert!(size < 2_900_000, "{size}");
    }

    #[test]
    fn no_text_can_end_the_script() {
        let mut race = support::race(1.0);
        race.runs[0].label = "</script><!--\u{2028}".to_owned();
        let text = json(&race);
        assert!(!text.contains('<') && !text.contains('\u{2028}'));
        let page: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(page["lines"][0]["label"], "</script><!--\u{2028}");
    }

    #[test]
    fn results_without_series_are_valid_data() {
        let page = parsed(&support::race(1.0).without_series());
        assert_eq!(page["panels"], Value::Array(vec![]));
        parsed(&Results::new(vec![]));
    }
}
