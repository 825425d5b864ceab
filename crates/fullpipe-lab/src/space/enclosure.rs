//! The process in which a lab runs, and the pipe through which it reports.

use super::identity;
use crate::LabError;
use crate::priority;
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, pipe2};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

/// What comes out of an enclosure.
pub(crate) enum Message {
    /// Something on the way, in the caller's own encoding.
    Note(Vec<u8>),
    /// The end, well or not.
    Done(Result<Vec<u8>, LabError>),
}

/// The inside's end of the pipe.
pub(crate) struct Outbox(File);

const UNSHARED: u8 = b'U';
const NOTE: u8 = b'N';
const RESULT: u8 = b'R';
const ERROR: u8 = b'E';

impl Outbox {
    /// Sends something on the way. A caller that has gone away is not an error: this process dies with it.
    pub(crate) fn note(&mut self, bytes: &[u8]) {
        self.send(NOTE, bytes);
    }

    fn send(&mut self, kind: u8, bytes: &[u8]) {
        let mut head = [kind, 0, 0, 0, 0];
        head[1..].copy_from_slice(&(bytes.len() as u32).to_ne_bytes());
        let _ = self.0.write_all(&head).and_then(|()| self.0.write_all(bytes));
    }

    fn fail(&mut self, error: &LabError) {
        let text = serde_json::to_vec(error).unwrap_or_default();
        self.send(ERROR, &text);
    }
}

/// A lab's process as its caller sees it. Dropping it kills everything inside.
pub(crate) struct Enclosure {
    supervisor: Pid,
    inbox: File,
    reaped: bool,
    /// Kept open as long as we live: its other ends tell the inside when we are gone.
    _alive: OwnedFd,
}

impl Enclosure {
    /// Runs `work` in new user, process, network and mount namespaces and gives back what it returns
    /// as the last message.
    ///
    /// `work` runs in a forked copy of this process: it sees everything the closure captured, and must
    /// not wait for threads or locks of the original.
    pub(crate) fn start(
        work: impl FnOnce(&mut Outbox) -> Result<Vec<u8>, LabError>,
    ) -> Result<Enclosure, LabError> {
        let pipe = || {
            pipe2(nix::fcntl::OFlag::O_CLOEXEC)
                .map(|(read, write)| (File::from(read), File::from(write)))
                .map_err(|e| LabError::failed("pipe", e))
        };
        let (inbox, outbox) = pipe()?;
        let (go, say_go) = pipe()?;
        let caller = nix::unistd::getpid();
        // SAFETY: the child is the only thread of its process. It allocates, which the C library makes
        // safe after a fork, and takes no lock that another thread of the parent could hold: it neither
        // prints nor reads the environment.
        match unsafe { fork() }.map_err(|e| LabError::failed("fork", e))? {
            ForkResult::Child => {
                drop((inbox, say_go));
                supervise(caller, Outbox(outbox), go, work)
            }
            ForkResult::Parent { child } => {
                drop((outbox, go));
                let mut enclosure =
                    Enclosure { supervisor: child, inbox, reaped: false, _alive: say_go.into() };
                enclosure.admit()?;
                Ok(enclosure)
            }
        }
    }

    /// Waits until the supervisor is in its user namespace, maps the ids, and lets it go on.
    fn admit(&mut self) -> Result<(), LabError> {
        let mut byte = [0];
        match self.inbox.read_exact(&mut byte) {
            Ok(()) if byte[0] == UNSHARED => {}
            Ok(()) => {
                return match self.body(byte[0])? {
                    Message::Done(Err(e)) => Err(e),
                    _ => Err(LabError::Failed("the lab's process spoke out of turn".to_owned())),
                };
            }
            Err(_) => return Err(self.death()),
        }
        let mut pid = [0; 4];
        if self.inbox.read_exact(&mut pid).is_err() {
            return Err(self.death());
        }
        identity::map(i32::from_ne_bytes(pid))?;
        (&File::from(self._alive.try_clone().map_err(|e| LabError::failed("dup", e))?))
            .write_all(b"g")
            .map_err(|e| LabError::failed("cannot reach the lab's process", e))
    }

    /// The next message; waits for it.
    pub(crate) fn next(&mut self) -> Result<Message, LabError> {
        let mut kind = [0];
        match self.inbox.read_exact(&mut kind) {
            Ok(()) => self.body(kind[0]),
            Err(_) => Err(self.death()),
        }
    }

    fn body(&mut self, kind: u8) -> Result<Message, LabError> {
        let mut length = [0; 4];
        if self.inbox.read_exact(&mut length).is_err() {
            return Err(self.death());
        }
        let mut bytes = vec![0; u32::from_ne_bytes(length) as usize];
        if self.inbox.read_exact(&mut bytes).is_err() {
            return Err(self.death());
        }
        Ok(match kind {
            NOTE => Message::Note(bytes),
            RESULT => Message::Done(Ok(bytes)),
            _ => Message::Done(Err(serde_json::from_slice(&bytes)
                .unwrap_or_else(|_| LabError::Failed("an error that could not be read".to_owned())))),
        })
    }

    /// What to say when the inside ended without a result.
    fn death(&mut self) -> LabError {
        self.reaped = true;
        match waitpid(self.supervisor, None) {
            Ok(WaitStatus::Exited(_, code)) => {
                LabError::Failed(format!("its process ended early with exit code {code}"))
            }
            Ok(WaitStatus::Signaled(_, signal, _)) => {
                LabError::Failed(format!("its process was ended by {signal}"))
            }
            other => LabError::Failed(format!("its process ended early ({other:?})")),
        }
    }
}

impl Drop for Enclosure {
    fn drop(&mut self) {
        if !self.reaped {
            // The supervisor is our child and not yet reaped: the id cannot have passed to another.
            let _ = nix::sys::signal::kill(self.supervisor, Signal::SIGKILL);
            let _ = waitpid(self.supervisor, None);
        }
        // Nothing of the inside may outlive us, descriptors that it got with the fork least of all: they could
        // hold what the caller thinks gone. The pipe ends when the last process inside has closed its files.
        let _ = std::io::copy(&mut self.inbox, &mut std::io::sink());
    }
}

fn die_with_parent() {
    let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
}

/// Our process id as `/proc` shows it, which inside another lab may be mounted for an outer process namespace.
fn own_id() -> i32 {
    std::fs::read_link("/proc/self")
        .ok()
        .and_then(|id| id.to_str()?.parse().ok())
        .unwrap_or_else(|| nix::unistd::getpid().as_raw())
}

/// Ends this forked process at once, without the parent's exit handlers.
fn leave(code: i32) -> ! {
    // SAFETY: ends the process; no Rust state is looked at afterwards.
    unsafe { libc::_exit(code) }
}

/// The first process inside: takes the user namespace, then starts the one that does the work.
fn supervise(
    caller: Pid,
    mut outbox: Outbox,
    mut go: File,
    work: impl FnOnce(&mut Outbox) -> Result<Vec<u8>, LabError>,
) -> ! {
    die_with_parent();
    if nix::unistd::getppid() != caller {
        leave(1);
    }
    // Inside a user namespace of its own no process may ask for this: take it along.
    priority::take();
    if let Err(e) = unshare(CloneFlags::CLONE_NEWUSER) {
        let advice = identity::advice();
        outbox.fail(&LabError::Impossible(format!("cannot make a user namespace ({e}). {advice}")));
        leave(1);
    }
    let told = outbox.0.write_all(&[UNSHARED]).and_then(|()| outbox.0.write_all(&own_id().to_ne_bytes()));
    if told.is_err() || go.read_exact(&mut [0]).is_err() {
        leave(1);
    }
    let rooms = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS;
    if let Err(e) = unshare(rooms) {
        let advice = identity::advice();
        outbox.fail(&LabError::Impossible(format!(
            "cannot make network, process and mount namespaces ({e}). {advice}"
        )));
        leave(1);
    }
    let Ok((parent_gone, alive)) = pipe2(nix::fcntl::OFlag::O_CLOEXEC) else { leave(1) };
    // SAFETY: this process has one thread.
    match unsafe { fork() } {
        Ok(ForkResult::Child) => {
            drop(alive);
            die_with_parent();
            // If the supervisor died before that took hold, nobody else holds the pipe's other end.
            let _ =
                nix::fcntl::fcntl(&parent_gone, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK));
            if nix::unistd::read(&parent_gone, &mut [0]) == Ok(0) {
                leave(1);
            }
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&mut outbox)))
                .unwrap_or_else(|panic| Err(LabError::Failed(describe(panic.as_ref()))));
            match outcome {
                Ok(bytes) => outbox.send(RESULT, &bytes),
                Err(e) => outbox.fail(&e),
            }
            leave(0)
        }
        Ok(ForkResult::Parent { child }) => {
            drop((outbox, go, parent_gone));
            let code = loop {
                match waitpid(child, None) {
                    Ok(WaitStatus::Exited(_, code)) => break code,
                    Ok(WaitStatus::Signaled(_, signal, _)) => break 128 + signal as i32,
                    Err(nix::errno::Errno::EINTR) | Ok(_) => {}
                    Err(_) => break 1,
                }
            };
            drop(alive);
            leave(code)
        }
        Err(e) => {
            outbox.fail(&LabError::Impossible(format!("cannot start a process ({e})")));
            leave(1)
        }
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

/// Gives this process a `/proc` of its own process namespace, so that what runs inside sees itself and
/// only itself. In a container that hides parts of `/proc` the kernel refuses; then the outer one stays.
pub(crate) fn remount_proc() {
    use nix::mount::{MsFlags, mount};
    let nothing: Option<&str> = None;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    if mount(nothing, "/", nothing, private, nothing).is_ok() {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        let _ = mount(Some("proc"), "/proc", Some("proc"), flags, nothing);
    }
}
