//! The caller's handle of the lab's process: starts it, maps its user namespace, reads its
//! messages, ends it.

use super::identity;
use super::supervisor::{ENTRY, Hello, NOTE, RESULT, UNSHARED};
use crate::LabError;
use crate::reenter;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command};

/// A message of the lab's process.
pub(crate) enum Message {
    /// A progress note, in the work's own encoding.
    Note(Vec<u8>),
    /// The result.
    Done(Result<Vec<u8>, LabError>),
}

/// The caller's handle of a lab's process. Dropping it kills everything inside.
pub(crate) struct Enclosure {
    supervisor: Child,
    /// Open as long as the caller lives: processes inside detect its end by it.
    line: UnixStream,
    reaped: bool,
}

impl Enclosure {
    /// Re-executes this program to do `job` in new user, process, network and mount namespaces (it
    /// enters at [`reenter`](crate::reenter)). It inherits the descriptors `lent`.
    ///
    /// A program with several threads cannot become the first process of a namespace, and a fork(2)
    /// of one may not even allocate memory: a lock may be held by a thread that the copy does
    /// not have.
    pub(crate) fn start(job: &[u8], lent: &[OwnedFd]) -> Result<Enclosure, LabError> {
        reenter::expect_entry()?;
        let failed = |e| LabError::failed("cannot start the lab's process", e);
        let (line, theirs) = UnixStream::pair().map_err(failed)?;
        let mut command = Command::new("/proc/self/exe");
        // The name that `ps` shows.
        command.arg0(std::env::args_os().next().unwrap_or_else(|| "fullpipe".into()));
        command.arg(ENTRY).arg(theirs.as_raw_fd().to_string());
        let inherited: Vec<RawFd> = lent.iter().map(AsRawFd::as_raw_fd).chain([theirs.as_raw_fd()]).collect();
        let hello = Hello {
            caller: std::process::id(),
            lent: lent.iter().map(AsRawFd::as_raw_fd).collect(),
            job: job.len(),
        };
        // SAFETY: between fork and exec only system calls are made, and `inherited` is only read; its
        // descriptors are open until the command has been started.
        unsafe {
            command.pre_exec(move || {
                for &fd in &inherited {
                    fcntl(BorrowedFd::borrow_raw(fd), FcntlArg::F_SETFD(FdFlag::empty()))?;
                }
                Ok(())
            });
        }
        let supervisor = command.spawn().map_err(|e| match e.kind() {
            // No /proc, as in a chroot; creating namespaces would fail next.
            ErrorKind::NotFound => LabError::Impossible(
                "cannot start the lab's process: /proc is not mounted here. Mount it (`mount -t proc \
                 proc /proc`), or run fullpipe outside of this chroot"
                    .to_owned(),
            ),
            _ => failed(e),
        })?;
        drop(theirs);
        let mut enclosure = Enclosure { supervisor, line, reaped: false };
        if hello.write(&mut enclosure.line).and_then(|()| enclosure.line.write_all(job)).is_err() {
            return Err(enclosure.death());
        }
        enclosure.admit()?;
        Ok(enclosure)
    }

    /// Waits until the supervisor is in its user namespace, maps the ids, and lets it continue.
    fn admit(&mut self) -> Result<(), LabError> {
        let mut byte = [0];
        match self.line.read_exact(&mut byte) {
            Ok(()) if byte[0] == UNSHARED => {}
            Ok(()) => {
                return match self.body(byte[0])? {
                    Message::Done(Err(e)) => Err(e),
                    _ => Err(LabError::Failed("unexpected message from the lab's process".to_owned())),
                };
            }
            Err(_) => return Err(self.death()),
        }
        let mut pid = [0; 4];
        if self.line.read_exact(&mut pid).is_err() {
            return Err(self.death());
        }
        identity::map(i32::from_ne_bytes(pid))?;
        self.line.write_all(b"g").map_err(|e| LabError::failed("cannot reach the lab's process", e))
    }

    /// Waits for the next message.
    pub(crate) fn next(&mut self) -> Result<Message, LabError> {
        let mut kind = [0];
        match self.line.read_exact(&mut kind) {
            Ok(()) => self.body(kind[0]),
            Err(_) => Err(self.death()),
        }
    }

    fn body(&mut self, kind: u8) -> Result<Message, LabError> {
        let mut length = [0; 4];
        if self.line.read_exact(&mut length).is_err() {
            return Err(self.death());
        }
        let mut bytes = vec![0; u32::from_ne_bytes(length) as usize];
        if self.line.read_exact(&mut bytes).is_err() {
            return Err(self.death());
        }
        Ok(match kind {
            NOTE => Message::Note(bytes),
            RESULT => Message::Done(Ok(bytes)),
            _ => Message::Done(Err(serde_json::from_slice(&bytes)
                .unwrap_or_else(|_| LabError::Failed("an error that could not be read".to_owned())))),
        })
    }

    /// The error if the lab's process ended without a result.
    fn death(&mut self) -> LabError {
        self.reaped = true;
        match self.supervisor.wait().map(|status| (status.code(), status.signal())) {
            Ok((Some(code), _)) => LabError::Failed(format!("its process ended early with exit code {code}")),
            Ok((_, Some(signal))) => LabError::Failed(format!("its process was ended by signal {signal}")),
            other => LabError::Failed(format!("its process ended early ({other:?})")),
        }
    }
}

impl Drop for Enclosure {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = self.supervisor.kill();
            let _ = self.supervisor.wait();
        }
        // No process inside may outlive this: it could hold resources that the caller believes released.
        // The line closes when the last process inside has closed its files.
        let _ = std::io::copy(&mut self.line, &mut std::io::sink());
    }
}
