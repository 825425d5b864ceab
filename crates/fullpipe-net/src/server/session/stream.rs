//! One stream of a test, at the server.

use crate::iperf3::Params;
use crate::server::admission::Place;
use crate::transfer::{self, Budget, DEFAULT_SEND_BLOCK, Meter};
use fullpipe_kernel::tcp_info::{self, TcpInfo};
use fullpipe_units::Rate;
use std::io;
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The threads of a test whose streams will be reset look this often whether it is over.
const LOOK: Duration = Duration::from_millis(250);

/// What carries a stream.
pub(super) enum Carrier {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

/// One stream at this end.
pub(super) struct Stream {
    pub id: u64,
    pub sends: bool,
    pub carrier: Carrier,
    pub meter: Meter,
    /// Given back when the socket is closed.
    pub _place: Place,
}

/// What a stream's counters stood at.
#[derive(Clone, Copy, Default)]
pub(super) struct Mark {
    pub bytes: u64,
    pub packets: u64,
    pub lost: u64,
    pub retransmits: u64,
}

impl Stream {
    fn info(&self) -> Option<TcpInfo> {
        match &self.carrier {
            Carrier::Tcp(socket) => TcpInfo::of(socket).ok(),
            Carrier::Udp(_) => None,
        }
    }

    /// A TCP sender's bytes are those that were acknowledged: what is queued was not carried.
    pub fn mark(&self) -> Mark {
        let unacked = match &self.carrier {
            Carrier::Tcp(socket) if self.sends => transfer::unacked(socket),
            _ => 0,
        };
        Mark {
            bytes: self.meter.bytes().saturating_sub(unacked),
            packets: self.meter.packets(),
            lost: self.meter.lost(),
            retransmits: self.info().map_or(0, |i| i.total_retrans.into()),
        }
    }

    /// Ends the stream's thread. With `abort` the close to come resets the connection: its FIN is not sent,
    /// so the thread ends by its time-out.
    pub fn shut_down(&self, abort: bool) {
        if let Carrier::Tcp(socket) = &self.carrier {
            if abort {
                let _ = socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO));
            } else {
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
    }

    pub fn run(
        &self,
        params: &Params,
        cap: Option<Rate>,
        budget: Option<&Budget>,
        stop: &AtomicBool,
    ) -> io::Result<()> {
        let asked = (params.rate > 0).then(|| Rate::from_bits_per_sec(params.rate));
        let rate = asked.into_iter().chain(cap).min();
        let wide = params.udp_counters_64bit;
        match (&self.carrier, self.sends) {
            (Carrier::Tcp(socket), true) => {
                // A client that says iperf3's default did not choose it.
                let chosen = params.block != crate::iperf3::DEFAULT_TCP_BLOCK;
                let block = if chosen { params.block as usize } else { DEFAULT_SEND_BLOCK };
                transfer::send(socket, block, rate, budget, &self.meter, stop)
            }
            (Carrier::Tcp(socket), false) => transfer::discard(socket, cap, &self.meter, stop),
            (Carrier::Udp(socket), true) => {
                transfer::send_datagrams(socket, params.block as usize, wide, rate, budget, &self.meter, stop)
            }
            (Carrier::Udp(socket), false) => transfer::receive_datagrams(socket, wide, &self.meter, stop),
        }
    }
}

/// Whether the peer has closed this connection, or it broke.
pub(super) fn closed(socket: &TcpStream) -> bool {
    use nix::sys::socket::{MsgFlags, recv};
    let peeked = recv(socket.as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT);
    !matches!(peeked, Ok(1..) | Err(nix::Error::EAGAIN | nix::Error::EINTR))
}

/// Sets what the client asked for on a stream's socket.
pub(super) fn prepare(socket: &TcpStream, params: &Params) -> io::Result<()> {
    let options = socket2::SockRef::from(socket);
    if params.window > 0 {
        options.set_recv_buffer_size(params.window as usize)?;
        options.set_send_buffer_size(params.window as usize)?;
    }
    if params.no_delay {
        socket.set_nodelay(true)?;
    }
    if params.extension.as_ref().is_some_and(|e| e.abort) {
        socket.set_read_timeout(Some(LOOK))?;
        socket.set_write_timeout(Some(LOOK))?;
    }
    if params.mss > 0 {
        options.set_tcp_mss(params.mss)?;
    }
    if params.tos > 0 {
        // Of the two, the one of the socket's family takes effect.
        let _ = (options.set_tos_v4(params.tos.into()), options.set_tclass_v6(params.tos.into()));
    }
    if let Some(name) = &params.congestion {
        let pinned = tcp_info::pin(socket, name);
        // Only a sender needs it.
        if params.server_sends() {
            pinned.map_err(io::Error::other)?;
        }
    }
    Ok(())
}
