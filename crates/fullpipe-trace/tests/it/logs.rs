//! qlog in the forms of all versions and stacks: one connection, written in each.

use flate2::write::GzEncoder;
use fullpipe_experiment::connection::{Judged, Limitation, Place, Point};
use fullpipe_trace::input::{self, Input};
use fullpipe_trace::qlog::{self, Log, Source};
use fullpipe_trace::{TraceError, text};
use fullpipe_units::{Rate, Span};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::io::{Cursor, Write};
use std::sync::LazyLock;

/// Packets of the connection: one each millisecond from 100 ms on.
const PACKETS: u64 = 400;
const BYTES: u64 = 1200;
/// Packets that are declared lost; the second arrives after all.
const LOST: [u64; 2] = [50, 90];

/// The events of the connection: time in milliseconds, kind, data in the form of version 0.3.
fn story() -> Vec<(f64, &'static str, Value)> {
    let header = |number: u64| json!({"packet_type": "1RTT", "packet_number": number});
    let mut events = vec![(0.5, "parameters_set", json!({"congestion_control": "cubic"}))];
    for n in 0..PACKETS {
        let sent = 100.0 + n as f64;
        let stream = json!({"frame_type": "stream", "stream_id": 0, "offset": n * 1000, "length": 1000});
        let data = json!({"header": header(n), "raw": {"length": BYTES}, "frames": [stream]});
        events.push((sent, "packet_sent", data));
        let ranges = match n {
            0..=49 => json!([[0, n]]),
            50 => continue,
            90..=94 => json!([[0, 49], [51, 89]]),
            _ => json!([[0, 49], [51, n]]),
        };
        let ack = json!({"frame_type": "ack", "ack_delay": 0, "acked_ranges": ranges});
        let data = json!({"header": header(n), "raw": {"length": 40}, "frames": [ack]});
        events.push((sent + 40.0, "packet_received", data));
        if n % 10 == 0 {
            let data = json!({
                "latest_rtt": 40.0, "min_rtt": 40.0, "smoothed_rtt": 40.0, "congestion_window": 60_000,
                "bytes_in_flight": 48_000,
            });
            events.push((sent + 40.0, "metrics_updated", data));
        }
    }
    events.push((193.0, "packet_lost", json!({"header": header(LOST[0])})));
    events.push((233.0, "packet_lost", json!({"header": header(LOST[1])})));
    events.push((101.0, "congestion_state_updated", json!({"new": "slow_start"})));
    events.push((195.0, "congestion_state_updated", json!({"old": "slow_start", "new": "recovery"})));
    events.sort_by(|a, b| a.0.total_cmp(&b.0));
    events
}

fn namespace(kind: &str) -> &'static str {
    if kind.starts_with("packet_sent") || kind.starts_with("packet_received") || kind.starts_with("par") {
        "transport"
    } else {
        "recovery"
    }
}

fn events_03() -> Vec<Value> {
    let event = |(time, kind, data): (f64, &str, Value)| {
        let name = format!("{}:{kind}", namespace(kind));
        json!({"time": time, "name": name, "data": data})
    };
    story().into_iter().map(event).collect()
}

fn trace(fields: Value) -> Value {
    let mut trace = json!({
        "title": "a connection",
        "vantage_point": {"name": "test", "type": "server"},
        "common_fields": {"time_format": "relative", "reference_time": 1.7e12},
    });
    trace.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    trace
}

fn document(version: &str, trace: &Value) -> Vec<u8> {
    json!({"qlog_version": version, "qlog_format": "JSON", "traces": [trace]}).to_string().into_bytes()
}

fn json_03() -> Vec<u8> {
    document("0.3", &trace(json!({"events": events_03()})))
}

fn sequence(before: &str, header: Value, events: Vec<Value>) -> Vec<u8> {
    let records = std::iter::once(header).chain(events);
    records.map(|r| format!("{before}{r}\n")).collect::<String>().into_bytes()
}

/// Names and fields of the drafts after 0.4: `quic:`, and the length of a stream frame in `raw`.
fn events_later() -> Vec<Value> {
    let mut events = events_03();
    for event in &mut events {
        let name = event["name"].as_str().unwrap().to_owned();
        let kind = name.rsplit(':').next().unwrap();
        let kind = if kind == "metrics_updated" { "recovery_metrics_updated" } else { kind };
        event["name"] = format!("quic:{kind}").into();
        if kind == "packet_sent" {
            let frame = &mut event["data"]["frames"][0];
            frame["raw"] = json!({"payload_length": frame["length"], "length": 1003});
            frame.as_object_mut().unwrap().remove("length");
        }
    }
    events
}

/// The oldest form: arrays, times in microseconds, numbers as strings, other names.
fn events_arrays(upper: bool) -> Vec<Value> {
    let array = |(time, kind, mut data): (f64, &str, Value)| {
        if let Some(size) = data["raw"].get("length").cloned() {
            data["header"]["packet_size"] = size;
            data["packet_type"] = "1RTT".into();
            data["header"]["packet_number"] = data["header"]["packet_number"].to_string().into();
            data.as_object_mut().unwrap().remove("raw");
        }
        if kind == "metrics_updated" {
            for name in ["latest_rtt", "min_rtt", "smoothed_rtt"] {
                data[name] = (data[name].as_f64().unwrap() * 1e3).into();
            }
            data["cwnd"] = data["congestion_window"].take();
            data.as_object_mut().unwrap().remove("congestion_window");
        }
        let case = |s: &str| if upper { s.to_uppercase() } else { s.to_owned() };
        json!([(time * 1e3).to_string(), case(namespace(kind)), case(kind), data])
    };
    story().into_iter().map(array).collect()
}

fn old_trace(upper: bool) -> Value {
    trace(json!({
        "common_fields": {"reference_time": "1700000000000000"},
        "configuration": {"time_units": "us"},
        "event_fields": ["relative_time", "category", "event", "data"],
        "events": events_arrays(upper),
    }))
}

/// Times since the previous event.
fn events_delta() -> Vec<Value> {
    let mut events = events_03();
    let mut before = 0.0;
    for event in &mut events {
        let time = event["time"].as_f64().unwrap();
        event["time"] = (time - before).into();
        before = time;
    }
    events
}

/// The connection in all forms, by name.
static FORMS: LazyLock<Vec<(&'static str, Vec<u8>)>> = LazyLock::new(forms);

fn form(name: &str) -> &'static [u8] {
    FORMS.iter().find(|(form, _)| *form == name).map_or(&[], |(_, bytes)| bytes)
}

fn forms() -> Vec<(&'static str, Vec<u8>)> {
    let head =
        |format: &str| json!({"qlog_version": "0.3", "qlog_format": format, "trace": trace(json!({}))});
    let later = json!({
        "file_schema": "urn:ietf:params:qlog:file:sequential",
        "serialization_format": "application/qlog+json-seq",
        "trace": trace(json!({
            "common_fields": {
                "time_format": "relative_to_epoch",
                "reference_time": {"clock_type": "monotonic", "epoch": "unknown"},
            },
            "event_schemas": ["urn:ietf:params:qlog:events:quic-12"],
        })),
    });
    let delta =
        |format: &str| trace(json!({"common_fields": {"time_format": format}, "events": events_delta()}));
    let absolute: Vec<Value> = events_03()
        .into_iter()
        .map(|mut e| {
            e["time"] = (e["time"].as_f64().unwrap() + 1.7e12).into();
            e
        })
        .collect();
    let pretty: Value = serde_json::from_slice(&json_03()).unwrap();
    vec![
        ("JSON", json_03()),
        ("pretty JSON", serde_json::to_vec_pretty(&pretty).unwrap()),
        ("JSON-SEQ", sequence("\x1e", head("JSON-SEQ"), events_03())),
        ("NDJSON", sequence("", head("NDJSON"), events_03())),
        ("quic: names", sequence("\x1e", later, events_later())),
        ("arrays", document("draft-00", &old_trace(false))),
        ("arrays in upper case", document("draft-01", &old_trace(true))),
        ("delta", document("0.3", &delta("delta"))),
        ("relative_to_previous_event", document("0.4", &delta("relative_to_previous_event"))),
        (
            "absolute",
            document(
                "0.3",
                &trace(json!({"common_fields": {"time_format": "absolute"}, "events": absolute})),
            ),
        ),
    ]
}

fn open(bytes: &[u8]) -> Source<'_> {
    match input::recognise("test", bytes).unwrap() {
        Input::Log(source) => source,
        Input::Capture(_) => panic!("not recognised as a log"),
    }
}

fn try_read(bytes: &[u8]) -> Result<Log, TraceError> {
    qlog::read("test", open(bytes), Some(&mut || Ok(open(bytes))))
}

fn read(bytes: &[u8]) -> Log {
    try_read(bytes).unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// The figures of the connection, which do not depend on the form.
fn assert_figures(log: &Log, form: &str) {
    assert_eq!((log.connections.len(), &log.facts.damage), (1, &None), "{form}");
    let file = log.facts.log.as_ref().unwrap();
    assert_eq!((file.events, file.malformed, file.out_of_order), (story().len() as u64, 0, 0), "{form}");
    let c = &log.connections[0].record;
    let logged = c.log.as_deref().unwrap();
    assert_eq!((c.vantage.point, &*logged.title), (Point::Server, "a connection"), "{form}");
    assert_eq!(c.duration, Span::from_micros(538_500), "{form}");
    let d = &c.to_client;
    assert_eq!(d.place, Place::Sender, "{form}");
    assert_eq!((d.packets, d.bytes_sent), (PACKETS, PACKETS * BYTES), "{form}");
    assert_eq!(d.bytes, PACKETS * 1000, "{form}");
    assert_eq!(d.active, Span::from_millis(439), "{form}");
    // All but one arrived.
    assert_eq!(d.goodput, Some(Rate::from_bytes_in((PACKETS - 1) * BYTES, d.active)), "{form}");
    assert_eq!(d.rtprop, Some(Span::from_millis(40)), "{form}");
    // A packet of 1200 bytes each millisecond.
    let btlbw = d.btlbw.unwrap().as_bits_per_sec_f64();
    assert!((btlbw / 9.6e6 - 1.0).abs() < 0.03, "{form}: {btlbw}");
    assert_eq!((logged.lost, logged.spurious, d.lost_segments), (2, 1, 1), "{form}");
    assert_eq!(d.sender.as_ref().unwrap().name.as_deref(), Some("cubic"), "{form}");
    let states: Vec<(&str, u64)> = logged.states.iter().map(|s| (&*s.state, s.visits)).collect();
    assert_eq!(states, [("slow_start", 1), ("recovery", 1)], "{form}");
    assert!(d.limits.share(Limitation::Bandwidth) > 0.5, "{form}: {:?}", d.limits);
    assert_eq!(logged.checks.len(), 1, "{form}");
    assert_eq!(logged.checks[0].result, Judged::NotJudged, "{form}");
}

#[test]
fn every_form_gives_the_same_figures() {
    for (form, bytes) in FORMS.iter() {
        assert_figures(&read(bytes), form);
        assert_figures(&read(&gzip(bytes)), &format!("{form}, gzip"));
        let name = ["JSON-SEQ", "NDJSON"].into_iter().find(|name| name == form);
        let serialization = &read(bytes).facts.log.unwrap().serialization;
        assert!(name.is_none_or(|name| name == serialization), "{form}: {serialization}");
    }
    let date = |name: &str| read(form(name)).connections[0].record.start_s;
    for form in ["JSON", "arrays", "absolute"] {
        assert!((date(form) - 1.7e9 - 0.0005).abs() < 1e-6, "{form}: {}", date(form));
    }
    assert_eq!(date("quic: names"), 0.0);
}

/// Objects have no order: some stacks write the events first.
#[test]
fn header_behind_its_events_needs_a_second_pass() {
    let Value::Object(fields) = old_trace(false) else { panic!() };
    let mut text = "{\"qlog_version\":\"draft-00\",\"traces\":[{\"events\":".to_owned();
    text += &fields["events"].to_string();
    for (name, content) in fields.iter().filter(|(name, _)| *name != "events") {
        text += &format!(",{}:{content}", json!(name));
    }
    text += "}]}";
    assert_figures(&read(text.as_bytes()), "events first");
    // Standard input cannot be read twice.
    let once = qlog::read("-", open(text.as_bytes()), None).unwrap_err().to_string();
    assert!(once.contains("save it as a file"), "{once}");
}

/// The whole log may be one line, with its only trace in `trace`.
#[test]
fn document_of_one_line_with_one_trace_is_no_sequence() {
    let whole = json!({"qlog_version": "0.3", "trace": trace(json!({"events": events_03()}))}).to_string();
    for end in ["", "\n"] {
        let log = read(format!("{whole}{end}").as_bytes());
        assert_figures(&log, "one trace");
        assert_eq!(log.facts.log.unwrap().serialization, "JSON");
    }
}

/// An absolute clock need not be the date: this one began 5 s before the log.
#[test]
fn absolute_times_count_from_the_first_event() {
    let mut events = events_03();
    events.iter_mut().for_each(|e| e["time"] = (e["time"].as_f64().unwrap() + 5000.0).into());
    let format = json!({"time_format": "absolute"});
    let before = trace(json!({"common_fields": format, "events": events}));
    let whole = document("0.3", &before);
    let events = before["events"].to_string();
    let behind = format!("{{\"traces\":[{{\"events\":{events},\"common_fields\":{format}}}]}}");
    for bytes in [&whole[..], behind.as_bytes()] {
        let log = read(bytes);
        let flow = &log.connections[0].recording().flows[0];
        assert!((flow.series.t_s[0] - 0.1395).abs() < 1e-6, "{}", flow.series.t_s[0]);
    }
}

#[test]
fn groups_and_traces_are_connections() {
    let mut events = events_03();
    events.iter_mut().enumerate().for_each(|(i, e)| e["group_id"] = format!("group {}", i % 3).into());
    let both = json!([trace(json!({"events": events})), trace(json!({"events": events_03()}))]);
    let log = read(json!({"qlog_version": "0.3", "traces": both}).to_string().as_bytes());
    let titles: Vec<&str> =
        log.connections.iter().map(|c| &*c.record.log.as_deref().unwrap().title).collect();
    assert_eq!(titles, ["group 0", "group 1", "group 2", "a connection"]);
    let numbers: Vec<u32> = log.connections.iter().map(|c| c.record.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
}

#[test]
fn file_that_is_cut_short_gives_what_precedes_the_cut() {
    for (form, bytes) in FORMS.iter() {
        let cut = &bytes[..bytes.len() * 3 / 4];
        let log = read(cut);
        let damage = log.facts.damage.unwrap();
        assert_eq!(damage.reason, "the file is cut short", "{form}");
        assert_eq!(damage.offset, cut.len() as u64, "{form}");
        assert!(log.connections[0].record.to_client.packets > PACKETS / 2, "{form}");
        // A frame of zstd, and one that is cut short.
        let (first, second) = bytes.split_at(bytes.len() * 3 / 4);
        let (first, second) = (zstd(first), zstd(second));
        let zipped = gzip(bytes);
        for packed in
            [zipped[..zipped.len() * 3 / 4].to_vec(), [&first[..], &second[..second.len() / 2]].concat()]
        {
            let damage = read(&packed).facts.damage.unwrap();
            assert!(damage.reason.contains("cannot be read or decompressed"), "{form}: {damage:?}");
        }
    }
}

/// The decompressor resumes behind a damaged block; what it skips is not a shorter log.
#[test]
fn damage_of_the_first_block_of_a_compressed_file_is_reported() {
    let head = json!({"qlog_version": "0.3", "trace": trace(json!({}))});
    let many: Vec<Value> = (0..6).flat_map(|_| events_03()).collect();
    let packed = zstd(&sequence("\x1e", head, many));
    let damages = (50..packed.len()).step_by(packed.len() / 12).map(|at| {
        let mut changed = packed.clone();
        changed[at] ^= 0x55;
        // Neither a log nor a capture is refused, too.
        match input::recognise("test", &changed[..]) {
            Ok(Input::Log(source)) => {
                qlog::read("test", source, None).map_or(true, |log| log.facts.damage.is_some())
            }
            _ => true,
        }
    });
    assert!(damages.clone().count() > 10 && damages.clone().all(|d| d), "{:?}", damages.collect::<Vec<_>>());
}

#[test]
fn damaged_record_of_a_sequence_is_skipped() {
    let text = str::from_utf8(form("JSON-SEQ")).unwrap();
    let damaged = text.replacen("\x1e{", "\x1e{\"time\":\x1e{", 30).replacen("{\"time\":\x1e{", "{", 1);
    let log = read(damaged.as_bytes());
    assert!(log.facts.log.unwrap().malformed >= 20);
    assert_eq!(log.connections[0].record.to_client.packets, PACKETS);
}

#[test]
fn file_without_metrics_says_what_it_has() {
    let events =
        json!([{"time": 1, "name": "http:frame_created"}, {"time": 2, "name": "http:frame_created"}]);
    let refused = try_read(&document("0.3", &trace(json!({ "events": events })))).unwrap_err().to_string();
    assert!(refused.contains("2 `http:frame_created`"), "{refused}");
    assert!(refused.contains("recovery:metrics_updated"), "{refused}");
    for (bytes, words) in [
        (&b"{\"constants\":{},\"events\":[]}"[..], "Chrome's NetLog"),
        (b"{\"a\": [1, 2", "cut short"),
        (b"{\"a\": 1}", "no `traces`"),
        (b"\x1e\x1e", "no events"),
        (b"{\"traces\":[]}", "no events"),
    ] {
        let refused = try_read(bytes).unwrap_err().to_string();
        assert!(refused.contains(words), "{words}: {refused}");
    }
    let deep = format!("{{\"traces\":[{{\"events\":[{}", "[".repeat(1000));
    assert!(try_read(deep.as_bytes()).unwrap_err().to_string().contains("recursion limit"));
}

#[test]
fn wrong_units_are_noted_and_not_guessed() {
    let change = |from: &str, to: &str| String::from_utf8(json_03()).unwrap().replace(from, to);
    let notes = |text: &str| read(text.as_bytes()).connections[0].record.notes.join("; ");
    assert_eq!(notes(&String::from_utf8(json_03()).unwrap()), "");
    let microseconds = notes(&change("\"latest_rtt\":40.0", "\"latest_rtt\":40000.0"));
    assert!(microseconds.contains("1000") && microseconds.contains("another unit"), "{microseconds}");
    // 1200 bytes a millisecond are 9.6 Mbit/s.
    let sound = notes(&change("\"min_rtt\":40.0", "\"min_rtt\":40.0,\"pacing_rate\":9600000"));
    assert_eq!(sound, "");
    let bytes = notes(&change("\"min_rtt\":40.0", "\"min_rtt\":40.0,\"pacing_rate\":1200000"));
    assert!(bytes.contains("times its pacing rate") && bytes.contains("bytes per second"), "{bytes}");
}

#[test]
fn values_that_cannot_be_right_are_counted() {
    let events = json!([
        {"time": 5, "name": "recovery:metrics_updated", "data": {"latest_rtt": -3, "cwnd": 1000}},
        {"time": 1e300, "name": "recovery:metrics_updated", "data": {"cwnd": 1000}},
        {"time": 3, "name": "recovery:metrics_updated", "data": {"cwnd": 2000}},
        {"time": "x", "name": "recovery:metrics_updated", "data": {"cwnd": 2000}},
        17, null, [], {"name": 3},
        {"time": 9, "name": "recovery:packet_lost", "data": "none"},
    ]);
    let log = read(&document("0.3", &trace(json!({ "events": events }))));
    let file = log.facts.log.as_ref().unwrap();
    assert_eq!((file.events, file.malformed, file.out_of_order, file.implausible), (9, 5, 1, 2));
    let heading = text::log_heading(&log.facts, 1, 0);
    for part in ["9 events", "5 malformed", "1 out of order", "2 implausible values left out"] {
        assert!(heading.contains(part), "{part}: {heading}");
    }
    assert_eq!(log.connections[0].record.duration, Span::from_millis(4));
}

/// What the log does not have is neither 0 nor that of the event before.
#[test]
fn unknown_values_are_not_shown_as_zero() {
    let events = json!([
        {"time": 0, "name": "recovery:metrics_updated", "data": {"latest_rtt": 40, "cwnd": 10_000}},
        {"time": 10, "name": "recovery:metrics_updated", "data": {"latest_rtt": 0, "cwnd": 30_000}},
        {"time": 20, "name": "recovery:metrics_updated", "data": {"bytes_in_flight": 5_000}},
        {"time": 30, "name": "recovery:metrics_updated", "data": {"bytes_in_flight": 6_000}},
    ]);
    let fields = json!({"events": events, "vantage_point": {"type": "unknown"}});
    let log = read(&document("0.3", &trace(fields)));
    let c = &log.connections[0].record;
    assert_eq!(c.to_server.rtt.samples, 1);
    let cwnd = c.log.as_deref().unwrap().cwnd_bytes.unwrap();
    assert_eq!((cwnd.min.round(), cwnd.p50.round(), cwnd.max.round()), (10_000.0, 10_000.0, 30_000.0));
    assert!(c.vantage.evidence.is_empty(), "{:?}", c.vantage);
    let table = text::table([c, c], None);
    let cells: Vec<&str> = table.lines().nth(1).unwrap().split("  ").filter(|s| !s.is_empty()).collect();
    assert!(table.contains("logged") && table.contains("lost"), "{table}");
    let cells: Vec<&str> = cells.iter().map(|s| s.trim()).collect();
    assert_eq!(cells[3..8], ["sender", "–", "–", "40.0 ms", "–"], "{table}");
    assert!(!cells.contains(&"0") && !cells.contains(&"0 B"), "{table}");
    assert!(text::detail(c).contains("none logged"), "{}", text::detail(c));
    // A loss that was spurious was a loss.
    let spurious = json!({"time": 5, "name": "recovery:spurious_loss", "data": {"packet_number": 3}});
    let log = log_of([metrics(50), vec![spurious]].concat(), json!({}));
    assert_eq!((logged(&log).lost, logged(&log).spurious), (1, 1));
}

/// Flow control: blocked from 10 ms to 30 ms, with nothing full.
#[test]
fn credit_of_the_peer_is_the_receive_window() {
    let metrics = json!({"congestion_window": 100_000, "bytes_in_flight": 5000, "latest_rtt": 10});
    let sent = |frame: &str| {
        let frame = json!({"frame_type": frame, "stream_id": 4});
        json!({"header": {"packet_type": "1RTT"}, "frames": [frame]})
    };
    let blocked = json!({"new": "blocked", "reason": "pacing"});
    let events = json!([
        {"time": 0, "name": "recovery:metrics_updated", "data": metrics},
        {"time": 10, "name": "transport:packet_sent", "data": sent("stream_data_blocked")},
        {"time": 30, "name": "transport:packet_received", "data": sent("max_stream_data")},
        {"time": 40, "name": "quic:connection_data_blocked_updated", "data": blocked},
        {"time": 90, "name": "quic:connection_data_blocked_updated", "data": {"new": "unblocked"}},
        {"time": 100, "name": "recovery:metrics_updated", "data": {"bytes_in_flight": 0}},
    ]);
    let log = read(&document("0.4", &trace(json!({ "events": events }))));
    let limits = &log.connections[0].record.to_client.limits;
    assert!((limits.share(Limitation::ReceiveWindow) - 0.2).abs() < 1e-9, "{limits:?}");
    assert!((limits.share(Limitation::Pacing) - 0.5).abs() < 1e-9, "{limits:?}");
    assert!(limits.words[0].contains("30 %"), "{limits:?}");
}

/// Memory is bounded: more connections than are listed, and long events.
#[test]
fn too_many_connections_are_counted() {
    let event = |i: u32| {
        let name = "recovery:metrics_updated";
        json!({"time": i, "name": name, "group_id": i.to_string(), "data": {"cwnd": 9}})
    };
    let log = read(&document("0.3", &trace(json!({"events": (0..5000).map(event).collect::<Vec<_>>()}))));
    assert_eq!((log.connections.len(), log.unlisted), (1024, 3976));
    let long = "x".repeat(2 << 20);
    let events = json!([
        {"time": 0, "name": "recovery:metrics_updated", "data": {"cwnd": 9}},
        {"time": 1, "name": "x", "data": long},
    ]);
    let log = read(&document("0.3", &trace(json!({ "events": events }))));
    assert!(log.facts.damage.unwrap().reason.contains("longer than 1048576 bytes"));
    let event = json!({"time": 2, "name": "recovery:metrics_updated", "data": {"cwnd": 9}});
    let bytes =
        sequence("\x1e", json!({"qlog_version": "0.3"}), vec![events[0].clone(), events[1].clone(), event]);
    let log = read(&bytes);
    assert_eq!((log.facts.log.unwrap().malformed, log.facts.damage), (1, None));
}

/// Logs that the stacks wrote of 200 kB over loopback: fullpipe-quic's examples `noq_file` and
/// `quinn_file` with `bbr3`, the stacks' feature `qlog`, and `qlog_from_path` or `qlog_stream` set in
/// `transport()`.
#[test]
fn logs_of_noq_and_quinn_are_read() {
    let log = read(include_bytes!("../logs/noq-1.4.0.sqlog.gz"));
    let c = &log.connections[0].record;
    assert_eq!((c.vantage.point, log.facts.log.as_ref().unwrap().events), (Point::Server, 465));
    assert_eq!((c.to_client.bytes, c.to_client.packets, c.to_client.bytes_sent), (200_000, 155, 211_842));
    assert!(c.to_client.btlbw.is_some() && c.to_client.goodput.is_some());
    // The 333 ms that are assumed before the first sample are none.
    assert!(c.to_client.rtt.max.unwrap() < Span::from_millis(100), "{:?}", c.to_client.rtt);
    let log = read(include_bytes!("../logs/quinn-0.11.19.sqlog.gz"));
    let c = &log.connections[0].record;
    assert_eq!(
        (c.vantage.point, c.to_server.packets, c.to_server.bytes_sent),
        (Point::Unknown, 152, 211_767)
    );
    assert_eq!((c.to_server.btlbw, c.to_server.goodput), (None, None));
    assert!(text::detail(c).contains("  152 packets, 212 kB\n"), "{}", text::detail(c));
    let notes = c.notes.join("; ");
    for part in ["may be in seconds", "no ACK frames", "which end wrote it"] {
        assert!(notes.contains(part), "{part}: {notes}");
    }
}

/// States of BBR at times in milliseconds, each with other fields of its event.
fn states(changes: &[(f64, &str, &str)]) -> Vec<Value> {
    let event = |(time, old, new): &(f64, &str, &str)| {
        let mut data = json!({ "new": new });
        if !old.is_empty() {
            data["old"] = (*old).into();
        }
        json!({"time": time, "name": "recovery:congestion_state_updated", "data": data})
    };
    changes.iter().map(event).collect()
}

/// Metrics of a path of 40 ms each 5 ms until `end_ms`.
fn metrics(end_ms: u64) -> Vec<Value> {
    let event = |i: u64| {
        let data = json!({
            "latest_rtt": 40.0, "smoothed_rtt": 40.0, "min_rtt": 40.0, "bandwidth_estimate": 48_000_000,
            "pacing_rate": 47_520_000, "congestion_window": 480_000, "bytes_in_flight": 240_000,
        });
        json!({"time": 5 * i, "name": "recovery:metrics_updated", "data": data})
    };
    (0..end_ms / 5).map(event).collect()
}

fn log_of(mut events: Vec<Value>, fields: Value) -> Log {
    let time = |e: &Value| e["time"].as_f64().unwrap();
    events.sort_by(|a, b| time(a).total_cmp(&time(b)));
    let mut trace = trace(json!({ "events": events }));
    trace.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    read(&document("0.3", &trace))
}

fn logged(log: &Log) -> &fullpipe_experiment::connection::Log {
    log.connections[0].record.log.as_deref().unwrap()
}

/// The result and the words of a check.
fn check<'a>(log: &'a Log, name: &str) -> (Judged, &'a str) {
    let checks = &logged(log).checks;
    let found = checks.iter().find(|c| c.check == name).unwrap_or_else(|| panic!("{name}: {checks:#?}"));
    (found.result, &found.words)
}

fn failures(log: &Log) -> Vec<String> {
    let failed = logged(log).checks.iter().filter(|c| c.result == Judged::Failed);
    failed.map(|c| format!("{}: {}", c.check, c.words)).collect()
}

/// Nothing is known of the time before the first event: neither when the state began, nor the last
/// ProbeRTT, nor that the state was Startup.
#[test]
fn log_that_begins_in_a_connection_is_judged_from_there() {
    let changes = [
        (900.0, "ProbeBW_DOWN", "ProbeBW_CRUISE"),
        (1000.0, "ProbeBW_CRUISE", "ProbeRTT"),
        (1250.0, "ProbeRTT", "ProbeBW_DOWN"),
        (1300.0, "ProbeBW_DOWN", "ProbeBW_CRUISE"),
    ];
    let log = log_of([states(&changes), metrics(3000)].concat(), json!({}));
    let found = failures(&log);
    assert!(!found.iter().any(|f| f.starts_with("interval") || f.starts_with("order")), "{found:?}");
    assert_eq!(check(&log, "interval of ProbeRTT").0, Judged::NotJudged);
    assert_eq!(check(&log, "order of the states"), (Judged::Passed, "4 changes as in the draft"));
    let times: Vec<(&str, u64, u64)> =
        logged(&log).states.iter().map(|s| (&*s.state, s.visits, s.total.as_millis_f64() as u64)).collect();
    assert_eq!(times[0], ("ProbeBW_DOWN", 2, 950), "{times:?}");
    // The wait from a DOWN whose beginning is not logged is unknown.
    let changes = [
        (100.0, "probe_bw_down", "ProbeBW_CRUISE"),
        (400.0, "ProbeBW_CRUISE", "ProbeBW_REFILL"),
        (440.0, "ProbeBW_REFILL", "ProbeBW_UP"),
    ];
    let log = log_of([states(&changes), metrics(500)].concat(), json!({}));
    let name = "time between probes (DOWN and CRUISE)";
    assert_eq!(check(&log, name).0, Judged::NotJudged, "{:?}", check(&log, name));
    // A change that is missing between two is not a wrong one.
    let changes =
        [(0.0, "", "Startup"), (200.0, "Startup", "Drain"), (900.0, "ProbeBW_CRUISE", "ProbeBW_REFILL")];
    let log = log_of([states(&changes), metrics(1000)].concat(), json!({}));
    assert_eq!(check(&log, "order of the states"), (Judged::Passed, "2 changes as in the draft"));
}

/// The last state that is kept does not last until the end of the log.
#[test]
fn states_beyond_the_limit_are_not_judged() {
    let cycle = ["ProbeBW_DOWN", "ProbeBW_CRUISE", "ProbeBW_REFILL", "ProbeBW_UP"];
    let changes: Vec<(f64, &str, &str)> =
        (0..65_540_u32).map(|i| (f64::from(i), "", cycle[i as usize % 4])).collect();
    let mut events = states(&changes);
    events.push(json!({"time": 200_000, "name": "recovery:metrics_updated", "data": {"cwnd": 60_000}}));
    let log = log_of(events, json!({}));
    let total: f64 = logged(&log).states.iter().map(|s| s.total.as_secs_f64()).sum();
    assert!((total - 65.536).abs() < 1e-3, "{total}");
    let notes = log.connections[0].record.notes.join("; ");
    assert!(notes.contains("the checks cover the time until 65.5 s"), "{notes}");
    let (result, words) = check(&log, "interval of ProbeRTT");
    assert_eq!(result, Judged::NotJudged, "{words}");
    assert!(words.contains("65.5 s"), "{words}");
}

#[test]
fn states_of_several_paths_are_not_one_sequence() {
    let first = [(0.0, "", "Startup"), (200.0, "Startup", "Drain"), (300.0, "Drain", "ProbeBW_DOWN")];
    let second = [(250.0, "", "Startup"), (320.0, "Startup", "Drain"), (340.0, "Drain", "ProbeBW_DOWN")];
    for (field, value, left_out) in [("path_id", json!(1), true), ("tuple", json!("p1"), false)] {
        let mut others = states(&second);
        others.iter_mut().for_each(|e| e[field] = value.clone());
        let mut own = states(&first);
        own.iter_mut().for_each(|e| e["tuple"] = "p0".into());
        let fields = json!({"common_fields": {"congestion_control": "bbr3"}});
        let log = log_of([metrics(400), own, others].concat(), fields);
        let (result, words) = check(&log, "order of the states");
        // What a migration interrupts is judged until then.
        let changes = if left_out { "2 changes as in the draft" } else { "1 change as in the draft" };
        assert_eq!((result, words), (Judged::Passed, changes), "{field}");
        let notes = log.connections[0].record.notes.join("; ");
        let note = if left_out {
            "3 events with metrics or states"
        } else {
            "until 250 ms: the connection migrated"
        };
        assert!(notes.contains(note), "{field}: {notes}");
    }
}

/// As quinn 0.11.19 writes them; the log may begin after the initial one.
#[test]
fn round_trip_times_in_seconds_are_not_judged() {
    let changes = [(0.0, "", "Startup"), (200.0, "Startup", "Drain"), (205.0, "Drain", "ProbeBW_DOWN")];
    let packet = |n: u64| {
        let data = json!({"header": {"packet_type": "1RTT", "packet_number": n}, "raw": {"length": 1200}});
        json!({"time": n as f64 / 5.0, "name": "transport:packet_sent", "data": data})
    };
    for seconds in [true, false] {
        let mut all = metrics(500);
        for event in all.iter_mut().filter(|_| seconds) {
            for name in ["latest_rtt", "smoothed_rtt", "min_rtt"] {
                event["data"][name] = 0.04.into();
            }
        }
        let log = log_of([all, states(&changes), (0..2500).map(packet).collect()].concat(), json!({}));
        let is_doubtful = |name| check(&log, name).1.contains("the unit of the round-trip times is doubtful");
        for name in ["end of Startup", "end of Drain", "length of ProbeRTT", "response to loss (Beta)"] {
            assert_eq!(is_doubtful(name), seconds, "{name}: {:?}", check(&log, name));
        }
        let notes = log.connections[0].record.notes.join("; ");
        assert_eq!(notes.contains("another unit than milliseconds"), seconds, "{notes}");
        assert_eq!(check(&log, "order of the states").0, Judged::Passed);
    }
}

#[test]
fn controller_named_bbr_is_judged_by_its_states() {
    let cycle = [(0.0, "", "Startup"), (200.0, "", "Drain"), (300.0, "", "ProbeBW_DOWN")];
    let older = [(0.0, "", "Startup"), (200.0, "", "Drain"), (300.0, "", "ProbeBW")];
    for (name, changes, is_judged) in
        [("bbr", &cycle, true), ("bbr", &older, false), ("bbr2", &cycle, false), ("BBRv1", &older, false)]
    {
        let mut events = [states(changes), metrics(500)].concat();
        let data = json!({"congestion_control": name});
        events.push(json!({"time": 0, "name": "recovery:parameters_set", "data": data}));
        let log = log_of(events, json!({}));
        assert_eq!(logged(&log).checks.len() > 1, is_judged, "{name}: {:?}", logged(&log).checks);
    }
}

/// Between two samples there may be several rounds, and a step in each of them.
#[test]
fn steps_of_several_rounds_are_not_one() {
    for (gap_ms, failed) in [(5, true), (60, false)] {
        let mut events = states(&[(0.0, "", "Startup"), (100.0, "", "Drain"), (120.0, "", "ProbeBW_CRUISE")]);
        let mut all = metrics(2000);
        all.retain(|e| e["time"].as_u64().unwrap() <= 1000 || e["time"].as_u64().unwrap() >= 1000 + gap_ms);
        for event in all.iter_mut().filter(|e| e["time"].as_u64().unwrap() > 1000) {
            event["data"]["bandwidth_estimate"] = 23_520_000.into();
        }
        events.extend(all);
        events.push(json!({"time": 995, "name": "recovery:packet_lost", "data": {}}));
        let log = log_of(events, json!({}));
        let (result, words) = check(&log, "response to loss (Beta)");
        assert_eq!(result == Judged::Failed, failed, "{gap_ms}: {words}");
    }
}

#[test]
fn captures_are_not_logs() {
    for bytes in [&b"\xd4\xc3\xb2\xa1"[..], b"\n\r\r\n\x1c\0\0\0", b"", b"   "] {
        assert!(matches!(input::recognise("x", Cursor::new(bytes)).unwrap(), Input::Capture(_)), "{bytes:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Damaged anywhere, a file gives a result or an error.
    #[test]
    fn damage_never_panics(form in 0_usize..10, at in 0.0_f64..1.0, byte: u8, cut: bool) {
        let mut bytes = FORMS[form].1.clone();
        let i = (bytes.len() as f64 * at) as usize;
        if cut {
            bytes.truncate(i);
        } else {
            bytes[i] = byte;
        }
        if let Ok(Input::Log(source)) = input::recognise("test", &bytes[..]) {
            for c in qlog::read("test", source, None).map(|log| log.connections).unwrap_or_default() {
                c.recording();
            }
        }
    }
}
