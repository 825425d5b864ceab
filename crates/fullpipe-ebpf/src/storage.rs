//! Access to maps of socket storage by a socket's descriptor.

use bytemuck::Pod;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Stores `value` for a socket in a map with values of its type.
///
/// # Errors
/// If the kernel refuses: the descriptor is not a socket, or only root may use BPF.
pub(crate) fn put<T: Pod>(map: &OwnedFd, socket: BorrowedFd<'_>, value: &T) -> io::Result<()> {
    let key = socket.as_raw_fd().to_ne_bytes();
    // SAFETY: maps of socket storage have keys of four bytes, and the values of this one the size of
    // what is put into it, by the caller; it is what the pointers lead to, and both outlive the
    // call.
    let result = unsafe {
        libbpf_sys::bpf_map_update_elem(
            map.as_raw_fd(),
            key.as_ptr().cast(),
            (&raw const *value).cast(),
            libbpf_sys::BPF_ANY.into(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads a socket's value from a map with values of this type.
///
/// # Errors
/// If there is no value.
pub(crate) fn get<T: Pod>(map: &OwnedFd, socket: BorrowedFd<'_>) -> io::Result<T> {
    let key = socket.as_raw_fd().to_ne_bytes();
    let mut value = T::zeroed();
    // SAFETY: as in `put`.
    let result = unsafe {
        libbpf_sys::bpf_map_lookup_elem(map.as_raw_fd(), key.as_ptr().cast(), (&raw mut value).cast())
    };
    if result == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}
