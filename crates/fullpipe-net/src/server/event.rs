//! The events of a server, one line each.

use crate::printable;
use serde_json::{Map, Value};
use std::fmt;
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum bytes of a text in an event.
const MAX_TEXT: usize = 300;

/// An event for the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Milliseconds since 1970.
    pub unix_ms: u64,
    /// Kind: `listening`, `test_started`, `test_finished`, `test_failed`, `download`, `upload`,
    /// `refused` …
    pub kind: &'static str,
    /// The peer.
    pub peer: Option<SocketAddr>,
    /// Details, in the order they were added.
    pub fields: Vec<(&'static str, Value)>,
}

impl Event {
    pub(super) fn new(kind: &'static str, peer: Option<SocketAddr>) -> Self {
        let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
        Event { unix_ms, kind, peer, fields: Vec::new() }
    }

    /// Texts are cut: some come from peers, and a log is limited by lines.
    pub(super) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        let mut value = value.into();
        if let Value::String(text) = &mut value
            && text.len() > MAX_TEXT
        {
            text.truncate(text.floor_char_boundary(MAX_TEXT));
            text.push('…');
        }
        self.fields.push((name, value));
        self
    }

    /// One line of printable JSON.
    pub fn to_json_line(&self) -> String {
        printable::json(&self.to_json().to_string()).into_owned()
    }

    /// One JSON object.
    pub fn to_json(&self) -> Value {
        let mut map = Map::new();
        map.insert("unix_ms".into(), self.unix_ms.into());
        map.insert("event".into(), self.kind.into());
        if let Some(peer) = self.peer {
            map.insert("peer".into(), peer.to_string().into());
        }
        map.extend(self.fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        Value::Object(map)
    }
}

impl fmt::Display for Event {
    /// `kind peer name=value …`; text from peers is quoted and printable.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        if let Some(peer) = self.peer {
            write!(f, " {peer}")?;
        }
        self.fields
            .iter()
            .try_for_each(|(name, value)| write!(f, " {name}={}", printable::json(&value.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_cannot_be_forged() {
        let event = Event::new("refused", None).with("reason", "x\nlistening\u{9b}2J");
        assert_eq!(event.to_string(), "refused reason=\"x\\nlistening\\u009b2J\"");
        assert!(event.to_json_line().contains("\"reason\":\"x\\nlistening\\u009b2J\""));
        assert_eq!(event.to_json()["event"], "refused");
    }

    #[test]
    fn lines_are_short_whatever_a_peer_sends() {
        let event = Event::new("refused", None).with("path", "\u{80}".repeat(16_384));
        assert!(event.to_json_line().len() < 2500, "{}", event.to_json_line().len());
        assert!(event.to_string().ends_with("…\""));
    }
}
