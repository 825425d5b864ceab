//! The lab's process, from its start to the end of its work.

use super::identity;
use crate::LabError;
use crate::priority;
use fullpipe_kernel::signals::exit_immediately;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::socket::{MsgFlags, send};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork, pipe2};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// First argument of the program when it is re-executed as the lab's process; the second is the
/// number of the descriptor of its line.
pub(crate) const ENTRY: &str = "fullpipe-lab-process";

pub(super) const UNSHARED: u8 = b'U';
pub(super) const NOTE: u8 = b'N';
pub(super) const RESULT: u8 = b'R';
const ERROR: u8 = b'E';

/// The caller's first message.
#[derive(Serialize, Deserialize)]
pub(super) struct Hello {
    /// Its process id.
    pub(super) caller: u32,
    /// Numbers of the descriptors that it passes.
    pub(super) lent: Vec<RawFd>,
    /// Bytes of the job that follows.
    pub(super) job: usize,
}

impl Hello {
    pub(super) fn write(&self, line: &mut UnixStream) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        line.write_all(&(text.len() as u32).to_ne_bytes())?;
        line.write_all(&text)
    }

    fn read(line: &mut UnixStream) -> io::Result<(Self, Vec<u8>)> {
        let mut length = [0; 4];
        line.read_exact(&mut length)?;
        let mut text = vec![0; u32::from_ne_bytes(length) as usize];
        line.read_exact(&mut text)?;
        let hello: Hello = serde_json::from_slice(&text)?;
        let mut job = vec![0; hello.job];
        line.read_exact(&mut job)?;
        Ok((hello, job))
    }
}

/// The connection between the lab's process and its caller.
pub(crate) struct Line(UnixStream);

/// Sends the work's reports.
pub(crate) struct Outbox {
    line: Line,
    /// The rest of a note that was sent in part.
    rest: Vec<u8>,
}

impl Outbox {
    fn new(line: Line) -> Self {
        Outbox { line, rest: Vec::new() }
    }

    /// Sends a note, unless the caller has not read the previous one: the measurement must not wait
    /// for its observer, and the next note supersedes this one. A caller that has exited is not
    /// an error: this process dies with it.
    pub(crate) fn note(&mut self, bytes: &[u8]) {
        if self.rest.is_empty() {
            self.rest = frame(NOTE, bytes);
            let whole = self.rest.len();
            self.push();
            if self.rest.len() == whole {
                self.rest.clear();
            }
        } else {
            self.push();
        }
    }

    /// Sends as much of the rest as the socket has room for.
    fn push(&mut self) {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let sent = send(self.line.0.as_raw_fd(), &self.rest, flags).unwrap_or(0);
        self.rest.drain(..sent);
    }

    /// Sends the result, and waits until the caller has read everything.
    fn finish(mut self, outcome: Result<Vec<u8>, LabError>) {
        let _ = self.line.0.write_all(&self.rest);
        match outcome {
            Ok(bytes) => self.line.send(RESULT, &bytes),
            Err(e) => self.line.fail(&e),
        }
    }
}

/// A message as it goes over the line.
fn frame(kind: u8, bytes: &[u8]) -> Vec<u8> {
    [&[kind][..], &(bytes.len() as u32).to_ne_bytes(), bytes].concat()
}

impl Line {
    /// Takes over the line with descriptor `number`, and reads the caller's first message: the job,
    /// and descriptors. Exits if there is no caller.
    pub(crate) fn answer(number: RawFd) -> (Self, Vec<u8>, Vec<OwnedFd>) {
        die_with_parent();
        let taken = take_descriptor(number).and_then(|fd| {
            let mut line = UnixStream::from(fd);
            let (hello, job) = Hello::read(&mut line)?;
            let lent = hello.lent.iter().map(|&fd| take_descriptor(fd)).collect::<io::Result<Vec<_>>>()?;
            Ok((line, hello.caller, job, lent))
        });
        let Ok((line, caller, job, lent)) = taken else {
            eprintln!("{ENTRY} is how the lab starts its own process: it is of no use otherwise");
            exit_immediately(2)
        };
        // The caller may have died before PR_SET_PDEATHSIG was set.
        if nix::unistd::getppid().as_raw() as u32 != caller {
            exit_immediately(1);
        }
        // The caller handles interrupts from the terminal and signals to the whole process group, and then
        // ends this process. A closed pipe is an error here, not a signal, as in any Rust program.
        for ignored in [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGPIPE] {
            // SAFETY: ignoring a signal installs no handler.
            let _ = unsafe { signal(ignored, SigHandler::SigIgn) };
        }
        let _ = nix::sys::prctl::set_name(c"fullpipe-lab");
        (Line(line), job, lent)
    }

    /// Reports the error to the caller, and exits.
    pub(crate) fn refuse(&mut self, error: &LabError) -> ! {
        self.fail(error);
        exit_immediately(1)
    }

    fn send(&mut self, kind: u8, bytes: &[u8]) {
        let _ = self.0.write_all(&frame(kind, bytes));
    }

    fn fail(&mut self, error: &LabError) {
        let text = serde_json::to_vec(error).unwrap_or_default();
        self.send(ERROR, &text);
    }
}

/// Takes ownership of an inherited descriptor; programs started later do not inherit it.
fn take_descriptor(number: RawFd) -> io::Result<OwnedFd> {
    if number < 3 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: only asks the kernel about the number, which may be anything but negative.
    fcntl(unsafe { BorrowedFd::borrow_raw(number) }, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    // SAFETY: it is open, and this program, which has just started, has not opened it: the caller
    // passed it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

fn die_with_parent() {
    let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
}

/// Our process id in `/proc`, which inside another lab may belong to an outer process namespace.
fn own_id() -> i32 {
    std::fs::read_link("/proc/self")
        .ok()
        .and_then(|id| id.to_str()?.parse().ok())
        .unwrap_or_else(|| nix::unistd::getpid().as_raw())
}

/// The first process: creates the user namespace, then starts the process that does the work.
/// `before` runs outside, in the caller's namespaces, and its result is passed on.
pub(crate) fn supervise<T>(
    mut line: Line,
    before: impl FnOnce() -> Result<T, LabError>,
    work: impl FnOnce(T, &mut Outbox) -> Result<Vec<u8>, LabError>,
) -> ! {
    let brought = match before() {
        Ok(brought) => brought,
        Err(e) => line.refuse(&e),
    };
    // A process in its own user namespace may not raise its priority, so it is raised before.
    priority::raise();
    if let Err(e) = unshare(CloneFlags::CLONE_NEWUSER) {
        let advice = identity::advice(e, &["user"]);
        line.refuse(&LabError::Impossible(format!("cannot make a user namespace ({e}). {advice}")));
    }
    let announced = line.0.write_all(&[UNSHARED]).and_then(|()| line.0.write_all(&own_id().to_ne_bytes()));
    if announced.is_err() || line.0.read_exact(&mut [0]).is_err() {
        exit_immediately(1);
    }
    let rooms = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS;
    if let Err(e) = unshare(rooms) {
        let advice = identity::advice(e, &["net", "pid", "mnt"]);
        line.refuse(&LabError::Impossible(format!(
            "cannot make network, process and mount namespaces ({e}). {advice}"
        )));
    }
    let Ok((parent_gone, alive)) = pipe2(OFlag::O_CLOEXEC) else { exit_immediately(1) };
    // SAFETY: this process has one thread.
    match unsafe { fork() } {
        Ok(ForkResult::Child) => {
            drop(alive);
            die_with_parent();
            // If the supervisor died before that took effect, no process holds the pipe's other end.
            let _ = fcntl(&parent_gone, FcntlArg::F_SETFL(OFlag::O_NONBLOCK));
            if nix::unistd::read(&parent_gone, &mut [0]) == Ok(0) {
                exit_immediately(1);
            }
            let mut outbox = Outbox::new(line);
            let outcome = catch_unwind(AssertUnwindSafe(|| work(brought, &mut outbox)))
                .unwrap_or_else(|panic| Err(LabError::Failed(describe(panic.as_ref()))));
            outbox.finish(outcome);
            exit_immediately(0)
        }
        Ok(ForkResult::Parent { child }) => {
            drop((line, brought, parent_gone));
            let code = loop {
                match waitpid(child, None) {
                    Ok(WaitStatus::Exited(_, code)) => break code,
                    Ok(WaitStatus::Signaled(_, signal, _)) => break 128 + signal as i32,
                    Err(nix::errno::Errno::EINTR) | Ok(_) => {}
                    Err(_) => break 1,
                }
            };
            drop(alive);
            exit_immediately(code)
        }
        Err(e) => line.refuse(&LabError::Impossible(format!("cannot start a process ({e})"))),
    }
}

fn describe(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    format!("a bug in fullpipe: {text}")
}

/// Mounts a `/proc` of this process namespace, so that programs inside see only processes inside.
/// In a container that hides parts of `/proc` the kernel refuses; then the outer one stays.
pub(crate) fn remount_proc() {
    use nix::mount::{MsFlags, mount};
    let nothing: Option<&str> = None;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    if mount(nothing, "/", nothing, private, nothing).is_ok() {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        let _ = mount(Some("proc"), "/proc", Some("proc"), flags, nothing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    /// Reads the next message.
    fn next(line: &mut UnixStream) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        line.read_exact(&mut head)?;
        let mut bytes = vec![0; u32::from_ne_bytes([head[1], head[2], head[3], head[4]]) as usize];
        line.read_exact(&mut bytes)?;
        Ok((head[0], bytes))
    }

    #[test]
    fn measurement_does_not_wait_for_a_caller_that_does_not_read() {
        let (ours, mut callers) = UnixStream::pair().unwrap();
        let (started, after) = mpsc::channel();
        let result: Vec<u8> = (0..3_000_000u32).map(|i| i as u8).collect();
        let expected = result.clone();
        thread::spawn(move || {
            let mut outbox = Outbox::new(Line(ours));
            // Of equal length, as a run sends them, then of lengths that do not fit into the remaining room.
            for i in 0..20_000u64 {
                outbox.note(&i.to_ne_bytes());
            }
            for i in 0..200 {
                outbox.note(&vec![b'n'; 5_000 * i]);
            }
            started.send(()).unwrap();
            outbox.finish(Ok(result));
        });
        after.recv_timeout(Duration::from_secs(60)).expect("notes wait for a caller that does not read");
        callers.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let (mut notes, mut last) = (0, None);
        let end = loop {
            let (kind, bytes) = next(&mut callers).unwrap();
            if kind == RESULT {
                break bytes;
            }
            assert_eq!(kind, NOTE);
            notes += 1;
            match <[u8; 8]>::try_from(&bytes[..]) {
                Ok(at) => {
                    assert!(last.replace(u64::from_ne_bytes(at)) < Some(u64::from_ne_bytes(at)), "in order")
                }
                Err(_) => assert!(bytes.iter().all(|&b| b == b'n') && bytes.len() % 5_000 == 0, "whole"),
            }
        };
        assert!(end == expected, "the result comes whole");
        assert!((1..20_200).contains(&notes), "{notes}");
    }
}
