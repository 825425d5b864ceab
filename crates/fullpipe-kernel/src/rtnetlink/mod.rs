//! Links, addresses, routes and queueing disciplines of a network namespace (rtnetlink(7)).
//!
//! Message layouts are those of the kernel's
//! `include/uapi/linux/{rtnetlink,if_link,if_addr,neighbour,pkt_sched}.h`.

mod address;
mod congctl;
mod link;
mod qdisc;
mod route;

pub use address::{DefaultRoute, OwnAddress, parse_address, parse_neighbour};
pub use congctl::{KeyedRoute, RouteController, RouteKey, RouteLimits, RoutesLeft, destination};
pub use link::{Link, NewInterface, parse_link};
pub use qdisc::{QdiscNode, QdiscOperation, ROOT, hex, parse_qdisc, unhex};
pub use route::{CongestionRoute, LOCAL_TABLE, MAIN_TABLE, RTAX_FEATURES, parse_route};

use crate::netlink::{Protocol, Socket};
use std::io;
use std::net::IpAddr;

/// An rtnetlink socket in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Rtnetlink {
    socket: Socket,
}

impl Rtnetlink {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// When a sandbox forbids netlink.
    pub fn open() -> io::Result<Self> {
        Ok(Rtnetlink { socket: Socket::open(Protocol::Route)? })
    }
}

fn family(address: IpAddr) -> u8 {
    (if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }) as u8
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}
