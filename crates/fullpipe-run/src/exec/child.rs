//! A program as a child process: lines to its standard input, lines from its standard output, the
//! end of its standard error.

use super::Limits;
use super::message::Message;
use crate::programs::Command;
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{self, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Longest line from a program, its end included.
pub(super) const MAX_LINE_BYTES: usize = 64 << 10;
/// Messages that wait for a question before they are written.
const MAX_PENDING_BYTES: usize = 32 << 10;
/// Bytes of standard error that are kept.
const MAX_ERROR_BYTES: usize = 2 << 10;
/// How long a program may run on after the end of its input, or without its output.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a program cannot be asked any more.
#[derive(Debug)]
pub(super) enum Fault {
    /// It did not answer in time.
    NoAnswer(Duration),
    /// It did not read its input in time.
    NotReading(Duration),
    /// It exited, or closed its input or output.
    Closed,
    /// An answer is not valid: the reason, and the line.
    Invalid(String, Vec<u8>),
    /// A line is too long; with its beginning.
    TooLong(Vec<u8>),
    /// It wrote lines that nothing had asked for; with these.
    Unasked(Vec<u8>),
    /// Another error of the operating system.
    Io(io::Error),
}

/// How a program ended.
#[derive(Debug)]
pub(super) struct End {
    /// Its status; `None` if it is not known.
    pub status: Option<ExitStatus>,
    /// It was still running and has been killed.
    pub killed: bool,
    /// The end of what it wrote to standard error.
    pub errors: Vec<u8>,
}

/// A running program.
#[derive(Debug)]
pub(super) struct Child {
    process: process::Child,
    input: UnixStream,
    output: UnixStream,
    /// Messages that are not yet written.
    pending: Vec<u8>,
    /// Read, from `start` on not yet used.
    received: Vec<u8>,
    start: usize,
    errors: Errors,
    timeout: Duration,
}

impl Child {
    /// Starts the program in a process group of its own, so that it does not get the terminal's
    /// Ctrl-C.
    pub fn start(command: &Command, limits: &Limits) -> io::Result<Child> {
        let (input, child_input) = UnixStream::pair()?;
        let (output, child_output) = UnixStream::pair()?;
        let (errors, child_errors) = UnixStream::pair()?;
        input.set_write_timeout(Some(limits.answer))?;
        output.set_read_timeout(Some(limits.start))?;
        let errors = Errors::new(errors)?;
        let started = process::Command::new(&command.program)
            .args(&command.arguments)
            .stdin(Stdio::from(OwnedFd::from(child_input)))
            .stdout(Stdio::from(OwnedFd::from(child_output)))
            .stderr(Stdio::from(OwnedFd::from(child_errors)))
            .process_group(0)
            .spawn();
        match started {
            Ok(process) => Ok(Child {
                process,
                input,
                output,
                pending: Vec::new(),
                received: Vec::new(),
                start: 0,
                errors,
                timeout: limits.start,
            }),
            Err(e) => {
                errors.end();
                Err(e)
            }
        }
    }

    /// Sets the time within which later answers must arrive.
    pub fn set_timeout(&mut self, timeout: Duration) -> Result<(), Fault> {
        self.timeout = timeout;
        self.output.set_read_timeout(Some(timeout)).map_err(Fault::Io)
    }

    /// Adds a message that needs no answer.
    pub fn push(&mut self, message: &Message) -> Result<(), Fault> {
        serde_json::to_writer(&mut self.pending, message).map_err(|e| Fault::Io(e.into()))?;
        self.pending.push(b'\n');
        if self.pending.len() >= MAX_PENDING_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes the messages that wait.
    fn flush(&mut self) -> Result<(), Fault> {
        let mut rest = &self.pending[..];
        while !rest.is_empty() {
            match self.input.write(rest) {
                Ok(n) => rest = &rest[n..],
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if is_timeout(&e) => {
                    return Err(Fault::NotReading(
                        self.input.write_timeout().ok().flatten().unwrap_or_default(),
                    ));
                }
                Err(e) if matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                    return Err(Fault::Closed);
                }
                Err(e) => return Err(Fault::Io(e)),
            }
        }
        self.pending.clear();
        Ok(())
    }

    /// Writes a message and what waits, and passes the answer to `read`: a line without its end.
    pub fn ask(
        &mut self,
        message: &Message,
        read: impl FnOnce(&[u8]) -> Result<(), String>,
    ) -> Result<(), Fault> {
        // What has exited may have written why: a line is more than the fact.
        let written = match self.push(message).and_then(|()| self.flush()) {
            Err(fault) if !matches!(fault, Fault::Closed) => return Err(fault),
            written => written,
        };
        let end = self.await_line()?;
        let line = &self.received[..end];
        read(line).map_err(|reason| Fault::Invalid(reason, line.to_vec()))?;
        if end + 1 < self.received.len() {
            return Err(Fault::Unasked(self.received.split_off(end + 1)));
        }
        self.received.clear();
        self.start = 0;
        written
    }

    /// Reads until there is a line; returns the position of its end.
    fn await_line(&mut self) -> Result<usize, Fault> {
        let deadline = Instant::now() + self.timeout;
        let mut block = [0; 8 << 10];
        loop {
            if let Some(end) = self.received[self.start..].iter().position(|byte| *byte == b'\n') {
                return Ok(self.start + end);
            }
            self.start = self.received.len();
            if self.start >= MAX_LINE_BYTES {
                return Err(Fault::TooLong(std::mem::take(&mut self.received)));
            }
            match self.output.read(&mut block) {
                Ok(0) => return Err(Fault::Closed),
                Ok(n) => self.received.extend_from_slice(&block[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if is_timeout(&e) => return Err(Fault::NoAnswer(self.timeout)),
                Err(e) if e.kind() == ErrorKind::ConnectionReset => return Err(Fault::Closed),
                Err(e) => return Err(Fault::Io(e)),
            }
            if Instant::now() >= deadline {
                return Err(Fault::NoAnswer(self.timeout));
            }
        }
    }

    /// Closes its input and waits for its end. An error if it wrote more lines than it was asked
    /// for.
    pub fn close(mut self) -> Result<(), (Fault, End)> {
        let unasked = self.drain();
        let end = self.end(true);
        match unasked {
            Some(lines) => Err((Fault::Unasked(lines), end)),
            None => Ok(()),
        }
    }

    /// Closes its input and reads what it still writes.
    fn drain(&mut self) -> Option<Vec<u8>> {
        let _ = self.input.shutdown(Shutdown::Write);
        let deadline = Instant::now() + EXIT_TIMEOUT;
        let mut block = [0; 8 << 10];
        while self.received.len() < MAX_LINE_BYTES {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.output.set_read_timeout(Some(left)).is_err() {
                break;
            }
            match self.output.read(&mut block) {
                Ok(n) if n > 0 => self.received.extend_from_slice(&block[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        (!self.received.is_empty()).then(|| std::mem::take(&mut self.received))
    }

    /// Ends the program and its process group; with `wait`, leaves it a moment to exit.
    pub fn end(mut self, wait: bool) -> End {
        // The group of a process that is not reaped cannot be another's.
        let pid = Pid::from_raw(self.process.id() as i32);
        let _ = self.input.shutdown(Shutdown::Both);
        let deadline = Instant::now() + if wait { EXIT_TIMEOUT } else { Duration::ZERO };
        let mut has_exited = exited(pid);
        while !has_exited && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
            has_exited = exited(pid);
        }
        let _ = killpg(pid, Signal::SIGKILL);
        let status = self.process.wait().ok();
        End { status, killed: !has_exited, errors: self.errors.end() }
    }
}

/// Whether a child has exited; it is not reaped.
fn exited(pid: Pid) -> bool {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    !matches!(waitid(Id::Pid(pid), flags), Ok(WaitStatus::StillAlive) | Err(Errno::EINTR))
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// The end of a program's standard error, read by a thread, so that a program that writes much does
/// not wait for a reader.
#[derive(Debug)]
struct Errors {
    stream: UnixStream,
    tail: Arc<Mutex<VecDeque<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Errors {
    fn new(stream: UnixStream) -> io::Result<Errors> {
        let tail = Arc::new(Mutex::new(VecDeque::new()));
        let mut source = stream.try_clone()?;
        let kept = Arc::clone(&tail);
        let reader = thread::Builder::new().name("program's errors".to_owned()).spawn(move || {
            let mut block = [0; 4 << 10];
            loop {
                match source.read(&mut block) {
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Ok(n) if n > 0 => {
                        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                        kept.extend(&block[..n]);
                        let surplus = kept.len().saturating_sub(MAX_ERROR_BYTES);
                        kept.drain(..surplus);
                    }
                    _ => break,
                }
            }
        })?;
        Ok(Errors { stream, tail, reader: Some(reader) })
    }

    /// What the program wrote last. Processes that it started may still have the other end open.
    fn end(mut self) -> Vec<u8> {
        self.stop();
        let kept = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().copied().collect()
    }

    fn stop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Read);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Drop for Errors {
    fn drop(&mut self) {
        self.stop();
    }
}
