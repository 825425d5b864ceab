//! Route tracing: TCP connections with a small TTL, and the routers that report its expiry.
//!
//! With `IP_RECVERR` the kernel keeps the ICMP message that ended a connection, and its source
//! (ip(7)). This needs no privilege, and firewalls that pass transfers pass these packets.

use super::Shared;
use super::stop::lock;
use crate::message::{MAX_HOPS, Row};
use crate::record::{Pair, Route, SiteId};
use fullpipe_kernel::socket;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt};
use std::io::IoSliceMut;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Maximum silent hops in a row.
const MAX_SILENT_HOPS: usize = 6;
/// Timeout per hop.
const HOP_TIMEOUT: Duration = Duration::from_secs(1);
/// Minimum interval between traces of the same direction.
pub(super) const MIN_INTERVAL: Duration = Duration::from_secs(600);
/// Bytes on the wire per hop, both ways.
const HOP_BYTES: u64 = 200;

/// Traces requested routes until the node stops.
pub(super) fn run(shared: &Shared) {
    let mut asked: Vec<Option<Instant>> = vec![None; shared.mesh.sites.len()];
    while shared.stop.sleep(HOP_TIMEOUT) {
        for peer in shared.peers() {
            let last = &mut asked[usize::from(peer)];
            if last.is_some_and(|at| at.elapsed() < MIN_INTERVAL)
                || lock(&shared.routes)[usize::from(peer)].is_none()
            {
                continue;
            }
            *last = Some(Instant::now());
            lock(&shared.routes)[usize::from(peer)] = None;
            if let Some(route) = route(shared, peer) {
                shared.store_row(&Row::Route(route));
            }
        }
    }
}

fn route(shared: &Shared, peer: SiteId) -> Option<Route> {
    let address = lock(&shared.addresses)[usize::from(peer)]?;
    let at_ms = shared.now().wall_ms;
    let mut hops = Vec::new();
    for ttl in 1..=i32::try_from(MAX_HOPS).unwrap_or(i32::MAX) {
        if shared.stop.is_stopped() || !shared.ledger.reserve_small(Some(peer), HOP_BYTES, shared.now()) {
            return None;
        }
        match hop(address, ttl, HOP_TIMEOUT) {
            Hop::Destination => {
                hops.push(Some(address.ip()));
                break;
            }
            Hop::Router(ip) => hops.push(Some(ip)),
            Hop::Silent => hops.push(None),
            Hop::SendFailed => return None,
        }
        if hops.iter().rev().take_while(|h| h.is_none()).count() >= MAX_SILENT_HOPS {
            break;
        }
    }
    // Trailing silent hops carry no information.
    while hops.last().is_some_and(Option::is_none) {
        hops.pop();
    }
    let pair = Pair { from: shared.site, to: peer };
    (!hops.is_empty()).then_some(Route { at_ms, pair, hops })
}

/// What replied to a packet with a given TTL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hop {
    /// The destination.
    Destination,
    Router(IpAddr),
    Silent,
    /// The packet could not be sent.
    SendFailed,
}

fn hop(address: SocketAddr, ttl: i32, wait: Duration) -> Hop {
    let Ok(socket) = socket::tcp(address) else { return Hop::SendFailed };
    let prepared = match address {
        SocketAddr::V4(_) => setsockopt(&socket, sockopt::Ipv4Ttl, &ttl)
            .and_then(|()| setsockopt(&socket, sockopt::Ipv4RecvErr, &true)),
        SocketAddr::V6(_) => setsockopt(&socket, sockopt::Ipv6Ttl, &ttl)
            .and_then(|()| setsockopt(&socket, sockopt::Ipv6RecvErr, &true)),
    };
    if prepared.is_err() {
        return Hop::SendFailed;
    }
    match socket::connect_timeout(&socket, address, wait) {
        Ok(()) => Hop::Destination,
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionRefused => Hop::Destination,
        Err(_) => icmp_source(&socket).map_or(Hop::Silent, Hop::Router),
    }
}

/// The source of the ICMP message that ended a connection.
fn icmp_source(socket: &TcpStream) -> Option<IpAddr> {
    let mut data = [0; 512];
    let mut iov = [IoSliceMut::new(&mut data)];
    let mut space = nix::cmsg_space!([u8; 128]);
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut iov, Some(&mut space), flags).ok()?;
    message.cmsgs().ok()?.find_map(|cmsg| match cmsg {
        ControlMessageOwned::Ipv4RecvErr(_, Some(from)) => {
            Some(Ipv4Addr::from(u32::from_be(from.sin_addr.s_addr)).into())
        }
        ControlMessageOwned::Ipv6RecvErr(_, Some(from)) => {
            Some(Ipv6Addr::from(from.sin6_addr.s6_addr).into())
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_neighbour_is_the_destination_whether_it_listens_or_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(hop(address, 1, HOP_TIMEOUT), Hop::Destination);
        drop(listener);
        assert_eq!(hop(address, 1, HOP_TIMEOUT), Hop::Destination);
    }
}
