//! Responses (RFC 9112 section 4).

use super::fields::{Fields, number};
use super::{Framing, MessageError};

/// Maximum number of fields.
const MAX_FIELDS: usize = 128;

/// The head of a response.
#[derive(Clone, Debug, PartialEq)]
pub struct ResponseHead {
    /// Status code.
    pub status: u16,
    /// Reason phrase, as sent.
    pub reason: String,
    version: u8,
    fields: Fields,
}

/// The content range of a response (RFC 9110 section 14.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// First and last byte; `None` if the requested range does not exist.
    pub part: Option<(u64, u64)>,
    /// Complete length, if known.
    pub complete: Option<u64>,
}

impl ResponseHead {
    /// Parses a complete head and returns it with its length; `None` if incomplete.
    ///
    /// # Errors
    /// If it is not HTTP/1.1.
    pub fn parse(bytes: &[u8]) -> Result<Option<(ResponseHead, usize)>, MessageError> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut head = httparse::Response::new(&mut headers);
        match head.parse(bytes) {
            Ok(httparse::Status::Partial) => Ok(None),
            Ok(httparse::Status::Complete(length)) => Ok(Some((
                ResponseHead {
                    status: head.code.unwrap_or(0),
                    reason: head.reason.unwrap_or("").to_owned(),
                    version: head.version.unwrap_or(0),
                    fields: Fields::read(head.headers),
                },
                length,
            ))),
            Err(httparse::Error::TooManyHeaders) => Err(MessageError::Fields(MAX_FIELDS)),
            Err(e) => Err(MessageError::malformed(e.to_string())),
        }
    }

    /// The first field with this lower-case name.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.first(name)
    }

    /// Framing of the response to a GET.
    ///
    /// # Errors
    /// If the framing is ambiguous.
    pub fn framing(&self) -> Result<Framing, MessageError> {
        if matches!(self.status, 100..=199 | 204 | 304) {
            return Ok(Framing::Length(0));
        }
        Ok(self.fields.framing(self.version)?.unwrap_or(Framing::Open))
    }

    /// The content range; `None` without the field.
    ///
    /// # Errors
    /// If the range is invalid.
    pub fn content_range(&self) -> Result<Option<ContentRange>, MessageError> {
        let Some(text) = self.fields.only("content-range")? else { return Ok(None) };
        parse_range(text)
            .map(Some)
            .ok_or_else(|| MessageError::malformed(format!("invalid `Content-Range: {text}`")))
    }
}

fn parse_range(text: &str) -> Option<ContentRange> {
    let (part, complete) = text.strip_prefix("bytes ")?.split_once('/')?;
    let complete = if complete == "*" { None } else { Some(number(complete)?) };
    if part == "*" {
        return complete.map(|n| ContentRange { part: None, complete: Some(n) });
    }
    let (first, last) = part.split_once('-')?;
    let (first, last) = (number(first)?, number(last)?);
    let possible = first <= last && complete.is_none_or(|n| last < n);
    possible.then_some(ContentRange { part: Some((first, last)), complete })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ResponseHead, MessageError> {
        ResponseHead::parse(text.as_bytes()).map(|parsed| parsed.expect("a whole head").0)
    }

    #[test]
    fn response_framing_is_parsed() {
        let framing = |text: &str| parse(text).unwrap().framing();
        assert_eq!(framing("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"), Ok(Framing::Length(3)));
        assert_eq!(framing("HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n"), Ok(Framing::Chunked));
        assert_eq!(framing("HTTP/1.0 200 OK\r\n\r\n"), Ok(Framing::Open));
        assert_eq!(framing("HTTP/1.1 204 No\r\n\r\n"), Ok(Framing::Length(0)));
        assert!(framing("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n").is_err());
        assert!(
            framing("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n").is_err()
        );
        assert!(parse("SSH-2.0-OpenSSH\r\n\r\n").is_err());
    }

    #[test]
    fn content_ranges_are_parsed_and_invalid_ones_refused() {
        let of = |text: &str| {
            parse(&format!("HTTP/1.1 206 P\r\nContent-Range: {text}\r\n\r\n")).unwrap().content_range()
        };
        assert_eq!(of("bytes 5-9/10"), Ok(Some(ContentRange { part: Some((5, 9)), complete: Some(10) })));
        assert_eq!(of("bytes 5-9/*"), Ok(Some(ContentRange { part: Some((5, 9)), complete: None })));
        assert_eq!(of("bytes */10"), Ok(Some(ContentRange { part: None, complete: Some(10) })));
        for bad in [
            "bytes 9-5/10",
            "bytes 5-10/10",
            "bytes 5-/10",
            "bytes 5",
            "lines 1-2/3",
            "bytes -5/10",
            "bytes */*",
            "bytes 5-9/+10",
        ] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
