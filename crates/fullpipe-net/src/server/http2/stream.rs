//! The socket under TLS: it counts, and transfers no more than the address may.

use super::connection::WINDOW;
use crate::server::Account;
use crate::transfer::{PACKET, TokenBucket};
use crate::unbuffered::Unsent;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// A socket with its counters, shared by the stream and by what watches over it.
#[derive(Debug)]
pub(super) struct Socket {
    pub tcp: TcpStream,
    pub account: Option<Arc<Account>>,
    pub unsent: Unsent,
    /// Bytes received, including those of TLS.
    received: AtomicU64,
    /// Number of requests.
    pub requests: AtomicU64,
    /// Bytes of bodies, each way.
    pub body_sent: AtomicU64,
    pub body_received: AtomicU64,
    /// Whether there was an upload.
    pub has_upload: AtomicBool,
}

/// Bytes besides those of bodies that a client may send at first, for each request, and in
/// proportion to the bytes of bodies that it receives and sends: window updates and small records.
/// Floods of frames that are neither requests nor data exceed it: settings, pings, resets.
const CONTROL: u64 = 1 << 20;
const CONTROL_PER_REQUEST: u64 = 2048;
const CONTROL_PER_SENT: f64 = 0.25;
const CONTROL_PER_RECEIVED: f64 = 3.0;

impl Socket {
    pub fn new(tcp: TcpStream, account: Option<Arc<Account>>) -> Socket {
        let [received, requests, body_sent, body_received] = Default::default();
        let (has_upload, unsent) = (AtomicBool::new(false), Unsent::new(&tcp));
        Socket { tcp, account, unsent, received, requests, body_sent, body_received, has_upload }
    }

    /// Counts what was received.
    fn count(&self, bytes: usize) -> io::Result<()> {
        let received = self.received.fetch_add(bytes as u64, Relaxed) + bytes as u64;
        let max = CONTROL
            + CONTROL_PER_REQUEST * self.requests.load(Relaxed)
            + (CONTROL_PER_SENT * self.body_sent.load(Relaxed) as f64) as u64
            + (CONTROL_PER_RECEIVED * self.body_received.load(Relaxed) as f64) as u64;
        // Data of an upload arrives before it is counted as such.
        let max = max + if self.has_upload.load(Relaxed) { WINDOW.into() } else { 0 };
        if received > max {
            let why = format!("{received} bytes were received, and {max} are plausible");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(())
    }
}

/// A place among those that wait for the rate of an address.
struct Turn {
    account: Arc<Account>,
    bucket: fn(&Account) -> &TokenBucket,
    ticket: Option<u64>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Turn {
    fn bucket(&self) -> &TokenBucket {
        (self.bucket)(&self.account)
    }

    fn poll_acquire(&mut self, bytes: usize, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let bucket = (self.bucket)(&self.account);
            let Err(at) = bucket.poll_acquire(bytes, &mut self.ticket, cx.waker()) else {
                self.sleep = None;
                return Poll::Ready(());
            };
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at.into())));
            sleep.as_mut().reset(at.into());
            ready!(sleep.as_mut().poll(cx));
        }
    }
}

/// A place must not be kept by a connection that is gone: the others wait behind it.
impl Drop for Turn {
    fn drop(&mut self) {
        self.bucket().leave(self.ticket);
    }
}

/// The stream that TLS reads and writes.
pub(super) struct Stream {
    socket: Arc<Socket>,
    /// Bytes that were read to recognise the protocol.
    opening: Vec<u8>,
    reading: Option<Turn>,
    writing: Option<Turn>,
    /// Bytes read and written since this connection last waited.
    burst: [usize; 2],
}

/// Bytes after which the other connections have their turn: with a load on many, probes would wait
/// for all of it.
const MAX_BURST: usize = 128 * 1024;

/// Whether a connection goes on; otherwise it is polled again after the others.
fn goes_on(burst: &mut usize, cx: &Context<'_>) -> bool {
    let goes_on = *burst < MAX_BURST;
    if !goes_on {
        *burst = 0;
        cx.waker().wake_by_ref();
    }
    goes_on
}

impl Stream {
    pub fn new(socket: Arc<Socket>, opening: Vec<u8>) -> Stream {
        let turn = |bucket| {
            socket.account.as_ref().map(|account| Turn {
                account: Arc::clone(account),
                bucket,
                ticket: None,
                sleep: None,
            })
        };
        let (reading, writing) = (turn(|a: &Account| &a.received as _), turn(|a: &Account| &a.sent as _));
        Stream { socket, opening, reading, writing, burst: [0; 2] }
    }
}

impl Stream {
    /// Waits until the socket can be read (0) or written (1).
    fn poll_ready(&mut self, cx: &mut Context<'_>, direction: usize) -> Poll<io::Result<()>> {
        let tcp = &self.socket.tcp;
        let ready = if direction == 0 { tcp.poll_read_ready(cx) } else { tcp.poll_write_ready(cx) };
        if ready.is_pending() {
            self.burst[direction] = 0;
        }
        ready
    }
}

/// Bytes read at a time at most: more than a TLS record, which is not decrypted before it is whole.
const MAX_READ: usize = 17 * 1024;

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.opening.is_empty() {
            let n = this.opening.len().min(buffer.remaining());
            buffer.put_slice(&this.opening[..n]);
            this.opening.drain(..n);
            if this.opening.is_empty() {
                this.opening = Vec::new();
            }
            return Poll::Ready(Ok(()));
        }
        if !goes_on(&mut this.burst[0], cx) {
            return Poll::Pending;
        }
        loop {
            // A client that sends nothing must not wait in the queue of its address.
            ready!(this.poll_ready(cx, 0))?;
            let max = buffer.remaining().min(MAX_READ);
            let (max, grant) = match &mut this.reading {
                None => (max, None),
                Some(turn) => {
                    let max = turn.bucket().quantum(max, PACKET).clamp(1, max.max(1));
                    ready!(turn.poll_acquire(max, cx));
                    (max, Some(turn.bucket().acquired(max)))
                }
            };
            match this.socket.tcp.try_read(buffer.initialize_unfilled_to(max.min(buffer.remaining()))) {
                Ok(n) => {
                    buffer.advance(n);
                    if let Some(grant) = grant {
                        grant.transferred(n);
                    }
                    this.burst[0] += n;
                    return Poll::Ready(this.socket.count(n));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if !goes_on(&mut this.burst[1], cx) {
            return Poll::Pending;
        }
        loop {
            ready!(this.poll_ready(cx, 1))?;
            let (max, grant) = match &mut this.writing {
                None => (bytes.len(), None),
                // As for plain HTTP: short messages do not wait behind the data of other connections.
                Some(turn)
                    if turn.ticket.is_none()
                        && bytes.len() <= PACKET
                        && turn.bucket().charge_ahead(bytes.len()) =>
                {
                    (bytes.len(), Some(turn.bucket().acquired(bytes.len())))
                }
                Some(turn) => {
                    let max = turn.bucket().quantum(bytes.len(), PACKET).clamp(1, bytes.len().max(1));
                    ready!(turn.poll_acquire(max, cx));
                    (max, Some(turn.bucket().acquired(max)))
                }
            };
            match this.socket.tcp.try_write(&bytes[..max.min(bytes.len())]) {
                Ok(n) => {
                    if let Some(grant) = grant {
                        grant.transferred(n);
                    }
                    this.burst[1] += n;
                    return Poll::Ready(Ok(n));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Like the standard library's, this fails only if the peer is gone.
        Poll::Ready(
            nix::sys::socket::shutdown(
                std::os::fd::AsRawFd::as_raw_fd(&self.socket.tcp),
                nix::sys::socket::Shutdown::Write,
            )
            .map_err(io::Error::from),
        )
    }
}
