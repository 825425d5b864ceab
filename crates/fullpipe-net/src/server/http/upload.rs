//! `PUT /upload`: counts and discards any body.

use super::connection::{Connection, Watch};
use super::{Event, Failed, MAX_SIZE, Next, admit, bad, rate, refusal};
use crate::http::{Chunked, Framing, MessageError, RequestHead, Step};
use crate::transfer::{DISCARD_BLOCK, Pacer};
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
    let rate = rate(request)?;
    let _permit = admit(connection, request)?;
    if request.expects_continue && connection.buffer.is_empty() {
        connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let began = Instant::now();
    let watch = Watch::new(connection, Duration::from_secs(limits.seconds.into()));
    let mut body =
        Body { connection, watch, pace: Pacer::new(rate), received: 0, blocked: Duration::ZERO, recent: 0 };
    let taken = match request.framing {
        Framing::Chunked => body.chunks(max),
        Framing::Length(length) => body.receive(length).map_err(Failed::Broken),
        Framing::Open => Err(bad("body without framing").into()),
    };
    body.connection.settle();
    let (bytes, seconds) = (body.received, began.elapsed().as_secs_f64());
    let event = Event::new("upload", Some(connection.peer)).with("seconds", seconds).with("bytes", bytes);
    connection.shared.log(match &taken {
        Ok(()) => event,
        Err(Failed::Refused(refusal)) => event.with("error", refusal.why.clone()),
        Err(Failed::Broken(e)) => event.with("error", e.to_string()),
    });
    connection.shared.finish();
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
    /// Time spent waiting for the client, and bytes received, since its pace was last checked.
    blocked: Duration,
    recent: u64,
}

/// Bytes of chunk framing allowed at first, and for each byte of data.
const FRAMING: [u64; 2] = [64 * 1024, 8];
/// Clients that send fewer bytes per second, while nothing but the client limits the upload, are
/// dropped: each holds a place.
const MIN_BYTES_PER_SECOND: u64 = 64;

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
            self.recent += n as u64;
            self.watch.wait(&mut self.pace, n)?;
            self.connection.wait(n, &mut self.watch)?;
        }
        Ok(())
    }

    /// Discards up to `max` bytes from the socket without copying them.
    fn discard(&mut self, max: u64) -> io::Result<usize> {
        let allowed = self.connection.quantum(DISCARD_BLOCK, 16 * 1024);
        let max = max.min(self.pace.quantum(allowed, 16 * 1024) as u64) as usize;
        let began = Instant::now();
        loop {
            match socket::discard(self.connection.socket, max) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    self.check_pace(began.elapsed())?;
                    return Ok(n);
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
                    self.watch.check_idle()?;
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Fails if the client is too slow: no progress for the idle limit is an error as well.
    fn check_pace(&mut self, blocked: Duration) -> io::Result<()> {
        let idle = self.connection.shared.config.limits.idle;
        self.blocked += blocked;
        if self.blocked < idle {
            return Ok(());
        }
        if (self.recent as f64) < MIN_BYTES_PER_SECOND as f64 * idle.as_secs_f64() {
            let why = format!("less than {MIN_BYTES_PER_SECOND} bytes per second for {idle:?}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        (self.blocked, self.recent) = (Duration::ZERO, 0);
        Ok(())
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
                    self.connection.wait(n, &mut self.watch)?;
                }
                Step::Data(n) => {
                    self.receive(n)?;
                    chunked.consume(n);
                }
                Step::NeedMore => {
                    self.watch.check_idle()?;
                    let began = Instant::now();
                    if !self.connection.fill(began + self.connection.shared.config.limits.idle)? {
                        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                    }
                    self.check_pace(began.elapsed())?;
                    self.watch.moved();
                }
                Step::Done => return Ok(()),
            }
        }
    }
}
