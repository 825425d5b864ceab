//! The few requests of rtnetlink(7) that a lab needs, on one socket in one network namespace.

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const NLMSG_ERROR: u16 = 2;
const HEADER: usize = 16;

// include/uapi/linux/if_link.h, if_addr.h, neighbour.h, rtnetlink.h
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINKINFO: u16 = 18;
const IFLA_STATS64: u16 = 23;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_F_NODAD: u8 = 2;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_PERMANENT: u16 = 0x80;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_METRICS: u16 = 8;
const RTAX_INITCWND: u16 = 11;
const RTAX_FEATURES: u16 = 12;
const RTAX_FEATURE_ECN: u32 = 1;
const NESTED: u16 = 0x8000;

/// One interface of a pair before it exists.
pub(super) struct NewInterface<'a> {
    pub(super) name: &'a str,
    pub(super) mac: [u8; 6],
    /// Where to put it; none for the socket's own namespace.
    pub(super) namespace: Option<BorrowedFd<'a>>,
}

/// What the kernel tells of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Link {
    /// Largest packet in bytes.
    pub(crate) mtu: u32,
    /// Packets dropped on the way in or out (`struct rtnl_link_stats64`).
    pub(crate) dropped: u64,
}

/// A socket of rtnetlink in the namespace of the thread that opened it.
pub(crate) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

struct Request {
    bytes: Vec<u8>,
}

impl Request {
    fn new(kind: u16, flags: u16, body: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
        bytes.extend_from_slice(body);
        Request { bytes }
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }

    fn nested(&mut self, kind: u16, inner: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.bytes.len();
        self.attribute(kind | NESTED, &[]);
        inner(self);
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self
    }

    fn interface(&mut self, interface: &NewInterface<'_>, mtu: u32) -> &mut Self {
        self.attribute(IFLA_IFNAME, &zero_terminated(interface.name));
        self.attribute(IFLA_ADDRESS, &interface.mac);
        self.attribute(IFLA_MTU, &mtu.to_ne_bytes());
        if let Some(namespace) = interface.namespace {
            self.attribute(IFLA_NET_NS_FD, &namespace.as_raw_fd().to_ne_bytes());
        }
        self
    }
}

fn zero_terminated(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

/// `struct ifinfomsg`.
fn ifinfo(index: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut b = [0; 16];
    b[4..8].copy_from_slice(&index.to_ne_bytes());
    b[8..12].copy_from_slice(&flags.to_ne_bytes());
    b[12..16].copy_from_slice(&change.to_ne_bytes());
    b
}

fn family(address: IpAddr) -> (u8, Vec<u8>) {
    match address {
        IpAddr::V4(a) => (libc::AF_INET as u8, a.octets().to_vec()),
        IpAddr::V6(a) => (libc::AF_INET6 as u8, a.octets().to_vec()),
    }
}

impl Netlink {
    /// Opens a socket in the calling thread's network namespace.
    pub(crate) fn open() -> io::Result<Self> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRoute,
        )?;
        Ok(Netlink { socket, sequence: 0 })
    }

    /// Sends the request and gives the first answer: the payload of a reply, or nothing for a plain "done".
    fn ask(&mut self, mut request: Request) -> io::Result<Vec<u8>> {
        self.sequence += 1;
        let length = request.bytes.len() as u32;
        request.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        request.bytes[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        send(self.socket.as_raw_fd(), &request.bytes, MsgFlags::empty())?;
        let mut reply = Vec::new();
        let mut buffer = vec![0; 32 << 10];
        loop {
            let n = recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
            let mut rest = &buffer[..n];
            while rest.len() >= HEADER {
                let word =
                    |at: usize| u32::from_ne_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]);
                let (length, sequence) = (word(0) as usize, word(8));
                let kind = u16::from_ne_bytes([rest[4], rest[5]]);
                if length < HEADER || length > rest.len() {
                    return Err(io::Error::other("a netlink message that is cut short"));
                }
                let body = &rest[HEADER..length];
                if sequence == self.sequence {
                    if kind == NLMSG_ERROR {
                        let code = body.first_chunk::<4>().map_or(0, |b| i32::from_ne_bytes(*b));
                        return if code == 0 { Ok(reply) } else { Err(io::Error::from_raw_os_error(-code)) };
                    }
                    reply = body.to_vec();
                }
                rest = &rest[length.next_multiple_of(4).min(rest.len())..];
            }
        }
    }

    /// Makes a pair of connected interfaces, `near` in this namespace or its own, `far` in its own.
    pub(super) fn add_veth(
        &mut self,
        near: &NewInterface<'_>,
        far: &NewInterface<'_>,
        mtu: u32,
    ) -> io::Result<()> {
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        let mut request = Request::new(libc::RTM_NEWLINK, flags, &ifinfo(0, 0, 0));
        request.interface(near, mtu).nested(IFLA_LINKINFO, |r| {
            r.attribute(IFLA_INFO_KIND, b"veth").nested(IFLA_INFO_DATA, |r| {
                r.nested(VETH_INFO_PEER, |r| {
                    r.bytes.extend_from_slice(&ifinfo(0, 0, 0));
                    r.interface(far, mtu);
                });
            });
        });
        self.ask(request).map(drop)
    }

    /// Keeps the kernel from giving the interface an IPv6 address of its own making, and from talking
    /// with it. Fails where there is no IPv6.
    pub(super) fn no_automatic_ipv6(&mut self, index: u32) -> io::Result<()> {
        let mut request = Request::new(libc::RTM_NEWLINK, 0, &ifinfo(index, 0, 0));
        request.nested(IFLA_AF_SPEC, |r| {
            r.nested(libc::AF_INET6 as u16, |r| {
                r.attribute(IFLA_INET6_ADDR_GEN_MODE, &[IN6_ADDR_GEN_MODE_NONE]);
            });
        });
        self.ask(request).map(drop)
    }

    /// Switches the interface on.
    pub(super) fn up(&mut self, index: u32) -> io::Result<()> {
        let up = libc::IFF_UP as u32;
        self.ask(Request::new(libc::RTM_NEWLINK, 0, &ifinfo(index, up, up))).map(drop)
    }

    /// Gives the interface an address.
    pub(super) fn add_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        let (family, bytes) = family(address);
        let flags = if address.is_ipv6() { IFA_F_NODAD } else { 0 };
        let mut body = vec![family, prefix, flags, 0];
        body.extend_from_slice(&index.to_ne_bytes());
        let mut request = Request::new(libc::RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &body);
        request.attribute(IFA_LOCAL, &bytes).attribute(IFA_ADDRESS, &bytes);
        self.ask(request).map(drop)
    }

    /// Says for good which hardware address belongs to `address`.
    pub(super) fn add_neighbour(&mut self, index: u32, address: IpAddr, mac: [u8; 6]) -> io::Result<()> {
        let (family, bytes) = family(address);
        // struct ndmsg
        let mut body = vec![family, 0, 0, 0];
        body.extend_from_slice(&index.to_ne_bytes());
        body.extend_from_slice(&NUD_PERMANENT.to_ne_bytes());
        body.extend_from_slice(&[0, 0]);
        let mut request = Request::new(libc::RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, &body);
        request.attribute(NDA_DST, &bytes).attribute(NDA_LLADDR, &mac);
        self.ask(request).map(drop)
    }

    /// A route to one host, with the initial window and ECN of connections to it.
    pub(super) fn add_host_route(
        &mut self,
        index: u32,
        address: IpAddr,
        initial_window: u32,
        ecn: bool,
    ) -> io::Result<()> {
        let (family, bytes) = family(address);
        let prefix = bytes.len() as u8 * 8;
        let (table_main, protocol_static, unicast) = (254, 4, 1);
        let scope = if address.is_ipv6() { 0 } else { libc::RT_SCOPE_LINK };
        // struct rtmsg
        let mut body = vec![family, prefix, 0, 0, table_main, protocol_static, scope, unicast];
        body.extend_from_slice(&[0; 4]);
        let mut request = Request::new(libc::RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &body);
        request.attribute(RTA_DST, &bytes).attribute(RTA_OIF, &index.to_ne_bytes()).nested(
            RTA_METRICS,
            |r| {
                r.attribute(RTAX_INITCWND, &initial_window.to_ne_bytes());
                if ecn {
                    r.attribute(RTAX_FEATURES, &RTAX_FEATURE_ECN.to_ne_bytes());
                }
            },
        );
        self.ask(request).map(drop)
    }

    /// What there is to know of the interface now.
    pub(crate) fn link(&mut self, index: u32) -> io::Result<Link> {
        let reply = self.ask(Request::new(libc::RTM_GETLINK, 0, &ifinfo(index, 0, 0)))?;
        let mut link = Link::default();
        let mut rest = reply.get(16..).unwrap_or_default();
        while let Some(head) = rest.first_chunk::<4>() {
            let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
            let kind = u16::from_ne_bytes([head[2], head[3]]) & 0x3fff;
            let Some(value) = rest.get(4..length) else { break };
            let count = |i: usize| {
                let number = value.get(i * 8..).and_then(<[u8]>::first_chunk);
                number.map_or(0, |b| u64::from_ne_bytes(*b))
            };
            match kind {
                IFLA_MTU => link.mtu = value.first_chunk().map_or(0, |b| u32::from_ne_bytes(*b)),
                IFLA_STATS64 => link.dropped = count(6) + count(7),
                _ => {}
            }
            rest = &rest[length.next_multiple_of(4).min(rest.len())..];
        }
        Ok(link)
    }
}

/// The number of the interface `name` in the calling thread's namespace.
pub(super) fn index_of(name: &str) -> io::Result<u32> {
    Ok(nix::net::if_::if_nametoindex(name)?)
}
