//! The bytes of a log: counted, and bounded between two events.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

/// Bytes of the longest event, header or name. An event has at most a few kilobytes: the frames of
/// one packet.
pub(super) const MAX_EVENT_BYTES: u64 = 1 << 20;

/// How far a file is read, and up to where it may be read before the next event.
#[derive(Debug)]
pub(super) struct Position {
    read: Cell<u64>,
    limit: Cell<u64>,
    /// Whether reading stopped at the limit.
    exceeded: Cell<bool>,
    /// Whether the source could not be read or decompressed further.
    failed: Cell<bool>,
}

impl Position {
    /// Bytes read.
    pub(super) fn read(&self) -> u64 {
        self.read.get()
    }

    /// An event begins: it may be as long as any.
    pub(super) fn begin(&self) {
        self.limit.set(self.read.get().saturating_add(MAX_EVENT_BYTES));
    }

    pub(super) fn is_exceeded(&self) -> bool {
        self.exceeded.get()
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.get()
    }
}

/// A source that counts, and ends with an error at the limit.
pub(super) struct Bounded<R> {
    source: BufReader<R>,
    position: Rc<Position>,
}

impl<R: Read> Bounded<R> {
    pub(super) fn new(source: R) -> (Self, Rc<Position>) {
        let position = Rc::new(Position {
            read: Cell::new(0),
            limit: Cell::new(MAX_EVENT_BYTES),
            exceeded: Cell::new(false),
            failed: Cell::new(false),
        });
        let source = BufReader::with_capacity(1 << 18, source);
        (Bounded { source, position: position.clone() }, position)
    }

    /// Reads up to and with `delimiter` into `out`, at most the bytes of one event; returns whether
    /// there was any. A longer record is skipped: `out` is empty then.
    pub(super) fn record(&mut self, delimiter: u8, out: &mut Vec<u8>) -> bool {
        out.clear();
        let mut read: u64 = 0;
        loop {
            let available = match self.source.fill_buf() {
                Ok(bytes) => bytes,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => {
                    self.position.failed.set(true);
                    &[]
                }
            };
            if available.is_empty() {
                return read > 0;
            }
            let end = available.iter().position(|b| *b == delimiter);
            let taken = end.map_or(available.len(), |i| i + 1);
            if read.saturating_add(taken as u64) <= MAX_EVENT_BYTES {
                out.extend_from_slice(&available[..taken]);
            } else {
                out.clear();
            }
            read += taken as u64;
            self.source.consume(taken);
            self.position.read.set(self.position.read.get() + taken as u64);
            if end.is_some() {
                return true;
            }
        }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = self.position.limit.get().saturating_sub(self.position.read.get());
        if left == 0 && !out.is_empty() {
            self.position.exceeded.set(true);
            return Err(io::Error::new(io::ErrorKind::InvalidData, "event too long"));
        }
        let most = out.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let n = self.source.read(&mut out[..most]).inspect_err(|_| self.position.failed.set(true))?;
        self.position.read.set(self.position.read.get() + n as u64);
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_record_is_skipped_and_the_next_is_read() {
        let long = vec![b'x'; MAX_EVENT_BYTES as usize + 1];
        let bytes = [b"one\n", &long[..], b"\ntwo"].concat();
        let (mut source, position) = Bounded::new(&bytes[..]);
        let mut out = Vec::new();
        for expected in [&b"one\n"[..], b"", b"two"] {
            assert!(source.record(b'\n', &mut out));
            assert_eq!(out, expected);
        }
        assert!(!source.record(b'\n', &mut out));
        assert_eq!(position.read(), bytes.len() as u64);
    }

    #[test]
    fn reading_beyond_an_event_is_an_error() {
        let bytes = vec![b' '; 3 << 20];
        let (mut source, position) = Bounded::new(&bytes[..]);
        let mut half = vec![0; MAX_EVENT_BYTES as usize / 2];
        source.read_exact(&mut half).unwrap();
        position.begin();
        source.read_exact(&mut half).unwrap();
        source.read_exact(&mut half).unwrap();
        assert!(source.read_exact(&mut half).is_err() && position.is_exceeded());
    }
}
