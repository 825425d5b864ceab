//! The network namespace of a thread.

use crate::sockopt;
use std::io;
use std::os::unix::net::UnixDatagram;

/// Cookie of the caller's network namespace, unique until reboot (`SO_NETNS_COOKIE`, Linux 5.14).
/// The inode of `/proc/self/ns/net`, by contrast, is reused.
///
/// # Errors
/// On kernels without the option.
pub fn network_namespace() -> io::Result<u64> {
    let mut cookie = [0; 8];
    sockopt::get(&UnixDatagram::unbound()?, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, &mut cookie)?;
    Ok(u64::from_ne_bytes(cookie))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_is_stable() {
        // Kernels before 5.14 lack it.
        if let Ok(cookie) = network_namespace() {
            assert!(cookie > 0);
            assert_eq!(network_namespace().unwrap(), cookie);
        }
    }
}
