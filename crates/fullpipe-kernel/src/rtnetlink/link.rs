//! Network interfaces: names, indexes, statistics, veth pairs.

use super::Rtnetlink;
use crate::netlink::{Attributes, CREATE, EXCLUSIVE, Request, c_string, parse_c_string, u32_at, u64_at};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

const RTM_NEWLINK: u16 = libc::RTM_NEWLINK;
const RTM_GETLINK: u16 = libc::RTM_GETLINK;
// include/uapi/linux/if_link.h
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
/// `struct ifinfomsg`.
const IFINFOMSG: usize = 16;

/// Parameters of one end of a new veth pair.
#[derive(Clone, Copy, Debug)]
pub struct NewInterface<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// Target network namespace; `None` for the socket's own.
    pub namespace: Option<BorrowedFd<'a>>,
}

/// A network interface.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Link {
    /// Interface index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// MTU in bytes.
    pub mtu: u32,
    /// Packets dropped on receive or transmit (`struct rtnl_link_stats64`).
    pub dropped: u64,
}

/// Parses the body of an `RTM_NEWLINK` message; `None` without a name.
pub fn parse_link(body: &[u8]) -> Option<Link> {
    let attributes = Attributes(body.get(IFINFOMSG..)?);
    let stats = attributes.get(IFLA_STATS64).unwrap_or_default();
    // rx_packets, tx_packets, rx_bytes, tx_bytes, rx_errors, tx_errors, rx_dropped, tx_dropped.
    let count = |i: usize| u64_at(stats, i * 8).unwrap_or(0);
    Some(Link {
        index: u32_at(body, 4)?,
        name: parse_c_string(attributes.get(IFLA_IFNAME)?),
        mtu: attributes.u32(IFLA_MTU).unwrap_or(0),
        dropped: count(6).saturating_add(count(7)),
    })
}

fn ifinfo(index: u32, flags: u32, change: u32) -> [u8; IFINFOMSG] {
    let mut b = [0; IFINFOMSG];
    b[4..8].copy_from_slice(&index.to_ne_bytes());
    b[8..12].copy_from_slice(&flags.to_ne_bytes());
    b[12..16].copy_from_slice(&change.to_ne_bytes());
    b
}

fn describe(request: &mut Request, interface: &NewInterface<'_>, mtu: u32) {
    request.attribute(IFLA_IFNAME, &c_string(interface.name));
    request.attribute(IFLA_ADDRESS, &interface.mac);
    request.attribute(IFLA_MTU, &mtu.to_ne_bytes());
    if let Some(namespace) = interface.namespace {
        request.attribute(IFLA_NET_NS_FD, &namespace.as_raw_fd().to_ne_bytes());
    }
}

impl Rtnetlink {
    /// The interfaces of this network namespace.
    ///
    /// # Errors
    /// When the kernel returns an error, or its table never is consistent.
    pub fn links(&mut self) -> io::Result<Vec<Link>> {
        let bodies = self.socket.table(&Request::new(RTM_GETLINK, 0, &ifinfo(0, 0, 0)), RTM_NEWLINK)?;
        Ok(bodies.iter().filter_map(|body| parse_link(body)).collect())
    }

    /// Indexes and names of the interfaces.
    pub(super) fn names(&mut self) -> io::Result<Vec<(u32, String)>> {
        Ok(self.links()?.into_iter().map(|link| (link.index, link.name)).collect())
    }

    /// The index of an interface.
    ///
    /// # Errors
    /// When there is no interface of that name.
    pub fn index(&mut self, name: &str) -> io::Result<u32> {
        let found = self.names()?.into_iter().find(|(_, n)| n == name);
        found
            .map(|(index, _)| index)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no device {name}")))
    }

    /// The current state of an interface.
    ///
    /// # Errors
    /// When there is no interface with that index.
    pub fn link(&mut self, index: u32) -> io::Result<Link> {
        let body = self.socket.request(Request::new(RTM_GETLINK, 0, &ifinfo(index, 0, 0)))?;
        parse_link(&body).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Creates a veth pair with this MTU.
    ///
    /// # Errors
    /// When the kernel has no veth (`EOPNOTSUPP`), or a name is in use.
    pub fn add_veth(&mut self, one: &NewInterface<'_>, other: &NewInterface<'_>, mtu: u32) -> io::Result<()> {
        let mut request = Request::new(RTM_NEWLINK, CREATE | EXCLUSIVE, &ifinfo(0, 0, 0));
        describe(&mut request, one, mtu);
        request.nested(IFLA_LINKINFO, |r| {
            r.attribute(IFLA_INFO_KIND, b"veth").nested(IFLA_INFO_DATA, |r| {
                r.nested(VETH_INFO_PEER, |r| {
                    r.raw(&ifinfo(0, 0, 0));
                    describe(r, other, mtu);
                });
            });
        });
        self.socket.change(request)
    }

    /// Disables the automatic IPv6 link-local address of the interface.
    ///
    /// # Errors
    /// On hosts without IPv6.
    pub fn disable_ipv6_autoconf(&mut self, index: u32) -> io::Result<()> {
        let mut request = Request::new(RTM_NEWLINK, 0, &ifinfo(index, 0, 0));
        request.nested(IFLA_AF_SPEC, |r| {
            r.nested(libc::AF_INET6 as u16, |r| {
                r.attribute(IFLA_INET6_ADDR_GEN_MODE, &[IN6_ADDR_GEN_MODE_NONE]);
            });
        });
        self.socket.change(request)
    }

    /// Brings the interface up.
    ///
    /// # Errors
    /// The error returned by the kernel.
    pub fn up(&mut self, index: u32) -> io::Result<()> {
        let up = libc::IFF_UP as u32;
        self.socket.change(Request::new(RTM_NEWLINK, 0, &ifinfo(index, up, up)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_loopback_interface_is_found_by_name_and_index() {
        let mut kernel = Rtnetlink::open().unwrap();
        let index = kernel.index("lo").unwrap();
        let link = kernel.link(index).unwrap();
        assert_eq!((link.index, link.name.as_str()), (index, "lo"));
        assert!(link.mtu > 0);
        let error = kernel.index("no such device").unwrap_err();
        assert!(error.to_string().contains("no such device"));
    }

    proptest! {
        #[test]
        fn no_message_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_link(&bytes);
        }
    }
}
