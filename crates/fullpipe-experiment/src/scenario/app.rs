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

/// The most writes of a script.
const WRITES_MOST: usize = 100_000;

fn default_chunk() -> Bytes {
    Bytes(16 * 1024)
}

fn default_request() -> Bytes {
    Bytes(200)
}

impl App {
    pub(super) fn validate(&self) -> Result<(), Fault> {
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
            App::Writes { writes } if writes.len() > WRITES_MOST => {
                let reason = format!("{} are more than {WRITES_MOST}", writes.len());
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
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
