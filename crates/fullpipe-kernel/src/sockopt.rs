//! `getsockopt` and `setsockopt` for options of variable length.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Reads the option into `buffer` and returns the length written by the kernel.
pub(crate) fn get(socket: &impl AsFd, level: i32, option: i32, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = buffer.len() as libc::socklen_t;
    // SAFETY: the pointer and the length describe `buffer`, which outlives the call; the descriptor is
    // borrowed from its owner.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            buffer.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result == 0 { Ok((length as usize).min(buffer.len())) } else { Err(io::Error::last_os_error()) }
}

/// Sets the option to `value`.
pub(crate) fn set(socket: &impl AsFd, level: i32, option: i32, value: &[u8]) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which outlives the call; the descriptor is
    // borrowed from its owner.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
