//! Changes the congestion controller of an existing route (`ip route change … congctl`), and
//! nothing else.

use super::route::{CongestionRoute, network};
use super::{Rtnetlink, route};
use crate::netlink::{Attributes, Dump, DumpItem, REPLACE, Request, c_string, u16_at, u32_at};
use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;
use std::time::Instant;

const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_METRICS: u16 = 8;
const RTA_MULTIPATH: u16 = 9;
const RTA_CACHEINFO: u16 = 12;
const RTA_VIA: u16 = 18;
const RTA_ENCAP_TYPE: u16 = 21;
const RTA_ENCAP: u16 = 22;
const RTA_EXPIRES: u16 = 23;
const RTA_NH_ID: u16 = 30;
const RTPROT_RA: u8 = 9;
const RTM_F_CLONED: u32 = 0x200;
const RTNH_F_DEAD: u8 = 1;
const RTNH_F_ONLINK: u32 = 4;
const RTNH_F_LINKDOWN: u8 = 16;
/// `struct rtnexthop`.
const RTNEXTHOP: usize = 8;
/// The unit of `rta_expires` (include/uapi/linux/rtnetlink.h; clock_t, which is 1/100 s on every
/// architecture).
const USER_HZ: u32 = 100;

/// Maximum bytes of the routes in memory with [`RouteLimits`]. A route with very many next hops
/// takes 32 kB.
const MAX_ROUTE_BYTES: usize = 16 * 1024 * 1024;

/// Key of a route in the kernel.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct RouteKey {
    /// The destination: `192.0.2.0/24`, `default`, `2001:db8::/32`, `::/0`.
    pub prefix: String,
    /// The routing table, 254 is `main`.
    pub table: u32,
    /// Type of service.
    #[serde(default)]
    pub tos: u8,
    /// Metric (priority among routes to the same destination).
    #[serde(default)]
    pub metric: u32,
}

/// Congestion controller set on a route.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RouteController {
    /// Name of the controller.
    pub controller: String,
    /// Whether applications cannot override it (`congctl lock`).
    #[serde(default)]
    pub locked: bool,
}

/// A route and its congestion controller.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeyedRoute {
    /// Key of the route.
    pub key: RouteKey,
    /// Its controller, if set.
    pub choice: Option<RouteController>,
    /// Whether it has several next hops.
    pub multipath: bool,
    /// Whether it was learned from router advertisements (RFC 4861); netlink cannot restore such
    /// routes.
    pub advertised: bool,
    /// Whether connections over it negotiate ECN ([`CongestionRoute::has_ecn`]).
    pub has_ecn: bool,
}

/// Limits for the routes of a network namespace whose owner may add any number of them and change
/// them all the time.
#[derive(Clone, Copy, Debug)]
pub struct RouteLimits {
    /// Maximum routes in memory, which take 16 MiB at most.
    pub routes: usize,
    /// When to stop.
    pub deadline: Instant,
}

/// Routes that still name a controller after [`Rtnetlink::clear_controller`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RoutesLeft {
    /// Those that were found.
    pub found: usize,
    /// Whether there may be others: the deadline passed first, or the table changed all the time.
    pub may_be_more: bool,
}

/// Normalises a destination to the form of [`RouteKey`].
///
/// # Errors
/// For an invalid prefix.
pub fn destination(text: &str) -> io::Result<String> {
    if text == "default" {
        return Ok(text.to_owned());
    }
    let network = network(text)?;
    // `ip route` writes everything of IPv4 so; that of IPv6 has its family in access here.
    Ok(if network == IpNet::V4(Ipv4Net::default()) { "default".to_owned() } else { network.to_string() })
}

fn parse(body: &[u8]) -> Option<KeyedRoute> {
    let (_, route) = route::parse_route(body)?;
    let has_ecn = route.has_ecn();
    if u32_at(body, 8)? & RTM_F_CLONED != 0 {
        return None;
    }
    let attributes = Attributes(body.get(route::RTMSG..)?);
    let is_ipv6 = i32::from(body[0]) == libc::AF_INET6;
    let prefix = if route.prefix == "default" && is_ipv6 { "::/0".to_owned() } else { route.prefix };
    let choice = RouteController { controller: route.controller, locked: route.locked };
    Some(KeyedRoute {
        key: RouteKey {
            prefix,
            table: route.table,
            tos: body[3],
            metric: attributes.u32(RTA_PRIORITY).unwrap_or(0),
        },
        choice: (!choice.controller.is_empty()).then_some(choice),
        multipath: attributes.get(RTA_MULTIPATH).is_some(),
        advertised: is_ipv6 && body[5] == RTPROT_RA,
        has_ecn,
    })
}

/// Next hops without state flags, which the kernel rejects in requests (fib_get_nhs).
fn clear_state_flags(next_hops: &[u8]) -> Vec<u8> {
    let mut bytes = next_hops.to_vec();
    let mut at = 0;
    while let Some(length) = u16_at(&bytes, at).map(usize::from).filter(|length| *length >= RTNEXTHOP)
        && let Some(flags) = bytes.get_mut(at + 2)
    {
        *flags &= !(RTNH_F_DEAD | RTNH_F_LINKDOWN);
        at += length.next_multiple_of(4);
    }
    bytes
}

fn names(route: &KeyedRoute, controller: &str) -> bool {
    route.choice.as_ref().is_some_and(|choice| choice.controller == controller)
}

/// A request that replaces the route of `body` by the same route with this controller.
fn replace_request(body: &[u8], choice: Option<&RouteController>) -> Request {
    let mut header = [0; route::RTMSG];
    header.copy_from_slice(&body[..route::RTMSG]);
    // Drop device state flags, which the kernel rejects in requests (fib_create_info).
    let flags = u32_at(body, 8).unwrap_or(0) & RTNH_F_ONLINK;
    header[8..].copy_from_slice(&flags.to_ne_bytes());
    let mut request = Request::new(route::RTM_NEWROUTE, REPLACE, &header);
    let mut metrics: Vec<(u16, Vec<u8>)> = Vec::new();
    let has_nexthop_object = Attributes(&body[route::RTMSG..]).get(RTA_NH_ID).is_some();
    for (kind, value) in Attributes(&body[route::RTMSG..]) {
        match kind {
            RTA_METRICS => metrics = Attributes(value).map(|(k, v)| (k, v.to_vec())).collect(),
            RTA_CACHEINFO => {
                // `struct rta_cacheinfo`: references, last use, expiry.
                let expires = u32_at(value, 8).unwrap_or(0);
                if expires > 0 && expires < i32::MAX as u32 {
                    request.attribute(RTA_EXPIRES, &expires.div_ceil(USER_HZ).to_ne_bytes());
                }
            }
            // With a next hop object, the kernel also dumps its resolved fields but rejects them in requests
            // (rtm_to_fib_config).
            RTA_OIF | RTA_GATEWAY | RTA_MULTIPATH | RTA_VIA | RTA_ENCAP_TYPE | RTA_ENCAP
                if has_nexthop_object => {}
            RTA_MULTIPATH => {
                request.attribute(kind, &clear_state_flags(value));
            }
            _ => {
                request.attribute(kind, value);
            }
        }
    }
    let own = 1u32 << route::RTAX_CC_ALGO;
    let locks = metrics.iter().find(|(k, _)| *k == route::RTAX_LOCK).and_then(|(_, v)| u32_at(v, 0));
    let locks = locks.unwrap_or(0) & !own | if choice.is_some_and(|c| c.locked) { own } else { 0 };
    metrics.retain(|(k, _)| ![route::RTAX_LOCK, route::RTAX_CC_ALGO].contains(k));
    if locks != 0 {
        metrics.push((route::RTAX_LOCK, locks.to_ne_bytes().to_vec()));
    }
    if let Some(choice) = choice {
        metrics.push((route::RTAX_CC_ALGO, c_string(&choice.controller)));
    }
    if !metrics.is_empty() {
        request.nested(RTA_METRICS, |all| {
            for (kind, value) in &metrics {
                all.attribute(*kind, value);
            }
        });
    }
    request
}

/// The routes of a table that are wanted.
#[derive(Default)]
struct Wanted {
    bodies: Vec<Vec<u8>>,
    /// Their sum.
    bytes: usize,
    /// Number of others, beyond the limit.
    more: usize,
}

impl Wanted {
    /// Stores a route, or counts it if the limits are reached.
    fn add(&mut self, body: &[u8], limits: Option<RouteLimits>) {
        let is_full = |limits: RouteLimits| {
            self.bodies.len() >= limits.routes || self.bytes + body.len() > MAX_ROUTE_BYTES
        };
        if limits.is_some_and(is_full) {
            self.more += 1;
        } else {
            self.bytes += body.len();
            self.bodies.push(body.to_vec());
        }
    }
}

impl Rtnetlink {
    /// Calls `on_route` with each route, which is `None` where the table is read again: until the
    /// deadline, after which this socket cannot be used any more.
    fn each_route(
        &mut self,
        deadline: Option<Instant>,
        mut on_route: impl FnMut(Option<(&[u8], KeyedRoute)>),
    ) -> io::Result<Dump> {
        let request = Request::new(route::RTM_GETROUTE, 0, &[0; route::RTMSG]);
        self.socket.dump_until(&request, route::RTM_NEWROUTE, |item| {
            match item {
                DumpItem::Restart => on_route(None),
                DumpItem::Entry(body) => {
                    if let Some(route) = parse(body) {
                        on_route(Some((body, route)));
                    }
                }
            }
            match deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })
    }

    /// The routes for which `is_wanted`; only those are in memory.
    fn wanted_routes(
        &mut self,
        limits: Option<RouteLimits>,
        is_wanted: impl Fn(&KeyedRoute) -> bool,
    ) -> io::Result<(Wanted, Dump)> {
        let mut wanted = Wanted::default();
        let dump = self.each_route(limits.map(|limits| limits.deadline), |route| match route {
            None => wanted = Wanted::default(),
            Some((_, route)) if !is_wanted(&route) => {}
            Some((body, _)) => wanted.add(body, limits),
        })?;
        Ok((wanted, dump))
    }

    /// All routes of all tables, both families.
    ///
    /// # Errors
    /// When the kernel returns an error, or its table never is consistent.
    pub fn routes(&mut self) -> io::Result<Vec<KeyedRoute>> {
        let mut routes = Vec::new();
        let dump = self.each_route(None, |route| match route {
            None => routes.clear(),
            Some((_, route)) => routes.push(route),
        })?;
        dump.require_consistent().map(|()| routes)
    }

    /// The routes with the feature ECN; only those are kept in memory.
    ///
    /// # Errors
    /// When the kernel returns an error, or its table is never consistent.
    pub fn ecn_routes(&mut self) -> io::Result<Vec<KeyedRoute>> {
        let (wanted, dump) = self.wanted_routes(None, |route| route.has_ecn)?;
        dump.require_consistent().map(|()| wanted.bodies.iter().filter_map(|body| parse(body)).collect())
    }

    /// The routes that name a controller, within `limits`, and whether there are or may be others.
    ///
    /// # Errors
    /// When the kernel returns an error.
    pub fn routes_naming(
        mut self,
        controller: &str,
        limits: RouteLimits,
    ) -> io::Result<(Vec<CongestionRoute>, bool)> {
        let devices: HashMap<u32, String> = self.names()?.into_iter().collect();
        let (wanted, dump) = self.wanted_routes(Some(limits), |route| names(route, controller))?;
        let routes = wanted.bodies.iter().filter_map(|body| {
            let (device, mut route) = route::parse_route(body)?;
            route.device = devices.get(&device).cloned().unwrap_or_default();
            Some(route)
        });
        Ok((routes.collect(), wanted.more > 0 || !dump.consistent))
    }

    /// Removes a controller from the routes that name it, leaving everything else unchanged, within
    /// `limits`. Routes that [`set_route_controller`](Self::set_route_controller) refuses stay.
    pub fn clear_controller(mut self, controller: &str, limits: RouteLimits) -> RoutesLeft {
        let Ok((wanted, dump)) = self.wanted_routes(Some(limits), |route| names(route, controller)) else {
            return RoutesLeft { found: 0, may_be_more: true };
        };
        let mut left = RoutesLeft { found: wanted.bodies.len() + wanted.more, may_be_more: !dump.consistent };
        if !dump.consistent {
            return left;
        }
        // How many routes have each key.
        let keyed = |body: &Vec<u8>| parse(body).map(|route| (route.key, 0));
        let mut numbers: HashMap<RouteKey, usize> = wanted.bodies.iter().filter_map(keyed).collect();
        let counted = self.each_route(Some(limits.deadline), |route| match route {
            None => numbers.values_mut().for_each(|number| *number = 0),
            Some((_, route)) => {
                if let Some(number) = numbers.get_mut(&route.key) {
                    *number += 1;
                }
            }
        });
        if !counted.is_ok_and(|dump| dump.consistent) {
            return left;
        }
        for body in &wanted.bodies {
            if Instant::now() >= limits.deadline {
                break;
            }
            let can_change =
                parse(body).is_some_and(|route| !route.advertised && numbers.get(&route.key) == Some(&1));
            if can_change && self.socket.change(replace_request(body, None)).is_ok() {
                left.found -= 1;
            }
        }
        left
    }

    /// Sets or removes the congestion controller of an existing route, leaving everything else
    /// unchanged.
    ///
    /// # Errors
    /// `NotFound` without such a route, `InvalidInput` if several routes have that key (on several
    /// devices, in IPv6), `Unsupported` for a route learned from router advertisements; and
    /// errors returned by the kernel.
    pub fn set_route_controller(
        &mut self,
        key: &RouteKey,
        choice: Option<&RouteController>,
    ) -> io::Result<()> {
        let (wanted, dump) = self.wanted_routes(None, |route| route.key == *key)?;
        dump.require_consistent()?;
        let mut found = wanted.bodies.iter();
        match (found.next(), found.next()) {
            // RTF_ADDRCONF and RTF_DEFAULT cannot be set by netlink. Without them, rt6_get_dflt_router does
            // not find the route, and further advertisements are ignored
            // (ndisc_router_discovery).
            (Some(body), None) if parse(body).is_some_and(|route| route.advertised) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!(
                    "the route to {} was learned from router advertisements; changing it would stop \
                     their processing",
                    key.prefix
                ),
            )),
            (Some(body), None) => self.socket.change(replace_request(body, choice)),
            (None, _) => Err(io::Error::new(io::ErrorKind::NotFound, format!("no route to {}", key.prefix))),
            (Some(_), Some(_)) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("several routes to {} exist", key.prefix),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{Messages, put_attribute};
    use proptest::prelude::*;

    /// 192.0.2.0/24 via a device, with an initial window of 20 and additional metrics.
    fn body(metrics: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = vec![0; route::RTMSG];
        (body[0], body[1], body[4]) = (libc::AF_INET as u8, 24, 254);
        body[8] = 16; // RTNH_F_LINKDOWN
        put_attribute(&mut body, 1, &[192, 0, 2, 0]);
        put_attribute(&mut body, RTA_OIF, &7u32.to_ne_bytes());
        put_attribute(&mut body, RTA_PRIORITY, &100u32.to_ne_bytes());
        let mut inner = Vec::new();
        put_attribute(&mut inner, 11, &20u32.to_ne_bytes());
        for (kind, value) in metrics {
            put_attribute(&mut inner, *kind, value);
        }
        put_attribute(&mut body, RTA_METRICS, &inner);
        body
    }

    fn after(body: &[u8], choice: Option<&RouteController>) -> Vec<u8> {
        let bytes = replace_request(body, choice).finish(1, 0);
        Messages(&bytes).next().unwrap().body.to_vec()
    }

    #[test]
    fn only_controller_and_lock_change_and_are_restored() {
        let locks = (1u32 << 11 | 1 << route::RTAX_CC_ALGO).to_ne_bytes();
        let before = body(&[(route::RTAX_LOCK, &locks), (route::RTAX_CC_ALGO, b"reno\0")]);
        let route = parse(&before).unwrap();
        assert_eq!((route.key.prefix.as_str(), route.key.metric), ("192.0.2.0/24", 100));
        assert_eq!(route.choice, Some(RouteController { controller: "reno".into(), locked: true }));

        let chosen = RouteController { controller: "fp_bbr3".into(), locked: false };
        let during = after(&before, Some(&chosen));
        assert_eq!(parse(&during).unwrap(), KeyedRoute { choice: Some(chosen), ..route.clone() });
        let metrics = Attributes(&during[route::RTMSG..]).nested(RTA_METRICS);
        assert_eq!((metrics.u32(11), metrics.u32(route::RTAX_LOCK)), (Some(20), Some(1 << 11)));
        assert_eq!(Attributes(&during[route::RTMSG..]).u32(RTA_OIF), Some(7));
        assert_eq!(during[8], 0, "device state flags are cleared");

        let back = after(&during, route.choice.as_ref());
        assert_eq!(parse(&back).unwrap(), route);
        assert_eq!(parse(&after(&back, None)).unwrap().choice, None);
    }

    #[test]
    fn resolved_fields_of_a_next_hop_object_are_dropped() {
        let mut dumped = body(&[]);
        put_attribute(&mut dumped, RTA_NH_ID, &3u32.to_ne_bytes());
        for kind in [RTA_GATEWAY, RTA_MULTIPATH, RTA_VIA, RTA_ENCAP_TYPE, RTA_ENCAP] {
            put_attribute(&mut dumped, kind, &[0; 8]);
        }
        let requested = after(&dumped, Some(&RouteController { controller: "reno".into(), locked: false }));
        let kinds: Vec<u16> = Attributes(&requested[route::RTMSG..]).map(|(kind, _)| kind).collect();
        assert_eq!(kinds, [1, RTA_PRIORITY, RTA_NH_ID, RTA_METRICS]);
    }

    #[test]
    fn next_hop_state_flags_are_cleared() {
        let hop = |flags: u8, index: u8| [16, 0, flags, 1, index, 0, 0, 0, 8, 0, 5, 0, 192, 0, 2, index];
        let hops = |flags: [u8; 2]| [hop(flags[0], 1), hop(flags[1], 2)].concat();
        let mut dumped = body(&[]);
        put_attribute(
            &mut dumped,
            RTA_MULTIPATH,
            &hops([4 | RTNH_F_DEAD | RTNH_F_LINKDOWN, RTNH_F_LINKDOWN]),
        );
        let requested = after(&dumped, None);
        assert_eq!(Attributes(&requested[route::RTMSG..]).get(RTA_MULTIPATH), Some(&hops([4, 0])[..]));
        // Malformed lists are left unchanged.
        for odd in [&[0u8, 0, 255][..], &[4, 0, 255, 0], &[8]] {
            assert_eq!(clear_state_flags(odd), odd);
        }
    }

    #[test]
    fn routes_with_the_feature_ecn_are_recognised() {
        let features = |bits: u32| parse(&body(&[(route::RTAX_FEATURES, &bits.to_ne_bytes())])).unwrap();
        assert!(features(1).has_ecn && features(0b101).has_ecn);
        // Timestamps in microseconds alone (RTAX_FEATURE_TCP_USEC_TS).
        assert!(!features(0b1_0000).has_ecn && !parse(&body(&[])).unwrap().has_ecn);
    }

    #[test]
    fn advertised_routes_are_recognised() {
        let mut body = vec![0; route::RTMSG];
        (body[0], body[4], body[5]) = (libc::AF_INET6 as u8, 254, RTPROT_RA);
        assert!(parse(&body).unwrap().advertised);
        body[5] = 4;
        assert!(!parse(&body).unwrap().advertised, "a static route");
        (body[0], body[5]) = (libc::AF_INET as u8, RTPROT_RA);
        assert!(!parse(&body).unwrap().advertised, "IPv4 has no advertised routes");
    }

    #[test]
    fn stored_routes_are_limited_in_number_and_bytes() {
        let limits = Some(RouteLimits { routes: 10_000, deadline: Instant::now() });
        let stored = |body: &[u8], limits| {
            let mut wanted = Wanted::default();
            (0..10_001).for_each(|_| wanted.add(body, limits));
            assert_eq!(wanted.bodies.len() + wanted.more, 10_001);
            wanted.bodies.len()
        };
        assert_eq!(stored(&[0; 100], limits), 10_000);
        assert_eq!(stored(&[0; 32_768], limits), 512);
        assert_eq!(stored(&[0; 100], None), 10_001);
    }

    #[test]
    fn destinations_are_normalised() {
        for (text, normal) in [
            ("default", "default"),
            ("0.0.0.0/0", "default"),
            ("::/0", "::/0"),
            ("192.0.2.1", "192.0.2.1/32"),
            ("2001:DB8:0::/32", "2001:db8::/32"),
        ] {
            assert_eq!(destination(text).unwrap(), normal);
        }
        assert!(destination("192.0.2/24").is_err());
    }

    proptest! {
        #[test]
        fn no_message_panics(bytes in proptest::collection::vec(any::<u8>(), route::RTMSG..200)) {
            if parse(&bytes).is_some() {
                replace_request(&bytes, None);
            }
        }
    }
}
