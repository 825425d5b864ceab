//! TCP sockets of other processes, as `ss` sees them: netlink's `SOCK_DIAG_BY_FAMILY` (sock_diag(7)).

use crate::sample::SocketSample;
use crate::tcp_info::{CcInfo, State, TcpInfo};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
/// `struct nlmsghdr`, `struct inet_diag_msg`.
const HEADER: usize = 16;
const MESSAGE: usize = 72;
/// Attributes (`INET_DIAG_*`).
const INFO: u16 = 2;
const VEGASINFO: u16 = 3;
const CONG: u16 = 4;
const SKMEMINFO: u16 = 7;
const DCTCPINFO: u16 = 9;
const BBRINFO: u16 = 16;

/// One TCP socket of this network namespace.
#[derive(Clone, Debug, PartialEq)]
pub struct DiagSocket {
    /// Its own end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Of the socket's file; by it a process's descriptors are matched.
    pub inode: u32,
    /// The kernel's lasting name for it.
    pub cookie: u64,
    /// Of the connection.
    pub state: State,
    /// Bytes that arrived and were not read.
    pub unread: u32,
    /// Bytes written that were not acknowledged.
    pub unacked: u32,
    /// Receive and send buffer, bytes (`SO_RCVBUF`, `SO_SNDBUF` as the kernel counts them).
    pub buffers: Option<(u32, u32)>,
    /// What `TCP_INFO` would say.
    pub info: Option<TcpInfo>,
    /// In plain numbers, with the controller.
    pub sample: Option<SocketSample>,
}

/// All TCP sockets that are or were connected, IPv4 and IPv6.
///
/// # Errors
/// When the kernel was built without it, or does not answer.
pub fn connections() -> io::Result<Vec<DiagSocket>> {
    let mut sockets = Vec::new();
    for family in [libc::AF_INET as u8, libc::AF_INET6 as u8] {
        dump(family, &mut sockets)?;
    }
    Ok(sockets)
}

/// The connected TCP sockets a process holds.
///
/// # Errors
/// When there is no such process, or its descriptors may not be looked at.
pub fn of_process(pid: u32) -> io::Result<Vec<DiagSocket>> {
    let inodes = inodes(pid)?;
    Ok(connections()?.into_iter().filter(|s| inodes.contains(&s.inode)).collect())
}

/// The inodes of a process's sockets.
fn inodes(pid: u32) -> io::Result<Vec<u32>> {
    let mut inodes = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
        // Descriptors come and go while we look.
        let Ok(target) = entry.and_then(|e| std::fs::read_link(e.path())) else { continue };
        let text = target.to_string_lossy();
        let inode: Option<u32> =
            text.strip_prefix("socket:[").and_then(|t| t.strip_suffix(']')).and_then(|t| t.parse().ok());
        inodes.extend(inode);
    }
    Ok(inodes)
}

fn dump(family: u8, sockets: &mut Vec<DiagSocket>) -> io::Result<()> {
    let netlink =
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkSockDiag)?;
    let extensions = [INFO, VEGASINFO, CONG, SKMEMINFO].iter().fold(0_u8, |bits, e| bits | 1 << (e - 1));
    // Established to closing, but neither listening nor in TIME_WAIT, which have no figures.
    let states: u32 = 0xfff & !(1 << 10) & !(1 << 6) & !(1 << 7);
    let mut request = Vec::with_capacity(HEADER + 56);
    request.extend(((HEADER + 56) as u32).to_ne_bytes());
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend(NLM_F_REQUEST_DUMP.to_ne_bytes());
    request.extend([0; 8]);
    request.extend([family, libc::IPPROTO_TCP as u8, extensions, 0]);
    request.extend(states.to_ne_bytes());
    request.resize(HEADER + 56, 0);
    send(netlink.as_raw_fd(), &request, MsgFlags::empty())?;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = recv(netlink.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
        if length == 0 || parse(&buffer[..length], sockets)? {
            return Ok(());
        }
    }
}

/// Reads the messages of one datagram; `true` when the last of a dump was among them.
///
/// # Errors
/// The kernel's own, told in a message.
pub fn parse(mut bytes: &[u8], sockets: &mut Vec<DiagSocket>) -> io::Result<bool> {
    while let Some((length, kind)) = u32_at(bytes, 0).zip(u16_at(bytes, 4)) {
        let Some(message) = bytes.get(HEADER..length as usize) else { break };
        match kind {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                let errno = u32_at(message, 0).map_or(0, |e| (e as i32).wrapping_neg());
                return Err(io::Error::from_raw_os_error(errno));
            }
            SOCK_DIAG_BY_FAMILY => sockets.extend(read(message)),
            _ => {}
        }
        bytes = bytes.get((length as usize).next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

fn read(message: &[u8]) -> Option<DiagSocket> {
    let fixed = message.get(..MESSAGE)?;
    let port = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
    let ip = |at: usize| -> Option<IpAddr> {
        let bytes: [u8; 16] = fixed[at..at + 16].try_into().ok()?;
        Some(if i32::from(fixed[0]) == libc::AF_INET {
            IpAddr::from([bytes[0], bytes[1], bytes[2], bytes[3]])
        } else {
            Ipv6Addr::from(bytes).to_canonical()
        })
    };
    let mut socket = DiagSocket {
        local: SocketAddr::new(ip(8)?, port(4)),
        remote: SocketAddr::new(ip(24)?, port(6)),
        cookie: u64::from(u32_at(fixed, 44)?) | u64::from(u32_at(fixed, 48)?) << 32,
        state: State::from_number(fixed[1]),
        unread: u32_at(fixed, 56)?,
        unacked: u32_at(fixed, 60)?,
        inode: u32_at(fixed, 68)?,
        buffers: None,
        info: None,
        sample: None,
    };
    let mut controller = String::new();
    let mut cc_info = None;
    let mut rest = &message[MESSAGE..];
    while let Some((length, kind)) = u16_at(rest, 0).zip(u16_at(rest, 2)) {
        let Some(value) = rest.get(4..usize::from(length)) else { break };
        match kind & 0x3fff {
            INFO => socket.info = TcpInfo::decode(value),
            CONG => {
                let name = value.split(|&b| b == 0).next().unwrap_or_default();
                controller = String::from_utf8_lossy(name).into_owned();
            }
            VEGASINFO => cc_info = CcInfo::decode("vegas", value),
            DCTCPINFO => cc_info = CcInfo::decode("dctcp", value),
            BBRINFO => cc_info = CcInfo::decode("bbr", value),
            SKMEMINFO => socket.buffers = u32_at(value, 4).zip(u32_at(value, 12)),
            _ => {}
        }
        rest = rest.get(usize::from(length).next_multiple_of(4).max(4)..).unwrap_or_default();
    }
    socket.sample = socket.info.as_ref().map(|info| {
        let mut sample = SocketSample::from_info(info, controller);
        if let Some(CcInfo::Bbr(bbr)) = cc_info {
            sample.bbr_bw = Some(bbr.bw.as_bytes_per_sec());
            sample.bbr_mode = bbr.mode().map(|mode| format!("{mode:?}"));
        }
        sample
    });
    Some(socket)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|b| u16::from_ne_bytes([b[0], b[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4).map(|b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn our_own_connection_is_found_with_its_controller() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_server, _) = listener.accept().unwrap();
        crate::tcp_info::pin(&client, "reno").unwrap();
        let sockets = of_process(std::process::id()).unwrap();
        let found = sockets.iter().find(|s| s.local == client.local_addr().unwrap()).unwrap();
        assert_eq!(found.remote, client.peer_addr().unwrap());
        assert_eq!(found.state, State::Established);
        assert_eq!(found.sample.as_ref().unwrap().controller, "reno");
        assert!(found.buffers.unwrap().0 > 0);
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(of_process(u32::MAX - 1).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), kind in 0u16..24) {
            let mut sockets = Vec::new();
            let _ = parse(&bytes, &mut sockets);
            let mut framed = ((bytes.len() + HEADER) as u32).to_ne_bytes().to_vec();
            framed.extend(kind.to_ne_bytes());
            framed.resize(HEADER, 0);
            framed.extend(&bytes);
            let _ = parse(&framed, &mut sockets);
        }
    }
}
