//! One stream of a test, as both ends have it.

use super::{Budget, Meter, discard, receive_datagrams, send, send_datagrams};
use crate::iperf3::{Results, StreamResults};
use crate::sample::SocketSample;
use fullpipe_kernel::socket;
use fullpipe_kernel::tcp_info::{self, TcpInfo};
use fullpipe_units::Rate;
use std::io;
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::sync::atomic::AtomicBool;

/// What carries a stream.
pub(crate) enum Carrier {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

/// A stream's number, its direction, what carries it and what has passed.
pub(crate) struct Lane {
    pub id: u64,
    pub sends: bool,
    pub carrier: Carrier,
    pub meter: Meter,
}

/// How a stream is to move its bytes.
pub(crate) struct Orders {
    /// What is written at once, in bytes.
    pub block: usize,
    /// A sender keeps to it.
    pub rate: Option<Rate>,
    /// A receiver over TCP takes no more than this.
    pub cap: Option<Rate>,
    /// Whether datagrams count in 64 bits.
    pub wide: bool,
}

/// What a stream's counters stood at.
#[derive(Clone, Copy, Default)]
pub(crate) struct Mark {
    pub bytes: u64,
    pub packets: u64,
    pub lost: u64,
    pub retransmits: u64,
}

impl Mark {
    /// What came since `from`.
    pub fn since(self, from: Mark) -> Mark {
        Mark {
            bytes: self.bytes.saturating_sub(from.bytes),
            packets: self.packets.saturating_sub(from.packets),
            lost: self.lost.saturating_sub(from.lost),
            retransmits: self.retransmits.saturating_sub(from.retransmits),
        }
    }
}

/// What a stream's socket is, before anything has moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketFacts {
    /// This end's port; 0 if the kernel does not tell.
    pub local_port: u16,
    /// Bytes.
    pub send_buffer: usize,
    /// Bytes.
    pub receive_buffer: usize,
}

impl Lane {
    pub fn new(id: u64, sends: bool, carrier: Carrier) -> Self {
        Lane { id, sends, carrier, meter: Meter::default() }
    }

    /// This end's port and the sizes of its socket's buffers (send, receive) in bytes, as the kernel has them.
    pub fn facts(&self) -> SocketFacts {
        let (address, (send_buffer, receive_buffer)) = match &self.carrier {
            Carrier::Tcp(stream) => (stream.local_addr(), socket::buffers(stream)),
            Carrier::Udp(datagrams) => (datagrams.local_addr(), socket::buffers(datagrams)),
        };
        SocketFacts { local_port: address.map_or(0, |a| a.port()), send_buffer, receive_buffer }
    }

    fn tcp(&self) -> Option<&TcpStream> {
        match &self.carrier {
            Carrier::Tcp(socket) => Some(socket),
            Carrier::Udp(_) => None,
        }
    }

    /// Moves bytes until `stop`, the budget's end or an error.
    pub fn carry(&self, orders: &Orders, budget: Option<&Budget>, stop: &AtomicBool) -> io::Result<()> {
        let &Orders { block, rate, cap, wide } = orders;
        match (&self.carrier, self.sends) {
            (Carrier::Tcp(socket), true) => send(socket, block, rate, budget, &self.meter, stop),
            (Carrier::Tcp(socket), false) => discard(socket, cap, &self.meter, stop),
            (Carrier::Udp(socket), true) => {
                send_datagrams(socket, block, wide, rate, budget, &self.meter, stop)
            }
            (Carrier::Udp(socket), false) => receive_datagrams(socket, wide, &self.meter, stop),
        }
    }

    /// Ends the connection's data, and by that its thread. With `abort` the close to come resets it: its FIN is not sent,
    /// so the thread ends by its time-out.
    pub fn shut_down(&self, abort: bool) {
        let Some(stream) = self.tcp() else { return };
        if abort {
            let _ = socket::reset_on_close(stream);
        } else {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// The socket's state now.
    pub fn sample(&self) -> Option<SocketSample> {
        SocketSample::of(self.tcp()?).ok()
    }

    /// The controller in use.
    pub fn controller(&self) -> Option<String> {
        tcp_info::controller(self.tcp()?).ok()
    }

    /// Bytes that are through: acknowledged where we send over TCP, as what is queued was not carried; else counted.
    pub fn progress(&self) -> u64 {
        let unacked = self.tcp().filter(|_| self.sends).map_or(0, socket::unacked);
        self.meter.bytes().saturating_sub(unacked)
    }

    /// What the counters stand at.
    pub fn mark(&self) -> Mark {
        let info = self.tcp().and_then(|socket| TcpInfo::query(socket).ok());
        Mark {
            bytes: self.progress(),
            packets: self.meter.packets(),
            lost: self.meter.lost(),
            retransmits: info.map_or(0, |i| i.total_retrans.into()),
        }
    }
}

/// What a test measured at one end: what the counters of its streams stood at when the omitted seconds were over and at the
/// end, the seconds between, and the processor's share of them.
#[derive(Default)]
pub(crate) struct Measured {
    pub from: Vec<Mark>,
    pub end: Vec<Mark>,
    pub seconds: f64,
    pub cpu: [f64; 3],
}

impl Measured {
    /// The same as the ends tell each other. `sends` says whether this one is the test's sender, and `over_tcp` what carried it.
    pub fn results<'a>(
        &self,
        lanes: impl Iterator<Item = &'a Lane>,
        sends: bool,
        over_tcp: bool,
        controller: Option<String>,
    ) -> Results {
        let tcp_sender = sends && over_tcp;
        let streams = lanes.zip(self.from.iter().zip(&self.end)).map(|(lane, (from, end))| {
            let moved = end.since(*from);
            StreamResults {
                id: lane.id,
                bytes: moved.bytes,
                retransmits: (lane.sends && tcp_sender).then_some(moved.retransmits),
                jitter: lane.meter.jitter(),
                errors: moved.lost,
                packets: moved.packets,
                seconds: self.seconds,
            }
        });
        Results {
            cpu: self.cpu,
            has_retransmits: sends.then_some(tcp_sender),
            congestion_used: controller,
            streams: streams.collect(),
            server_output: None,
        }
    }
}
