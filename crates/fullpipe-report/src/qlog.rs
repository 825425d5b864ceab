//! qlog in its sequential form (draft-ietf-quic-qlog-main-schema, JSON text sequences of RFC 7464),
//! with the recovery events of draft-ietf-quic-qlog-quic-events as existing viewers read them
//! (version 0.3). One trace; each flow of each run is a `group_id`.

use crate::About;
use fullpipe_experiment::recording::{EventKind, FlowRecording, Results, column};
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

pub(crate) fn write(results: &Results, about: &About, out: &mut dyn Write) -> io::Result<()> {
    let version = results.runs.first().map_or("", |r| r.provenance.version.as_str());
    record(
        out,
        &json!({
            "qlog_version": "0.3",
            "qlog_format": "JSON-SEQ",
            "title": about.title,
            "description": about.command,
            "trace": {
                "title": about.title,
                "common_fields": { "time_format": "relative", "reference_time": 0, "protocol_type": ["TCP"] },
                "vantage_point": { "name": format!("fullpipe {version}"), "type": "client" },
            },
        }),
    )?;
    for (i, run) in results.runs.iter().enumerate() {
        for flow in &run.flows {
            let seed = if run.source.has_seed() { format!(", seed {}", run.seed) } else { String::new() };
            let group = format!("{}: {} / {} ({}{seed})", i + 1, run.label, flow.label, run.source.name());
            for (at_s, name, data) in events(flow) {
                // Nanoseconds are all an engine resolves; more digits would be noise.
                let at_ms = (at_s * 1e9).round() / 1e6;
                let data = match data {
                    Data::Any(value) => value,
                    Data::Lost(so_far) => json!({ "lost_packets": so_far }),
                };
                record(out, &json!({ "time": at_ms, "group_id": group, "name": name, "data": data }))?;
            }
        }
    }
    Ok(())
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

    #[test]
    fn every_record_is_json_and_each_flow_runs_forward_in_time() {
        let race = support::race(3.0);
        let mut out = Vec::new();
        write(&race, &About::default(), &mut out).unwrap();
        let records = records(&out);
        assert_eq!(records[0]["qlog_format"], "JSON-SEQ");
        let mut last = (String::new(), 0.0);
        for event in &records[1..] {
            let group = event["group_id"].as_str().unwrap().to_owned();
            let time = event["time"].as_f64().unwrap();
            assert!(group != last.0 || time >= last.1);
            last = (group, time);
        }
        let count = |name: &str| records.iter().filter(|r| r["name"] == name).count();
        assert_eq!(count("recovery:parameters_set"), race.runs.len());
        let states: usize = race.runs.iter().map(|r| r.flows[0].states.len()).sum();
        assert_eq!(count("recovery:congestion_state_updated"), states);
        let lost: f64 = race
            .runs
            .iter()
            .map(|r| *r.flows[0].series.get(column::LOST_PACKETS).unwrap().last().unwrap())
            .sum();
        assert_eq!(count("recovery:packet_lost") as f64, lost);
        assert!(count("recovery:metrics_updated") > 100);
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
