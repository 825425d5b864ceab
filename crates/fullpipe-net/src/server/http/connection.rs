//! The socket of an HTTP connection, read and written in pieces short enough to notice a closed
//! client, an exceeded limit or a server stop within a quarter of a second.

use super::{Next, Refusal, bad, refusal};
use crate::account::hung_up;
use crate::control::readable;
use crate::http::RequestHead;
use crate::server::{Account, Arrival, Shared, drain, receive};
use crate::transfer::{Grant, PACKET, Pacer, TokenBucket};
use fullpipe_kernel::socket;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Maximum size of a request head.
const MAX_HEAD: usize = 16 * 1024;
/// Interval for checking limits while waiting.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Minimum interval between checks during a transfer.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Browsers do not pass responses to pages of other origins.
pub(super) const SAME_ORIGIN: &str = "Cross-Origin-Resource-Policy: same-origin\r\n";

pub(super) struct Connection<'a> {
    pub shared: &'a Shared,
    pub socket: &'a TcpStream,
    pub peer: SocketAddr,
    /// Received bytes that are not yet consumed.
    pub buffer: Vec<u8>,
    /// That of the client's address, if the rate is limited.
    pub account: Option<&'a Account>,
}

impl<'a> Connection<'a> {
    pub fn new(
        shared: &'a Shared,
        arrival: &'a Arrival,
        peer: SocketAddr,
        opening: &[u8],
    ) -> io::Result<Connection<'a>> {
        let (socket, account) = (&arrival.socket, arrival.account.as_deref());
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(POLL_INTERVAL))?;
        socket.set_write_timeout(Some(POLL_INTERVAL))?;
        Ok(Connection { shared, socket, peer, buffer: opening.to_vec(), account })
    }

    /// Reads more bytes; `false` at the end of the connection. Waiting for the allowed rate does not
    /// count towards the deadline.
    pub fn fill(&mut self, deadline: &mut Instant) -> io::Result<bool> {
        let mut piece = [0; 4096];
        loop {
            if self.shared.stopping() {
                return Err(io::Error::other("the server is stopping"));
            }
            if Instant::now() >= *deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if !readable(self.socket, POLL_INTERVAL)? {
                continue;
            }
            match receive(self.account, self.socket, &mut piece, deadline) {
                Ok(0) => return Ok(false),
                Ok(n) => {
                    self.buffer.extend_from_slice(&piece[..n]);
                    return Ok(true);
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// The next request; `None` if the client is done, closed or silent.
    pub fn request(&mut self) -> Result<Option<RequestHead>, Refusal> {
        let limits = &self.shared.config.limits;
        let mut deadline =
            Instant::now() + if self.buffer.is_empty() { limits.idle } else { limits.handshake };
        loop {
            if let Some((request, length)) = RequestHead::parse(&self.buffer)? {
                self.buffer.drain(..length);
                return Ok(Some(request));
            }
            if self.buffer.len() > MAX_HEAD {
                let why = format!("the request head is longer than {MAX_HEAD} bytes");
                return Err(refusal("431 Request Header Fields Too Large", why));
            }
            let was_empty = self.buffer.is_empty();
            match self.fill(&mut deadline) {
                Ok(true) if was_empty => deadline = Instant::now() + limits.handshake,
                Ok(true) => {}
                Ok(false) if was_empty => return Ok(None),
                Ok(false) => return Err(bad("the connection was closed in the middle of a request")),
                Err(_) if was_empty => return Ok(None),
                Err(_) => return Err(refusal("408 Request Timeout", "timed out reading the request")),
            }
        }
    }

    /// Writes a message. One of a packet goes ahead of the data of other connections, so that the
    /// speed test page does not measure its own transfer's pacing as latency.
    pub fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut watch = Watch::new(self, self.shared.config.limits.handshake);
        for piece in bytes.chunks(self.send_quantum(bytes.len())) {
            if let Some(account) = self.account {
                let began = Instant::now();
                let may_send = if bytes.len() <= PACKET {
                    account.send_message(piece.len(), self.socket)
                } else {
                    account.send_part(piece.len(), self.socket)
                };
                if !may_send {
                    return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the connection ended"));
                }
                // Waiting for the allowed rate does not count towards the timeout.
                watch.until += began.elapsed();
                watch.moved();
            }
            let mut left = piece;
            while !left.is_empty() {
                let n = watch.write(left)?;
                left = &left[n..];
            }
        }
        Ok(())
    }

    /// The size of pieces to send at the allowed rate.
    fn send_quantum(&self, block: usize) -> usize {
        self.account.map_or(block, |account| account.sent.quantum(block, PACKET)).max(1)
    }

    pub fn refuse(&self, refusal: &Refusal, with_body: bool) -> io::Result<()> {
        let body = format!("{}\n", refusal.why);
        let mut answer = format!(
            "HTTP/1.1 {}\r\n{}Content-Type: text/plain; charset=utf-8\r\nContent-Length: \
                {}\r\nConnection: close\r\n\r\n",
            refusal.status,
            refusal.field,
            body.len()
        );
        if with_body {
            answer.push_str(&body);
        }
        self.write(answer.as_bytes())
    }

    pub fn text(&self, request: &RequestHead, kind: &str, body: &str) -> io::Result<Next> {
        self.answer(request, "200 OK", &format!("Content-Type: {kind}; charset=utf-8\r\n"), body)
    }

    /// Sends a response with `fields`, each including its line end, and `body`.
    pub fn answer(&self, request: &RequestHead, status: &str, fields: &str, body: &str) -> io::Result<Next> {
        let mut answer = format!(
            "HTTP/1.1 {status}\r\n{fields}{SAME_ORIGIN}Content-Length: {}\r\nConnection: {}\r\n\r\n",
            body.len(),
            connection_field(request)
        );
        if request.method != "HEAD" {
            answer.push_str(body);
        }
        self.write(answer.as_bytes())?;
        Ok(next(request))
    }

    /// Closes so that the last response is not lost to a reset caused by unread bytes.
    pub fn close_gracefully(self) {
        drain(self.shared, self.socket, self.account);
    }
}

/// The value of the `Connection` field of a response.
pub(super) fn connection_field(request: &RequestHead) -> &'static str {
    if request.close { "close" } else { "keep-alive" }
}

/// How the connection continues after a response.
pub(super) fn next(request: &RequestHead) -> Next {
    if request.close { Next::Close } else { Next::KeepAlive }
}

/// Ends a transfer when its client closes, a limit is exceeded or the server stops.
pub(super) struct Watch<'a> {
    shared: &'a Shared,
    socket: &'a TcpStream,
    until: Instant,
    moved_at: Instant,
    /// Bytes of the body transferred, how many there were when the rate was last checked, and that
    /// time.
    body: u64,
    checked: (u64, Instant),
    /// Whether the body is sent, so that it can wait in the socket's buffer.
    sends: bool,
    /// Time of the next check; checking more often would only cost system calls.
    next_check: Instant,
}

impl<'a> Watch<'a> {
    pub fn new(connection: &Connection<'a>, time: Duration) -> Watch<'a> {
        let now = Instant::now();
        Watch {
            shared: connection.shared,
            socket: connection.socket,
            until: now + time,
            moved_at: now,
            body: 0,
            checked: (0, now),
            sends: false,
            next_check: now,
        }
    }

    /// Watches a body in which least rates apply.
    pub fn of_body(connection: &Connection<'a>, time: Duration, sends: bool) -> Watch<'a> {
        Watch { sends, ..Watch::new(connection, time) }
    }

    /// Waits until the address may transfer a part of `max` bytes, if its rate is limited.
    pub fn grant<'b>(
        &mut self,
        bucket: Option<&'b TokenBucket>,
        max: usize,
        min: usize,
    ) -> io::Result<Grant<'b>> {
        let Some(bucket) = bucket else { return Ok(Grant::unlimited(max)) };
        let mut ended = Ok(());
        let grant = bucket.grant(max, min, &mut || {
            ended = self.check();
            ended.is_ok()
        });
        ended?;
        self.moved();
        grant.ok_or_else(|| io::Error::other("the connection ended"))
    }

    /// Records bytes of the body.
    ///
    /// # Errors
    /// If there were too few over an idle timeout.
    pub fn transferred(&mut self, bytes: usize) -> io::Result<()> {
        self.body += bytes as u64;
        self.moved();
        self.check_rate()
    }

    /// Fails below the least rate.
    fn check_rate(&mut self) -> io::Result<()> {
        let limits = &self.shared.config.limits;
        if self.checked.1.elapsed() < limits.idle {
            return Ok(());
        }
        // Bytes in a buffer are no progress.
        let unacked = if self.sends { socket::unacked(self.socket) } else { 0 };
        let total = self.body.saturating_sub(unacked);
        if let Some(why) = self.shared.too_slow(total.saturating_sub(self.checked.0)) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        self.checked = (total, Instant::now());
        Ok(())
    }

    /// Waits for a pacer.
    pub fn wait(&mut self, pace: &mut Pacer, bytes: usize) -> io::Result<()> {
        let mut ended = Ok(());
        pace.wait(bytes, &mut || {
            ended = self.check();
            ended.is_ok()
        });
        ended?;
        self.moved();
        Ok(())
    }

    /// Records progress, or that only the rate limit prevented it.
    pub fn moved(&mut self) {
        self.moved_at = Instant::now();
    }

    /// Fails if the server stops, the time limit has passed or the client has closed.
    pub fn check(&mut self) -> io::Result<()> {
        let now = Instant::now();
        if now < self.next_check {
            return Ok(());
        }
        self.next_check = now + CHECK_INTERVAL;
        if self.shared.stopping() {
            return Err(io::Error::other("the server is stopping"));
        }
        if now > self.until {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the time limit was exceeded"));
        }
        if hung_up(&self.socket) {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the client closed the connection"));
        }
        Ok(())
    }

    /// As [`check`](Self::check), and fails if there was no progress for too long.
    pub fn check_idle(&mut self) -> io::Result<()> {
        self.check()?;
        let idle = self.shared.config.limits.idle;
        if self.moved_at.elapsed() > idle {
            let why = format!("no progress for {idle:?}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        Ok(())
    }

    /// Writes some of `bytes`.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            self.check_idle()?;
            match (&mut &*self.socket).write(bytes) {
                Ok(n) => {
                    self.moved();
                    return Ok(n);
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(e) => return Err(e),
            }
        }
    }
}
