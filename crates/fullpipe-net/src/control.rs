//! The control connection: states and JSON texts, always with a deadline.

use crate::account::{Account, receive};
use crate::foreign;
use crate::iperf3::{MAX_RESULTS, Malformed, ServerError, State};
use crate::transfer::PACKET;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, send};
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Interval for checking for a user interrupt while waiting.
const INTERRUPT_INTERVAL: Duration = Duration::from_millis(100);
/// Timeout for a whole write, without the delay by the client's account.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a control connection failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The peer closed the connection.
    #[error("the peer closed the connection while {0}")]
    Closed(&'static str),
    /// The peer did not respond in time.
    #[error("timed out after {1:?} while {0}")]
    TimedOut(&'static str, Duration),
    /// The peer violated the protocol.
    #[error("while {0}: {1}")]
    Malformed(&'static str, #[source] Malformed),
    /// The peer sent a state that is not valid at this step.
    #[error("unexpected {1:?} while {0}")]
    Unexpected(&'static str, State),
    /// The user interrupted a read.
    #[error("interrupted while {0}")]
    Interrupted(&'static str),
    /// The connection failed.
    #[error("the connection failed while {0}: {1}")]
    Io(&'static str, #[source] io::Error),
}

/// How long a read waits.
#[derive(Clone, Copy, Debug)]
pub struct Wait<'a> {
    /// Timeout to report when the deadline has passed.
    pub timeout: Duration,
    /// When the read fails.
    pub deadline: Instant,
    /// Ends the read when set.
    pub interrupt: Option<&'a AtomicBool>,
}

/// Why waiting ended.
pub(crate) enum Ended {
    Interrupted,
    TimedOut,
}

impl From<Duration> for Wait<'_> {
    fn from(timeout: Duration) -> Self {
        Wait { timeout, deadline: Instant::now() + timeout, interrupt: None }
    }
}

impl<'a> Wait<'a> {
    pub(crate) fn until(timeout: Duration, interrupt: &'a AtomicBool) -> Self {
        Wait { interrupt: Some(interrupt), ..Wait::from(timeout) }
    }

    /// Time to wait before the next check.
    pub(crate) fn slice(&self) -> Result<Duration, Ended> {
        if self.interrupt.is_some_and(|interrupt| interrupt.load(Relaxed)) {
            return Err(Ended::Interrupted);
        }
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Ended::TimedOut);
        }
        Ok(if self.interrupt.is_some() { left.min(INTERRUPT_INTERVAL) } else { left })
    }
}

/// One end of a control connection.
#[derive(Debug)]
pub struct Control {
    socket: TcpStream,
    /// That of the client at a server with a maximum rate.
    account: Option<Arc<Account>>,
}

impl Control {
    /// Wraps a connected socket.
    ///
    /// # Errors
    /// If socket options cannot be set.
    pub fn new(socket: TcpStream) -> io::Result<Control> {
        socket.set_nodelay(true)?;
        Ok(Control { socket, account: None })
    }

    /// Charges messages to the client's account, which may delay them.
    pub(crate) fn with_account(self, account: Option<Arc<Account>>) -> Control {
        Control { account, ..self }
    }

    /// The client's account.
    pub(crate) fn account(&self) -> Option<&Account> {
        self.account.as_deref()
    }

    /// The socket.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Waits until the socket is readable or closed; `false` after `timeout`.
    ///
    /// # Errors
    /// If polling fails.
    pub fn readable(&self, timeout: Duration) -> io::Result<bool> {
        readable(&self.socket, timeout)
    }

    /// Fills `buffer`.
    ///
    /// # Errors
    /// If the peer closes, the time passes, the wait is interrupted, or the connection fails.
    pub fn read_exact<'a>(
        &self,
        buffer: &mut [u8],
        doing: &'static str,
        wait: impl Into<Wait<'a>>,
    ) -> Result<(), ControlError> {
        let mut wait = wait.into();
        let mut filled = 0;
        while filled < buffer.len() {
            let left = wait.slice().map_err(|ended| match ended {
                Ended::Interrupted => ControlError::Interrupted(doing),
                Ended::TimedOut => ControlError::TimedOut(doing, wait.timeout),
            })?;
            self.socket.set_read_timeout(Some(left)).map_err(|e| ControlError::Io(doing, e))?;
            let account = self.account();
            if account.is_some() && !self.readable(left).map_err(|e| ControlError::Io(doing, e))? {
                continue;
            }
            match receive(account, &self.socket, &mut buffer[filled..], &mut wait.deadline) {
                Ok(0) => return Err(ControlError::Closed(doing)),
                Ok(n) => filled += n,
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted
                    ) =>
                {
                    return Err(ControlError::Closed(doing));
                }
                Err(e) => return Err(ControlError::Io(doing, e)),
            }
        }
        Ok(())
    }

    /// Reads one state.
    ///
    /// # Errors
    /// As [`read_exact`](Self::read_exact), or on an unknown state byte.
    pub fn read_state<'a>(
        &self,
        doing: &'static str,
        wait: impl Into<Wait<'a>>,
    ) -> Result<State, ControlError> {
        let mut byte = [0];
        self.read_exact(&mut byte, doing, wait)?;
        State::parse(byte[0]).map_err(|e| ControlError::Malformed(doing, e))
    }

    /// The protocol of a peer that does not speak iperf3, by the first bytes it sends.
    pub fn foreign_protocol(&self) -> Option<&'static str> {
        let mut first = [0; 16];
        // They come in one segment.
        let n = self.socket.peek(&mut first).unwrap_or(0);
        foreign::protocol(first.get(..n)?)
    }

    /// Reads a length-prefixed text of at most `longest` bytes.
    ///
    /// # Errors
    /// As [`read_exact`](Self::read_exact), or if the length is out of bounds, before any of the
    /// text is stored.
    pub fn read_text<'a>(
        &self,
        longest: usize,
        doing: &'static str,
        wait: impl Into<Wait<'a>>,
    ) -> Result<Vec<u8>, ControlError> {
        // One deadline for length and text.
        let wait = wait.into();
        let mut length = [0; 4];
        self.read_exact(&mut length, doing, wait)?;
        let length = u32::from_be_bytes(length) as usize;
        if length == 0 || length > longest {
            let what = Malformed(format!("announced a text of {length} bytes; 1 to {longest} are accepted"));
            return Err(ControlError::Malformed(doing, what));
        }
        let mut text = vec![0; length];
        self.read_exact(&mut text, doing, wait)?;
        Ok(text)
    }

    /// Reads an error's numbers, which follow [`State::ServerError`].
    ///
    /// # Errors
    /// As [`read_exact`](Self::read_exact).
    pub fn read_error<'a>(&self, wait: impl Into<Wait<'a>>) -> Result<ServerError, ControlError> {
        let mut bytes = [0; 8];
        self.read_exact(&mut bytes, "reading the server's error", wait)?;
        Ok(ServerError::parse(bytes))
    }

    /// Writes raw bytes.
    ///
    /// # Errors
    /// If the write times out or the connection fails.
    pub fn write(&self, bytes: &[u8], doing: &'static str) -> Result<(), ControlError> {
        let Some(account) = self.account() else { return self.write_now(bytes, doing) };
        let mut left = WRITE_TIMEOUT;
        for piece in bytes.chunks(account.sent.quantum(bytes.len(), PACKET)) {
            if !account.send_message(piece.len(), &self.socket) {
                return Err(ControlError::Closed(doing));
            }
            let began = Instant::now();
            self.write_within(piece, doing, left)?;
            left = left.saturating_sub(began.elapsed());
        }
        Ok(())
    }

    /// As [`write`](Self::write), without charging the account.
    pub(crate) fn write_now(&self, bytes: &[u8], doing: &'static str) -> Result<(), ControlError> {
        self.write_within(bytes, doing, WRITE_TIMEOUT)
    }

    /// Writes everything within `timeout`: a socket's own timeout begins again with every byte that
    /// the peer reads.
    fn write_within(
        &self,
        mut bytes: &[u8],
        doing: &'static str,
        timeout: Duration,
    ) -> Result<(), ControlError> {
        let deadline = Instant::now() + timeout;
        while !bytes.is_empty() {
            match send(self.socket.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
                Ok(n) => bytes = &bytes[n..],
                Err(Errno::EAGAIN) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(ControlError::TimedOut(doing, WRITE_TIMEOUT));
                    }
                    wait_for(&self.socket, PollFlags::POLLOUT, left)
                        .map_err(|e| ControlError::Io(doing, e))?;
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EPIPE | Errno::ECONNRESET) => return Err(ControlError::Closed(doing)),
                Err(e) => return Err(ControlError::Io(doing, e.into())),
            }
        }
        Ok(())
    }

    /// Writes one state.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_state(&self, state: State, doing: &'static str) -> Result<(), ControlError> {
        self.write(&[state.byte()], doing)
    }

    /// Writes a length-prefixed JSON text.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_text(&self, value: &serde_json::Value, doing: &'static str) -> Result<(), ControlError> {
        self.write(&with_length(value), doing)
    }

    /// Writes an extension message with a single write.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_extension(
        &self,
        value: &serde_json::Value,
        doing: &'static str,
    ) -> Result<(), ControlError> {
        self.write(&extension(value), doing)
    }

    /// Sends the reason for a refusal; failures are ignored.
    pub fn refuse(&self, error: ServerError) {
        let mut bytes = vec![State::ServerError.byte()];
        bytes.extend(error.to_bytes());
        let _ = self.write(&bytes, "refusing a client");
    }
}

/// An extension message.
pub(crate) fn extension(value: &serde_json::Value) -> Vec<u8> {
    let mut bytes = vec![State::Extension.byte()];
    bytes.extend(with_length(value));
    bytes
}

fn with_length(value: &serde_json::Value) -> Vec<u8> {
    let text = value.to_string();
    debug_assert!(text.len() <= MAX_RESULTS);
    let mut bytes = (text.len() as u32).to_be_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

/// Waits until the socket is readable or closed; `false` after `timeout`.
///
/// # Errors
/// If polling fails.
pub(crate) fn readable(socket: &impl AsFd, timeout: Duration) -> io::Result<bool> {
    wait_for(socket, PollFlags::POLLIN, timeout)
}

fn wait_for(socket: &impl AsFd, what: PollFlags, timeout: Duration) -> io::Result<bool> {
    let timeout = PollTimeout::try_from(timeout + Duration::from_micros(999)).unwrap_or(PollTimeout::MAX);
    let mut fds = [PollFd::new(socket.as_fd(), what)];
    match poll(&mut fds, timeout) {
        Ok(n) => Ok(n > 0),
        Err(nix::Error::EINTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{setsockopt, sockopt};
    use std::io::{Read, Write};
    use std::net::TcpListener;

    fn pair() -> (Control, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Control::new(listener.accept().unwrap().0).unwrap(), a)
    }

    const SOON: Duration = Duration::from_millis(200);
    /// For what must arrive, even on a slow machine.
    const LATE: Duration = Duration::from_secs(60);

    #[test]
    fn an_oversized_length_is_refused_before_the_text() {
        let (control, mut peer) = pair();
        peer.write_all(&u32::MAX.to_be_bytes()).unwrap();
        let error = control.read_text(8192, "reading parameters", LATE).unwrap_err().to_string();
        assert!(error.contains("4294967295") && error.contains("8192"), "{error}");
    }

    #[test]
    fn byte_by_byte_data_does_not_extend_the_deadline() {
        let (control, mut peer) = pair();
        // Each byte is well within the deadline; if each restarted it, the read would succeed.
        let dripping = std::thread::spawn(move || {
            for _ in 0..100 {
                if peer.write_all(&[0]).is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let result = control.read_exact(&mut [0; 100], "reading", SOON);
        assert!(matches!(result, Err(ControlError::TimedOut(..))), "{result:?}");
        drop(control);
        dripping.join().unwrap();
    }

    #[test]
    fn reading_byte_by_byte_does_not_extend_the_deadline_of_a_write() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // Small buffers: every byte that is read lets the writer go on soon.
        setsockopt(&listener, sockopt::RcvBuf, &2048).unwrap();
        let control = Control::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap()).unwrap();
        setsockopt(control.socket(), sockopt::SndBuf, &4096).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        peer.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&done);
        // The writer has begun when the reader has its first bytes.
        let began = Instant::now();
        let reading = std::thread::spawn(move || {
            let mut reads = 0;
            while !over.load(Relaxed) {
                reads += usize::from(peer.read(&mut [0; 1024]).is_ok_and(|n| n > 0));
                std::thread::sleep(Duration::from_millis(20));
            }
            reads
        });
        let result = control.write_within(&vec![0; 64 << 20], "writing", SOON);
        done.store(true, Relaxed);
        assert!(matches!(result, Err(ControlError::TimedOut(..))), "{result:?}");
        // Without a deadline the write would take many minutes.
        assert!(began.elapsed() < LATE, "{:?}", began.elapsed());
        assert!(reading.join().unwrap() > 0, "the reader read nothing meanwhile");
    }

    #[test]
    fn a_closed_connection_is_distinguished_from_silence() {
        let (control, peer) = pair();
        assert!(matches!(control.read_state("waiting", SOON), Err(ControlError::TimedOut(..))));
        drop(peer);
        assert!(matches!(control.read_state("waiting", LATE), Err(ControlError::Closed(_))));
    }
}
