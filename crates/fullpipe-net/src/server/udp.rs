//! UDP streams: a hello to the server's port becomes a socket of its own, connected to its client.
//!
//! The hello carries no cookie, so it goes to the oldest test of the same address that waits for one.

use super::{Event, Shared, admission, bind_to, lock};
use crate::iperf3::{HELLO_REPLY, UdpHeader};
use fullpipe_kernel::socket;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::mpsc;

/// More than any test needs while its thread is busy elsewhere; the kernel grants less if it must.
const BUFFER: usize = 4 * 1024 * 1024;

/// A test that waits for hellos.
pub(super) struct Waiting {
    /// Which, among those of its address.
    pub number: u64,
    pub from: IpAddr,
    /// Streams that are still to come.
    pub streams: usize,
    pub way_in: mpsc::Sender<Arrival>,
}

/// A stream's socket.
pub(super) struct Arrival {
    pub socket: UdpSocket,
    pub place: admission::Place,
}

/// A UDP socket at the server's address, which others may share.
pub(super) fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = socket::udp(address)?;
    bind_to(&socket, address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Takes the datagrams that wait at the server's port.
pub(super) fn hello(shared: &Shared, datagrams: &UdpSocket) {
    let mut datagram = [0; 64];
    while let Ok((length, peer)) = datagrams.recv_from(&mut datagram) {
        welcome(shared, &datagram[..length], peer);
    }
}

/// Answers one hello.
fn welcome(shared: &Shared, datagram: &[u8], peer: SocketAddr) {
    // Data that came before its socket was connected, or a stranger's: nothing to say.
    if !UdpHeader::is_hello(datagram) {
        return;
    }
    let ip = peer.ip().to_canonical();
    let place = {
        let waiting = lock(&shared.udp_waiting);
        if !waiting.iter().any(|test| test.from == ip && test.streams > 0) {
            return;
        }
        shared.admission.take(ip)
    };
    let place = match place {
        Ok(place) => place,
        Err(full) => return shared.log(Event::new("refused", Some(peer)).with("reason", full.reason())),
    };
    match connect(shared, peer) {
        Ok(socket) => {
            // Until it was connected, the new socket got everybody's datagrams.
            let mut strays = Vec::new();
            let mut stray = [0; 64];
            while let Ok((length, from)) = socket.recv_from(&mut stray) {
                if from != peer && strays.len() < 256 {
                    strays.push((stray[..length].to_vec(), from));
                }
            }
            let answered = socket.set_nonblocking(false).and_then(|()| socket.send(&HELLO_REPLY));
            let mut waiting = lock(&shared.udp_waiting);
            if answered.is_ok()
                && let Some(test) = waiting.iter_mut().find(|test| test.from == ip && test.streams > 0)
            {
                test.streams -= 1;
                let _ = test.way_in.send(Arrival { socket, place });
            }
            drop(waiting);
            for (datagram, from) in strays {
                welcome(shared, &datagram, from);
            }
        }
        Err(e) => shared.log(Event::new("stream_failed", Some(peer)).with("reason", e.to_string())),
    }
}

fn connect(shared: &Shared, peer: SocketAddr) -> io::Result<UdpSocket> {
    let socket = bind(shared.address)?;
    socket.connect(peer)?;
    let _ = socket::set_buffers(&socket, BUFFER);
    Ok(socket)
}
