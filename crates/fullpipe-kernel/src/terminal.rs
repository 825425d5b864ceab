//! Terminal size.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Columns of a terminal, 0 if unknown (`TIOCGWINSZ`, ioctl_tty(2)).
///
/// # Errors
/// `ENOTTY` if the file is not a terminal.
pub fn columns(file: &impl AsFd) -> io::Result<usize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the kernel fills in a `winsize`, which outlives the call; the descriptor is borrowed from
    // its owner.
    let result = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    if result == 0 { Ok(size.ws_col.into()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_have_columns_and_files_are_errors() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(columns(&file).unwrap_err().raw_os_error(), Some(libc::ENOTTY));

        let size = nix::pty::Winsize { ws_row: 24, ws_col: 97, ws_xpixel: 0, ws_ypixel: 0 };
        // Skipped without /dev/pts.
        if let Ok(pair) = nix::pty::openpty(Some(&size), None) {
            assert_eq!(columns(&pair.slave).unwrap(), 97);
        }
    }
}
