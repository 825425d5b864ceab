//! Application traffic patterns.

use super::Fault;
use fullpipe_units::{Bytes, Rate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An application pattern.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum App {
    /// Always more to send.
    #[default]
    Bulk,
    /// A constant rate, written in chunks.
    Rate {
        /// Payload rate.
        rate: Rate,
        /// Bytes per write.
        #[serde(default = "default_chunk")]
        chunk: Bytes,
    },
    /// `size` bytes at once, then idle until `every` has passed since the burst started and the
    /// burst is delivered: page loads, persistent connections, video segments.
    Bursts {
        /// Bytes per burst.
        size: Bytes,
        /// From the start of one burst to the start of the next.
        every: Span,
    },
    /// The peer sends a request, the sender a response; the next request follows `think` after
    /// the response is complete.
    RequestResponse {
        /// Bytes of a request.
        #[serde(default = "default_request")]
        request: Bytes,
        /// Bytes of a response.
        response: Bytes,
        /// Pause between a response and the next request.
        #[serde(default)]
        think: Span,
    },
    /// Writes at given times, in order; idle after the last.
    Writes {
        /// The writes.
        writes: Vec<AppWrite>,
    },
}

/// A write by the application.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AppWrite {
    /// When, from the time the connection is established.
    pub at: Span,
    /// Payload bytes.
    pub bytes: Bytes,
}

impl AppWrite {
    /// The bytes of write `nth` of a script, counted from 0, and the time of the write after it, if
    /// any.
    pub fn nth_write(script: &[AppWrite], nth: u64) -> (u64, Option<Span>) {
        let write = |n| script.get(usize::try_from(n).ok()?);
        (write(nth).map_or(0, |write| write.bytes.0), write(nth.saturating_add(1)).map(|write| write.at))
    }
}

/// Limit on the writes of all connections of a flow: each connection keeps its own script.
const MAX_WRITES: u64 = 1_000_000;

fn default_chunk() -> Bytes {
    Bytes(16 * 1024)
}

fn default_request() -> Bytes {
    Bytes(200)
}

impl App {
    /// Checks the pattern for a flow of `connections` connections in a run of `duration`.
    pub(super) fn validate(&self, connections: u32, duration: Span) -> Result<(), Fault> {
        let zero = |key: &str| Err(Fault::new(key, "must be above zero"));
        match self {
            App::Bulk => Ok(()),
            App::Rate { rate, .. } if *rate == Rate::ZERO => zero("rate"),
            App::Rate { chunk, .. } if chunk.0 == 0 => zero("chunk"),
            App::Bursts { size, .. } if size.0 == 0 => zero("size"),
            App::Bursts { every, .. } if every.is_zero() => zero("every"),
            App::RequestResponse { request, .. } if request.0 == 0 => zero("request"),
            App::RequestResponse { response, .. } if response.0 == 0 => zero("response"),
            App::Writes { writes } if writes.is_empty() => {
                Err(Fault::new("writes", "must list at least one write"))
            }
            App::Writes { writes } if writes.len() as u64 * u64::from(connections) > MAX_WRITES => {
                let reason = format!(
                    "{} writes on each of {connections} connections exceed {MAX_WRITES} in total",
                    writes.len()
                );
                Err(Fault::new("writes", reason))
            }
            App::Writes { writes } => {
                for (i, write) in writes.iter().enumerate() {
                    if write.bytes.0 == 0 {
                        return zero(&format!("writes.{i}.bytes"));
                    }
                    if i > 0 && write.at < writes[i - 1].at {
                        let before = writes[i - 1].at;
                        let reason = format!("{} is before the previous write, at {before}", write.at);
                        return Err(Fault::new(&format!("writes.{i}.at"), reason));
                    }
                    if write.at >= duration {
                        let reason = format!("{} is not before the end of the run at {duration}", write.at);
                        return Err(Fault::new(&format!("writes.{i}.at"), reason));
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(writes: impl IntoIterator<Item = (u64, u64)>) -> App {
        let write = |(ms, bytes)| AppWrite { at: Span::from_millis(ms), bytes: Bytes(bytes) };
        App::Writes { writes: writes.into_iter().map(write).collect() }
    }

    #[test]
    fn invalid_script_is_rejected_with_its_key() {
        let wrong =
            |app: App, connections| app.validate(connections, Span::from_secs(1)).unwrap_err().to_string();
        assert!(script([(0, 1), (0, 1), (999, u64::MAX)]).validate(1, Span::from_secs(1)).is_ok());
        for (app, connections, words) in [
            (script([]), 1, &["writes", "must list at least one write"][..]),
            (script([(0, 1), (5, 0)]), 1, &["writes.1.bytes", "above zero"]),
            (script([(5, 1), (4, 1)]), 1, &["writes.1.at", "4ms", "5ms"]),
            (script([(0, 1), (1000, 1)]), 1, &["writes.1.at", "end of the run", "1s"]),
            (script([(0, 1); 11]), 100_000, &["writes", "11 writes on each of 100000"]),
        ] {
            let error = wrong(app, connections);
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
        assert!(script([(0, 1); 10]).validate(100_000, Span::from_secs(1)).is_ok());
    }

    #[test]
    fn nth_write_returns_its_bytes_and_the_time_of_the_next() {
        let App::Writes { writes } = script([(0, 7), (3, 8)]) else { unreachable!() };
        assert_eq!(AppWrite::nth_write(&writes, 0), (7, Some(Span::from_millis(3))));
        assert_eq!(AppWrite::nth_write(&writes, 1), (8, None));
        assert_eq!(AppWrite::nth_write(&writes, u64::MAX), (0, None));
    }
}
