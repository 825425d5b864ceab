//! One connection: TLS, HTTP, and the limits that apply whatever the client does.

use super::Handover;
use super::resource;
use super::stream::{Socket, Stream};
use crate::http2_error;
use crate::server::{Arrival, Event, Shared, lock};
use crate::unbuffered::Unbuffered;
use fullpipe_kernel::socket;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::{timeout, timeout_at};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Maximum size of a request head.
const MAX_HEAD: u32 = 16 * 1024;
/// Maximum concurrent requests of a connection: those of a test wait for their answers behind its
/// data, and up to a hundred begin each second.
const MAX_STREAMS: u32 = 256;
/// Requests that a client gave up before they were read.
const MAX_PENDING_RESETS: usize = 32;
/// Flow-control window of a stream and of a connection. What arrives is discarded at once, so it
/// takes no memory.
pub(super) const WINDOW: u32 = 16 << 20;
/// Bytes of a response in front of the flow control of its stream.
const MAX_SEND_BUFFER: usize = 64 * 1024;
/// Interval for checking a connection with transfers.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Requests that a connection may make at once, and those that it may make each second.
const REQUESTS: f64 = 1000.0;

/// What the requests of a connection share.
pub(super) struct Connection {
    pub shared: Arc<Shared>,
    pub peer: SocketAddr,
    pub socket: Arc<Socket>,
    /// Number of transfers.
    transfers: AtomicUsize,
    /// Notified when a transfer begins and when the connection must end.
    changed: Notify,
    /// Why the connection must end.
    ended: OnceLock<String>,
    requests: Mutex<Requests>,
}

/// When the requests came.
struct Requests {
    /// The last one.
    last: Instant,
    /// How many more may come now.
    left: f64,
}

impl Connection {
    /// Counts a request; with too many, the connection ends.
    pub fn count_request(&self) {
        self.socket.requests.fetch_add(1, Relaxed);
        let mut requests = lock(&self.requests);
        let now = Instant::now();
        let earned = now.saturating_duration_since(requests.last).as_secs_f64() * REQUESTS;
        requests.left = (requests.left + earned).min(REQUESTS) - 1.0;
        requests.last = now;
        if requests.left < 0.0 {
            self.end(format!("more than {REQUESTS} requests per second"));
        }
    }

    /// Counts a transfer that begins.
    pub fn begin(&self) {
        self.transfers.fetch_add(1, Relaxed);
        self.changed.notify_one();
    }

    /// Counts a transfer that has ended.
    pub fn finish(&self) {
        self.transfers.fetch_sub(1, Relaxed);
        lock(&self.requests).last = Instant::now();
    }

    fn end(&self, why: String) {
        let _ = self.ended.set(why);
        self.changed.notify_one();
    }

    /// Bytes of bodies that were transferred. Those in a buffer are no progress.
    fn progress(&self) -> u64 {
        let unacked = socket::unacked(&self.socket.tcp);
        let sent = self.socket.body_sent.load(Relaxed).saturating_sub(unacked);
        sent + self.socket.body_received.load(Relaxed)
    }

    /// Returns why the connection must end, if not because it is unused.
    async fn watch(&self) -> Option<String> {
        let limits = &self.shared.config.limits;
        let mut checked = (self.progress(), Instant::now());
        let mut sent = checked;
        loop {
            if let Some(why) = self.ended.get() {
                return Some(why.clone());
            }
            let (now, transfers) = (Instant::now(), self.transfers.load(Relaxed));
            if transfers == 0 {
                let deadline = lock(&self.requests).last + limits.idle;
                if now >= deadline {
                    return None;
                }
                let _ = timeout_at(deadline.into(), self.changed.notified()).await;
                checked = (self.progress(), Instant::now());
                sent = checked;
                continue;
            }
            let progress = self.progress();
            if now - checked.1 >= limits.idle {
                // Each transfer holds a place.
                let moved = progress.saturating_sub(checked.0) / transfers as u64;
                if let Some(why) = self.shared.too_slow(moved) {
                    return Some(why);
                }
                checked = (progress, now);
            }
            let elapsed = (now - sent.1).as_secs_f64();
            if elapsed >= CHECK_INTERVAL.as_secs_f64() {
                let rate = progress.saturating_sub(sent.0) as f64 / elapsed;
                self.socket.unsent.adapt(&self.socket.tcp, rate);
                sent = (progress, now);
            }
            let _ = timeout(CHECK_INTERVAL, self.changed.notified()).await;
        }
    }
}

/// Serves a connection until it ends.
pub(super) async fn serve(shared: Arc<Shared>, acceptor: TlsAcceptor, handover: Handover) {
    let Handover { arrival: Arrival { socket, permit: _permit, account, .. }, peer, opening } = handover;
    let log = |kind, reason: String| shared.log(Event::new(kind, Some(peer)).with("reason", reason));
    let prepared = socket
        .set_nonblocking(true)
        .and_then(|()| socket.set_nodelay(true))
        .and_then(|()| tokio::net::TcpStream::from_std(socket));
    let socket = match prepared {
        Ok(tcp) => Arc::new(Socket::new(tcp, account)),
        Err(e) => return log("connection_failed", e.to_string()),
    };
    let stream = Stream::new(Arc::clone(&socket), opening);
    let limit = shared.config.limits.handshake;
    let stream = match timeout(limit, Box::pin(acceptor.accept(stream))).await {
        // Each function that it passes through would reserve its kilobytes in the idle task.
        Ok(Ok(stream)) => Box::new(stream),
        Ok(Err(e)) => return log("connection_failed", format!("TLS: {e}")),
        Err(_) => return log("connection_failed", format!("timed out in the TLS handshake ({limit:?})")),
    };
    let connection = Arc::new(Connection {
        shared: Arc::clone(&shared),
        peer,
        socket,
        transfers: AtomicUsize::new(0),
        changed: Notify::new(),
        ended: OnceLock::new(),
        requests: Mutex::new(Requests { last: Instant::now(), left: REQUESTS }),
    });
    let served = if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        tokio::select! {
            served = Box::pin(http2(stream, &connection)) => served,
            why = connection.watch() => why.map_or(Ok(()), Err),
        }
    } else {
        tokio::select! {
            served = Box::pin(http1(stream, &connection)) => served,
            why = connection.watch() => why.map_or(Ok(()), Err),
        }
    };
    if let Err(why) = served {
        log("http_failed", why);
    }
}

/// The result of serving, for the log. Clients end a test by closing its connections, in the middle
/// of transfers that are logged themselves.
fn outcome(served: hyper::Result<()>) -> Result<(), String> {
    let why = served.err().and_then(|error| http2_error::text(&error));
    why.map_or(Ok(()), Err)
}

async fn http2(stream: Box<TlsStream<Stream>>, connection: &Arc<Connection>) -> Result<(), String> {
    let answering = Arc::clone(connection);
    let service = service_fn(move |request| resource::answer(Arc::clone(&answering), request));
    let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(MAX_PENDING_RESETS)
        .max_send_buf_size(MAX_SEND_BUFFER)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .serve_connection(TokioIo::new(Unbuffered(stream)), service)
        .await;
    outcome(served)
}

async fn http1(stream: Box<TlsStream<Stream>>, connection: &Arc<Connection>) -> Result<(), String> {
    let answering = Arc::clone(connection);
    let service = service_fn(move |request| resource::answer(Arc::clone(&answering), request));
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .header_read_timeout(connection.shared.config.limits.idle)
        .max_buf_size(MAX_HEAD as usize)
        .serve_connection(TokioIo::new(Unbuffered(stream)), service)
        .await;
    outcome(served)
}
