//! HTTP/1.1 messages as bytes (RFC 9112): heads and framing, without I/O.
//!
//! Readers that disagree on where a message ends enable request smuggling (RFC 9112 section 11.2),
//! so everything ambiguous is refused: duplicate lengths, a length beside chunks, codings other
//! than `chunked`, sizes that are not plain numbers, incomplete line ends.

mod chunked;
mod fields;
mod request;
mod response;

pub use chunked::{Chunked, Step};
pub use request::RequestHead;
pub use response::{ContentRange, ResponseHead};

/// Whether a page of another site makes a request with these fields, which include `Host`.
///
/// # Errors
/// If they are ambiguous.
#[cfg(feature = "rpm")]
pub(crate) fn is_cross_site(headers: &[httparse::Header<'_>]) -> Result<bool, MessageError> {
    request::cross_site(&fields::Fields::read(headers))
}

/// How a body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// By length in bytes.
    Length(u64),
    /// By chunks.
    Chunked,
    /// By the end of the connection; responses only.
    Open,
}

/// Why a message is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Not HTTP/1.1, or ambiguous.
    #[error("{0}")]
    Malformed(String),
    /// Unsupported transfer coding.
    #[error("transfer coding `{0}` is not supported")]
    Coding(String),
    /// Too many fields.
    #[error("the head has more than {0} fields")]
    Fields(usize),
    /// Unsupported expectation.
    #[error("expectation `{0}` is not supported")]
    Expectation(String),
    /// The body is too large.
    #[error("at most {0} bytes")]
    TooLarge(u64),
}

impl MessageError {
    pub(crate) fn malformed(why: impl Into<String>) -> Self {
        MessageError::Malformed(why.into())
    }
}
