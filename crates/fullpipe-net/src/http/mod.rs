//! HTTP/1.1 messages as bytes (RFC 9112): heads, and where bodies end. Nothing here touches a socket.
//!
//! Two readers that disagree on where a message ends can be played against each other (RFC 9112 section
//! 11.2), so whatever can be read in two ways is refused: several lengths, a length beside chunks, codings
//! other than `chunked`, sizes that are not plain numbers, lines that end in half a line end.

mod chunked;
mod fields;
mod request;
mod response;

pub use chunked::{Chunked, Step};
pub use request::RequestHead;
pub use response::{ContentRange, ResponseHead};

/// Where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// After so many bytes.
    Length(u64),
    /// After the last chunk.
    Chunked,
    /// With the connection; only an answer can.
    Open,
}

/// Why a message cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// It is not HTTP/1.1, or can be read in two ways.
    #[error("{0}")]
    Malformed(String),
    /// It uses a transfer coding that is not known here.
    #[error("the transfer coding `{0}` is not known here")]
    Coding(String),
    /// It has too many fields.
    #[error("the head has more than {0} fields")]
    Fields(usize),
    /// It expects what is not known here.
    #[error("the expectation `{0}` is not known here")]
    Expectation(String),
    /// Its body is larger than allowed.
    #[error("at most {0} bytes")]
    TooLarge(u64),
}

impl MessageError {
    pub(crate) fn malformed(why: impl Into<String>) -> Self {
        MessageError::Malformed(why.into())
    }
}
