//! Another process, by a handle and not by its number: that is another's once it is gone.

use nix::sys::signal::Signal;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A process, even when it is gone: the handle never stands for the next that has its number.
#[derive(Debug)]
pub struct PidFd(OwnedFd);

impl PidFd {
    /// The process that has this number now; `None` if there is none (pidfd_open(2), since Linux 5.3).
    ///
    /// # Errors
    /// `NotFound` for a number that no process can have, `Unsupported` before Linux 5.3.
    pub fn open(number: u32) -> io::Result<Option<PidFd>> {
        let number = i32::try_from(number).ok().filter(|&n| n > 0).ok_or(io::ErrorKind::NotFound)?;
        // SAFETY: the call takes two numbers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, number, 0) };
        if fd < 0 {
            return is_gone().map(|()| None);
        }
        // SAFETY: the kernel has just given it, and to nobody else.
        Ok(Some(PidFd(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })))
    }

    /// Sends it a signal; false if it is gone (pidfd_send_signal(2), since Linux 5.1).
    ///
    /// # Errors
    /// `PermissionDenied` where the process is another user's.
    pub fn signal(&self, signal: Signal) -> io::Result<bool> {
        let of_kill = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: without a `siginfo_t` the call takes numbers; the descriptor is open as long as `self` is.
        let sent = unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), signal as libc::c_int, of_kill, 0)
        };
        if sent < 0 { is_gone().map(|()| false) } else { Ok(true) }
    }
}

/// The last call's error, unless it is that there is no such process.
fn is_gone() -> io::Result<()> {
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    #[test]
    fn a_process_is_signalled_until_it_is_gone() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let handle = PidFd::open(child.id()).unwrap().unwrap();
        assert!(handle.signal(Signal::SIGTERM).unwrap());
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
        assert!(!handle.signal(Signal::SIGKILL).unwrap());
    }

    #[test]
    fn numbers_of_no_process_are_told_from_those_that_are_free() {
        for none in [0, u32::MAX] {
            assert_eq!(PidFd::open(none).unwrap_err().kind(), io::ErrorKind::NotFound);
        }
        // Above what the kernel ever gives (PID_MAX_LIMIT).
        assert!(PidFd::open(1 << 30).unwrap().is_none());
    }
}
