//! qlog (draft-ietf-quic-qlog-main-schema) with the recovery events of draft-ietf-quic-qlog-quic-events as existing viewers read
//! them (version 0.3). `.qlog` is one JSON text with a trace for each flow of each run; `.sqlog` is a JSON text sequence
//! (RFC 7464), which has one trace: of several flows it is in the order of time, and each is a `group_id`.

use crate::About;
use fullpipe_experiment::recording::{EventKind, FlowRecording, Recording, Results, column};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// qlog's names of the metrics (the last is an extension: qlog has none) and the columns they come
/// from; units agree (milliseconds, bytes, bits per second).
const METRICS: [(&str, &str); 8] = [
    ("min_rtt", column::MIN_RTT_MS),
    ("smoothed_rtt", column::SRTT_MS),
    ("latest_rtt", column::RTT_MS),
    ("congestion_window", column::CWND_BYTES),
    ("bytes_in_flight", column::INFLIGHT_BYTES),
    ("ssthresh", column::SSTHRESH_BYTES),
    ("pacing_rate", column::PACING_BPS),
    ("bandwidth_estimate", column::BW_BPS),
];

/// One JSON text, a trace a flow. Events are written as they come: losses can be many millions.
pub(crate) fn write(results: &Results, about: &About, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{{\"qlog_version\":\"0.3\",\"qlog_format\":\"JSON\",\"title\":{}", json!(about.title))?;
    write!(out, ",\"description\":{},\"traces\":[", json!(about.command))?;
    for (i, (title, run, flow)) in flows(results).enumerate() {
        let separator = if i == 0 { "\n" } else { ",\n" };
        let trace = trace(&title, &run.provenance.version);
        let open = trace.to_string();
        // The object of the trace's facts is left open for its events.
        let open = open.strip_suffix('}').unwrap_or(&open);
        write!(out, "{separator}{open},\"events\":[")?;
        for (n, (at_s, name, data)) in events(flow).into_iter().enumerate() {
            let event = json!({ "time": millis(at_s), "name": name, "data": data.value() });
            write!(out, "{}{event}", if n == 0 { "\n" } else { ",\n" })?;
        }
        write!(out, "]}}")?;
    }
    writeln!(out, "]}}")
}

/// A JSON text sequence: one trace of all flows, in the order of time.
pub(crate) fn write_sequence(results: &Results, about: &About, out: &mut dyn Write) -> io::Result<()> {
    let version = results.runs.first().map_or("", |r| r.provenance.version.as_str());
    record(
        out,
        &json!({
            "qlog_version": "0.3",
            "qlog_format": "JSON-SEQ",
            "title": about.title,
            "description": about.command,
            "trace": trace(&about.title, version),
        }),
    )?;
    let mut groups = Vec::new();
    let mut all: Vec<(f64, usize, &'static str, Data)> = Vec::new();
    for (title, _, flow) in flows(results) {
        let group = groups.len();
        groups.push(title);
        all.extend(events(flow).into_iter().map(|(at_s, name, data)| (at_s, group, name, data)));
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (at_s, group, name, data) in all {
        let group = &groups[group];
        record(out, &json!({ "time": millis(at_s), "group_id": group, "name": name, "data": data.value() }))?;
    }
    Ok(())
}

/// Every flow with a name of its own and its run.
fn flows(results: &Results) -> impl Iterator<Item = (String, &Recording, &FlowRecording)> {
    results.runs.iter().enumerate().flat_map(|(i, run)| {
        run.flows.iter().map(move |flow| {
            let seed = if run.source.has_seed() { format!(", seed {}", run.seed) } else { String::new() };
            (format!("{}: {} / {} ({}{seed})", i + 1, run.label, flow.label, run.source.name()), run, flow)
        })
    })
}

/// What a trace says before its events.
fn trace(title: &str, version: &str) -> Value {
    json!({
        "title": title,
        "common_fields": { "time_format": "relative", "reference_time": 0, "protocol_type": ["TCP"] },
        "vantage_point": { "name": format!("fullpipe {version}"), "type": "client" },
    })
}

/// Nanoseconds are all an engine resolves; more digits would be noise.
fn millis(seconds: f64) -> f64 {
    (seconds * 1e9).round() / 1e6
}

/// One record of a JSON text sequence: RS, JSON, LF (RFC 7464 §2.2).
fn record(out: &mut dyn Write, value: &Value) -> io::Result<()> {
    out.write_all(b"\x1e")?;
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

/// What belongs to an event. Losses can be many millions, so they stay numbers until written.
enum Data {
    Any(Value),
    /// Packets lost so far.
    Lost(u64),
}

impl Data {
    fn value(self) -> Value {
        match self {
            Data::Any(value) => value,
            Data::Lost(so_far) => json!({ "lost_packets": so_far }),
        }
    }
}

type Events = Vec<(f64, &'static str, Data)>;

/// The flow's events in order of time.
fn events(flow: &FlowRecording) -> Events {
    let start = Data::Any(json!({ "congestion_control": flow.cc }));
    let mut events = vec![(flow.start_s, "recovery:parameters_set", start)];
    metrics(flow, &mut events);
    losses(flow, &mut events);
    let mut old: Option<&str> = None;
    for change in &flow.states {
        let mut data = json!({ "new": change.state });
        if let Some(old) = old {
            data["old"] = old.into();
        }
        events.push((change.at_s, "recovery:congestion_state_updated", Data::Any(data)));
        old = Some(&change.state);
    }
    for event in &flow.events {
        let (name, data) = match event.kind {
            EventKind::RetransmissionTimeout => (
                "recovery:loss_timer_updated",
                json!({ "timer_type": "pto", "event_type": "expired", "delta": event.value.map(|s| s * 1e3) }),
            ),
            kind => ("fullpipe:happening", json!({ "kind": kind, "value": event.value })),
        };
        events.push((event.at_s, name, Data::Any(data)));
    }
    events.sort_by(|a, b| a.0.total_cmp(&b.0));
    events
}

/// Metrics that changed since the row before, as the draft asks.
fn metrics(flow: &FlowRecording, events: &mut Events) {
    let columns: Vec<(&str, &[f64])> =
        METRICS.iter().filter_map(|&(name, column)| Some((name, flow.series.get(column)?))).collect();
    let mut last = vec![f64::NAN; columns.len()];
    for (row, &t) in flow.series.t_s.iter().enumerate() {
        let mut data = Map::new();
        for (&(name, values), last) in columns.iter().zip(&mut last) {
            match values.get(row) {
                Some(&v) if v.is_finite() && v != *last => {
                    data.insert(name.to_owned(), number(v));
                    *last = v;
                }
                _ => {}
            }
        }
        if !data.is_empty() {
            events.push((t, "recovery:metrics_updated", Data::Any(data.into())));
        }
    }
}

/// One `packet_lost` a packet that the sender marked lost, at the end of the interval in which it did.
fn losses(flow: &FlowRecording, events: &mut Events) {
    let Some(lost) = flow.series.get(column::LOST_PACKETS) else { return };
    let mut seen = 0.0;
    for (&t, &total) in flow.series.t_s.iter().zip(lost) {
        while total >= seen + 1.0 {
            seen += 1.0;
            events.push((t, "recovery:packet_lost", Data::Lost(seen as u64)));
        }
    }
}

/// Whole numbers without a fraction: qlog's byte counts and rates are integers.
fn number(v: f64) -> Value {
    if v.fract() == 0.0 && v.abs() < 9e15 { (v as i64).into() } else { v.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support;

    fn records(bytes: &[u8]) -> Vec<Value> {
        let text = std::str::from_utf8(bytes).unwrap();
        text.split('\x1e')
            .skip(1)
            .map(|record| {
                assert!(record.ends_with('\n'));
                serde_json::from_str(record).unwrap()
            })
            .collect()
    }

    /// What must be in the events of a race, whatever holds them.
    fn assert_whole(events: &[&Value], race: &Results) {
        let count = |name: &str| events.iter().filter(|r| r["name"] == name).count();
        assert_eq!(count("recovery:parameters_set"), race.runs.len());
        let states: usize = race.runs.iter().map(|r| r.flows[0].states.len()).sum();
        assert_eq!(count("recovery:congestion_state_updated"), states);
        let lost = race.runs.iter().map(|r| {
            let lost = r.flows[0].series.get(column::LOST_PACKETS).unwrap();
            *lost.last().unwrap()
        });
        assert_eq!(count("recovery:packet_lost") as f64, lost.sum::<f64>());
        assert!(count("recovery:metrics_updated") > 100);
    }

    fn runs_forward<'a>(events: impl IntoIterator<Item = &'a Value>) {
        let times: Vec<f64> = events.into_iter().map(|e| e["time"].as_f64().unwrap()).collect();
        assert!(times.is_sorted(), "time jumps back");
    }

    #[test]
    fn each_flow_is_a_trace_of_its_own_that_runs_forward_in_time() {
        let race = support::race(3.0);
        let mut out = Vec::new();
        write(&race, &About { title: "a \"race\"".into(), ..About::default() }, &mut out).unwrap();
        let file: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!((&file["qlog_format"], &file["title"]), (&json!("JSON"), &json!("a \"race\"")));
        let traces = file["traces"].as_array().unwrap();
        assert_eq!(traces.len(), race.runs.len());
        for trace in traces {
            assert_eq!(trace["vantage_point"]["type"], "client");
            assert_eq!(trace["common_fields"]["time_format"], "relative");
            runs_forward(trace["events"].as_array().unwrap());
        }
        let events: Vec<&Value> = traces.iter().flat_map(|t| t["events"].as_array().unwrap()).collect();
        assert_whole(&events, &race);
    }

    #[test]
    fn a_sequence_is_one_trace_in_the_order_of_time() {
        let race = support::race(3.0);
        let mut out = Vec::new();
        write_sequence(&race, &About::default(), &mut out).unwrap();
        let records = records(&out);
        assert_eq!(records[0]["qlog_format"], "JSON-SEQ");
        runs_forward(&records[1..]);
        assert_whole(&records[1..].iter().collect::<Vec<_>>(), &race);
    }

    #[test]
    fn a_metric_is_written_only_when_it_changed() {
        let mut flow = support::race(1.0).runs[0].flows[0].clone();
        for column in &mut flow.series.columns {
            column.values.fill(7.0);
        }
        let mut events = Vec::new();
        metrics(&flow, &mut events);
        assert_eq!(events.len(), 1);
    }
}
