//! Which way packets go: TCP connections whose packets do not live long, and who says that they died.
//!
//! With `IP_RECVERR` the kernel keeps the ICMP message that ended a connection, and who sent it (ip(7)): no privilege is needed,
//! and firewalls that let transfers pass let these pass.

use super::Shared;
use super::stop::lock;
use crate::message::Row;
use crate::record::{Pair, Route, SiteId};
use fullpipe_kernel::socket;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt};
use std::io::IoSliceMut;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Hops that are asked, and how many in a row may be silent.
const MOST: i32 = 30;
const SILENT: usize = 6;
/// For each hop.
const WAIT: Duration = Duration::from_secs(1);
/// Between two routes of the same direction.
const EVERY: Duration = Duration::from_secs(600);
/// On the wire for each hop, both ways.
const BYTES: u64 = 200;

/// Asks for routes when they are wanted, until the node ends.
pub(super) fn run(shared: &Shared) {
    let mut asked: Vec<Option<Instant>> = vec![None; shared.mesh.sites.len()];
    while shared.stop.sleep(WAIT) {
        for peer in shared.peers() {
            let last = &mut asked[usize::from(peer)];
            if last.is_some_and(|at| at.elapsed() < EVERY)
                || lock(&shared.routes)[usize::from(peer)].is_none()
            {
                continue;
            }
            *last = Some(Instant::now());
            lock(&shared.routes)[usize::from(peer)] = None;
            if let Some(route) = route(shared, peer) {
                shared.keep(&Row::Route(route));
            }
        }
    }
}

fn route(shared: &Shared, peer: SiteId) -> Option<Route> {
    let address = lock(&shared.addresses)[usize::from(peer)]?;
    let at_ms = shared.now().wall_ms;
    let mut hops = Vec::new();
    for ttl in 1..=MOST {
        if shared.stop.is_stopped() || !shared.ledger.small(BYTES, shared.now()) {
            return None;
        }
        match hop(address, ttl, WAIT) {
            Hop::End => {
                hops.push(Some(address.ip()));
                break;
            }
            Hop::Router(ip) => hops.push(Some(ip)),
            Hop::Silent => hops.push(None),
            Hop::Impossible => return None,
        }
        if hops.iter().rev().take_while(|h| h.is_none()).count() >= SILENT {
            break;
        }
    }
    // Silence at the end says only that there was no end.
    while hops.last().is_some_and(Option::is_none) {
        hops.pop();
    }
    let pair = Pair { from: shared.site, to: peer };
    (!hops.is_empty()).then_some(Route { at_ms, pair, hops })
}

/// Who answered a packet that lived for so many hops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hop {
    /// Whom it was for.
    End,
    Router(IpAddr),
    Silent,
    /// No packet could be sent.
    Impossible,
}

fn hop(address: SocketAddr, ttl: i32, wait: Duration) -> Hop {
    let Ok(socket) = socket::tcp(address) else { return Hop::Impossible };
    let prepared = match address {
        SocketAddr::V4(_) => setsockopt(&socket, sockopt::Ipv4Ttl, &ttl)
            .and_then(|()| setsockopt(&socket, sockopt::Ipv4RecvErr, &true)),
        SocketAddr::V6(_) => setsockopt(&socket, sockopt::Ipv6Ttl, &ttl)
            .and_then(|()| setsockopt(&socket, sockopt::Ipv6RecvErr, &true)),
    };
    if prepared.is_err() {
        return Hop::Impossible;
    }
    match socket::connect_timeout(&socket, address, wait) {
        Ok(()) => Hop::End,
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionRefused => Hop::End,
        Err(_) => offender(&socket).map_or(Hop::Silent, Hop::Router),
    }
}

/// Who sent the ICMP message that ended a connection.
fn offender(socket: &TcpStream) -> Option<IpAddr> {
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
    fn a_neighbour_is_the_end_whether_it_listens_or_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(hop(address, 1, WAIT), Hop::End);
        drop(listener);
        assert_eq!(hop(address, 1, WAIT), Hop::End);
    }
}
