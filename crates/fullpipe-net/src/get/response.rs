//! The answer to a download: its head, and a body of known length, in chunks, or to the end.

use super::Channel;
use std::io::{self, Read};

/// The longest head accepted.
const MAX_HEAD: usize = 64 * 1024;

/// The head of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Head {
    pub status: u16,
    pub reason: String,
    headers: Vec<(String, String)>,
}

impl Head {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// Of the body, if it is told and not overruled by chunks.
    pub fn length(&self) -> Option<u64> {
        if self.chunked() { None } else { self.header("content-length")?.trim().parse().ok() }
    }

    fn chunked(&self) -> bool {
        self.header("transfer-encoding").is_some_and(|v| v.to_ascii_lowercase().contains("chunked"))
    }

    /// The first byte of a partial answer.
    pub fn range_start(&self) -> Option<u64> {
        self.header("content-range")?.strip_prefix("bytes ")?.split('-').next()?.trim().parse().ok()
    }

    /// The length of the whole, from a partial or refused answer.
    pub fn complete_length(&self) -> Option<u64> {
        if let Some(range) = self.header("content-range") {
            return range.rsplit('/').next()?.trim().parse().ok();
        }
        None
    }

    fn parse(bytes: &[u8]) -> io::Result<Option<(Head, usize)>> {
        let mut headers = [httparse::EMPTY_HEADER; 128];
        let mut answer = httparse::Response::new(&mut headers);
        match answer.parse(bytes) {
            Ok(httparse::Status::Partial) => Ok(None),
            Ok(httparse::Status::Complete(length)) => {
                let text = |v: &[u8]| String::from_utf8_lossy(v).trim().to_owned();
                let head = Head {
                    status: answer.code.unwrap_or(0),
                    reason: answer.reason.unwrap_or("").to_owned(),
                    headers: answer.headers.iter().map(|h| (h.name.to_owned(), text(h.value))).collect(),
                };
                Ok(Some((head, length)))
            }
            Err(e) => Err(io::Error::new(io::ErrorKind::InvalidData, e.to_string())),
        }
    }
}

/// Reads a head; gives it with what came after it. Interim answers (1xx) are passed over.
pub(super) fn read_head(channel: &mut Box<dyn Channel>) -> io::Result<(Head, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        while let Some((head, length)) = Head::parse(&bytes)? {
            bytes.drain(..length);
            if !(100..200).contains(&head.status) {
                return Ok((head, bytes));
            }
        }
        if bytes.len() > MAX_HEAD {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its head does not end"));
        }
        match channel.read(&mut piece) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection")),
            Ok(n) => bytes.extend_from_slice(&piece[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

enum Framing {
    /// So many bytes are left.
    Length(u64),
    /// So many bytes are left of this chunk; the first has not begun.
    Chunks { left: u64, first: bool },
    /// To the end of the connection.
    Open,
    /// Nothing is left.
    Done,
}

/// The body of an answer.
pub(super) struct Body {
    channel: Box<dyn Channel>,
    buffer: Vec<u8>,
    taken: usize,
    framing: Framing,
}

impl Body {
    /// `rest` came together with the head.
    pub fn new(channel: Box<dyn Channel>, rest: Vec<u8>, head: &Head) -> Body {
        let framing = match head.length() {
            _ if head.chunked() => Framing::Chunks { left: 0, first: true },
            Some(length) => Framing::Length(length),
            None => Framing::Open,
        };
        Body { channel, buffer: rest, taken: 0, framing }
    }

    /// From the buffer as long as it lasts, then from the channel.
    fn raw(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let waiting = &self.buffer[self.taken..];
        if waiting.is_empty() {
            return self.channel.read(into);
        }
        let n = waiting.len().min(into.len());
        into[..n].copy_from_slice(&waiting[..n]);
        self.taken += n;
        Ok(n)
    }

    /// One line, without its end.
    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        let mut byte = [0];
        loop {
            if self.raw(&mut byte)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            match byte[0] {
                b'\n' => return Ok(String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned()),
                _ if line.len() > 8192 => {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "an endless line"));
                }
                b => line.push(b),
            }
        }
    }

    /// The size of the next chunk; after the last, the trailers are read away.
    fn next_chunk(&mut self, first: bool) -> io::Result<u64> {
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, "a chunk without a size");
        if !first && !self.line()?.is_empty() {
            return Err(invalid());
        }
        let line = self.line()?;
        let size = line.split(';').next().unwrap_or("").trim();
        let size = u64::from_str_radix(size, 16).map_err(|_| invalid())?;
        if size == 0 {
            while !self.line()?.is_empty() {}
        }
        Ok(size)
    }
}

impl Read for Body {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        if let Framing::Chunks { left: 0, first } = self.framing {
            self.framing = match self.next_chunk(first)? {
                0 => Framing::Done,
                left => Framing::Chunks { left, first: false },
            };
        }
        let most = match self.framing {
            Framing::Done | Framing::Length(0) => return Ok(0),
            Framing::Length(left) | Framing::Chunks { left, .. } => left.min(into.len() as u64) as usize,
            Framing::Open => into.len(),
        };
        let n = self.raw(&mut into[..most])?;
        match &mut self.framing {
            Framing::Length(left) | Framing::Chunks { left, .. } => {
                if n == 0 {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the server closed the connection",
                    ));
                }
                *left -= n as u64;
            }
            Framing::Open | Framing::Done => {}
        }
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{Cursor, Write};

    /// A server that has said everything already.
    struct Said(Cursor<Vec<u8>>);
    impl Read for Said {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(buffer)
        }
    }
    impl Write for Said {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn fetch(said: &[u8]) -> io::Result<(Head, Vec<u8>)> {
        let mut channel: Box<dyn Channel> = Box::new(Said(Cursor::new(said.to_vec())));
        let (head, rest) = read_head(&mut channel)?;
        let mut body = Vec::new();
        Body::new(channel, rest, &head).read_to_end(&mut body)?;
        Ok((head, body))
    }

    #[test]
    fn bodies_end_where_they_say() {
        let known = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcde";
        assert_eq!(fetch(known).unwrap().1, b"abc");
        let chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: x\r\n\r\n";
        assert_eq!(fetch(chunks).unwrap().1, b"abcde");
        assert_eq!(fetch(b"HTTP/1.1 200 OK\r\n\r\nall").unwrap().1, b"all");
    }

    #[test]
    fn a_body_cut_short_is_an_error() {
        assert!(fetch(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc").is_err());
        assert!(fetch(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc").is_err());
        assert!(fetch(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n").is_err());
        assert!(fetch(b"SSH-2.0-OpenSSH\r\n").is_err());
        assert!(fetch(b"").is_err());
    }

    #[test]
    fn ranges_are_read_from_partial_answers() {
        let (head, _) = fetch(b"HTTP/1.1 206 P\r\nContent-Range: bytes 5-9/10\r\n\r\n").unwrap();
        assert_eq!((head.range_start(), head.complete_length()), (Some(5), Some(10)));
        let (head, _) = fetch(b"HTTP/1.1 416 R\r\nContent-Range: bytes */10\r\n\r\n").unwrap();
        assert_eq!((head.range_start(), head.complete_length()), (None, Some(10)));
    }

    proptest! {
        #[test]
        fn no_answer_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300), body in "[0-9a-f]{0,4}\r\n[ -~\r\n]{0,60}") {
            let _ = fetch(&bytes);
            let _ = fetch(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}").as_bytes());
        }
    }
}
