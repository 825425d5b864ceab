//! When the application has something to send.

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
        /// Bytes a write.
        #[serde(default = "default_chunk")]
        chunk: Bytes,
    },
    /// `size` bytes at once, then nothing until `every` has passed since the burst began (and the
    /// burst is delivered): page loads, transfers over a persistent connection, video segments.
    Bursts {
        /// Bytes a burst.
        size: Bytes,
        /// From the start of one burst to the start of the next.
        every: Span,
    },
    /// The peer asks, the sender answers; the next question follows `think` after the answer is complete.
    RequestResponse {
        /// Bytes of a request.
        #[serde(default = "default_request")]
        request: Bytes,
        /// Bytes of an answer.
        response: Bytes,
        /// Pause between an answer and the next request.
        #[serde(default)]
        think: Span,
    },
    /// What is written when, in the order of time; nothing after the last.
    Writes {
        /// Each write.
        writes: Vec<AppWrite>,
    },
}

/// Bytes that an application has to send from a time on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AppWrite {
    /// When, counted from when the flow's connection is there.
    pub at: Span,
    /// How many.
    pub bytes: Bytes,
}

impl AppWrite {
    /// The bytes of the `nth` write of a script, counted from 0, and when the one behind it is due, if there is one.
    pub fn nth_write(script: &[AppWrite], nth: u64) -> (u64, Option<Span>) {
        let write = |n| script.get(usize::try_from(n).ok()?);
        (write(nth).map_or(0, |write| write.bytes.0), write(nth.saturating_add(1)).map(|write| write.at))
    }
}

/// The most writes of all connections of a flow together: each connection holds its script.
const WRITES_MOST: u64 = 1_000_000;

fn default_chunk() -> Bytes {
    Bytes(16 * 1024)
}

fn default_request() -> Bytes {
    Bytes(200)
}

impl App {
    /// As the application of so many connections in a run of this length.
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
                Err(Fault::new("writes", "nothing is ever written"))
            }
            App::Writes { writes } if writes.len() as u64 * u64::from(connections) > WRITES_MOST => {
                let reason = format!(
                    "{} of each of {connections} connections are more than {WRITES_MOST} in all",
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
                        let reason = format!("{} is before the write in front of it, at {before}", write.at);
                        return Err(Fault::new(&format!("writes.{i}.at"), reason));
                    }
                    if write.at >= duration {
                        let reason = format!("{} is never: the run ends at {duration}", write.at);
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
    fn a_script_that_cannot_be_is_refused_with_its_place() {
        let wrong =
            |app: App, connections| app.validate(connections, Span::from_secs(1)).unwrap_err().to_string();
        assert!(script([(0, 1), (0, 1), (999, u64::MAX)]).validate(1, Span::from_secs(1)).is_ok());
        for (app, connections, words) in [
            (script([]), 1, &["writes", "nothing is ever written"][..]),
            (script([(0, 1), (5, 0)]), 1, &["writes.1.bytes", "above zero"]),
            (script([(5, 1), (4, 1)]), 1, &["writes.1.at", "4ms", "5ms"]),
            (script([(0, 1), (1000, 1)]), 1, &["writes.1.at", "never", "1s"]),
            (script([(0, 1); 11]), 100_000, &["writes", "11 of each of 100000"]),
        ] {
            let told = wrong(app, connections);
            assert!(words.iter().all(|word| told.contains(word)), "{told}");
        }
        assert!(script([(0, 1); 10]).validate(100_000, Span::from_secs(1)).is_ok());
    }

    #[test]
    fn each_write_of_a_script_tells_when_the_next_is_due() {
        let App::Writes { writes } = script([(0, 7), (3, 8)]) else { unreachable!() };
        assert_eq!(AppWrite::nth_write(&writes, 0), (7, Some(Span::from_millis(3))));
        assert_eq!(AppWrite::nth_write(&writes, 1), (8, None));
        assert_eq!(AppWrite::nth_write(&writes, u64::MAX), (0, None));
    }
}
