//! One socket as the kernel describes it.

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

/// A socket as a view over the kernel's message: what is not asked for costs nothing.
#[derive(Clone, Copy, Debug)]
pub struct SocketView<'a> {
    fixed: &'a [u8; MESSAGE],
    attributes: Attributes<'a>,
}

/// Memory of a socket in bytes (`INET_DIAG_SKMEMINFO`, `enum` of `SK_MEMINFO_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SocketMemory {
    /// Taken by what arrived and was not read, with the kernel's own structures.
    pub receive_used: u32,
    /// The most of it (`SO_RCVBUF`).
    pub receive_buffer: u32,
    /// Taken by what is on its way out of the machine.
    pub send_used: u32,
    /// The most of what was written and not acknowledged (`SO_SNDBUF`).
    pub send_buffer: u32,
    /// Written and not acknowledged, with the kernel's own structures.
    pub send_queued: u32,
    /// Waiting until the socket's owner is done with it.
    pub backlog: u32,
    /// Packets thrown away at the socket.
    pub drops: u32,
}

impl<'a> SocketView<'a> {
    /// Reads the body of a `SOCK_DIAG_BY_FAMILY` message; nothing if it is too short to be one.
    pub fn new(body: &'a [u8]) -> Option<Self> {
        let (fixed, attributes) = body.split_first_chunk()?;
        Some(SocketView { fixed, attributes: Attributes(attributes) })
    }

    fn word(&self, at: usize) -> u32 {
        u32_at(self.fixed, at).unwrap_or(0)
    }

    fn end(&self, port: usize, address: usize) -> Option<SocketAddr> {
        let fixed = self.fixed;
        let port = u16::from_be_bytes([fixed[port], fixed[port + 1]]);
        let ip: IpAddr = match i32::from(fixed[0]) {
            libc::AF_INET => IpAddr::from(*fixed.get(address..)?.first_chunk::<4>()?),
            libc::AF_INET6 => Ipv6Addr::from(*fixed.get(address..)?.first_chunk::<16>()?).to_canonical(),
            _ => return None,
        };
        Some(SocketAddr::new(ip, port))
    }

    /// Its own end, IPv4's of an IPv4 connection whatever the socket's family; none in another family than both.
    pub fn local(&self) -> Option<SocketAddr> {
        self.end(4, 8)
    }

    /// The other end.
    pub fn remote(&self) -> Option<SocketAddr> {
        self.end(6, 24)
    }

    /// Of the connection.
    pub fn state(&self) -> State {
        State::from_number(self.fixed[1])
    }

    /// The number of the interface that it is bound to, 0 for none.
    pub fn interface(&self) -> u32 {
        self.word(40)
    }

    /// The kernel's lasting name for it: no other socket gets the same until the machine starts again.
    pub fn cookie(&self) -> u64 {
        u64::from(self.word(44)) | u64::from(self.word(48)) << 32
    }

    /// Bytes that arrived and were not read; of a listening socket, connections that wait to be accepted.
    pub fn unread(&self) -> u32 {
        self.word(56)
    }

    /// Bytes written that were not acknowledged; of a listening socket, the most connections that may wait.
    pub fn unacked(&self) -> u32 {
        self.word(60)
    }

    /// The user that opened it.
    pub fn uid(&self) -> u32 {
        self.word(64)
    }

    /// Of its file; 0 once no program holds it.
    pub fn inode(&self) -> u32 {
        self.word(68)
    }

    /// `TCP_INFO`, decoded. Needs [`Extensions::INFO`](super::Extensions::INFO).
    pub fn info(&self) -> Option<TcpInfo> {
        TcpInfo::decode(self.attributes.get(INFO)?)
    }

    /// The controller's name. Needs [`Extensions::CONG`](super::Extensions::CONG).
    pub fn controller(&self) -> Option<&'a str> {
        let name = self.attributes.get(CONG)?.split(|&b| b == 0).next()?;
        // The kernel accepts any bytes for the name of a module; those that are used are ASCII.
        std::str::from_utf8(name).ok()
    }

    /// What the controller believes, if it tells. Needs [`Extensions::VEGASINFO`](super::Extensions::VEGASINFO).
    pub fn cc_info(&self) -> Option<CcInfo> {
        self.attributes.into_iter().find_map(|(kind, value)| match kind {
            BBRINFO => CcInfo::decode("bbr", value),
            VEGASINFO => CcInfo::decode("vegas", value),
            DCTCPINFO => CcInfo::decode("dctcp", value),
            _ => None,
        })
    }

    /// Its memory. Needs [`Extensions::SKMEMINFO`](super::Extensions::SKMEMINFO).
    pub fn memory(&self) -> Option<SocketMemory> {
        let bytes = self.attributes.get(SKMEMINFO)?;
        // The fifth is what is reserved and unused, the seventh of options; kernels before 4.11 end at eight.
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

    /// The inode of its control group (version 2), under which it appears in `/sys/fs/cgroup`.
    pub fn cgroup_id(&self) -> Option<u64> {
        self.attributes.u64(CGROUP_ID)
    }

    /// Its firewall mark (`SO_MARK`), which the kernel shows to those with `CAP_NET_ADMIN`.
    pub fn mark(&self) -> Option<u32> {
        self.attributes.u32(MARK)
    }

    /// All of it, decoded; nothing of another family.
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
    /// Its own end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Of the socket's file; by it a process's descriptors are matched.
    pub inode: u32,
    /// The user that opened it.
    pub uid: u32,
    /// The kernel's lasting name for it.
    pub cookie: u64,
    /// Of the connection.
    pub state: State,
    /// Bytes that arrived and were not read.
    pub unread: u32,
    /// Bytes written that were not acknowledged.
    pub unacked: u32,
    /// Its controller's name.
    pub controller: Option<String>,
    /// `TCP_INFO`.
    pub info: Option<TcpInfo>,
    /// What its controller believes.
    pub cc_info: Option<CcInfo>,
    /// Its memory.
    pub memory: Option<SocketMemory>,
    /// The inode of its control group.
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
    fn what_the_kernel_wrote_is_read() {
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
