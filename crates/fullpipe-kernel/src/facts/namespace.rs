//! The network namespace that a thread is in.

use crate::sockopt;
use std::io;
use std::os::unix::net::UnixDatagram;

/// The kernel's number of the caller's network namespace, which no other gets while the machine runs
/// (`SO_NETNS_COOKIE`, since Linux 5.14). The inode of `/proc/self/ns/net` is given again when a namespace is gone.
///
/// # Errors
/// When the kernel has no such numbers.
pub fn network_namespace() -> io::Result<u64> {
    let mut cookie = [0; 8];
    sockopt::get(&UnixDatagram::unbound()?, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, &mut cookie)?;
    Ok(u64::from_ne_bytes(cookie))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_keeps_its_number() {
        // Kernels before 5.14 have none.
        if let Ok(cookie) = network_namespace() {
            assert!(cookie > 0);
            assert_eq!(network_namespace().unwrap(), cookie);
        }
    }
}
