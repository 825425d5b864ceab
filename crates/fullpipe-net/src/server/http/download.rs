//! `GET /download`: sends bytes with the requested controller.

use super::connection::{Connection, POLL_INTERVAL, SAME_ORIGIN, Watch, connection_field, next};
use super::{Event, Failed, MAX_SIZE, Next, Refusal, admit, bad, lock, rate, refusal};
use crate::account::hung_up;
use crate::control::readable;
use crate::http::RequestHead;
use crate::iperf3::Cookie;
use crate::sample::SocketSample;
use crate::transfer::{PACKET, Pacer, noise};
use fullpipe_kernel::{socket, tcp_info};
use fullpipe_units::{Bytes, Rate, Span};
use serde_json::json;
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

/// Default of `size`.
const DEFAULT_SIZE: u64 = 100 * 1024 * 1024;
/// Maximum number of remembered downloads.
const MAX_REMEMBERED: usize = 1024;
/// Maximum wait for the acknowledgement of the last byte.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// The sockets of the latest downloads, oldest first.
pub(in crate::server) type Transfers = VecDeque<(String, serde_json::Value)>;

/// The part of the body to send.
#[derive(Clone, Copy, Debug)]
struct Part {
    first: u64,
    length: u64,
    rate: Option<Rate>,
    time: Duration,
}

pub(super) fn serve(connection: &mut Connection<'_>, request: &RequestHead) -> Result<Next, Failed> {
    let limits = &connection.shared.config.limits;
    let size = match request.parameter("size") {
        None => DEFAULT_SIZE,
        Some(text) => text.parse::<Bytes>().map_err(|e| bad(format!("size: {e}")))?.0,
    };
    let max = limits.bytes.unwrap_or(MAX_SIZE);
    if size > max {
        return Err(bad(format!("size: at most {max} bytes")).into());
    }
    let mut seconds = f64::from(limits.seconds);
    if let Some(text) = request.parameter("time") {
        let span: Span = text.parse().map_err(|e| bad(format!("time: {e}")))?;
        seconds = seconds.min(span.as_secs_f64());
    }
    let rate = rate(connection.shared, request)?;
    // The bytes depend only on their number and the repeated block.
    let tag = format!("\"noise1-{size}\"");
    let conditional = request.if_range.as_deref().is_none_or(|condition| condition == tag);
    let part = range(request.range.as_deref().filter(|_| conditional), size)?;
    let _permit = admit(connection, request)?;
    let id = Cookie::random()?.to_string();
    let (first, last) = part.unwrap_or((0, size.saturating_sub(1)));
    let length = if size == 0 { 0 } else { last - first + 1 };
    let status = match part {
        Some(_) => format!("206 Partial Content\r\nContent-Range: bytes {first}-{last}/{size}"),
        None => "200 OK".to_owned(),
    };
    let controller = tcp_info::controller(connection.socket).unwrap_or_default();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/octet-stream\r\nContent-Length: {length}\r\n\
         Accept-Ranges: bytes\r\nETag: {tag}\r\nCache-Control: no-store\r\n\
         {SAME_ORIGIN}X-Fullpipe-Controller: {controller}\r\nX-Fullpipe-Transfer: {id}\r\n\
         Connection: {}\r\n\r\n",
        connection_field(request)
    );
    if request.method == "HEAD" {
        connection.write(head.as_bytes())?;
        return Ok(next(request));
    }
    let part = Part { first, length, rate, time: Duration::from_secs_f64(seconds) };
    send(connection, request, &head, part, &id)?;
    Ok(next(request))
}

/// Sends head and body, and records and logs the result.
fn send(
    connection: &Connection<'_>,
    request: &RequestHead,
    head: &str,
    part: Part,
    id: &str,
) -> io::Result<()> {
    let before = SocketSample::query(connection.socket)?;
    let record = Record { connection, id, before: &before, began: Instant::now() };
    // Clients may query the transfer as soon as they have the head.
    record.remember(0, false);
    if let Err(e) = connection.write(head.as_bytes()) {
        record.forget();
        return Err(e);
    }
    let mut done = 0;
    let sent = body(connection, part, &mut done, &record);
    if sent.is_ok() {
        drain(connection);
    }
    let sample = record.remember(done, true);
    let event = Event::new("download", Some(connection.peer))
        .with("path", request.path.clone())
        .with("bytes", done)
        .with("seconds", record.began.elapsed().as_secs_f64())
        .with("controller", sample.controller.clone())
        .with("retransmits", sample.retransmits.saturating_sub(before.retransmits))
        .with("rtt_us", sample.rtt_us);
    connection.shared.log(match &sent {
        Err(e) => event.with("error", e.to_string()),
        Ok(()) => event,
    });
    connection.shared.finish(true);
    sent
}

fn body(connection: &Connection<'_>, part: Part, done: &mut u64, record: &Record<'_>) -> io::Result<()> {
    let mut pace = Pacer::new(part.rate);
    let mut watch = Watch::of_body(connection, part.time, true);
    // A download repeats this block.
    let content = noise();
    let block = pace.quantum(content.len(), PACKET) as u64;
    let bucket = connection.account.map(|account| &account.sent);
    let mut checked_at = Instant::now();
    while *done < part.length {
        let at = ((part.first + *done) % content.len() as u64) as usize;
        let end = (content.len() - at).min(block.min(part.length - *done) as usize) + at;
        watch.wait(&mut pace, end - at)?;
        let mut left = &content[at..end];
        while !left.is_empty() {
            let grant = watch.grant(bucket, left.len(), PACKET)?;
            let n = watch.write(&left[..grant.bytes()])?;
            grant.transferred(n);
            left = &left[n..];
            *done += n as u64;
            watch.transferred(n)?;
            if checked_at.elapsed() > POLL_INTERVAL {
                checked_at = Instant::now();
                record.remember(*done, false);
            }
        }
    }
    Ok(())
}

/// Waits until the data is acknowledged, so that the result does not count queued bytes.
fn drain(connection: &Connection<'_>) {
    let deadline = Instant::now() + DRAIN_TIMEOUT;
    while socket::unacked(connection.socket) > 0
        && Instant::now() < deadline
        && !connection.shared.stopping()
        && !hung_up(&connection.socket)
    {
        // The next request, or the client closed.
        if readable(connection.socket, Duration::from_millis(2)).unwrap_or(true) {
            return;
        }
    }
}

/// The record of a download for `/transfer/ID`.
struct Record<'a> {
    connection: &'a Connection<'a>,
    id: &'a str,
    before: &'a SocketSample,
    began: Instant,
}

impl Record<'_> {
    /// Removes the record; its id was never sent.
    fn forget(&self) {
        lock(&self.connection.shared.transfers).retain(|(id, _)| id != self.id);
    }

    /// Stores the socket's state with counters relative to the request.
    fn remember(&self, bytes: u64, over: bool) -> SocketSample {
        let sample = SocketSample::query(self.connection.socket).unwrap_or_default();
        let value = json!({
            "bytes": bytes,
            "seconds": self.began.elapsed().as_secs_f64(),
            "finished": over,
            "socket": sample.since(self.before),
        });
        let mut transfers = lock(&self.connection.shared.transfers);
        match transfers.iter_mut().rev().find(|(i, _)| i == self.id) {
            Some((_, old)) => *old = value,
            None => transfers.push_back((self.id.to_owned(), value)),
        }
        if transfers.len() > MAX_REMEMBERED {
            transfers.pop_front();
        }
        sample
    }
}

/// The bytes `first..=last` of `size` requested by a `Range` field; `None` for all.
///
/// Multiple ranges get the full body, as RFC 9110 section 14.2 allows.
fn range(header: Option<&str>, size: u64) -> Result<Option<(u64, u64)>, Refusal> {
    let Some(set) = header.and_then(|h| h.strip_prefix("bytes=")) else { return Ok(None) };
    let Some((first, last)) = set.split_once('-') else { return Ok(None) };
    let number =
        |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
    let parsed = match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => (first, last.min(size.saturating_sub(1))),
        (Some(first), None) if last.is_empty() => (first, size.saturating_sub(1)),
        (None, Some(suffix)) if first.is_empty() && suffix > 0 => {
            (size.saturating_sub(suffix), size.saturating_sub(1))
        }
        _ => return Ok(None),
    };
    if parsed.0 < size {
        return Ok(Some(parsed));
    }
    // The complete length, RFC 9110 section 15.5.17.
    let field = format!("Content-Range: bytes */{size}\r\n");
    Err(Refusal { field, ..refusal("416 Range Not Satisfiable", format!("the size is {size} bytes")) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_clipped_to_the_size() {
        let of = |header| range(Some(header), 100).ok().flatten();
        assert_eq!(of("bytes=0-9"), Some((0, 9)));
        assert_eq!(of("bytes=90-"), Some((90, 99)));
        assert_eq!(of("bytes=-5"), Some((95, 99)));
        assert_eq!(of("bytes=50-1000"), Some((50, 99)));
        for all in ["bytes=1-2,4-5", "lines=1-2", "bytes=+1-2", "bytes=-0", "bytes=-", "bytes=9-1"] {
            assert_eq!(of(all), None, "{all}");
        }
        assert!(range(Some("bytes=100-"), 100).is_err());
        assert!(range(Some("bytes=0-"), 0).is_err());
    }
}
