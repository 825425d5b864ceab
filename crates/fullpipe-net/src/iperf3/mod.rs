//! iperf3's protocol as bytes, without I/O.
//!
//! A test has one control connection and one connection (or UDP socket) per stream, all to the same
//! port. Every TCP connection begins with the client's [`Cookie`], which distinguishes the streams
//! of a test from a new test. On the control connection the ends exchange single bytes, the
//! [`State`]s, and length-prefixed JSON texts: the client's [`Params`] and both ends' [`Results`]:
//!
//! ```text
//! client                         server
//! cookie                     →
//!                            ←   ParamExchange
//! Params                     →
//!                            ←   CreateStreams
//! (connects the streams, each with the cookie; UDP streams say hello)
//!                            ←   TestStart, TestRunning
//! TestEnd                    →
//!                            ←   ExchangeResults
//! Results                    →
//!                            ←   Results, DisplayResults
//! IperfDone                  →
//! ```
//!
//! Two fullpipe ends also exchange [`extension`] messages; a stock iperf3 never receives one.

mod cookie;
pub mod extension;
mod params;
mod results;
mod state;
mod udp;

pub use cookie::{COOKIE_LEN, Cookie};
pub use params::{DEFAULT_TCP_BLOCK, MAX_STREAMS, Params, Protocol};
pub use results::{Results, StreamResults};
pub use state::{ServerError, State};
pub use udp::{HELLO, HELLO_REPLY, HELLO_REPLY_OLD, MAX_UDP_BLOCK, MIN_UDP_BLOCK, UdpHeader};

/// Maximum length of the parameters, as in iperf3 (`MAX_PARAMS_JSON_STRING`).
pub const MAX_PARAMS: usize = 8 * 1024;
/// Maximum length of the results: 256 streams and a server's text output fit.
pub const MAX_RESULTS: usize = 1024 * 1024;

/// Maximum length of a client's results of this many streams: iperf3 sends some 200 bytes for each.
pub fn max_results(streams: usize) -> usize {
    4096 + 512 * streams
}

/// A malformed message of the peer; printable when displayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", crate::printable::line(.0))]
pub struct Malformed(pub String);

/// The id of a test's `index`-th stream, counted from 0: iperf3 numbers streams 1, 3, 4, 5 … and
/// matches results by this number.
pub fn stream_id(index: usize) -> u64 {
    if index == 0 { 1 } else { index as u64 + 2 }
}

/// A JSON object, read field by field with precise errors.
pub(crate) struct Object(serde_json::Map<String, serde_json::Value>);

impl Object {
    pub(crate) fn parse(what: &str, text: &[u8]) -> Result<Self, Malformed> {
        match serde_json::from_slice(text) {
            Ok(serde_json::Value::Object(map)) => Ok(Object(map)),
            Ok(_) => Err(Malformed(format!("{what}: expected a JSON object"))),
            Err(e) => Err(Malformed(format!("{what}: not JSON ({e})"))),
        }
    }

    /// A number within bounds; `None` if the field is missing or null.
    pub(crate) fn number(&self, name: &str, min: f64, max: f64) -> Result<Option<f64>, Malformed> {
        let value = match self.0.get(name) {
            None | Some(serde_json::Value::Null) => return Ok(None),
            Some(serde_json::Value::Bool(b)) => f64::from(u8::from(*b)),
            Some(serde_json::Value::Number(n)) => n.as_f64().unwrap_or(f64::NAN),
            Some(_) => return Err(Malformed(format!("`{name}`: expected a number"))),
        };
        if value >= min && value <= max {
            Ok(Some(value))
        } else {
            Err(Malformed(format!("`{name}` must be between {min} and {max}, got {value}")))
        }
    }

    /// An integer within bounds; fractions are truncated, as iperf3 does.
    pub(crate) fn integer(&self, name: &str, min: i64, max: i64) -> Result<Option<i64>, Malformed> {
        Ok(self.number(name, min as f64, max as f64)?.map(|v| v as i64))
    }

    /// Whether the field is `true` or a non-zero number.
    pub(crate) fn flag(&self, name: &str) -> bool {
        match self.0.get(name) {
            Some(serde_json::Value::Bool(b)) => *b,
            Some(serde_json::Value::Number(n)) => n.as_f64() != Some(0.0),
            _ => false,
        }
    }

    pub(crate) fn text(&self, name: &str, max_len: usize) -> Result<Option<String>, Malformed> {
        match self.0.get(name) {
            None | Some(serde_json::Value::Null) => Ok(None),
            Some(serde_json::Value::String(s)) if s.len() <= max_len => Ok(Some(s.clone())),
            Some(serde_json::Value::String(_)) => {
                Err(Malformed(format!("`{name}` is longer than {max_len} bytes")))
            }
            Some(other) => Err(Malformed(format!("`{name}`: expected a text, got {other}"))),
        }
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<serde_json::Value> {
        self.0.remove(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_numbered_as_iperf3_numbers_them() {
        assert_eq!((0..4).map(stream_id).collect::<Vec<_>>(), [1, 3, 4, 5]);
    }
}
