//! Sockets of a process.

use super::{Query, SockDiag, TcpSocket};
use std::collections::BTreeSet;
use std::io;

/// Connected TCP sockets of a process in this network namespace.
///
/// # Errors
/// When the process does not exist, or its descriptors are not readable.
pub fn sockets_of_process(pid: u32) -> io::Result<Vec<TcpSocket>> {
    let inodes = socket_inodes(pid)?;
    SockDiag::open()?.collect(&Query::default(), |view| inodes.contains(&view.inode()))
}

/// Inodes of a process's sockets.
///
/// # Errors
/// When the process does not exist, or its descriptors are not readable.
pub fn socket_inodes(pid: u32) -> io::Result<BTreeSet<u32>> {
    let mut inodes = BTreeSet::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
        // Descriptors may be closed meanwhile.
        let Ok(target) = entry.and_then(|e| std::fs::read_link(e.path())) else { continue };
        let text = target.to_string_lossy();
        let inode: Option<u32> =
            text.strip_prefix("socket:[").and_then(|t| t.strip_suffix(']')).and_then(|t| t.parse().ok());
        inodes.extend(inode);
    }
    Ok(inodes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp_info::{State, pin};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn own_connections_are_found_with_their_controller() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_server, _) = listener.accept().unwrap();
        pin(&client, "reno").unwrap();
        let sockets = sockets_of_process(std::process::id()).unwrap();
        let found = sockets.iter().find(|s| s.local == client.local_addr().unwrap()).unwrap();
        assert_eq!(found.remote, client.peer_addr().unwrap());
        assert_eq!(found.state, State::Established);
        assert_eq!(found.controller.as_deref(), Some("reno"));
        assert!(found.info.as_ref().unwrap().snd_cwnd > 0);
        assert!(found.memory.unwrap().receive_buffer > 0);
    }

    #[test]
    fn a_missing_process_is_an_error() {
        assert!(sockets_of_process(u32::MAX - 1).is_err());
    }
}
