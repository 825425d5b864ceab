//! Reads qlog: logs that QUIC endpoints write of their own connections.
//!
//! Versions 0.3 and 0.4, the drafts between and after them, and the older drafts whose events are
//! arrays; as one JSON text, as a JSON text sequence (RFC 7464) or as lines of JSON, plain or
//! compressed. A log of any size is read in one pass (in two, if events precede the header that they
//! need): events are folded into series of bounded length.

mod builder;
mod checks;
mod connection;
mod document;
mod event;
mod frames;
mod header;
mod limits;
mod metrics;
mod packets;
mod record;
mod rows;
mod sequence;
mod source;
mod streams;
mod value;
mod windows;

pub use record::LoggedConnection;
pub(crate) use record::heading;

use crate::error::{Damage, TraceError};
use builder::Builder;
use fullpipe_experiment::connection::{Capture, CaptureDamage};
use header::Header;
use source::{Bounded, MAX_EVENT_BYTES, Position};
use std::io::{self, Cursor, Read};

/// A source of bytes.
pub type Source<'a> = Box<dyn Read + Send + 'a>;

/// What a log has.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// What was read of the file.
    pub facts: Capture,
    /// Connections in order of their first event.
    pub connections: Vec<LoggedConnection>,
    /// Connections that are counted and not listed, as there are too many.
    pub unlisted: u64,
}

/// Whether bytes at the beginning of a decompressed file are those of a log.
pub(crate) fn is_log(head: &[u8]) -> bool {
    // A capture in pcapng begins with a line feed, too, but never has these two behind it.
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    matches!(head.iter().find(|b| !b.is_ascii_whitespace()), Some(b'{' | &sequence::RECORD_SEPARATOR))
}

/// Reads the log in `source`. `name` is the name in errors; `again` opens it a second time, which is
/// needed only if events precede the header that they need.
///
/// # Errors
/// The file is not a qlog, or has no event that can be analysed. Damage further on is not an error: see
/// [`Capture::damage`].
pub fn read<'a>(
    name: &str,
    source: Source<'a>,
    again: Option<&mut dyn FnMut() -> io::Result<Source<'a>>>,
) -> Result<Log, TraceError> {
    let (mut builder, mut pass) = read_pass(name, source, Vec::new())?;
    if builder.is_misread {
        let headers = std::mem::take(&mut builder.headers);
        let Some(again) = again else {
            return Err(TraceError::Log {
                name: name.to_owned(),
                reason: "its events precede the description of their fields; save it as a file and name that"
                    .to_owned(),
            });
        };
        let source = again().map_err(|source| TraceError::Read { name: name.to_owned(), source })?;
        (builder, pass) = read_pass(name, source, headers)?;
    }
    finish(name, builder, pass)
}

/// How far a pass over a file came.
struct Pass {
    serialization: &'static str,
    damage: Option<Damage>,
}

fn read_pass(name: &str, source: Source<'_>, known: Vec<Header>) -> Result<(Builder, Pass), TraceError> {
    let mut builder = Builder::with_headers(known);
    let (serialization, source) =
        recognise(source).map_err(|e| TraceError::Read { name: name.to_owned(), source: e })?;
    let (mut source, position) = Bounded::new(source);
    let damage = match serialization {
        "JSON" => {
            let read = document::read(&mut source, &position, &mut builder);
            let damage = read.err().map(|e| document_damage(&e, &position));
            if let Some(damage) = damage.as_ref().filter(|_| builder.headers.is_empty()) {
                return Err(TraceError::Log { name: name.to_owned(), reason: not_a_log(&damage.reason) });
            }
            damage
        }
        _ => {
            let delimiter = if serialization == "NDJSON" { b'\n' } else { sequence::RECORD_SEPARATOR };
            let is_cut = sequence::read(&mut source, delimiter, &mut builder);
            let reason = match (position.has_failed(), is_cut) {
                (true, _) => Some("the file cannot be read or decompressed further"),
                (_, true) => Some("the file is cut short"),
                _ => None,
            };
            reason.map(|reason| Damage { offset: position.read(), reason: reason.to_owned() })
        }
    };
    Ok((builder, Pass { serialization, damage }))
}

/// The serialization, and the source from its beginning.
fn recognise<'a>(mut source: Source<'a>) -> io::Result<(&'static str, Source<'a>)> {
    let mut head = Vec::new();
    source.by_ref().take(MAX_EVENT_BYTES).read_to_end(&mut head).or_else(|e| {
        // Damage is reported with what precedes it.
        if head.is_empty() { Err(e) } else { Ok(0) }
    })?;
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&head);
    let skipped = head.len() - text.len();
    let first = text.iter().find(|b| !b.is_ascii_whitespace());
    let line = text.split(|b| *b == b'\n').find(|line| !line.trim_ascii().is_empty());
    let serialization = if first == Some(&sequence::RECORD_SEPARATOR) {
        "JSON-SEQ"
    } else if line.is_some_and(is_header_line) {
        "NDJSON"
    } else {
        "JSON"
    };
    let whole = Cursor::new(head.split_off(skipped)).chain(source);
    Ok((serialization, Box::new(whole)))
}

/// Whether a line is a complete JSON object that is not a complete log.
fn is_header_line(line: &[u8]) -> bool {
    match serde_json::from_slice(line) {
        Ok(serde_json::Value::Object(o)) => {
            let is_known = ["qlog_version", "qlog_format", "trace", "file_schema", "name"];
            let has_events = o.get("trace").is_some_and(|trace| trace.get("events").is_some());
            !o.contains_key("traces") && !has_events && is_known.iter().any(|key| o.contains_key(*key))
        }
        _ => false,
    }
}

fn document_damage(e: &serde_json::Error, position: &Position) -> Damage {
    let reason = if position.has_failed() {
        "the file cannot be read or decompressed further".to_owned()
    } else if position.is_exceeded() {
        format!("an event or name is longer than {} bytes", MAX_EVENT_BYTES)
    } else if e.is_eof() {
        "the file is cut short".to_owned()
    } else {
        e.to_string()
    };
    Damage { offset: position.read(), reason }
}

fn not_a_log(reason: &str) -> String {
    if reason.starts_with("Chrome's NetLog") {
        return "it is Chrome's NetLog: convert it to qlog, for example with qvis".to_owned();
    }
    format!("it begins like JSON, but {reason}")
}

fn finish(name: &str, mut builder: Builder, pass: Pass) -> Result<Log, TraceError> {
    let mut file = builder.take_file();
    file.serialization = pass.serialization.to_owned();
    let recorders = std::mem::take(&mut builder.recorders);
    let packets = recorders.iter().map(|r| r.packets.sent + r.received).sum();
    let connections: Vec<LoggedConnection> = recorders
        .into_iter()
        .filter(|r| r.has_anything())
        .zip(1..)
        .map(|(r, number)| {
            let header = builder.headers.get(r.trace).cloned().unwrap_or_default();
            record::connection(r, &header, number)
        })
        .collect();
    if connections.is_empty() {
        return Err(TraceError::Log { name: name.to_owned(), reason: nothing(&file, pass.damage.as_ref()) });
    }
    let facts = Capture {
        name: name.to_owned(),
        packets,
        malformed: file.malformed,
        damage: pass.damage.map(|d| CaptureDamage { offset: d.offset, reason: d.reason }),
        log: Some(file),
        ..Capture::default()
    };
    Ok(Log { facts, connections, unlisted: builder.unlisted() })
}

/// Why there is nothing to analyse.
fn nothing(file: &fullpipe_experiment::connection::LogFile, damage: Option<&Damage>) -> String {
    let mut words = if file.events == 0 {
        "it has no events".to_owned()
    } else {
        let names: Vec<String> =
            file.names.iter().take(8).map(|n| format!("{} `{}`", n.count, n.name)).collect();
        let has =
            if names.is_empty() { format!("{} malformed events", file.events) } else { names.join(", ") };
        format!(
            "it has {has}; an analysis needs `recovery:metrics_updated`, `transport:packet_sent`, \
             `transport:packet_received` or `recovery:congestion_state_updated`"
        )
    };
    if let Some(damage) = damage {
        words += &format!(" (byte {}: {})", damage.offset, damage.reason);
    }
    words
}
