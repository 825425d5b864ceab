//! The traffic of one address.

use crate::transfer::{Grant, TokenBucket};
use fullpipe_units::Rate;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, Read as _};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Instant;

/// Both directions of the traffic of an address.
#[derive(Debug)]
pub(crate) struct Account {
    /// What this server sends.
    pub sent: TokenBucket,
    /// What it receives.
    pub received: TokenBucket,
    stopping: Arc<AtomicBool>,
}

impl Account {
    /// An account whose directions each have `rate`. Once `stopping` is set, nothing waits.
    pub fn new(rate: Rate, stopping: Arc<AtomicBool>) -> Account {
        Account { sent: TokenBucket::new(rate), received: TokenBucket::new(rate), stopping }
    }

    /// Whether the client is connected and the server is not stopping.
    fn is_open(&self, socket: &impl AsFd) -> bool {
        !self.stopping.load(SeqCst) && !hung_up(socket)
    }

    /// Waits until a message of `bytes` may be sent to `socket`; `false` if the client is gone or
    /// the server stops.
    pub fn send_message(&self, bytes: usize, socket: &impl AsFd) -> bool {
        self.sent.acquire_ahead(bytes, &mut || self.is_open(socket))
    }

    /// As [`send_message`](Self::send_message), for a part of a longer message, which waits behind
    /// the data of other transfers.
    pub fn send_part(&self, bytes: usize, socket: &impl AsFd) -> bool {
        self.sent.acquire(bytes, &mut || self.is_open(socket))
    }

    /// Waits until a part of `max` bytes of a message may be received from `socket`; `None` if the
    /// client is gone or the server stops.
    pub fn receive_message(&self, max: usize, socket: &impl AsFd) -> Option<Grant<'_>> {
        self.received.grant_ahead(max, &mut || self.is_open(socket))
    }
}

/// Reads from a readable socket as soon as its address may, which does not count towards the
/// deadline.
pub(crate) fn receive(
    account: Option<&Account>,
    mut socket: &TcpStream,
    buffer: &mut [u8],
    deadline: &mut Instant,
) -> io::Result<usize> {
    let Some(account) = account else { return socket.read(buffer) };
    let began = Instant::now();
    let Some(grant) = account.receive_message(buffer.len(), socket) else {
        return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the connection ended"));
    };
    *deadline += began.elapsed();
    let read = socket.read(&mut buffer[..grant.bytes()])?;
    grant.transferred(read);
    Ok(read)
}

/// Whether both directions of a connection are closed, or it was reset. A client that half-closed
/// its end still reads.
pub(crate) fn hung_up(socket: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::empty())];
    let ready = poll(&mut fds, PollTimeout::ZERO).is_ok_and(|n| n > 0);
    ready && fds[0].revents().is_some_and(|r| r.intersects(PollFlags::POLLHUP | PollFlags::POLLERR))
}
