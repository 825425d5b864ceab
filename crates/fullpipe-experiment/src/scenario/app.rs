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
}

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
            _ => Ok(()),
        }
    }
}
