//! The response to a download: its head, and a body of known length, in chunks, or up to the end of
//! the connection.

use crate::http::{Chunked, Framing, MessageError, ResponseHead, Step};
use std::io::{self, Read};
use std::time::Instant;

/// Maximum head size, including interim responses.
const MAX_HEAD: usize = 64 * 1024;

fn invalid(e: MessageError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, e)
}

/// Reads a response head and returns it with the bytes that followed. Interim responses (1xx) are
/// skipped.
///
/// # Errors
/// Read errors; `InvalidData` if it is not HTTP/1.1; `TimedOut` if it is incomplete at `deadline`.
pub fn read_head(channel: &mut impl Read, deadline: Instant) -> io::Result<(ResponseHead, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    let mut passed = 0;
    loop {
        while let Some((head, length)) = ResponseHead::parse(&bytes).map_err(invalid)? {
            bytes.drain(..length);
            if !(100..200).contains(&head.status) {
                return Ok((head, bytes));
            }
            passed += length;
        }
        if passed + bytes.len() > MAX_HEAD {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the response head is too long"));
        }
        if Instant::now() >= deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "timed out reading the response head"));
        }
        match channel.read(&mut piece) {
            Ok(0) => {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
            }
            Ok(n) => bytes.extend_from_slice(&piece[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

enum Remaining {
    /// This many bytes.
    Bytes(u64),
    /// Chunks.
    Chunks(Chunked),
    /// Everything up to the end of the connection.
    Open,
}

/// The body of a response.
pub struct Body<R> {
    channel: R,
    buffer: Vec<u8>,
    remaining: Remaining,
}

impl<R: Read> Body<R> {
    /// Creates a body; `rest` was received together with the head.
    ///
    /// # Errors
    /// If the framing is missing or ambiguous.
    pub fn new(channel: R, rest: Vec<u8>, head: &ResponseHead) -> Result<Body<R>, MessageError> {
        let remaining = match head.framing()? {
            Framing::Length(length) => Remaining::Bytes(length),
            Framing::Chunked => Remaining::Chunks(Chunked::new(u64::MAX)),
            Framing::Open => Remaining::Open,
        };
        Ok(Body { channel, buffer: rest, remaining })
    }

    /// The maximum number of bytes that come next; `None` at the end. Skips framing.
    fn next(&mut self) -> io::Result<Option<u64>> {
        loop {
            let chunked = match &mut self.remaining {
                Remaining::Bytes(0) => return Ok(None),
                Remaining::Bytes(remaining) => return Ok(Some(*remaining)),
                Remaining::Open => return Ok(Some(u64::MAX)),
                Remaining::Chunks(chunked) => chunked,
            };
            match chunked.next(&self.buffer).map_err(invalid)? {
                Step::Data(n) => return Ok(Some(n)),
                Step::Done => return Ok(None),
                Step::Framing(n) => drop(self.buffer.drain(..n)),
                Step::NeedMore => {
                    let mut piece = [0; 4096];
                    match self.channel.read(&mut piece)? {
                        0 => return Err(truncated()),
                        n => self.buffer.extend_from_slice(&piece[..n]),
                    }
                }
            }
        }
    }
}

fn truncated() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")
}

impl<R: Read> Read for Body<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        let Some(max) = self.next()? else { return Ok(0) };
        let max = max.min(into.len() as u64) as usize;
        let n = if self.buffer.is_empty() {
            self.channel.read(&mut into[..max])?
        } else {
            let n = self.buffer.len().min(max);
            into[..n].copy_from_slice(&self.buffer[..n]);
            self.buffer.drain(..n);
            n
        };
        match &mut self.remaining {
            Remaining::Open => {}
            Remaining::Bytes(_) | Remaining::Chunks(_) if n == 0 => return Err(truncated()),
            Remaining::Bytes(remaining) => *remaining -= n as u64,
            Remaining::Chunks(chunked) => chunked.consume(n as u64),
        }
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    /// A server with a scripted response, delivered in pieces.
    struct Script<'a>(&'a [u8], usize);
    impl Read for Script<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let n = self.0.len().min(self.1).min(into.len());
            into[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    fn fetch(script: &[u8], step: usize) -> io::Result<(ResponseHead, Vec<u8>)> {
        let mut channel = Script(script, step);
        let (head, rest) = read_head(&mut channel, Instant::now() + Duration::from_secs(60))?;
        let mut body = Vec::new();
        Body::new(channel, rest, &head).map_err(invalid)?.read_to_end(&mut body)?;
        Ok((head, body))
    }

    #[test]
    fn bodies_end_as_framed() {
        let known = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcde";
        let chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: \
            chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: x\r\n\r\n";
        for step in [1, 3, 1000] {
            assert_eq!(fetch(known, step).unwrap().1, b"abc");
            assert_eq!(fetch(chunks, step).unwrap().1, b"abcde");
            assert_eq!(fetch(b"HTTP/1.1 200 OK\r\n\r\nall", step).unwrap().1, b"all");
        }
    }

    #[test]
    fn a_body_cut_short_is_an_error() {
        for script in [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"[..],
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"SSH-2.0-OpenSSH\r\n",
            b"",
        ] {
            assert!(fetch(script, 100).is_err());
        }
        assert!(fetch(&b"HTTP/1.1 100 Continue\r\n\r\n".repeat(4000), 1000).is_err(), "endless");
        let late = read_head(&mut Script(b"HTTP/1.1 200 OK\r\n\r\n", 1), Instant::now());
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    proptest! {
        #[test]
        fn arbitrary_responses_never_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            body in "[0-9a-f]{0,4}\r\n[ -~\r\n]{0,60}",
            step in 1usize..99) {
            let _ = fetch(&bytes, step);
            let _ = fetch(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: \
                chunked\r\n\r\n{body}").as_bytes(), step);
        }
    }
}
