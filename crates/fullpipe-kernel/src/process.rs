//! Refers to a process by a pidfd, which is safe against reuse of its PID.

use nix::sys::signal::Signal;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A pidfd: it refers to the same process even after that has exited and its PID is reused.
#[derive(Debug)]
pub struct PidFd(OwnedFd);

impl PidFd {
    /// Opens the process with this PID; `None` if there is none (pidfd_open(2), since Linux 5.3).
    ///
    /// # Errors
    /// `NotFound` for an impossible PID, `Unsupported` before Linux 5.3.
    pub fn open(pid: u32) -> io::Result<Option<PidFd>> {
        let pid = i32::try_from(pid).ok().filter(|&n| n > 0).ok_or(io::ErrorKind::NotFound)?;
        // SAFETY: the call takes two numbers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if fd < 0 {
            return ignore_esrch().map(|()| None);
        }
        // SAFETY: a new descriptor without another owner.
        Ok(Some(PidFd(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })))
    }

    /// Sends a signal; false if the process has exited (pidfd_send_signal(2), since Linux 5.1).
    ///
    /// # Errors
    /// `PermissionDenied` for a process of another user.
    pub fn signal(&self, signal: Signal) -> io::Result<bool> {
        let no_siginfo = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: without a `siginfo_t` the call takes numbers; the descriptor is open as long as `self`
        // is.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.0.as_raw_fd(),
                signal as libc::c_int,
                no_siginfo,
                0,
            )
        };
        if sent < 0 { ignore_esrch().map(|()| false) } else { Ok(true) }
    }
}

/// The last error, unless it is `ESRCH`.
fn ignore_esrch() -> io::Result<()> {
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    #[test]
    fn a_process_is_signalled_until_it_ignore_esrch() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let handle = PidFd::open(child.id()).unwrap().unwrap();
        assert!(handle.signal(Signal::SIGTERM).unwrap());
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
        assert!(!handle.signal(Signal::SIGKILL).unwrap());
    }

    #[test]
    fn impossible_pids_are_errors_and_unused_pids_are_none() {
        for none in [0, u32::MAX] {
            assert_eq!(PidFd::open(none).unwrap_err().kind(), io::ErrorKind::NotFound);
        }
        // Above PID_MAX_LIMIT.
        assert!(PidFd::open(1 << 30).unwrap().is_none());
    }
}
