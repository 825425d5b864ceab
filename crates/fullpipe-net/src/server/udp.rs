//! UDP streams: a hello to the server's port creates a socket connected to the client.
//!
//! Hellos carry no cookie, so each goes to the oldest waiting test of the same address.

use super::iperf2::udp::Flow;
use super::{Event, MAX_PER_TURN, Shared, admission, bind_to, lock};
use crate::iperf3::{HELLO_REPLY, UdpHeader};
use fullpipe_kernel::socket;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, mpsc};

/// More than a test needs while its thread is busy; the kernel may grant less.
const BUFFER: usize = 4 * 1024 * 1024;

/// Datagrams of other peers that are taken from a new socket.
const MAX_STRAYS: usize = 256;

/// A test that waits for hellos.
pub(super) struct Waiting {
    /// Number of the test.
    pub number: u64,
    pub from: IpAddr,
    /// Streams not yet connected.
    pub streams: usize,
    pub sender: mpsc::Sender<Arrival>,
}

/// A stream's socket.
pub(super) struct Arrival {
    pub socket: UdpSocket,
    pub permit: admission::Permit,
}

/// Binds a UDP socket to the server's address, shared.
pub(super) fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = socket::udp(address)?;
    bind_to(&socket, address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Receives datagrams pending at one of the server's ports. A flood of them must delay neither
/// connections nor a stop.
pub(super) fn receive(shared: &Arc<Shared>, datagrams: &UdpSocket) {
    let Ok(local) = datagrams.local_addr() else { return };
    let mut datagram = vec![0; 65_536];
    let mut flows = Vec::new();
    for _ in 0..MAX_PER_TURN {
        let Ok((length, peer)) = datagrams.recv_from(&mut datagram) else { break };
        welcome(shared, local, &datagram[..length], peer, &mut flows);
    }
    flows.into_iter().for_each(|flow| flow.start(shared));
}

/// Handles one datagram. Tests of iperf 2 begin after the turn, with all that has arrived before
/// their sockets were connected.
fn welcome(shared: &Shared, local: SocketAddr, datagram: &[u8], peer: SocketAddr, flows: &mut Vec<Flow>) {
    if let Some(flow) = flows.iter_mut().find(|flow| flow.peer == peer) {
        let parsed = flow.parse(datagram);
        flow.before.extend(parsed);
        return;
    }
    // Data from before its socket was connected, or of unknown origin: ignore.
    if !UdpHeader::is_hello(datagram) {
        let Some(mut flow) = Flow::begin(shared, datagram, peer, || connect(local, peer)) else { return };
        let (own, others) = strays(flow.socket(), peer);
        flow.early = own.iter().filter_map(|datagram| flow.parse(datagram)).collect();
        let _ = flow.socket().set_nonblocking(false);
        flows.push(flow);
        for (datagram, from) in others {
            welcome(shared, local, &datagram, from, flows);
        }
        return;
    }
    let ip = peer.ip().to_canonical();
    let permit = {
        let waiting = lock(&shared.udp_waiting);
        if !waiting.iter().any(|test| test.from == ip && test.streams > 0) {
            return;
        }
        shared.admission.acquire(ip)
    };
    let permit = match permit {
        Ok(permit) => permit,
        Err(full) => return shared.log(Event::new("refused", Some(peer)).with("reason", full.reason())),
    };
    match connect(local, peer) {
        Ok(socket) => {
            let (_, others) = strays(&socket, peer);
            if let Some(account) = shared.account(ip) {
                // As many as the test has streams.
                account.received.owe(datagram.len());
                account.sent.owe(HELLO_REPLY.len());
            }
            let answered = socket.set_nonblocking(false).and_then(|()| socket.send(&HELLO_REPLY));
            let mut waiting = lock(&shared.udp_waiting);
            if answered.is_ok()
                && let Some(test) = waiting.iter_mut().find(|test| test.from == ip && test.streams > 0)
            {
                test.streams -= 1;
                let _ = test.sender.send(Arrival { socket, permit });
            }
            drop(waiting);
            for (datagram, from) in others {
                welcome(shared, local, &datagram, from, flows);
            }
        }
        Err(e) => shared.log(Event::new("stream_failed", Some(peer)).with("reason", e.to_string())),
    }
}

type Stray = (Vec<u8>, SocketAddr);

/// What a new socket has received: datagrams of its peer, and until it was connected of all others.
fn strays(socket: &UdpSocket, peer: SocketAddr) -> (Vec<Vec<u8>>, Vec<Stray>) {
    let (mut own, mut others) = (Vec::new(), Vec::new());
    let mut stray = vec![0; 65_536];
    for _ in 0..MAX_STRAYS {
        let Ok((length, from)) = socket.recv_from(&mut stray) else { break };
        let datagram = stray[..length].to_vec();
        if from == peer {
            own.push(datagram);
        } else {
            others.push((datagram, from));
        }
    }
    (own, others)
}

fn connect(local: SocketAddr, peer: SocketAddr) -> io::Result<UdpSocket> {
    let socket = bind(local)?;
    socket.connect(peer)?;
    let _ = socket::set_buffers(&socket, BUFFER);
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{Config, Server};
    use std::net::Ipv4Addr;

    #[test]
    fn a_flood_of_datagrams_leaves_connections_and_a_stop_their_turn() {
        let config = Config { address: Some(Ipv4Addr::LOCALHOST.into()), port: 0, ..Config::default() };
        let server = Server::bind(config, |_| {}).unwrap();
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        for _ in 0..MAX_PER_TURN + 1 {
            socket.send_to(&[0], server.address()).unwrap();
        }
        receive(&server.shared, &server.ports[0].1);
        assert_eq!(server.ports[0].1.recv(&mut [0; 4]).unwrap(), 1, "the rest waits");
        assert!(server.ports[0].1.recv(&mut [0; 4]).is_err());
    }
}
