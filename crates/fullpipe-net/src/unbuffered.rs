//! A TLS stream that holds no more than one write, and how much a sender may hold unsent.
//!
//! Requests and answers of probes wait behind what a sender has buffered, so buffers would be
//! measured instead of the path (draft-ietf-ippm-responsiveness section 6.1.1).

use fullpipe_kernel::socket;
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A TLS stream that accepts data only when all before has been given to the socket: rustls would
/// buffer 64 kB.
pub(crate) struct Unbuffered<S>(pub S);

impl<S: AsyncRead + Unpin> AsyncRead for Unbuffered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // The stream initialises what it may fill, and untouched memory of an idle connection is free.
        let max = buffer.remaining().min(MAX_READ);
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(max));
        ready!(Pin::new(&mut self.0).poll_read(cx, &mut part))?;
        let n = part.filled().len();
        buffer.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Unbuffered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(Pin::new(&mut self.0).poll_flush(cx))?;
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(Pin::new(&mut self.0).poll_flush(cx))?;
        Pin::new(&mut self.0).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Bytes to read at a time.
const MAX_READ: usize = 2048;

/// What a socket may hold unsent as a time at its rate, as the draft says.
const UNSENT_TIME: Duration = Duration::from_millis(5);
/// Its limits, in bytes: two packets, and what a fast path sends in a few milliseconds.
const MIN_UNSENT: f64 = 2896.0;
const MAX_UNSENT: f64 = 4_194_304.0;
/// The limit before the rate is known.
const FIRST_UNSENT: usize = 64 * 1024;
/// Maximum bytes of a body in one frame.
const MAX_BLOCK: usize = 16 * 1024;

/// What a sending socket may hold unsent.
#[derive(Debug)]
pub(crate) struct Unsent(AtomicUsize);

impl Unsent {
    /// Sets the limit of a new connection.
    pub fn new(socket: &impl AsFd) -> Unsent {
        let unsent = Unsent(AtomicUsize::new(0));
        unsent.set(socket, FIRST_UNSENT);
        unsent
    }

    fn set(&self, socket: &impl AsFd, bytes: usize) {
        self.0.store(bytes, Relaxed);
        // Without it, only latency is worse.
        let _ = socket::set_notsent_lowat(socket, bytes as u32);
    }

    /// Adapts the limit to a rate in bytes per second.
    pub fn adapt(&self, socket: &impl AsFd, rate: f64) {
        self.set(socket, (rate * UNSENT_TIME.as_secs_f64()).clamp(MIN_UNSENT, MAX_UNSENT) as usize);
    }

    /// Bytes to give to HTTP at a time. A frame is not sent in parts.
    pub fn block(&self) -> usize {
        self.0.load(Relaxed).clamp(MIN_UNSENT as usize, MAX_BLOCK)
    }
}
