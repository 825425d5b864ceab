//! One socket in a dump.

use crate::netlink::{Attributes, parse_c_string, u32_at};
use crate::tcp_info::{CcInfo, State, TcpInfo};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// `struct inet_diag_msg`.
const MESSAGE: usize = 72;
/// Attributes (`INET_DIAG_*`).
const INFO: u16 = 2;
const VEGASINFO: u16 = 3;
const CONG: u16 = 4;
const SKMEMINFO: u16 = 7;
const DCTCPINFO: u16 = 9;
const MARK: u16 = 15;
const BBRINFO: u16 = 16;
const CGROUP_ID: u16 = 21;

/// A view over the kernel's message; fields are decoded on access.
#[derive(Clone, Copy, Debug)]
pub struct SocketView<'a> {
    fixed: &'a [u8; MESSAGE],
    attributes: Attributes<'a>,
}

/// Memory of a socket in bytes (`INET_DIAG_SKMEMINFO`, `enum` of `SK_MEMINFO_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SocketMemory {
    /// Receive memory in use, with kernel overhead.
    pub receive_used: u32,
    /// Receive buffer limit (`SO_RCVBUF`).
    pub receive_buffer: u32,
    /// Memory of data on its way out of the host.
    pub send_used: u32,
    /// Send buffer limit (`SO_SNDBUF`).
    pub send_buffer: u32,
    /// Written and not acknowledged, with kernel overhead.
    pub send_queued: u32,
    /// Packets queued while the socket is locked.
    pub backlog: u32,
    /// Packets dropped at the socket.
    pub drops: u32,
}

impl<'a> SocketView<'a> {
    /// Parses the body of a `SOCK_DIAG_BY_FAMILY` message; `None` if it is too short.
    pub fn new(body: &'a [u8]) -> Option<Self> {
        let (fixed, attributes) = body.split_first_chunk()?;
        Some(SocketView { fixed, attributes: Attributes(attributes) })
    }

    fn word(&self, at: usize) -> u32 {
        u32_at(self.fixed, at).unwrap_or(0)
    }

    fn endpoint(&self, port: usize, address: usize) -> Option<SocketAddr> {
        let fixed = self.fixed;
        let port = u16::from_be_bytes([fixed[port], fixed[port + 1]]);
        let ip: IpAddr = match i32::from(fixed[0]) {
            libc::AF_INET => IpAddr::from(*fixed.get(address..)?.first_chunk::<4>()?),
            libc::AF_INET6 => Ipv6Addr::from(*fixed.get(address..)?.first_chunk::<16>()?).to_canonical(),
            _ => return None,
        };
        Some(SocketAddr::new(ip, port))
    }

    /// Local address and port; IPv4 for an IPv4 connection of an IPv6 socket; `None` for other
    /// address families.
    pub fn local(&self) -> Option<SocketAddr> {
        self.endpoint(4, 8)
    }

    /// Remote address and port.
    pub fn remote(&self) -> Option<SocketAddr> {
        self.endpoint(6, 24)
    }

    /// TCP state.
    pub fn state(&self) -> State {
        State::from_number(self.fixed[1])
    }

    /// Index of the interface that it is bound to, 0 for none.
    pub fn interface(&self) -> u32 {
        self.word(40)
    }

    /// Socket cookie (`SO_COOKIE`), unique until reboot.
    pub fn cookie(&self) -> u64 {
        u64::from(self.word(44)) | u64::from(self.word(48)) << 32
    }

    /// Received bytes not yet read; for a listening socket, connections waiting to be accepted.
    pub fn unread(&self) -> u32 {
        self.word(56)
    }

    /// Written bytes not yet acknowledged; for a listening socket, the backlog limit.
    pub fn unacked(&self) -> u32 {
        self.word(60)
    }

    /// User ID of the owner.
    pub fn uid(&self) -> u32 {
        self.word(64)
    }

    /// Inode of its file; 0 once no process has it open.
    pub fn inode(&self) -> u32 {
        self.word(68)
    }

    /// `TCP_INFO`, decoded. Needs [`Extensions::INFO`](super::Extensions::INFO).
    pub fn info(&self) -> Option<TcpInfo> {
        TcpInfo::decode(self.attributes.get(INFO)?)
    }

    /// Name of the congestion controller. Needs [`Extensions::CONG`](super::Extensions::CONG).
    pub fn controller(&self) -> Option<&'a str> {
        let name = self.attributes.get(CONG)?.split(|&b| b == 0).next()?;
        // Names may contain any bytes; those in use are ASCII.
        std::str::from_utf8(name).ok()
    }

    /// The congestion controller's state, if exposed. Needs
    /// [`Extensions::VEGASINFO`](super::Extensions::VEGASINFO).
    pub fn cc_info(&self) -> Option<CcInfo> {
        self.attributes.into_iter().find_map(|(kind, value)| match kind {
            BBRINFO => CcInfo::decode("bbr", value),
            VEGASINFO => CcInfo::decode("vegas", value),
            DCTCPINFO => CcInfo::decode("dctcp", value),
            _ => None,
        })
    }

    /// Memory usage. Needs [`Extensions::SKMEMINFO`](super::Extensions::SKMEMINFO).
    pub fn memory(&self) -> Option<SocketMemory> {
        let bytes = self.attributes.get(SKMEMINFO)?;
        // The fifth word is reserved memory, the seventh option memory; kernels before 4.11 have eight
        // words.
        Some(SocketMemory {
            receive_used: u32_at(bytes, 0)?,
            receive_buffer: u32_at(bytes, 4)?,
            send_used: u32_at(bytes, 8)?,
            send_buffer: u32_at(bytes, 12)?,
            send_queued: u32_at(bytes, 20)?,
            backlog: u32_at(bytes, 28)?,
            drops: u32_at(bytes, 32).unwrap_or(0),
        })
    }

    /// Control group ID (cgroup v2): the inode of its directory in `/sys/fs/cgroup`.
    pub fn cgroup_id(&self) -> Option<u64> {
        self.attributes.u64(CGROUP_ID)
    }

    /// Firewall mark (`SO_MARK`), visible with `CAP_NET_ADMIN`.
    pub fn mark(&self) -> Option<u32> {
        self.attributes.u32(MARK)
    }

    /// Decodes everything; `None` for other address families.
    pub fn decode(&self) -> Option<TcpSocket> {
        Some(TcpSocket {
            local: self.local()?,
            remote: self.remote()?,
            inode: self.inode(),
            uid: self.uid(),
            cookie: self.cookie(),
            state: self.state(),
            unread: self.unread(),
            unacked: self.unacked(),
            controller: self.attributes.get(CONG).map(parse_c_string),
            info: self.info(),
            cc_info: self.cc_info(),
            memory: self.memory(),
            cgroup_id: self.cgroup_id(),
        })
    }
}

/// A TCP socket, decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpSocket {
    /// Local address and port.
    pub local: SocketAddr,
    /// Remote address and port.
    pub remote: SocketAddr,
    /// Inode of its file, to match with descriptors of processes.
    pub inode: u32,
    /// User ID of the owner.
    pub uid: u32,
    /// Socket cookie.
    pub cookie: u64,
    /// TCP state.
    pub state: State,
    /// Received bytes not yet read.
    pub unread: u32,
    /// Written bytes not yet acknowledged.
    pub unacked: u32,
    /// Name of the congestion controller.
    pub controller: Option<String>,
    /// `TCP_INFO`.
    pub info: Option<TcpInfo>,
    /// The congestion controller's state.
    pub cc_info: Option<CcInfo>,
    /// Memory usage.
    pub memory: Option<SocketMemory>,
    /// Control group ID.
    pub cgroup_id: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::put_attribute;
    use proptest::prelude::*;

    fn message(family: i32) -> Vec<u8> {
        let mut body = vec![0; MESSAGE];
        body[0] = family as u8;
        body[1] = 1;
        body[4..6].copy_from_slice(&443u16.to_be_bytes());
        body[8..12].copy_from_slice(&[192, 0, 2, 1]);
        body[44..48].copy_from_slice(&7u32.to_ne_bytes());
        body[48..52].copy_from_slice(&1u32.to_ne_bytes());
        body
    }

    #[test]
    fn kernel_messages_are_parsed() {
        let mut body = message(libc::AF_INET);
        put_attribute(&mut body, CONG, b"bbr\0");
        put_attribute(&mut body, CGROUP_ID, &(5u64 << 33).to_ne_bytes());
        let words: Vec<u8> = (1..=9u32).flat_map(u32::to_ne_bytes).collect();
        put_attribute(&mut body, SKMEMINFO, &words);
        let view = SocketView::new(&body).unwrap();
        assert_eq!(view.local(), Some("192.0.2.1:443".parse().unwrap()));
        assert_eq!((view.state(), view.cookie()), (State::Established, (1 << 32) + 7));
        assert_eq!((view.controller(), view.cgroup_id()), (Some("bbr"), Some(5 << 33)));
        let memory = view.memory().unwrap();
        assert_eq!((memory.receive_buffer, memory.send_buffer, memory.drops), (2, 4, 9));
        assert_eq!((view.info(), view.cc_info(), view.mark()), (None, None, None));
    }

    #[test]
    fn a_socket_of_another_family_has_no_address() {
        let body = message(libc::AF_UNIX);
        let view = SocketView::new(&body).unwrap();
        assert_eq!((view.local(), view.decode()), (None, None));
        assert!(SocketView::new(&body[1..]).is_none());
    }

    #[test]
    fn an_ipv4_connection_of_an_ipv6_socket_has_ipv4_addresses() {
        let mut body = message(libc::AF_INET6);
        body[8..24].copy_from_slice(&std::net::Ipv4Addr::new(192, 0, 2, 9).to_ipv6_mapped().octets());
        assert_eq!(SocketView::new(&body).unwrap().local(), Some("192.0.2.9:443".parse().unwrap()));
    }

    proptest! {
        #[test]
        fn no_message_panics(bytes in proptest::collection::vec(any::<u8>(), 0..500), family in 0i32..12) {
            let mut framed = message(family);
            framed.extend(&bytes);
            for body in [&bytes, &framed] {
                if let Some(view) = SocketView::new(body) {
                    let _ = (view.decode(), view.controller(), view.mark(), view.interface());
                }
            }
        }
    }
}
