//! Routes with TCP settings: congestion controller (`ip route … congctl`), initial window, ECN.

use super::{Rtnetlink, family, octets};
use crate::netlink::{Attributes, CREATE, EXCLUSIVE, REPLACE, Request, c_string, parse_c_string};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
pub(super) const RTM_GETROUTE: u16 = 26;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_TABLE: u16 = 15;
pub(super) const RTAX_LOCK: u16 = 1;
const RTAX_INITCWND: u16 = 11;
/// `RTAX_FEATURES` among the metrics of a route.
pub const RTAX_FEATURES: u16 = 12;
const RTAX_FEATURE_ECN: u32 = 1;
pub(super) const RTAX_CC_ALGO: u16 = 16;
/// `RT_TABLE_MAIN`.
pub const MAIN_TABLE: u32 = 254;
/// `RT_TABLE_LOCAL`: the host's own addresses.
pub const LOCAL_TABLE: u32 = 255;
const RTPROT_STATIC: u8 = 4;
const RTN_UNICAST: u8 = 1;
const RTN_LOCAL: u8 = 2;
const RTA_PRIORITY: u16 = 6;
const RTA_MULTIPATH: u16 = 9;
/// Linux 4.13: return the matching route instead of the resolved one.
const RTM_F_FIB_MATCH: u32 = 0x2000;
const RT_SCOPE_LINK: u8 = 253;
/// `struct rtmsg`.
pub(super) const RTMSG: usize = 12;

/// A route with a congestion controller.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CongestionRoute {
    /// The destination, `192.0.2.0/24` or `default`.
    pub prefix: String,
    /// The next hop, unless the destination is on the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// The device's name.
    pub device: String,
    /// Preferred source address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// The routing table, 254 is `main`.
    pub table: u32,
    /// Congestion controller of connections over it.
    pub controller: String,
    /// Whether applications cannot override it (`congctl lock`).
    #[serde(default)]
    pub locked: bool,
    /// Other metrics by `RTAX_*`, as dumped; `RTAX_LOCK` without the bit of the controller.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<(u16, u32)>,
}

impl CongestionRoute {
    /// Whether connections over it negotiate ECN whatever `net.ipv4.tcp_ecn` is (`ip route … features
    /// ecn`).
    pub fn has_ecn(&self) -> bool {
        self.metrics.iter().any(|(kind, bits)| *kind == RTAX_FEATURES && bits & RTAX_FEATURE_ECN != 0)
    }
}

pub(super) fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
        _ => None,
    }
}

/// Parses the body of an `RTM_NEWROUTE` message: output interface index and route, without the
/// device's name; its controller is empty if it has none.
pub fn parse_route(body: &[u8]) -> Option<(u32, CongestionRoute)> {
    let length = *body.get(1)?;
    let attributes = Attributes(body.get(RTMSG..)?);
    let metrics = attributes.nested(RTA_METRICS);
    let locks = metrics.u32(RTAX_LOCK).unwrap_or(0);
    let prefix = attributes
        .get(RTA_DST)
        .and_then(address)
        .map_or_else(|| "default".to_owned(), |a| format!("{a}/{length}"));
    let route = CongestionRoute {
        prefix,
        gateway: attributes.get(RTA_GATEWAY).and_then(address),
        device: String::new(),
        source: attributes.get(RTA_PREFSRC).and_then(address),
        table: attributes.u32(RTA_TABLE).unwrap_or_else(|| u32::from(body[4])),
        controller: metrics.get(RTAX_CC_ALGO).map(parse_c_string).unwrap_or_default(),
        locked: locks & (1 << RTAX_CC_ALGO) != 0,
        metrics: metrics
            .filter_map(|(kind, value)| match (kind, u32::from_ne_bytes(value.try_into().ok()?)) {
                (RTAX_CC_ALGO, _) => None,
                (RTAX_LOCK, locks) => {
                    Some((kind, locks & !(1 << RTAX_CC_ALGO))).filter(|(_, locks)| *locks != 0)
                }
                (_, value) => Some((kind, value)),
            })
            .collect(),
    };
    Some((attributes.u32(RTA_OIF).unwrap_or(0), route))
}

/// Parses `192.0.2.0/24` or a single address.
pub(super) fn network(prefix: &str) -> io::Result<IpNet> {
    prefix.parse().or_else(|_| prefix.parse().map(<IpNet as From<IpAddr>>::from)).map_err(|_| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("invalid prefix `{prefix}`; write for example 192.0.2.0/24"),
        )
    })
}

fn header(address: IpAddr, length: u8) -> [u8; RTMSG] {
    let mut body = [0u8; RTMSG];
    body[0] = family(address);
    body[1] = length;
    body
}

/// Header of a change to the main table.
fn to_main_table(address: IpAddr, length: u8, on_link: bool) -> [u8; RTMSG] {
    let mut body = header(address, length);
    body[4] = MAIN_TABLE as u8;
    body[5] = RTPROT_STATIC;
    body[6] = if on_link && address.is_ipv4() { RT_SCOPE_LINK } else { 0 };
    body[7] = RTN_UNICAST;
    body
}

impl Rtnetlink {
    /// Routes with a congestion controller, both families.
    ///
    /// # Errors
    /// When the kernel returns an error, or its table never is consistent.
    pub fn congestion_routes(&mut self) -> io::Result<Vec<CongestionRoute>> {
        let names = self.names()?;
        let bodies = self.socket.table(&Request::new(RTM_GETROUTE, 0, &[0; RTMSG]), RTM_NEWROUTE)?;
        let named = |body: &Vec<u8>| {
            let (index, mut route) = parse_route(body)?;
            route.device = names.iter().find(|(i, _)| *i == index).map_or(String::new(), |(_, n)| n.clone());
            (!route.controller.is_empty()).then_some(route)
        };
        Ok(bodies.iter().filter_map(named).collect())
    }

    /// The route currently used for packets to `prefix`, with `prefix` as its destination and no
    /// controller.
    ///
    /// # Errors
    /// When `prefix` is invalid, has no route, or has a multipath route.
    pub fn route_to(&mut self, prefix: &str) -> io::Result<CongestionRoute> {
        let network = network(prefix)?;
        let (address, length) = (network.addr(), network.prefix_len());
        let refused = |kind, why: &str| io::Error::new(kind, format!("{prefix} {why}"));
        let mut body = self.matching(address)?;
        if body.get(1).is_none_or(|matched| *matched > length) {
            // The route of the first address covers only part of the destination.
            body = self
                .covering(address, length)?
                .ok_or_else(|| refused(io::ErrorKind::NotFound, "is not covered by a single route"))?;
        }
        let (index, mut route) =
            parse_route(&body).ok_or_else(|| refused(io::ErrorKind::NotFound, "has no route"))?;
        if body[7] == RTN_LOCAL {
            return Err(refused(io::ErrorKind::InvalidInput, "is a local address of this host"));
        }
        if body[7] != RTN_UNICAST {
            return Err(refused(io::ErrorKind::NotFound, "has no unicast route"));
        }
        if Attributes(&body[RTMSG..]).get(RTA_MULTIPATH).is_some() {
            return Err(refused(
                io::ErrorKind::InvalidInput,
                "has a multipath route; first add a separate route with `ip route`",
            ));
        }
        route.device = self.names()?.into_iter().find(|(i, _)| *i == index).map_or(String::new(), |(_, n)| n);
        route.prefix = network.to_string();
        route.controller.clear();
        route.table = MAIN_TABLE;
        Ok(route)
    }

    /// The route that matches an address, as configured, without metrics learned by connections
    /// (`RTM_F_FIB_MATCH`; before Linux 4.13 they are included).
    fn matching(&mut self, address: IpAddr) -> io::Result<Vec<u8>> {
        let widest = if address.is_ipv4() { 32 } else { 128 };
        let mut body = header(address, widest);
        body[8..].copy_from_slice(&RTM_F_FIB_MATCH.to_ne_bytes());
        let mut request = Request::new(RTM_GETROUTE, 0, &body);
        request.attribute(RTA_DST, &octets(address));
        self.socket.request(request)
    }

    /// The most specific route of the main table that covers a whole prefix.
    fn covering(&mut self, address: IpAddr, length: u8) -> io::Result<Option<Vec<u8>>> {
        let mut request = header(address, 0);
        (request[2], request[4]) = (0, MAIN_TABLE as u8);
        let bodies = self.socket.table(&Request::new(RTM_GETROUTE, 0, &request), RTM_NEWROUTE)?;
        let key = |body: &Vec<u8>| {
            let (_, route) = parse_route(body)?;
            let priority = Attributes(body.get(RTMSG..)?).u32(RTA_PRIORITY).unwrap_or(0);
            let to = Attributes(body.get(RTMSG..)?).get(RTA_DST).and_then(self::address);
            let fits = body[0] == family(address)
                && route.table == MAIN_TABLE
                && body[1] <= length
                && to.is_none_or(|to| IpNet::new(to, body[1]).is_ok_and(|net| net.contains(&address)));
            fits.then_some((body[1], std::cmp::Reverse(priority)))
        };
        Ok(bodies
            .into_iter()
            .filter_map(|body| Some((key(&body)?, body)))
            .max_by_key(|(key, _)| *key)
            .map(|(_, body)| body))
    }

    /// The congestion controller set on the route to the first address of `prefix`, if any.
    ///
    /// # Errors
    /// When `prefix` is invalid or has no route.
    pub fn controller_to(&mut self, prefix: &str) -> io::Result<Option<String>> {
        let found = parse_route(&self.matching(network(prefix)?.addr())?).map(|(_, route)| route.controller);
        Ok(found.filter(|controller| !controller.is_empty()))
    }

    /// Adds or removes a route with a congestion controller. An existing route to the same prefix
    /// is never replaced.
    ///
    /// # Errors
    /// When the device does not exist, or the error returned by the kernel.
    pub fn change_route(&mut self, route: &CongestionRoute, remove: bool) -> io::Result<()> {
        let network = network(&route.prefix)?;
        let (address, length) = (network.addr(), network.prefix_len());
        let index = self.index(&route.device)?;
        let body = to_main_table(address, length, route.gateway.is_none());
        let (kind, flags) = if remove { (RTM_DELROUTE, 0) } else { (RTM_NEWROUTE, CREATE | EXCLUSIVE) };
        let mut request = Request::new(kind, flags, &body);
        request.attribute(RTA_DST, &octets(address));
        request.attribute(RTA_OIF, &index.to_ne_bytes());
        if let Some(gateway) = route.gateway {
            request.attribute(RTA_GATEWAY, &octets(gateway));
        }
        if let Some(source) = route.source {
            request.attribute(RTA_PREFSRC, &octets(source));
        }
        request.nested(RTA_METRICS, |metrics| {
            let own = if route.locked { 1u32 << RTAX_CC_ALGO } else { 0 };
            let others =
                route.metrics.iter().find(|(kind, _)| *kind == RTAX_LOCK).map_or(0, |(_, locks)| *locks);
            if own | others != 0 {
                metrics.attribute(RTAX_LOCK, &(own | others).to_ne_bytes());
            }
            for (kind, value) in route.metrics.iter().filter(|(kind, _)| *kind != RTAX_LOCK) {
                metrics.attribute(*kind, &value.to_ne_bytes());
            }
            metrics.attribute(RTAX_CC_ALGO, &c_string(&route.controller));
        });
        self.socket.change(request)
    }

    /// Adds a route to one host on the link, with an initial window in segments and optionally ECN.
    ///
    /// # Errors
    /// The error returned by the kernel.
    pub fn add_host_route(
        &mut self,
        index: u32,
        address: IpAddr,
        initial_window: u32,
        ecn: bool,
    ) -> io::Result<()> {
        let bytes = octets(address);
        let body = to_main_table(address, bytes.len() as u8 * 8, true);
        let mut request = Request::new(RTM_NEWROUTE, CREATE | REPLACE, &body);
        request.attribute(RTA_DST, &bytes).attribute(RTA_OIF, &index.to_ne_bytes()).nested(
            RTA_METRICS,
            |metrics| {
                metrics.attribute(RTAX_INITCWND, &initial_window.to_ne_bytes());
                if ecn {
                    metrics.attribute(RTAX_FEATURES, &RTAX_FEATURE_ECN.to_ne_bytes());
                }
            },
        );
        self.socket.change(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn prefixes_are_validated() {
        assert_eq!(network("192.0.2.0/24").unwrap().prefix_len(), 24);
        assert_eq!(network("2001:db8::1").unwrap().prefix_len(), 128);
        for bad in ["192.0.2.0/33", "192.0.2/24", "", "x", "10.0.0.0/x"] {
            assert!(network(bad).unwrap_err().to_string().contains("192.0.2.0/24"), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_message_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_route(&bytes);
        }
    }
}
