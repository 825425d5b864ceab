//! qlog 0.3, the version that existing viewers read: draft-ietf-quic-qlog-main-schema-03 to -05
//! with the recovery events of draft-ietf-quic-qlog-quic-events-02 to -05. Events that qlog does
//! not define are named `fullpipe:…`. `.qlog` is one JSON text with a trace for each flow of each
//! run. `.sqlog` is a JSON text sequence (RFC 7464) with one trace; several flows are merged by
//! time, each with its `group_id`.

use crate::About;
use fullpipe_experiment::recording::{EventKind, FlowRecording, Recording, Results, column};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// The type of a metric's numbers in qlog.
#[derive(Clone, Copy)]
enum NumberType {
    /// `float32`: milliseconds.
    Float,
    /// `uint64`: bytes, bits per second.
    Integer,
}

/// Metric names in qlog (the last is an extension), the columns that they come from, and the type
/// of their numbers. The units agree: milliseconds, bytes, bits per second.
const METRICS: [(&str, &str, NumberType); 8] = [
    ("min_rtt", column::MIN_RTT_MS, NumberType::Float),
    ("smoothed_rtt", column::SRTT_MS, NumberType::Float),
    ("latest_rtt", column::RTT_MS, NumberType::Float),
    ("congestion_window", column::CWND_BYTES, NumberType::Integer),
    ("bytes_in_flight", column::INFLIGHT_BYTES, NumberType::Integer),
    ("ssthresh", column::SSTHRESH_BYTES, NumberType::Integer),
    ("pacing_rate", column::PACING_BPS, NumberType::Integer),
    ("bandwidth_estimate", column::BW_BPS, NumberType::Integer),
];

/// Writes one JSON text with one trace per flow. Events are streamed: there can be millions of
/// losses.
pub(crate) fn write(results: &Results, about: &About, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{{\"qlog_version\":\"0.3\",\"qlog_format\":\"JSON\",\"title\":{}", json!(about.title))?;
    write!(out, ",\"description\":{},\"traces\":[", json!(about.command))?;
    let mut budget = MAX_LOSS_EVENTS;
    for (i, (title, run, flow)) in flows(results).enumerate() {
        let separator = if i == 0 { "\n" } else { ",\n" };
        let trace = trace(&title, &run.provenance.version);
        let open = trace.to_string();
        // Leave the object open for the events.
        let open = open.strip_suffix('}').unwrap_or(&open);
        write!(out, "{separator}{open},\"events\":[")?;
        let mut separator = "\n";
        for (at_s, name, data) in events(flow, &mut budget) {
            for data in data.values() {
                let event = json!({ "time": millis(at_s), "name": name, "data": data });
                write!(out, "{separator}{event}")?;
                separator = ",\n";
            }
        }
        write!(out, "]}}")?;
    }
    writeln!(out, "]}}")
}

/// Writes a JSON text sequence: one trace with the events of all flows by time.
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
    let mut budget = MAX_LOSS_EVENTS;
    let mut all: Vec<(f64, usize, &'static str, Data)> = Vec::new();
    for (title, _, flow) in flows(results) {
        let group = groups.len();
        groups.push(title);
        all.extend(events(flow, &mut budget).into_iter().map(|(at_s, name, data)| (at_s, group, name, data)));
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (at_s, group, name, data) in all {
        let group = &groups[group];
        for data in data.values() {
            record(out, &json!({ "time": millis(at_s), "group_id": group, "name": name, "data": data }))?;
        }
    }
    Ok(())
}

/// Every flow with a unique name and its run.
fn flows(results: &Results) -> impl Iterator<Item = (String, &Recording, &FlowRecording)> {
    results.runs.iter().enumerate().flat_map(|(i, run)| {
        run.flows.iter().map(move |flow| {
            let seed = if run.source.has_seed() { format!(", seed {}", run.seed) } else { String::new() };
            (format!("{}: {} / {} ({}{seed})", i + 1, run.label, flow.label, run.source.name()), run, flow)
        })
    })
}

/// The fields of a trace before its events.
fn trace(title: &str, version: &str) -> Value {
    json!({
        "title": title,
        "common_fields": { "time_format": "relative", "reference_time": 0, "protocol_type": ["TCP"] },
        "vantage_point": { "name": format!("fullpipe {version}"), "type": "client" },
    })
}

/// Engines resolve nanoseconds; more digits would be noise.
fn millis(seconds: f64) -> f64 {
    (seconds * 1e9).round() / 1e6
}

/// One record of a JSON text sequence: RS, JSON, LF (RFC 7464 §2.2).
fn record(out: &mut dyn Write, value: &Value) -> io::Result<()> {
    out.write_all(b"\x1e")?;
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

/// Data of one event, or of many at the same time.
enum Data {
    Any(Value),
    /// One event for each lost packet: the counts of lost packets before and after. They are
    /// expanded only while they are written, as there can be millions.
    Lost {
        before: u64,
        after: u64,
    },
    /// One event for all: the count of lost packets.
    LostTotal(u64),
}

impl Data {
    /// The number of events.
    #[cfg(test)]
    fn count(&self) -> u64 {
        match self {
            Data::Lost { before, after } => after - before,
            _ => 1,
        }
    }

    /// The data of each event.
    fn values(self) -> impl Iterator<Item = Value> {
        let lost_packets = |count: u64| json!({ "lost_packets": count });
        let (any, lost) = match self {
            Data::Any(value) => (Some(value), 0..0),
            Data::LostTotal(count) => (Some(lost_packets(count)), 0..0),
            Data::Lost { before, after } => (None, before..after),
        };
        any.into_iter().chain(lost.map(move |count| lost_packets(count + 1)))
    }
}

type Events = Vec<(f64, &'static str, Data)>;

/// The flow's events in order of time. `budget`: losses that may be written one by one.
fn events(flow: &FlowRecording, budget: &mut u64) -> Events {
    let start = Data::Any(json!({ "congestion_control": flow.cc }));
    // Not `recovery:parameters_set`: that requires a timer granularity, which a recording does not
    // have.
    let mut events = vec![(flow.start_s, "fullpipe:flow_started", start)];
    metrics(flow, &mut events);
    losses(flow, budget, &mut events);
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
                // `delta` applies to timers that were set, not to expired ones.
                json!({
                    "timer_type": "pto",
                    "event_type": "expired",
                    "timeout_ms": event.value.map(|s| s * 1e3),
                }),
            ),
            kind => ("fullpipe:event", json!({ "kind": kind, "value": event.value })),
        };
        events.push((event.at_s, name, Data::Any(data)));
    }
    events.sort_by(|a, b| a.0.total_cmp(&b.0));
    events
}

/// Adds the metrics that changed since the previous row, as the draft requires.
fn metrics(flow: &FlowRecording, events: &mut Events) {
    let columns: Vec<(&str, NumberType, &[f64])> = METRICS
        .iter()
        .filter_map(|&(name, column, form)| Some((name, form, flow.series.get(column)?)))
        .collect();
    let mut last = vec![f64::NAN; columns.len()];
    for (row, &t) in flow.series.t_s.iter().enumerate() {
        let mut data = Map::new();
        for (&(name, form, values), last) in columns.iter().zip(&mut last) {
            let Some(value) = values.get(row).filter(|v| v.is_finite()) else { continue };
            let value = match form {
                NumberType::Float => *value,
                // Resampled values may be fractions.
                NumberType::Integer => value.round().max(0.0),
            };
            if value != *last {
                data.insert(name.to_owned(), number(value));
                *last = value;
            }
        }
        if !data.is_empty() {
            events.push((t, "recovery:metrics_updated", Data::Any(data.into())));
        }
    }
}

/// Maximum number of losses in a file that are written one by one.
const MAX_LOSS_EVENTS: u64 = 10_000_000;

/// Adds one `packet_lost` for each packet that the sender marked lost, at the end of the sampling
/// interval. Flows with more losses than the remaining `budget` get one per sampling interval.
fn losses(flow: &FlowRecording, budget: &mut u64, events: &mut Events) {
    let Some(lost) = flow.series.get(column::LOST_PACKETS) else { return };
    // Not a number gives 0.
    let most = lost.iter().map(|total| *total as u64).max().unwrap_or(0);
    let is_single = most <= *budget;
    if is_single {
        *budget -= most;
    }
    let mut before = 0;
    for (&t, &total) in flow.series.t_s.iter().zip(lost) {
        let after = total as u64;
        if after > before {
            let data = if is_single { Data::Lost { before, after } } else { Data::LostTotal(after) };
            events.push((t, "recovery:packet_lost", data));
            before = after;
        }
    }
}

/// A number without a fraction as an integer: byte counts and rates are integers in qlog.
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

    /// Checks that the events of a race are complete, in either format.
    fn assert_complete(events: &[&Value], race: &Results) {
        let count = |name: &str| events.iter().filter(|r| r["name"] == name).count();
        assert_eq!(count("fullpipe:flow_started"), race.runs.len());
        let states: usize = race.runs.iter().map(|r| r.flows[0].states.len()).sum();
        assert_eq!(count("recovery:congestion_state_updated"), states);
        let lost = race.runs.iter().map(|r| {
            let lost = r.flows[0].series.get(column::LOST_PACKETS).unwrap();
            *lost.last().unwrap()
        });
        assert_eq!(count("recovery:packet_lost") as f64, lost.sum::<f64>());
        assert!(count("recovery:metrics_updated") > 100);
    }

    /// The structures of qlog 0.3 as its drafts define them in CDDL; other fields or types are
    /// refused.
    #[expect(dead_code, reason = "the test is that the field can be read")]
    mod draft {
        use serde::Deserialize;
        use serde_json::{Map, Value};

        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct File {
            pub qlog_version: String,
            pub qlog_format: String,
            pub title: Option<String>,
            pub description: Option<String>,
            /// In a JSON text.
            pub traces: Option<Vec<Trace>>,
            /// In a JSON text sequence.
            pub trace: Option<Trace>,
        }

        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Trace {
            pub title: Option<String>,
            pub common_fields: CommonFields,
            pub vantage_point: VantagePoint,
            pub events: Option<Vec<Event>>,
        }

        #[derive(Deserialize)]
        pub struct CommonFields {
            pub time_format: TimeFormat,
            pub reference_time: f64,
            pub protocol_type: Vec<String>,
        }

        #[derive(Deserialize, PartialEq, Debug)]
        #[serde(rename_all = "lowercase")]
        pub enum TimeFormat {
            Absolute,
            Delta,
            Relative,
        }

        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct VantagePoint {
            pub name: String,
            pub r#type: VantagePointType,
        }

        #[derive(Deserialize, PartialEq, Debug)]
        #[serde(rename_all = "lowercase")]
        pub enum VantagePointType {
            Client,
            Server,
            Network,
            Unknown,
        }

        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Event {
            pub time: f64,
            pub name: String,
            pub data: Map<String, Value>,
            pub group_id: Option<String>,
        }

        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct MetricsUpdated {
            pub min_rtt: Option<f32>,
            pub smoothed_rtt: Option<f32>,
            pub latest_rtt: Option<f32>,
            pub congestion_window: Option<u64>,
            pub bytes_in_flight: Option<u64>,
            pub ssthresh: Option<u64>,
            pub pacing_rate: Option<u64>,
            /// The only extension.
            pub bandwidth_estimate: Option<u64>,
        }

        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct CongestionStateUpdated {
            pub old: Option<String>,
            pub new: String,
        }

        #[derive(Deserialize)]
        pub struct LossTimerUpdated {
            pub timer_type: String,
            pub event_type: String,
            /// Only for timers that were set.
            pub delta: Option<f32>,
        }

        impl Event {
            pub fn check(&self) {
                let data = || Value::Object(self.data.clone());
                let wrong =
                    |e: serde_json::Error| panic!("{} at {} ms: {e}: {}", self.name, self.time, data());
                match self.name.as_str() {
                    "recovery:metrics_updated" => {
                        assert!(!self.data.is_empty(), "at least one metric");
                        serde_json::from_value::<MetricsUpdated>(data()).map(drop).unwrap_or_else(wrong);
                    }
                    "recovery:congestion_state_updated" => {
                        serde_json::from_value::<CongestionStateUpdated>(data())
                            .map(drop)
                            .unwrap_or_else(wrong);
                    }
                    "recovery:loss_timer_updated" => {
                        let timer: LossTimerUpdated = serde_json::from_value(data()).unwrap();
                        assert!(["ack", "pto"].contains(&&*timer.timer_type), "{}", timer.timer_type);
                        assert_eq!((&*timer.event_type, timer.delta), ("expired", None));
                    }
                    // All fields of the draft are optional, and others may be added.
                    "recovery:packet_lost" => {}
                    name => assert!(
                        name.starts_with("fullpipe:"),
                        "{name} is neither a qlog event nor an extension"
                    ),
                }
            }
        }

        impl Trace {
            pub fn check(&self) {
                assert_eq!(self.common_fields.time_format, TimeFormat::Relative);
                assert_eq!(self.common_fields.protocol_type, ["TCP"]);
                assert_eq!(self.vantage_point.r#type, VantagePointType::Client);
                assert!(self.vantage_point.name.starts_with("fullpipe "));
                self.events.iter().flatten().for_each(Event::check);
            }
        }
    }

    /// A race with every kind of event: fractional values, timeouts and others.
    fn eventful() -> Results {
        let mut race = support::race(3.0);
        let flow = &mut race.runs[0].flows[0];
        for column in &mut flow.series.columns {
            column.values.iter_mut().for_each(|v| *v += 0.25);
        }
        let event = |at_s, kind, value| fullpipe_experiment::recording::Event { at_s, kind, value };
        flow.events.push(event(1.0, EventKind::RetransmissionTimeout, Some(0.2)));
        flow.events.push(event(2.0, EventKind::SpuriousLoss, None));
        race
    }

    #[test]
    fn both_formats_conform_to_the_drafts() {
        let race = eventful();
        let mut out = Vec::new();
        write(&race, &About::default(), &mut out).unwrap();
        let file: draft::File = serde_json::from_slice(&out).unwrap();
        assert_eq!((&*file.qlog_version, &*file.qlog_format), ("0.3", "JSON"));
        assert!(file.trace.is_none());
        let traces = file.traces.unwrap();
        traces.iter().for_each(draft::Trace::check);
        let named =
            |name| traces.iter().flat_map(|t| t.events.iter().flatten()).filter(|e| e.name == name).count();
        for name in ["recovery:metrics_updated", "recovery:loss_timer_updated", "fullpipe:flow_started"] {
            assert!(named(name) > 0, "no {name} in any trace");
        }

        let mut out = Vec::new();
        write_sequence(&race, &About::default(), &mut out).unwrap();
        let mut records = records(&out).into_iter();
        let file: draft::File = serde_json::from_value(records.next().unwrap()).unwrap();
        assert_eq!((&*file.qlog_version, &*file.qlog_format), ("0.3", "JSON-SEQ"));
        assert!(file.traces.is_none());
        file.trace.unwrap().check();
        for record in records {
            let event: draft::Event = serde_json::from_value(record).unwrap();
            event.check();
            assert!(event.group_id.is_some(), "events of several flows need a group_id");
        }
    }

    fn assert_sorted_by_time<'a>(events: impl IntoIterator<Item = &'a Value>) {
        let times: Vec<f64> = events.into_iter().map(|e| e["time"].as_f64().unwrap()).collect();
        assert!(times.is_sorted(), "time jumps back");
    }

    #[test]
    fn each_flow_is_a_trace_sorted_by_time() {
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
            assert_sorted_by_time(trace["events"].as_array().unwrap());
        }
        let events: Vec<&Value> = traces.iter().flat_map(|t| t["events"].as_array().unwrap()).collect();
        assert_complete(&events, &race);
    }

    #[test]
    fn sequence_is_one_trace_sorted_by_time() {
        let race = support::race(3.0);
        let mut out = Vec::new();
        write_sequence(&race, &About::default(), &mut out).unwrap();
        let records = records(&out);
        assert_eq!(records[0]["qlog_format"], "JSON-SEQ");
        assert_sorted_by_time(&records[1..]);
        assert_complete(&records[1..].iter().collect::<Vec<_>>(), &race);
    }

    #[test]
    fn losses_are_expanded_only_while_writing() {
        let mut race = support::race(0.2);
        let mut written = |lost: &[f64]| {
            let flow = &mut race.runs[0].flows[0];
            let rows = flow.series.t_s.len();
            let column = flow.series.columns.iter_mut().find(|c| c.name == column::LOST_PACKETS).unwrap();
            column.values = lost.iter().copied().chain(std::iter::repeat(f64::NAN)).take(rows).collect();
            let mut events = Vec::new();
            let mut budget = MAX_LOSS_EVENTS;
            losses(flow, &mut budget, &mut events);
            assert!(events.len() <= lost.len());
            let values = events.into_iter().flat_map(|(_, _, data)| data.values());
            values.map(|data| data["lost_packets"].as_u64().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(written(&[0.0, 2.0, 2.0, 5.0]), [1, 2, 3, 4, 5]);
        // A recording of another program can contain any number.
        assert_eq!(written(&[3.0, 1e12, f64::INFINITY]), [3, 1_000_000_000_000, u64::MAX]);
        assert_eq!(written(&[f64::NAN, -1.0]), [0_u64; 0]);
    }

    #[test]
    fn losses_of_all_flows_of_a_file_are_bounded() {
        let mut race = support::race(0.2);
        let mut flow = race.runs[0].flows[0].clone();
        let rows = flow.series.t_s.len();
        let lost = flow.series.columns.iter_mut().find(|c| c.name == column::LOST_PACKETS).unwrap();
        lost.values = (1..=rows).map(|n| (n as u64 * MAX_LOSS_EVENTS / rows as u64) as f64).collect();
        let mut few = flow.clone();
        let lost = few.series.columns.iter_mut().find(|c| c.name == column::LOST_PACKETS).unwrap();
        lost.values = vec![1.0; rows];
        race.runs[0].flows = vec![few, flow.clone(), flow];
        let mut budget = MAX_LOSS_EVENTS;
        let lost = |flow: &FlowRecording, budget: &mut u64| {
            let events =
                events(flow, budget).into_iter().filter(|(_, name, _)| *name == "recovery:packet_lost");
            events.map(|(_, _, data)| data.count()).sum::<u64>()
        };
        let counts: Vec<u64> = race.runs[0].flows.iter().map(|flow| lost(flow, &mut budget)).collect();
        // One by one, and then one for each sampling interval.
        assert_eq!(counts, [1, rows as u64, rows as u64]);
    }

    #[test]
    fn metric_is_written_only_when_it_changed() {
        let mut flow = support::race(1.0).runs[0].flows[0].clone();
        for column in &mut flow.series.columns {
            column.values.fill(7.0);
        }
        let mut events = Vec::new();
        metrics(&flow, &mut events);
        assert_eq!(events.len(), 1);
    }
}
