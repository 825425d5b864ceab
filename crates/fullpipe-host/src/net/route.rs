//! Links by name, and the routes that choose a controller for their destinations (`ip route … congctl`).

use super::wire::{self, Attributes, Request, text_of, u32_at};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const NETLINK_ROUTE: u32 = 0;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_GETROUTE: u16 = 26;
const IFLA_IFNAME: u16 = 3;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_TABLE: u16 = 15;
const RTAX_LOCK: u16 = 1;
const RTAX_CC_ALGO: u16 = 16;
const RT_TABLE_MAIN: u32 = 254;
const RTPROT_STATIC: u8 = 4;
const RTN_UNICAST: u8 = 1;
const RT_SCOPE_LINK: u8 = 253;
/// `struct ifinfomsg` and `struct rtmsg`.
const IFINFOMSG: usize = 16;
const RTMSG: usize = 12;

/// A device and its index.
pub struct Link {
    pub index: u32,
    pub name: String,
}

pub fn links() -> io::Result<Vec<Link>> {
    let request = Request::new(RTM_GETLINK, wire::NLM_F_DUMP, &[0; IFINFOMSG]);
    let bodies = wire::exchange(NETLINK_ROUTE, request, RTM_NEWLINK)?;
    Ok(bodies
        .iter()
        .filter_map(|body| {
            let name = text_of(Attributes(body.get(IFINFOMSG..)?).get(IFLA_IFNAME)?);
            Some(Link { index: u32_at(body, 4)?, name })
        })
        .collect())
}

/// A route with a controller of its own.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CongestionRoute {
    /// The destination, `192.0.2.0/24` or `default`.
    pub prefix: String,
    /// The next hop, unless the destination is on the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// The device's name.
    pub device: String,
    /// The source address that it prefers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// The routing table, 254 is `main`.
    pub table: u32,
    /// The controller that connections over it get.
    pub controller: String,
    /// Whether applications may not choose another (`congctl lock`).
    #[serde(default)]
    pub locked: bool,
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
        _ => None,
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

/// Reads the body of an `RTM_NEWROUTE` message: the output device's index and the route, whose device is still
/// unnamed and whose controller is empty if it has none.
pub fn parse_route(body: &[u8]) -> Option<(u32, CongestionRoute)> {
    let length = *body.get(1)?;
    let attributes = Attributes(body.get(RTMSG..)?);
    let metrics = Attributes(attributes.get(RTA_METRICS).unwrap_or_default());
    let locks = metrics.get(RTAX_LOCK).and_then(|l| u32_at(l, 0)).unwrap_or(0);
    let prefix = attributes
        .get(RTA_DST)
        .and_then(address)
        .map_or_else(|| "default".to_owned(), |a| format!("{a}/{length}"));
    let route = CongestionRoute {
        prefix,
        gateway: attributes.get(RTA_GATEWAY).and_then(address),
        device: String::new(),
        source: attributes.get(RTA_PREFSRC).and_then(address),
        table: attributes.get(RTA_TABLE).and_then(|t| u32_at(t, 0)).unwrap_or_else(|| u32::from(body[4])),
        controller: metrics.get(RTAX_CC_ALGO).map(text_of).unwrap_or_default(),
        locked: locks & (1 << RTAX_CC_ALGO) != 0,
    };
    Some((attributes.get(RTA_OIF).and_then(|i| u32_at(i, 0)).unwrap_or(0), route))
}

/// The routes that name a controller, both families.
pub fn congestion_routes() -> io::Result<Vec<CongestionRoute>> {
    let links = links()?;
    let request = Request::new(RTM_GETROUTE, wire::NLM_F_DUMP, &[0; RTMSG]);
    let bodies = wire::exchange(NETLINK_ROUTE, request, RTM_NEWROUTE)?;
    Ok(bodies
        .iter()
        .filter_map(|body| {
            let (index, mut route) = parse_route(body)?;
            route.device = links.iter().find(|l| l.index == index).map_or(String::new(), |l| l.name.clone());
            (!route.controller.is_empty()).then_some(route)
        })
        .collect())
}

/// Splits `192.0.2.0/24` or a single address.
fn split_prefix(prefix: &str) -> io::Result<(IpAddr, u8)> {
    let bad = || {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("`{prefix}` is not a prefix; write for example 192.0.2.0/24"),
        )
    };
    let (text, length) = match prefix.split_once('/') {
        Some((text, length)) => (text, Some(length.parse::<u8>().map_err(|_| bad())?)),
        None => (prefix, None),
    };
    let address: IpAddr = text.parse().map_err(|_| bad())?;
    let widest = if address.is_ipv4() { 32 } else { 128 };
    let length = length.unwrap_or(widest);
    if length > widest { Err(bad()) } else { Ok((address, length)) }
}

fn header(address: IpAddr, length: u8) -> [u8; RTMSG] {
    let mut body = [0u8; RTMSG];
    // AF_INET, AF_INET6.
    body[0] = if address.is_ipv4() { 2 } else { 10 };
    body[1] = length;
    body
}

/// The route that packets to `prefix` take now, with `prefix` as its destination and no controller.
pub fn route_towards(prefix: &str) -> io::Result<CongestionRoute> {
    let (address, length) = split_prefix(prefix)?;
    let widest = if address.is_ipv4() { 32 } else { 128 };
    let mut request = Request::new(RTM_GETROUTE, 0, &header(address, widest));
    request.attribute(RTA_DST, &octets(address));
    let bodies = wire::exchange(NETLINK_ROUTE, request, RTM_NEWROUTE)?;
    let (index, mut route) = bodies
        .first()
        .and_then(|b| parse_route(b))
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no route to {prefix}")))?;
    route.device = links()?.into_iter().find(|l| l.index == index).map_or(String::new(), |l| l.name);
    route.prefix = format!("{address}/{length}");
    route.controller.clear();
    route.table = RT_TABLE_MAIN;
    Ok(route)
}

/// Adds or removes a route that names a controller. An existing route to the same prefix is never replaced.
pub fn change_route(route: &CongestionRoute, remove: bool) -> io::Result<()> {
    let (address, length) = split_prefix(&route.prefix)?;
    let index = links()?
        .iter()
        .find(|l| l.name == route.device)
        .map(|l| l.index)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no device {}", route.device)))?;
    let mut body = header(address, length);
    body[4] = RT_TABLE_MAIN as u8;
    body[5] = RTPROT_STATIC;
    body[6] = if route.gateway.is_none() && address.is_ipv4() { RT_SCOPE_LINK } else { 0 };
    body[7] = RTN_UNICAST;
    let (kind, flags) = if remove {
        (RTM_DELROUTE, wire::NLM_F_ACK)
    } else {
        (RTM_NEWROUTE, wire::NLM_F_ACK | wire::NLM_F_CREATE | wire::NLM_F_EXCL)
    };
    let mut request = Request::new(kind, flags, &body);
    request.attribute(RTA_DST, &octets(address));
    request.attribute(RTA_OIF, &index.to_ne_bytes());
    if let Some(gateway) = route.gateway {
        request.attribute(RTA_GATEWAY, &octets(gateway));
    }
    if let Some(source) = route.source {
        request.attribute(RTA_PREFSRC, &octets(source));
    }
    let mut metrics = Vec::new();
    if route.locked {
        wire::put_attribute(&mut metrics, RTAX_LOCK, &(1u32 << RTAX_CC_ALGO).to_ne_bytes());
    }
    wire::put_attribute(&mut metrics, RTAX_CC_ALGO, &wire::c_string(&route.controller));
    // NLA_F_NESTED
    request.attribute(RTA_METRICS | 0x8000, &metrics);
    wire::exchange(NETLINK_ROUTE, request, RTM_NEWROUTE).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_prefix_is_an_address_and_a_length_that_fits_it() {
        assert_eq!(split_prefix("192.0.2.0/24").unwrap(), ("192.0.2.0".parse().unwrap(), 24));
        assert_eq!(split_prefix("2001:db8::1").unwrap().1, 128);
        for bad in ["192.0.2.0/33", "192.0.2/24", "", "x", "10.0.0.0/x"] {
            assert!(split_prefix(bad).unwrap_err().to_string().contains("192.0.2.0/24"), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_message_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_route(&bytes);
        }
    }
}
