//! A log of any bytes, in any of the forms that are recognised. The second half of a record that begins
//! with a digit selects a form in which the first events are well-formed.
#![no_main]

use fullpipe_trace::input::{self, Input};
use fullpipe_trace::{qlog, text};
use libfuzzer_sys::fuzz_target;
use std::io;

/// Beginnings that lead further than random bytes do.
const HEADS: [&str; 5] = [
    "{\"qlog_version\":\"0.3\",\"traces\":[{\"events\":[",
    "{\"traces\":[{\"event_fields\":[\"time\",\"category\",\"event\",\"data\"],\"events\":[",
    "\u{1e}{\"qlog_version\":\"0.3\",\"trace\":{}}\n\u{1e}",
    "{\"qlog_version\":\"0.3\",\"trace\":{}}\n",
    "{\"traces\":[{\"common_fields\":{\"time_format\":\"delta\"},\"configuration\":{\"time_units\":\"us\"},\"events\":[",
];

fuzz_target!(|bytes: &[u8]| {
    let whole = match bytes.split_first() {
        Some((form, rest)) if form.is_ascii_digit() => {
            let head = HEADS[usize::from(form - b'0') % HEADS.len()];
            [head.as_bytes(), rest].concat()
        }
        _ => bytes.to_vec(),
    };
    let open = || match input::recognise("fuzz", &whole[..]) {
        Ok(Input::Log(source)) => Ok(source),
        _ => Err(io::Error::other("not a log")),
    };
    let Ok(source) = open() else { return };
    let Ok(log) = qlog::read("fuzz", source, Some(&mut { open })) else { return };
    let _ = text::log_heading(&log.facts, log.connections.len(), log.unlisted);
    // What `fullpipe trace` prints, and hands to reports.
    let records: Vec<_> = log.connections.iter().map(|c| &c.record).collect();
    for width in [None, Some(80)] {
        let _ = text::table(records.iter().copied(), width);
        if let (Some(first), Some(last)) = (records.first(), records.last()) {
            let _ = text::comparison(("a", first), ("b", last), width);
        }
    }
    for connection in &log.connections {
        let _ = text::detail(&connection.record);
        let _ = text::conclusions(connection.sent());
        let logged = connection.record.log.as_deref().expect("of a log");
        let _ = text::verdicts(logged);
        assert!(logged.spurious <= logged.lost);
        serde_json::to_string(&connection.record).expect("a record is JSON");
        let recording = connection.recording();
        assert!(recording.flows.iter().all(|flow| flow.series.t_s.is_sorted()));
        assert!(recording.flows.iter().all(|flow| flow.states.is_sorted_by(|a, b| a.at_s <= b.at_s)));
        serde_json::to_string(&recording).expect("a recording is JSON");
    }
});
