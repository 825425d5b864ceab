//! `PUT /upload`: counts and discards any body.

use super::connection::{Connection, POLL_INTERVAL, Watch};
use super::{Event, Failed, MAX_SIZE, Next, admit, bad, rate, refusal};
use crate::control::readable;
use crate::http::{Chunked, Framing, MessageError, RequestHead, Step};
use crate::transfer::{DISCARD_BLOCK, MIN_RECEIVED, Pacer};
use fullpipe_kernel::socket;
use serde_json::json;
use std::io;
use std::time::{Duration, Instant};

pub(super) fn serve(connection: &mut Connection<'_>, request: &RequestHead) -> Result<Next, Failed> {
    let limits = &connection.shared.config.limits;
    let max = limits.bytes.unwrap_or(MAX_SIZE);
    if !request.framed {
        return Err(refusal("411 Length Required", "Content-Length or chunks required").into());
    }
    if matches!(request.framing, Framing::Length(n) if n > max) {
        return Err(MessageError::TooLarge(max).into());
    }
    let rate = rate(connection.shared, request)?;
    let _permit = admit(connection, request)?;
    if request.expects_continue && connection.buffer.is_empty() {
        connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let began = Instant::now();
    let watch = Watch::of_body(connection, Duration::from_secs(limits.seconds.into()), false);
    let mut body = Body { connection, watch, pace: Pacer::new(rate), received: 0 };
    let taken = match request.framing {
        Framing::Chunked => body.chunks(max),
        Framing::Length(length) => body.receive(length).map_err(Failed::Broken),
        Framing::Open => Err(bad("body without framing").into()),
    };
    let (bytes, seconds) = (body.received, began.elapsed().as_secs_f64());
    let event = Event::new("upload", Some(connection.peer)).with("seconds", seconds).with("bytes", bytes);
    connection.shared.log(match &taken {
        Ok(()) => event,
        Err(Failed::Refused(refusal)) => event.with("error", refusal.why.clone()),
        Err(Failed::Broken(e)) => event.with("error", e.to_string()),
    });
    connection.shared.finish(true);
    taken?;
    let bits_per_second = bytes as f64 * 8.0 / seconds.max(1e-9);
    let answer = json!({"bytes": bytes, "seconds": seconds, "bits_per_second": bits_per_second});
    Ok(connection.text(request, "application/json", &format!("{answer}\n"))?)
}

/// A body being received.
struct Body<'c, 'a> {
    connection: &'c mut Connection<'a>,
    watch: Watch<'a>,
    /// At the requested rate.
    pace: Pacer,
    received: u64,
}

/// Bytes of chunk framing allowed at first, and for each byte of data.
const FRAMING: [u64; 2] = [64 * 1024, 8];

impl Body<'_, '_> {
    /// Receives `length` bytes, the first of which may be buffered.
    fn receive(&mut self, length: u64) -> io::Result<()> {
        let mut left = length;
        while left > 0 {
            let buffered = self.connection.buffer.len();
            let n = if buffered > 0 {
                let n = (buffered as u64).min(left) as usize;
                self.connection.buffer.drain(..n);
                n
            } else {
                self.discard(left)?
            };
            left -= n as u64;
            self.received += n as u64;
            self.watch.wait(&mut self.pace, n)?;
            self.watch.transferred(n)?;
        }
        Ok(())
    }

    /// Discards up to `max` bytes from the socket without copying them.
    fn discard(&mut self, max: u64) -> io::Result<usize> {
        let socket = self.connection.socket;
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        let max = self.pace.quantum(DISCARD_BLOCK, MIN_RECEIVED).min(max);
        let bucket = self.connection.account.map(|account| &account.received);
        loop {
            // Only an unlimited reader waits in the socket.
            if bucket.is_some() && !readable(socket, POLL_INTERVAL)? {
                self.watch.check_idle()?;
                continue;
            }
            let grant = self.watch.grant(bucket, max, MIN_RECEIVED)?;
            match socket::discard(socket, grant.bytes()) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    grant.transferred(n);
                    return Ok(n);
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
                    self.watch.check_idle()?;
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Receives chunks until the last.
    fn chunks(&mut self, max: u64) -> Result<(), Failed> {
        let mut chunked = Chunked::new(max);
        let mut framing = 0;
        loop {
            match chunked.next(&self.connection.buffer)? {
                Step::Framing(n) => {
                    drop(self.connection.buffer.drain(..n));
                    framing += n as u64;
                    if framing > FRAMING[0] + FRAMING[1].saturating_mul(self.received) {
                        return Err(bad("more chunk framing than data").into());
                    }
                }
                Step::Data(n) => {
                    self.receive(n)?;
                    chunked.consume(n);
                }
                Step::NeedMore => {
                    self.watch.check_idle()?;
                    let mut deadline = Instant::now() + self.connection.shared.config.limits.idle;
                    if !self.connection.fill(&mut deadline)? {
                        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                    }
                    self.watch.transferred(0)?;
                }
                Step::Done => return Ok(()),
            }
        }
    }
}
