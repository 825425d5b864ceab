//! Interface addresses, neighbours and default routes.

use super::route::{RTM_GETROUTE, RTM_NEWROUTE, RTMSG, address, parse_route};
use super::{Rtnetlink, family, octets};
use crate::netlink::{Attributes, CREATE, EXCLUSIVE, REPLACE, Request, u16_at, u32_at};
use std::io;
use std::net::IpAddr;

// include/uapi/linux/if_addr.h, neighbour.h
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_F_NODAD: u8 = 2;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_REACHABLE: u16 = 0x02;
const NUD_NOARP: u16 = 0x40;
const NUD_PERMANENT: u16 = 0x80;
const IFA_FLAGS: u16 = 8;
const IFA_F_TEMPORARY: u32 = 0x01;
const IFA_F_DEPRECATED: u32 = 0x20;
const IFA_F_PERMANENT: u32 = 0x80;
/// `RT_SCOPE_UNIVERSE`: global scope.
const UNIVERSE: u8 = 0;
/// `RTN_UNICAST`: a gateway or direct route.
const UNICAST: u8 = 1;
/// `struct ifaddrmsg`.
const IFADDRMSG: usize = 8;
/// `struct ndmsg`.
const NDMSG: usize = 12;

/// A global address of this host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnAddress {
    /// The address.
    pub address: IpAddr,
    /// Whether it is permanent: addresses from DHCP or router advertisements expire.
    pub is_permanent: bool,
}

/// A default route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DefaultRoute {
    /// Next hop; `None` if destinations are on the link.
    pub gateway: Option<IpAddr>,
    /// Interface index.
    pub device: u32,
    /// Whether it is an IPv6 route.
    pub is_v6: bool,
}

/// Parses the body of an `RTM_NEWADDR` message; `None` for link-local, host, temporary and
/// deprecated addresses.
pub fn parse_address(body: &[u8]) -> Option<OwnAddress> {
    let attributes = Attributes(body.get(IFADDRMSG..)?);
    let flags = attributes.u32(IFA_FLAGS).unwrap_or_else(|| u32::from(body[2]));
    if body[3] != UNIVERSE || flags & (IFA_F_TEMPORARY | IFA_F_DEPRECATED) != 0 {
        return None;
    }
    // On a point-to-point link, IFA_LOCAL is the local address and IFA_ADDRESS the peer's.
    let own = attributes.get(IFA_LOCAL).or_else(|| attributes.get(IFA_ADDRESS))?;
    Some(OwnAddress { address: address(own)?, is_permanent: flags & IFA_F_PERMANENT != 0 })
}

/// Parses the body of an `RTM_NEWNEIGH` message: address, interface index, and whether it is
/// reachable.
pub fn parse_neighbour(body: &[u8]) -> Option<(IpAddr, u32, bool)> {
    let attributes = Attributes(body.get(NDMSG..)?);
    let state = u16_at(body, 8)?;
    let is_reachable = state & (NUD_REACHABLE | NUD_NOARP | NUD_PERMANENT) != 0;
    Some((address(attributes.get(NDA_DST)?)?, u32_at(body, 4)?, is_reachable))
}

impl Rtnetlink {
    /// Adds an address to the interface, usable at once.
    ///
    /// # Errors
    /// The error returned by the kernel.
    pub fn add_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        let flags = if address.is_ipv6() { IFA_F_NODAD } else { 0 };
        // struct ifaddrmsg
        let mut body = vec![family(address), prefix, flags, 0];
        body.extend_from_slice(&index.to_ne_bytes());
        let bytes = octets(address);
        let mut request = Request::new(libc::RTM_NEWADDR, CREATE | EXCLUSIVE, &body);
        request.attribute(IFA_LOCAL, &bytes).attribute(IFA_ADDRESS, &bytes);
        self.socket.change(request)
    }

    /// Adds a permanent neighbour entry.
    ///
    /// # Errors
    /// The error returned by the kernel.
    pub fn add_neighbour(&mut self, index: u32, address: IpAddr, mac: [u8; 6]) -> io::Result<()> {
        // struct ndmsg
        let mut body = vec![family(address), 0, 0, 0];
        body.extend_from_slice(&index.to_ne_bytes());
        body.extend_from_slice(&NUD_PERMANENT.to_ne_bytes());
        body.extend_from_slice(&[0, 0]);
        let mut request = Request::new(libc::RTM_NEWNEIGH, CREATE | REPLACE, &body);
        request.attribute(NDA_DST, &octets(address)).attribute(NDA_LLADDR, &mac);
        self.socket.change(request)
    }

    /// The global addresses of this host.
    ///
    /// # Errors
    /// When the kernel returns an error, or its table never is consistent.
    pub fn addresses(&mut self) -> io::Result<Vec<OwnAddress>> {
        let request = Request::new(libc::RTM_GETADDR, 0, &[0; IFADDRMSG]);
        let bodies = self.socket.table(&request, libc::RTM_NEWADDR)?;
        Ok(bodies.iter().filter_map(|body| parse_address(body)).collect())
    }

    /// The default routes of the main table.
    ///
    /// # Errors
    /// When the kernel returns an error, or its table never is consistent.
    pub fn default_routes(&mut self) -> io::Result<Vec<DefaultRoute>> {
        let bodies = self.socket.table(&Request::new(RTM_GETROUTE, 0, &[0; RTMSG]), RTM_NEWROUTE)?;
        let default = |body: &Vec<u8>| {
            let is_v6 = i32::from(*body.first()?) == libc::AF_INET6;
            let (device, route) = parse_route(body)?;
            let is_it = route.prefix == "default" && route.table == super::MAIN_TABLE && body[7] == UNICAST;
            is_it.then_some(DefaultRoute { gateway: route.gateway, device, is_v6 })
        };
        Ok(bodies.iter().filter_map(default).collect())
    }

    /// Whether the kernel considers a neighbour reachable: it replied recently, or needs no
    /// resolution.
    ///
    /// # Errors
    /// When the kernel returns an error, or its table never is consistent.
    pub fn is_reachable(&mut self, neighbour: IpAddr, device: u32) -> io::Result<bool> {
        let mut body = [0; NDMSG];
        body[0] = family(neighbour);
        let bodies = self.socket.table(&Request::new(libc::RTM_GETNEIGH, 0, &body), libc::RTM_NEWNEIGH)?;
        let mut known = bodies.iter().filter_map(|body| parse_neighbour(body));
        Ok(known.any(|known| known == (neighbour, device, true)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    #[test]
    fn addresses_and_default_routes_are_plausible() {
        let mut netlink = Rtnetlink::open().unwrap();
        let all = netlink.addresses().unwrap();
        assert!(all.iter().all(|one| !one.address.is_loopback()), "{all:?}");
        for route in netlink.default_routes().unwrap() {
            assert!(
                route.device != 0 && route.gateway.is_none_or(|via| via.is_ipv6() || !route.is_v6),
                "{route:?}"
            );
        }
        assert!(!netlink.is_reachable(Ipv4Addr::new(192, 0, 2, 1).into(), 1).unwrap());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = (parse_address(&bytes), parse_neighbour(&bytes));
        }
    }
}
