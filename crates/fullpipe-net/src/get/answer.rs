//! The answer to a download: its head, and a body of known length, in chunks, or to the end.

use crate::http::{Chunked, Framing, MessageError, ResponseHead, Step};
use std::io::{self, Read};
use std::time::Instant;

/// The longest head accepted, with the interim answers before it.
const MAX_HEAD: usize = 64 * 1024;

fn invalid(e: MessageError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, e)
}

/// Reads a head; gives it with what came after it. Interim answers (1xx) are passed over.
///
/// # Errors
/// The channel's, and `InvalidData` for what is not HTTP/1.1. `TimedOut` when it is not whole by `deadline`,
/// however steadily it drips.
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
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its head does not end"));
        }
        if Instant::now() >= deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "its head did not come in time"));
        }
        match channel.read(&mut piece) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection")),
            Ok(n) => bytes.extend_from_slice(&piece[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

enum Left {
    /// So many bytes.
    Bytes(u64),
    /// Chunks.
    Chunks(Chunked),
    /// What there is until the end of the connection.
    Open,
}

/// The body of an answer.
pub struct Body<R> {
    channel: R,
    buffer: Vec<u8>,
    left: Left,
}

impl<R: Read> Body<R> {
    /// `rest` came together with the head.
    ///
    /// # Errors
    /// When the head does not say clearly where the body ends.
    pub fn new(channel: R, rest: Vec<u8>, head: &ResponseHead) -> Result<Body<R>, MessageError> {
        let left = match head.framing()? {
            Framing::Length(length) => Left::Bytes(length),
            Framing::Chunked => Left::Chunks(Chunked::new(u64::MAX)),
            Framing::Open => Left::Open,
        };
        Ok(Body { channel, buffer: rest, left })
    }

    /// How many bytes come next, at most; `None` at the end. Passes over what frames them.
    fn next(&mut self) -> io::Result<Option<u64>> {
        loop {
            let chunked = match &mut self.left {
                Left::Bytes(0) => return Ok(None),
                Left::Bytes(left) => return Ok(Some(*left)),
                Left::Open => return Ok(Some(u64::MAX)),
                Left::Chunks(chunked) => chunked,
            };
            match chunked.next(&self.buffer).map_err(invalid)? {
                Step::Data(n) => return Ok(Some(n)),
                Step::Over => return Ok(None),
                Step::Frame(n) => drop(self.buffer.drain(..n)),
                Step::More => {
                    let mut piece = [0; 4096];
                    match self.channel.read(&mut piece)? {
                        0 => return Err(cut_short()),
                        n => self.buffer.extend_from_slice(&piece[..n]),
                    }
                }
            }
        }
    }
}

fn cut_short() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")
}

impl<R: Read> Read for Body<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        let Some(most) = self.next()? else { return Ok(0) };
        let most = most.min(into.len() as u64) as usize;
        let n = if self.buffer.is_empty() {
            self.channel.read(&mut into[..most])?
        } else {
            let n = self.buffer.len().min(most);
            into[..n].copy_from_slice(&self.buffer[..n]);
            self.buffer.drain(..n);
            n
        };
        match &mut self.left {
            Left::Open => {}
            Left::Bytes(_) | Left::Chunks(_) if n == 0 => return Err(cut_short()),
            Left::Bytes(left) => *left -= n as u64,
            Left::Chunks(chunked) => chunked.took(n as u64),
        }
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    /// A server that has said everything already, in pieces of so many bytes.
    struct Said<'a>(&'a [u8], usize);
    impl Read for Said<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let n = self.0.len().min(self.1).min(into.len());
            into[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    fn fetch(said: &[u8], step: usize) -> io::Result<(ResponseHead, Vec<u8>)> {
        let mut channel = Said(said, step);
        let (head, rest) = read_head(&mut channel, Instant::now() + Duration::from_secs(60))?;
        let mut body = Vec::new();
        Body::new(channel, rest, &head).map_err(invalid)?.read_to_end(&mut body)?;
        Ok((head, body))
    }

    #[test]
    fn bodies_end_where_they_say() {
        let known = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcde";
        let chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: x\r\n\r\n";
        for step in [1, 3, 1000] {
            assert_eq!(fetch(known, step).unwrap().1, b"abc");
            assert_eq!(fetch(chunks, step).unwrap().1, b"abcde");
            assert_eq!(fetch(b"HTTP/1.1 200 OK\r\n\r\nall", step).unwrap().1, b"all");
        }
    }

    #[test]
    fn a_body_cut_short_is_an_error() {
        for said in [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"[..],
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"SSH-2.0-OpenSSH\r\n",
            b"",
        ] {
            assert!(fetch(said, 100).is_err());
        }
        assert!(fetch(&b"HTTP/1.1 100 Continue\r\n\r\n".repeat(4000), 1000).is_err(), "endless");
        let late = read_head(&mut Said(b"HTTP/1.1 200 OK\r\n\r\n", 1), Instant::now());
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    proptest! {
        #[test]
        fn no_answer_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300), body in "[0-9a-f]{0,4}\r\n[ -~\r\n]{0,60}", step in 1usize..99) {
            let _ = fetch(&bytes, step);
            let _ = fetch(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}").as_bytes(), step);
        }
    }
}
