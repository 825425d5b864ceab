//! The language iperf3 speaks between its ends, as bytes: nothing here touches a socket.
//!
//! A test has one control connection and one connection (or UDP socket) per stream, all to the same port.
//! Every TCP connection begins with the client's [`Cookie`], by which the server knows a test's streams from
//! a new test. On the control connection the ends then exchange single bytes, the [`State`]s, and JSON texts
//! prefixed with their length: the client's [`Params`] and both ends' [`Results`]:
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
//! Two fullpipe ends also exchange [`extension`] messages; a stock iperf3 never sees one.

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

/// The longest parameter text accepted from a stranger, as in iperf3 (`MAX_PARAMS_JSON_STRING`).
pub const MAX_PARAMS: usize = 8 * 1024;
/// The longest results text accepted: 256 streams and a server's text output fit.
pub const MAX_RESULTS: usize = 1024 * 1024;

/// What is wrong with what the peer said. Its words are printable when shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", crate::printable::line(.0))]
pub struct Malformed(pub String);

/// The identifier of a test's `index`-th stream, counted from 0: iperf3 numbers them 1, 3, 4, 5 … and
/// finds a stream's results by this number.
pub fn stream_id(index: usize) -> u64 {
    if index == 0 { 1 } else { index as u64 + 2 }
}

/// One JSON object, read field by field with the peer's mistakes named.
pub(crate) struct Object(serde_json::Map<String, serde_json::Value>);

impl Object {
    pub(crate) fn parse(what: &str, text: &[u8]) -> Result<Self, Malformed> {
        match serde_json::from_slice(text) {
            Ok(serde_json::Value::Object(map)) => Ok(Object(map)),
            Ok(_) => Err(Malformed(format!("{what}: expected a JSON object"))),
            Err(e) => Err(Malformed(format!("{what}: not JSON ({e})"))),
        }
    }

    /// A number within bounds; `None` when the field is missing or null.
    pub(crate) fn number(&self, name: &str, least: f64, most: f64) -> Result<Option<f64>, Malformed> {
        let value = match self.0.get(name) {
            None | Some(serde_json::Value::Null) => return Ok(None),
            Some(serde_json::Value::Bool(b)) => f64::from(u8::from(*b)),
            Some(serde_json::Value::Number(n)) => n.as_f64().unwrap_or(f64::NAN),
            Some(other) => return Err(Malformed(format!("`{name}`: expected a number, got {other}"))),
        };
        if value >= least && value <= most {
            Ok(Some(value))
        } else {
            Err(Malformed(format!("`{name}` is {value}; it must lie between {least} and {most}")))
        }
    }

    /// A whole number within bounds; a fraction is cut off, as iperf3 does.
    pub(crate) fn integer(&self, name: &str, least: i64, most: i64) -> Result<Option<i64>, Malformed> {
        Ok(self.number(name, least as f64, most as f64)?.map(|v| v as i64))
    }

    /// `true`, or a number other than zero.
    pub(crate) fn flag(&self, name: &str) -> bool {
        match self.0.get(name) {
            Some(serde_json::Value::Bool(b)) => *b,
            Some(serde_json::Value::Number(n)) => n.as_f64() != Some(0.0),
            _ => false,
        }
    }

    pub(crate) fn text(&self, name: &str, longest: usize) -> Result<Option<String>, Malformed> {
        match self.0.get(name) {
            None | Some(serde_json::Value::Null) => Ok(None),
            Some(serde_json::Value::String(s)) if s.len() <= longest => Ok(Some(s.clone())),
            Some(serde_json::Value::String(_)) => {
                Err(Malformed(format!("`{name}` is longer than {longest} bytes")))
            }
            Some(other) => Err(Malformed(format!("`{name}`: expected a text, got {other}"))),
        }
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<serde_json::Value> {
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
