//! Plain HTTP/1.1 on the same port: downloads and uploads of any size for curl, wget and browsers.
//!
//! ```text
//! GET  /download?size=1g&cc=bbr    a body of so many bytes, sent by this controller; ranges work
//! PUT  /upload, POST /upload       takes any body and says how fast it came
//! GET  /transfer/ID                the sending socket of a download (its X-Fullpipe-Transfer), as JSON
//! GET  /                           this list
//! ```
//!
//! Byte `n` of every download is the same, so pieces fit together and checksums can be compared.

use super::{Event, Place, Shared, lock};
use crate::control::readable;
use crate::sample::SocketSample;
use crate::transfer::{self, Meter, Pace};
use fullpipe_kernel::tcp_info;
use fullpipe_units::{Bytes, Rate, Span};
use serde_json::json;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The longest request head accepted.
const MAX_HEAD: usize = 16 * 1024;
/// Without `size`.
const DEFAULT_SIZE: u64 = 100 * 1024 * 1024;
/// Beyond this, a size cannot be meant.
const MAX_SIZE: u64 = 1 << 53;
/// Downloads whose sockets are remembered.
const REMEMBERED: usize = 1024;
/// How often a running download's socket is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// The sockets of the latest downloads, oldest first.
pub(super) type Transfers = VecDeque<(String, serde_json::Value)>;

/// Whether a connection that begins with these bytes speaks HTTP. Cookies have no capital letters.
pub(super) fn begins(opening: &[u8]) -> bool {
    [&b"GET "[..], b"HEAD", b"PUT ", b"POST", b"OPTI", b"DELE"].contains(&opening)
}

/// A request that is answered with an error.
struct Refusal {
    status: &'static str,
    /// Of what a range was asked of, for `Content-Range` (RFC 9110 section 15.5.17).
    size: Option<u64>,
    why: String,
}

fn refusal(status: &'static str, why: impl Into<String>) -> Refusal {
    Refusal { status, size: None, why: why.into() }
}

fn bad(why: impl Into<String>) -> Refusal {
    refusal("400 Bad Request", why)
}

/// How a connection goes on.
enum Next {
    KeepAlive,
    Close,
}

/// Serves requests until the client has no more.
pub(super) fn serve(shared: &Shared, socket: TcpStream, peer: SocketAddr, opening: &[u8]) {
    let limits = &shared.config.limits;
    let _ = socket.set_nodelay(true);
    let _ = socket.set_write_timeout(Some(limits.idle));
    let mut buffer = opening.to_vec();
    let connection = Connection { shared, socket: &socket, peer };
    loop {
        match connection.request(&mut buffer) {
            Ok(Some(request)) => match connection.answer(&request, &mut buffer) {
                Ok(Next::KeepAlive) => {}
                Ok(Next::Close) => break,
                Err(e) => {
                    connection.log("http_failed", |event| {
                        event.with("path", request.path.clone()).with("reason", e.to_string())
                    });
                    return;
                }
            },
            Ok(None) => return,
            Err(refusal) => {
                connection.log("http_failed", |event| event.with("reason", refusal.why.clone()));
                let _ = connection.refuse(&refusal);
                break;
            }
        }
    }
    // The last answer must not be lost to a reset because of unread bytes.
    let _ = socket.shutdown(Shutdown::Write);
    let _ = socket.set_read_timeout(Some(Duration::from_millis(200)));
    let mut rest = [0; 4096];
    let deadline = Instant::now() + Duration::from_secs(1);
    while Instant::now() < deadline && matches!((&mut &socket).read(&mut rest), Ok(1..)) {}
}

/// What a request asks.
#[derive(Debug, Default, PartialEq)]
struct Request {
    method: String,
    path: String,
    query: Vec<(String, String)>,
    length: Option<u64>,
    chunked: bool,
    expects_continue: bool,
    range: Option<String>,
    authorization: Option<String>,
    close: bool,
}

impl Request {
    /// Reads a head, all of it. `None` when it is not whole yet.
    fn parse(bytes: &[u8]) -> Result<Option<(Request, usize)>, Refusal> {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut head = httparse::Request::new(&mut headers);
        let length = match head.parse(bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(e) => return Err(bad(format!("not HTTP/1.1: {e}"))),
        };
        let target = head.path.unwrap_or("/");
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut request = Request {
            method: head.method.unwrap_or("").to_owned(),
            path: path.to_owned(),
            query: query
                .split('&')
                .filter(|p| !p.is_empty())
                .map(|p| p.split_once('=').unwrap_or((p, "")))
                .map(|(k, v)| (k.to_owned(), unescape(v)))
                .collect(),
            close: head.version == Some(0),
            ..Request::default()
        };
        for header in head.headers.iter() {
            let value = String::from_utf8_lossy(header.value).trim().to_owned();
            match header.name.to_ascii_lowercase().as_str() {
                "content-length" => {
                    let length = value.parse().ok().filter(|&n| n <= MAX_SIZE);
                    request.length = Some(length.ok_or_else(|| bad("Content-Length is not a size"))?);
                }
                "transfer-encoding" => request.chunked = value.eq_ignore_ascii_case("chunked"),
                "expect" => request.expects_continue = value.eq_ignore_ascii_case("100-continue"),
                "range" => request.range = Some(value),
                "authorization" => request.authorization = Some(value),
                "connection" => {
                    request.close = value.eq_ignore_ascii_case("close")
                        || (request.close && !value.eq_ignore_ascii_case("keep-alive"));
                }
                _ => {}
            }
        }
        Ok(Some((request, length)))
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str())
    }
}

/// `%41` is `A`, `+` is a space.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let hex = |b: &[u8]| std::str::from_utf8(b).ok().and_then(|h| u8::from_str_radix(h, 16).ok());
        match (first, after.get(..2).and_then(hex)) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = after;
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The bytes `first..=last` of `size` that a `Range` header asks for; `None` for all of them.
///
/// Several ranges at once are answered with everything, as RFC 9110 section 14.2 allows.
fn range(header: Option<&str>, size: u64) -> Result<Option<(u64, u64)>, Refusal> {
    let Some(set) = header.and_then(|h| h.strip_prefix("bytes=")) else { return Ok(None) };
    let Some((first, last)) = set.split_once('-') else { return Ok(None) };
    let parsed = match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) if first <= last => (first, last.min(size.saturating_sub(1))),
        (Ok(first), Err(_)) if last.is_empty() => (first, size.saturating_sub(1)),
        (Err(_), Ok(suffix)) if first.is_empty() => (size.saturating_sub(suffix), size.saturating_sub(1)),
        _ => return Ok(None),
    };
    if parsed.0 < size {
        Ok(Some(parsed))
    } else {
        Err(Refusal {
            size: Some(size),
            ..refusal("416 Range Not Satisfiable", format!("there are {size} bytes"))
        })
    }
}

struct Connection<'a> {
    shared: &'a Shared,
    socket: &'a TcpStream,
    peer: SocketAddr,
}

impl Connection<'_> {
    fn log(&self, kind: &'static str, details: impl FnOnce(Event) -> Event) {
        self.shared.log(details(Event::new(kind, Some(self.peer))));
    }

    /// Reads more bytes; `false` at the end.
    fn fill(&self, buffer: &mut Vec<u8>, deadline: Instant) -> io::Result<bool> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.shared.stopping() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if readable(self.socket, left.min(LOOK))? {
                let mut piece = [0; 4096];
                return match (&mut &*self.socket).read(&mut piece) {
                    Ok(0) => Ok(false),
                    Ok(n) => {
                        buffer.extend_from_slice(&piece[..n]);
                        Ok(true)
                    }
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(true),
                    Err(e) => Err(e),
                };
            }
        }
    }

    /// The next request; `None` when the client is through, gone or silent.
    fn request(&self, buffer: &mut Vec<u8>) -> Result<Option<Request>, Refusal> {
        let limits = &self.shared.config.limits;
        let mut deadline = Instant::now() + if buffer.is_empty() { limits.idle } else { limits.handshake };
        loop {
            if let Some((request, length)) = Request::parse(buffer)? {
                buffer.drain(..length);
                return Ok(Some(request));
            }
            if buffer.len() > MAX_HEAD {
                return Err(refusal(
                    "431 Request Header Fields Too Large",
                    format!("the request head is longer than {MAX_HEAD} bytes"),
                ));
            }
            let was_empty = buffer.is_empty();
            match self.fill(buffer, deadline) {
                Ok(true) if was_empty => deadline = Instant::now() + limits.handshake,
                Ok(true) => {}
                Ok(false) if was_empty => return Ok(None),
                Ok(false) => return Err(bad("the connection was closed within a request")),
                Err(_) if was_empty => return Ok(None),
                Err(_) => return Err(refusal("408 Request Timeout", "the request did not come in time")),
            }
        }
    }

    fn answer(&self, request: &Request, buffer: &mut Vec<u8>) -> io::Result<Next> {
        let result = match (request.method.as_str(), request.path.as_str()) {
            (_, _) if !self.authorized(request) => {
                Err(refusal("401 Unauthorized", "this server wants `Authorization: Bearer SECRET`"))
            }
            ("GET" | "HEAD", "/") => return self.text(request, "200 OK", "text/plain", HELP),
            ("GET" | "HEAD", "/download") => match self.download(request) {
                Ok(done) => return done,
                Err(refusal) => Err(refusal),
            },
            ("PUT" | "POST", "/upload") => match self.upload(request, buffer) {
                Ok(done) => return done,
                Err(refusal) => Err(refusal),
            },
            ("GET" | "HEAD", path) if path.starts_with("/transfer/") => {
                let id = &path["/transfer/".len()..];
                let found =
                    lock(&self.shared.transfers).iter().find(|(i, _)| i == id).map(|(_, v)| v.to_string());
                match found {
                    Some(json) => return self.text(request, "200 OK", "application/json", &json),
                    None => Err(refusal("404 Not Found", "no such transfer, or too long ago")),
                }
            }
            ("GET" | "HEAD" | "PUT" | "POST", _) => Err(refusal("404 Not Found", "see / for what there is")),
            _ => Err(refusal("405 Method Not Allowed", "GET, HEAD, PUT and POST are known")),
        };
        match result {
            Ok(next) => Ok(next),
            Err(refusal) => {
                self.log("http_refused", |e| {
                    e.with("path", request.path.clone()).with("reason", refusal.why.clone())
                });
                self.refuse(&refusal)?;
                Ok(Next::Close)
            }
        }
    }

    fn authorized(&self, request: &Request) -> bool {
        let Some(secret) = &self.shared.config.secret else { return true };
        let given = request.authorization.as_deref().and_then(|a| a.strip_prefix("Bearer ")).unwrap_or("");
        // Digests are compared, so that the time taken tells nothing of the secret.
        use sha2::{Digest, Sha256};
        Sha256::digest(given.trim()) == Sha256::digest(secret)
    }

    fn refuse(&self, refusal: &Refusal) -> io::Result<()> {
        let body = format!("{}\n", refusal.why);
        let range =
            refusal.size.map_or_else(String::new, |size| format!("Content-Range: bytes */{size}\r\n"));
        let head = format!(
            "HTTP/1.1 {}\r\n{range}Content-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            refusal.status,
            body.len()
        );
        (&mut &*self.socket).write_all((head + &body).as_bytes())
    }

    fn text(&self, request: &Request, status: &str, kind: &str, body: &str) -> io::Result<Next> {
        let connection = if request.close { "close" } else { "keep-alive" };
        let mut answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\nConnection: {connection}\r\n\r\n",
            body.len()
        );
        if request.method != "HEAD" {
            answer.push_str(body);
        }
        (&mut &*self.socket).write_all(answer.as_bytes())?;
        Ok(if request.close { Next::Close } else { Next::KeepAlive })
    }

    /// A place among the clients, and the controller asked for.
    fn admit(&self, request: &Request) -> Result<Place<'_>, Refusal> {
        let place = Place::take(&self.shared.tests, self.shared.config.limits.clients)
            .ok_or_else(|| refusal("503 Service Unavailable", "too many clients; try again later"))?;
        if let Some(name) = request.parameter("cc") {
            tcp_info::pin(self.socket, name).map_err(|e| bad(format!("cc: {e}")))?;
        }
        Ok(place)
    }

    /// The lower of what the client asks for and what the server allows.
    fn rate(&self, request: &Request) -> Result<Option<Rate>, Refusal> {
        let asked = match request.parameter("rate") {
            Some(text) => Some(text.parse::<Rate>().map_err(|e| bad(format!("rate: {e}")))?),
            None => None,
        };
        Ok(asked.into_iter().chain(self.shared.config.limits.rate).min())
    }

    fn download(&self, request: &Request) -> Result<io::Result<Next>, Refusal> {
        let limits = &self.shared.config.limits;
        let size = match request.parameter("size") {
            None => DEFAULT_SIZE,
            Some(text) => text.parse::<Bytes>().map_err(|e| bad(format!("size: {e}")))?.0,
        };
        if size > limits.bytes.unwrap_or(MAX_SIZE) {
            return Err(bad(format!("size: at most {} bytes", limits.bytes.unwrap_or(MAX_SIZE))));
        }
        let mut seconds = f64::from(limits.seconds);
        if let Some(text) = request.parameter("time") {
            let span: Span = text.parse().map_err(|e| bad(format!("time: {e}")))?;
            seconds = seconds.min(span.as_secs_f64());
        }
        let rate = self.rate(request)?;
        let part = range(request.range.as_deref(), size)?;
        let _place = self.admit(request)?;
        let id = crate::iperf3::Cookie::random().map_err(|e| bad(e.to_string()))?.to_string();
        let (first, last) = part.unwrap_or((0, size.saturating_sub(1)));
        let length = if size == 0 { 0 } else { last - first + 1 };
        let mut head = match part {
            Some(_) => {
                format!("HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {first}-{last}/{size}\r\n")
            }
            None => "HTTP/1.1 200 OK\r\n".to_owned(),
        };
        let controller = tcp_info::controller(self.socket).unwrap_or_default();
        head += &format!(
            "Content-Type: application/octet-stream\r\nContent-Length: {length}\r\nAccept-Ranges: bytes\r\n\
             Cache-Control: no-store\r\nX-Fullpipe-Controller: {controller}\r\nX-Fullpipe-Transfer: {id}\r\n\
             Connection: {}\r\n\r\n",
            if request.close { "close" } else { "keep-alive" }
        );
        if request.method == "HEAD" {
            return Ok((&mut &*self.socket).write_all(head.as_bytes()).map(|()| Next::KeepAlive));
        }
        Ok(self.send_body(request, &head, first, length, rate, Duration::from_secs_f64(seconds), &id))
    }

    #[allow(clippy::too_many_arguments)] // one caller; a struct would only rename them
    fn send_body(
        &self,
        request: &Request,
        head: &str,
        first: u64,
        length: u64,
        rate: Option<Rate>,
        time: Duration,
        id: &str,
    ) -> io::Result<Next> {
        let mut socket = self.socket;
        let before = SocketSample::of(&socket)?;
        let began = Instant::now();
        socket.write_all(head.as_bytes())?;
        let stop = AtomicBool::new(false);
        let mut pace = Pace::new(rate);
        // A download is this block again and again.
        let content = transfer::noise();
        let piece = pace.quantum(content.len(), 1448) as u64;
        let mut done = 0;
        let mut looked = began;
        let mut failed = None;
        while done < length {
            let at = ((first + done) % content.len() as u64) as usize;
            let end = (content.len() - at).min(piece.min(length - done) as usize) + at;
            pace.wait(end - at, &stop);
            match socket.write(&content[at..end]) {
                Ok(n) => done += n as u64,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => failed = Some(e),
            }
            if began.elapsed() > time {
                failed = Some(io::Error::new(io::ErrorKind::TimedOut, "the time allowed is over"));
            }
            if self.shared.stopping() {
                failed = Some(io::Error::other("the server is stopping"));
            }
            if failed.is_some() {
                break;
            }
            if looked.elapsed() > LOOK {
                looked = Instant::now();
                self.remember(id, &before, began, done, false);
            }
        }
        // What is said afterwards should count what arrived, not what was queued.
        let drained = Instant::now();
        while failed.is_none() && transfer::unacked(socket) > 0 && drained.elapsed() < Duration::from_secs(10)
        {
            if readable(&socket, Duration::from_millis(2))? {
                break; // the next request, or the end
            }
        }
        let sample = self.remember(id, &before, began, done, true);
        self.log("download", |event| {
            let event = event
                .with("path", request.path.clone())
                .with("bytes", done)
                .with("seconds", began.elapsed().as_secs_f64())
                .with("controller", sample.controller.clone())
                .with("retransmits", sample.retransmits.saturating_sub(before.retransmits))
                .with("rtt_us", sample.rtt_us);
            match &failed {
                Some(e) => event.with("error", e.to_string()),
                None => event,
            }
        });
        self.shared.finish();
        match failed {
            Some(e) => Err(e),
            None if request.close => Ok(Next::Close),
            None => Ok(Next::KeepAlive),
        }
    }

    /// Keeps the socket's state for `/transfer/ID`; counters since the request.
    fn remember(
        &self,
        id: &str,
        before: &SocketSample,
        began: Instant,
        bytes: u64,
        over: bool,
    ) -> SocketSample {
        let sample = SocketSample::of(&self.socket).unwrap_or_default();
        let value = json!({
            "bytes": bytes,
            "seconds": began.elapsed().as_secs_f64(),
            "finished": over,
            "socket": sample.since(before),
        });
        let mut transfers = lock(&self.shared.transfers);
        match transfers.iter_mut().rev().find(|(i, _)| i == id) {
            Some((_, old)) => *old = value,
            None => transfers.push_back((id.to_owned(), value)),
        }
        if transfers.len() > REMEMBERED {
            transfers.pop_front();
        }
        sample
    }

    fn upload(&self, request: &Request, buffer: &mut Vec<u8>) -> Result<io::Result<Next>, Refusal> {
        let limits = &self.shared.config.limits;
        let most = limits.bytes.unwrap_or(MAX_SIZE);
        if request.length.is_some_and(|n| n > most) {
            return Err(refusal("413 Content Too Large", format!("at most {most} bytes")));
        }
        if request.length.is_none() && !request.chunked {
            return Err(refusal("411 Length Required", "no Content-Length"));
        }
        let rate = self.rate(request)?;
        let _place = self.admit(request)?;
        if request.expects_continue
            && let Err(e) = (&mut &*self.socket).write_all(b"HTTP/1.1 100 Continue\r\n\r\n")
        {
            return Ok(Err(e));
        }
        let began = Instant::now();
        let body = Body {
            connection: self,
            deadline: began + Duration::from_secs(limits.seconds.into()),
            most,
            rate,
        };
        let received = match request.length {
            Some(length) if !request.chunked => body.plain(length, buffer),
            _ => body.chunked(buffer),
        };
        let seconds = began.elapsed().as_secs_f64();
        self.log("upload", |event| {
            let event = event.with("seconds", seconds);
            match &received {
                Ok(bytes) => event.with("bytes", *bytes),
                Err(e) => event.with("error", e.to_string()),
            }
        });
        self.shared.finish();
        Ok(received.and_then(|bytes| {
            let bits_per_second = bytes as f64 * 8.0 / seconds.max(1e-9);
            let answer = json!({"bytes": bytes, "seconds": seconds, "bits_per_second": bits_per_second});
            self.text(request, "200 OK", "application/json", &format!("{answer}\n"))
        }))
    }
}

/// A body that is counted and dropped.
struct Body<'a> {
    connection: &'a Connection<'a>,
    deadline: Instant,
    most: u64,
    rate: Option<Rate>,
}

impl Body<'_> {
    /// Takes `length` bytes, the first of which may be in `buffer` already.
    fn plain(&self, length: u64, buffer: &mut Vec<u8>) -> io::Result<u64> {
        let buffered = (buffer.len() as u64).min(length);
        buffer.drain(..buffered as usize);
        let socket = self.connection.socket;
        let limits = &self.connection.shared.config.limits;
        let meter = Meter::default();
        let stop = AtomicBool::new(false);
        socket.set_read_timeout(Some(LOOK))?;
        let result = transfer::discard_exactly(socket, length - buffered, self.rate, &meter, &mut {
            let (mut moved, mut moved_at) = (0, Instant::now());
            move |bytes| {
                if bytes != moved {
                    (moved, moved_at) = (bytes, Instant::now());
                }
                let late = moved_at.elapsed() > limits.idle || Instant::now() > self.deadline;
                if late || self.connection.shared.stopping() {
                    stop.store(true, Relaxed);
                }
                !stop.load(Relaxed)
            }
        });
        socket.set_read_timeout(None)?;
        result.map(|()| length)
    }

    /// Takes chunks until the last (RFC 9112 section 7.1).
    fn chunked(&self, buffer: &mut Vec<u8>) -> io::Result<u64> {
        let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        let mut total = 0;
        loop {
            let (head, size) = loop {
                match httparse::parse_chunk_size(buffer) {
                    Ok(httparse::Status::Complete(parsed)) => break parsed,
                    Ok(httparse::Status::Partial) if buffer.len() <= 256 => self.more(buffer)?,
                    _ => return Err(invalid("a chunk without a size")),
                }
            };
            buffer.drain(..head);
            total += size;
            if total > self.most {
                return Err(invalid("more bytes than allowed"));
            }
            if size == 0 {
                break;
            }
            self.plain(size, buffer)?;
            while buffer.len() < 2 {
                self.more(buffer)?;
            }
            if buffer.drain(..2).ne(*b"\r\n") {
                return Err(invalid("a chunk without its end"));
            }
        }
        // Trailers, up to the empty line.
        loop {
            match buffer.windows(2).position(|w| w == b"\r\n") {
                Some(0) => {
                    buffer.drain(..2);
                    return Ok(total);
                }
                Some(line) => drop(buffer.drain(..line + 2)),
                None if buffer.len() <= MAX_HEAD => self.more(buffer)?,
                None => return Err(invalid("endless trailers")),
            }
        }
    }

    fn more(&self, buffer: &mut Vec<u8>) -> io::Result<()> {
        let idle = Instant::now() + self.connection.shared.config.limits.idle;
        match self.connection.fill(buffer, idle.min(self.deadline))? {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

const HELP: &str = "fullpipe serve\n\n\
    GET  /download?size=1g&cc=bbr&rate=100mbit&time=30s   bytes, sent by that controller; all parameters optional\n\
    PUT  /upload, POST /upload                            any body; says how fast it came\n\
    GET  /transfer/ID                                     the sending socket of a download, by its X-Fullpipe-Transfer\n\n\
    iperf3 -c and fullpipe test work against the same port.\n";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_is_understood() {
        let head = b"GET /download?size=1g&cc=bbr&x=%41+b HTTP/1.1\r\nHost: h\r\nRange: bytes=5-\r\nConnection: close\r\n\r\nrest";
        let Ok(Some((request, length))) = Request::parse(head) else { panic!("not understood") };
        assert_eq!(&head[length..], b"rest");
        assert_eq!((request.method.as_str(), request.path.as_str()), ("GET", "/download"));
        assert_eq!(request.parameter("size"), Some("1g"));
        assert_eq!(request.parameter("x"), Some("A b"));
        assert!(request.close);
        assert!(matches!(Request::parse(b"GET / HTTP/1.1\r\n"), Ok(None)));
        assert!(Request::parse(b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n").is_err());
        assert!(Request::parse(b"G\x00T / HTTP/1.1\r\n\r\n").is_err());
    }

    #[test]
    fn ranges_are_cut_to_what_there_is() {
        let of = |header| range(Some(header), 100).ok().flatten();
        assert_eq!(of("bytes=0-9"), Some((0, 9)));
        assert_eq!(of("bytes=90-"), Some((90, 99)));
        assert_eq!(of("bytes=-5"), Some((95, 99)));
        assert_eq!(of("bytes=50-1000"), Some((50, 99)));
        assert_eq!(of("bytes=1-2,4-5"), None);
        assert_eq!(of("lines=1-2"), None);
        assert!(range(Some("bytes=100-"), 100).is_err());
        assert!(range(Some("bytes=0-"), 0).is_err());
    }

    proptest! {
        #[test]
        fn no_head_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300), text in "(GET|PUT) /[ -~]{0,40} HTTP/1\\.[01]\r\n([a-zA-Z-]{1,20}: ?[ -~]{0,20}\r\n){0,5}\r\n") {
            let _ = Request::parse(&bytes);
            if let Ok(Some((request, _))) = Request::parse(text.as_bytes()) {
                let _ = range(request.range.as_deref(), 1000);
            }
        }
    }
}
