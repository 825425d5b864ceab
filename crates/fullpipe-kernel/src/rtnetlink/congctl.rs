//! The controller of a route that is there (`ip route change … congctl`), and nothing else of it.

use super::route::network;
use super::{Rtnetlink, route};
use crate::netlink::{Attributes, REPLACE, Request, c_string, u16_at, u32_at};
use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};
use std::io;

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
/// The unit of `rta_expires` (include/uapi/linux/rtnetlink.h; clock_t, which is 1/100 s on every architecture).
const USER_HZ: u32 = 100;

/// What the kernel tells a route from others by.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RouteKey {
    /// The destination: `192.0.2.0/24`, `default`, `2001:db8::/32`, `::/0`.
    pub prefix: String,
    /// The routing table, 254 is `main`.
    pub table: u32,
    /// The type of service that it is for.
    #[serde(default)]
    pub tos: u8,
    /// Its priority among those to the same destination (`metric`).
    #[serde(default)]
    pub metric: u32,
}

/// A controller that a route names.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RouteController {
    /// Its name.
    pub controller: String,
    /// Whether applications may not choose another (`congctl lock`).
    #[serde(default)]
    pub locked: bool,
}

/// A route, and the controller that connections over it get.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeyedRoute {
    /// Which route.
    pub key: RouteKey,
    /// Its controller, if it names one.
    pub choice: Option<RouteController>,
    /// Whether it has several next hops.
    pub multipath: bool,
    /// Whether it was learned from router advertisements (RFC 4861), whose routes netlink cannot give back.
    pub advertised: bool,
}

/// A destination as [`RouteKey`] writes it.
///
/// # Errors
/// When it is none.
pub fn destination(text: &str) -> io::Result<String> {
    if text == "default" {
        return Ok(text.to_owned());
    }
    let network = network(text)?;
    // `ip route` writes everything of IPv4 so; that of IPv6 has its family in access here.
    Ok(if network == IpNet::V4(Ipv4Net::default()) { "default".to_owned() } else { network.to_string() })
}

fn read(body: &[u8]) -> Option<KeyedRoute> {
    let (_, shown) = route::parse_route(body)?;
    if u32_at(body, 8)? & RTM_F_CLONED != 0 {
        return None;
    }
    let attributes = Attributes(body.get(route::RTMSG..)?);
    let is_ipv6 = i32::from(body[0]) == libc::AF_INET6;
    let prefix = if shown.prefix == "default" && is_ipv6 { "::/0".to_owned() } else { shown.prefix };
    let choice = RouteController { controller: shown.controller, locked: shown.locked };
    Some(KeyedRoute {
        key: RouteKey {
            prefix,
            table: shown.table,
            tos: body[3],
            metric: attributes.u32(RTA_PRIORITY).unwrap_or(0),
        },
        choice: (!choice.controller.is_empty()).then_some(choice),
        multipath: attributes.get(RTA_MULTIPATH).is_some(),
        advertised: is_ipv6 && body[5] == RTPROT_RA,
    })
}

/// Next hops without what the kernel tells of their devices' state: it does not take that back (fib_get_nhs).
fn without_state(next_hops: &[u8]) -> Vec<u8> {
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

/// The request that makes the route of `body` again, with this controller.
fn replaced(body: &[u8], choice: Option<&RouteController>) -> Request {
    let mut header = [0; route::RTMSG];
    header.copy_from_slice(&body[..route::RTMSG]);
    // What the kernel tells of the device's state it does not take back (fib_create_info).
    let flags = u32_at(body, 8).unwrap_or(0) & RTNH_F_ONLINK;
    header[8..].copy_from_slice(&flags.to_ne_bytes());
    let mut request = Request::new(route::RTM_NEWROUTE, REPLACE, &header);
    let mut metrics: Vec<(u16, Vec<u8>)> = Vec::new();
    let by_object = Attributes(&body[route::RTMSG..]).get(RTA_NH_ID).is_some();
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
            // Beside a next hop object the kernel tells what it stands for, and takes nothing of that (rtm_to_fib_config).
            RTA_OIF | RTA_GATEWAY | RTA_MULTIPATH | RTA_VIA | RTA_ENCAP_TYPE | RTA_ENCAP if by_object => {}
            RTA_MULTIPATH => {
                request.attribute(kind, &without_state(value));
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

impl Rtnetlink {
    fn route_bodies(&mut self) -> io::Result<Vec<Vec<u8>>> {
        self.socket.table(&Request::new(route::RTM_GETROUTE, 0, &[0; route::RTMSG]), route::RTM_NEWROUTE)
    }

    /// Every route of every table, both families.
    ///
    /// # Errors
    /// When the kernel does not answer, or its table never stands still.
    pub fn routes(&mut self) -> io::Result<Vec<KeyedRoute>> {
        Ok(self.route_bodies()?.iter().filter_map(|body| read(body)).collect())
    }

    /// Has connections over a route that is there use a controller, or none of its own. All else of it stays.
    ///
    /// # Errors
    /// `NotFound` without such a route, `InvalidInput` if the kernel has several of that key (of several devices, in
    /// IPv6), which it could not tell apart, `Unsupported` for one that was learned from router advertisements; and the
    /// kernel's own.
    pub fn set_route_controller(
        &mut self,
        key: &RouteKey,
        choice: Option<&RouteController>,
    ) -> io::Result<()> {
        let bodies = self.route_bodies()?;
        let mut found = bodies.iter().filter(|body| read(body).is_some_and(|route| route.key == *key));
        match (found.next(), found.next()) {
            // RTF_ADDRCONF and RTF_DEFAULT cannot be given. The route would not be the router's any more: rt6_get_dflt_router
            // does not find it, and the next advertisement, prefixes and all, is ignored (ndisc_router_discovery).
            (Some(body), None) if read(body).is_some_and(|route| route.advertised) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!(
                    "the route to {} was learned from router advertisements, which the kernel would take no more",
                    key.prefix
                ),
            )),
            (Some(body), None) => self.socket.change(replaced(body, choice)),
            (None, _) => Err(io::Error::new(io::ErrorKind::NotFound, format!("no route to {}", key.prefix))),
            (Some(_), Some(_)) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("there are several routes to {}", key.prefix),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{Messages, put_attribute};
    use proptest::prelude::*;

    /// 192.0.2.0/24 via a device, with an initial window of 20 and what else is given.
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
        let bytes = replaced(body, choice).finish(1, 0);
        Messages(&bytes).next().unwrap().body.to_vec()
    }

    #[test]
    fn only_the_controller_and_its_lock_change_and_come_back() {
        let locks = (1u32 << 11 | 1 << route::RTAX_CC_ALGO).to_ne_bytes();
        let before = body(&[(route::RTAX_LOCK, &locks), (route::RTAX_CC_ALGO, b"reno\0")]);
        let route = read(&before).unwrap();
        assert_eq!((route.key.prefix.as_str(), route.key.metric), ("192.0.2.0/24", 100));
        assert_eq!(route.choice, Some(RouteController { controller: "reno".into(), locked: true }));

        let chosen = RouteController { controller: "fp_bbr3".into(), locked: false };
        let during = after(&before, Some(&chosen));
        assert_eq!(read(&during).unwrap(), KeyedRoute { choice: Some(chosen), ..route.clone() });
        let metrics = Attributes(&during[route::RTMSG..]).nested(RTA_METRICS);
        assert_eq!((metrics.u32(11), metrics.u32(route::RTAX_LOCK)), (Some(20), Some(1 << 11)));
        assert_eq!(Attributes(&during[route::RTMSG..]).u32(RTA_OIF), Some(7));
        assert_eq!(during[8], 0, "the state of the device is not given back");

        let back = after(&during, route.choice.as_ref());
        assert_eq!(read(&back).unwrap(), route);
        assert_eq!(read(&after(&back, None)).unwrap().choice, None);
    }

    #[test]
    fn a_next_hop_object_stands_for_all_that_is_told_of_it() {
        let mut told = body(&[]);
        put_attribute(&mut told, RTA_NH_ID, &3u32.to_ne_bytes());
        for kind in [RTA_GATEWAY, RTA_MULTIPATH, RTA_VIA, RTA_ENCAP_TYPE, RTA_ENCAP] {
            put_attribute(&mut told, kind, &[0; 8]);
        }
        let given = after(&told, Some(&RouteController { controller: "reno".into(), locked: false }));
        let kinds: Vec<u16> = Attributes(&given[route::RTMSG..]).map(|(kind, _)| kind).collect();
        assert_eq!(kinds, [1, RTA_PRIORITY, RTA_NH_ID, RTA_METRICS]);
    }

    #[test]
    fn the_state_of_next_hops_is_not_given_back() {
        let hop = |flags: u8, index: u8| [16, 0, flags, 1, index, 0, 0, 0, 8, 0, 5, 0, 192, 0, 2, index];
        let hops = |flags: [u8; 2]| [hop(flags[0], 1), hop(flags[1], 2)].concat();
        let mut told = body(&[]);
        put_attribute(&mut told, RTA_MULTIPATH, &hops([4 | RTNH_F_DEAD | RTNH_F_LINKDOWN, RTNH_F_LINKDOWN]));
        let given = after(&told, None);
        assert_eq!(Attributes(&given[route::RTMSG..]).get(RTA_MULTIPATH), Some(&hops([4, 0])[..]));
        // What is no list of next hops is left alone.
        for odd in [&[0u8, 0, 255][..], &[4, 0, 255, 0], &[8]] {
            assert_eq!(without_state(odd), odd);
        }
    }

    #[test]
    fn routes_of_routers_are_told_from_others() {
        let mut body = vec![0; route::RTMSG];
        (body[0], body[4], body[5]) = (libc::AF_INET6 as u8, 254, RTPROT_RA);
        assert!(read(&body).unwrap().advertised);
        body[5] = 4;
        assert!(!read(&body).unwrap().advertised, "written by someone");
        (body[0], body[5]) = (libc::AF_INET as u8, RTPROT_RA);
        assert!(!read(&body).unwrap().advertised, "the kernel has none of IPv4");
    }

    #[test]
    fn destinations_are_written_in_one_way() {
        for (text, written) in [
            ("default", "default"),
            ("0.0.0.0/0", "default"),
            ("::/0", "::/0"),
            ("192.0.2.1", "192.0.2.1/32"),
            ("2001:DB8:0::/32", "2001:db8::/32"),
        ] {
            assert_eq!(destination(text).unwrap(), written);
        }
        assert!(destination("192.0.2/24").is_err());
    }

    proptest! {
        #[test]
        fn no_message_panics(bytes in proptest::collection::vec(any::<u8>(), route::RTMSG..200)) {
            if read(&bytes).is_some() {
                replaced(&bytes, None);
            }
        }
    }
}
