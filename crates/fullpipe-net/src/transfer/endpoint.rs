//! One stream of a test at one of its ends.

use super::{Allowance, Meter, Numbering, PACKET, Pacer, discard, receive_datagrams, send, send_datagrams};
use crate::iperf3::{Results, StreamResults};
use crate::sample::SocketSample;
use fullpipe_kernel::socket;
use fullpipe_kernel::tcp_info::{self, TcpInfo};
use fullpipe_units::Rate;
use std::io;
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::sync::atomic::AtomicBool;

/// The transport of a stream.
pub(crate) enum Transport {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

/// A stream's id, direction, socket and counters.
pub(crate) struct Endpoint {
    pub id: u64,
    pub sends: bool,
    pub transport: Transport,
    pub meter: Meter,
}

/// Options for the data phase of a stream.
pub(crate) struct StreamOptions {
    /// Bytes per write.
    pub block: usize,
    /// Whether a paced TCP sender writes whole blocks and pauses between them: iperf3 since 3.16
    /// counts received data in blocks.
    pub whole_blocks: bool,
    /// Requested rate of a sender.
    pub rate: Option<Rate>,
    /// Of datagrams.
    pub numbering: Numbering,
}

/// A snapshot of a stream's counters.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counters {
    pub bytes: u64,
    pub packets: u64,
    pub lost: u64,
    pub retransmits: u64,
}

impl Counters {
    /// The difference from an earlier snapshot.
    pub fn since(self, from: Counters) -> Counters {
        Counters {
            bytes: self.bytes.saturating_sub(from.bytes),
            packets: self.packets.saturating_sub(from.packets),
            lost: self.lost.saturating_sub(from.lost),
            retransmits: self.retransmits.saturating_sub(from.retransmits),
        }
    }
}

/// Facts about a stream's socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketFacts {
    /// Local port; 0 if unknown.
    pub local_port: u16,
    /// Size in bytes.
    pub send_buffer: usize,
    /// Size in bytes.
    pub receive_buffer: usize,
}

impl Endpoint {
    pub fn new(id: u64, sends: bool, transport: Transport) -> Self {
        Endpoint { id, sends, transport, meter: Meter::default() }
    }

    /// The local port and socket buffer sizes.
    pub fn facts(&self) -> SocketFacts {
        let (address, (send_buffer, receive_buffer)) = match &self.transport {
            Transport::Tcp(stream) => (stream.local_addr(), socket::buffers(stream)),
            Transport::Udp(datagrams) => (datagrams.local_addr(), socket::buffers(datagrams)),
        };
        SocketFacts { local_port: address.map_or(0, |a| a.port()), send_buffer, receive_buffer }
    }

    fn tcp(&self) -> Option<&TcpStream> {
        match &self.transport {
            Transport::Tcp(socket) => Some(socket),
            Transport::Udp(_) => None,
        }
    }

    /// Transfers data until `stop` is set, the budget is used up, or an error.
    pub fn run(
        &self,
        options: &StreamOptions,
        allowance: Allowance<'_>,
        stop: &AtomicBool,
    ) -> io::Result<()> {
        let &StreamOptions { block, whole_blocks, rate, numbering } = options;
        match (&self.transport, self.sends) {
            (Transport::Tcp(socket), true) => {
                let block = if whole_blocks { block } else { Pacer::new(rate).quantum(block, PACKET) };
                send(socket, block, rate, allowance, &self.meter, stop)
            }
            (Transport::Tcp(socket), false) => discard(socket, allowance, &self.meter, stop),
            (Transport::Udp(socket), true) => {
                send_datagrams(socket, block, numbering, rate, allowance, &self.meter, stop)
            }
            (Transport::Udp(socket), false) => {
                let wide = numbering == Numbering::Iperf3 { wide: true };
                receive_datagrams(socket, wide, allowance, &self.meter, stop)
            }
        }
    }

    /// Shuts down the connection and thereby its thread. With `abort` the next close resets it
    /// instead: no FIN is sent, so the thread ends by its timeout.
    pub fn shut_down(&self, abort: bool) {
        let Some(stream) = self.tcp() else { return };
        if abort {
            let _ = socket::reset_on_close(stream);
        } else {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Ends a TCP sender's data; what is in its buffer is still delivered.
    pub fn finish_sending(&self) {
        if let Some(stream) = self.tcp().filter(|_| self.sends) {
            let _ = stream.shutdown(Shutdown::Write);
        }
    }

    /// A sample of the socket.
    pub fn sample(&self) -> Option<SocketSample> {
        SocketSample::query(self.tcp()?).ok()
    }

    /// The controller in use.
    pub fn controller(&self) -> Option<String> {
        tcp_info::controller(self.tcp()?).ok()
    }

    /// Completed bytes: acknowledged for a TCP sender, else counted.
    pub fn progress(&self) -> u64 {
        let unacked = self.tcp().filter(|_| self.sends).map_or(0, socket::unacked);
        self.meter.bytes().saturating_sub(unacked)
    }

    /// A snapshot of the counters.
    pub fn counters(&self) -> Counters {
        let info = self.tcp().and_then(|socket| TcpInfo::query(socket).ok());
        Counters {
            bytes: self.progress(),
            packets: self.meter.packets(),
            lost: self.meter.lost(),
            retransmits: info.map_or(0, |i| i.total_retrans.into()),
        }
    }
}

/// The measurement of a test at one end: counters at the end of the omitted seconds and at the end,
/// the seconds between, and CPU use.
#[derive(Default)]
pub(crate) struct Measurement {
    pub from: Vec<Counters>,
    pub end: Vec<Counters>,
    pub seconds: f64,
    pub cpu: [f64; 3],
}

impl Measurement {
    /// Converts to results for the peer. `sends` is whether this end is the sender, `over_tcp` the
    /// transport.
    pub fn results<'a>(
        &self,
        endpoints: impl Iterator<Item = &'a Endpoint>,
        sends: bool,
        over_tcp: bool,
        controller: Option<String>,
    ) -> Results {
        let tcp_sender = sends && over_tcp;
        let streams = endpoints.zip(self.from.iter().zip(&self.end)).map(|(endpoint, (from, end))| {
            let moved = end.since(*from);
            StreamResults {
                id: endpoint.id,
                bytes: moved.bytes,
                retransmits: (endpoint.sends && tcp_sender).then_some(moved.retransmits),
                jitter: endpoint.meter.jitter(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::Duration;

    #[test]
    fn a_paced_sender_writes_whole_blocks_where_blocks_are_counted() {
        for whole_blocks in [true, false] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let _receiver = listener.accept().unwrap();
            let endpoint = Endpoint::new(1, true, Transport::Tcp(sender));
            let rate = Some(Rate::from_bits_per_sec(8_000));
            let options = StreamOptions { block: 131_072, whole_blocks, rate, numbering: Numbering::Iperf2 };
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| endpoint.run(&options, Allowance::default(), &stop).unwrap());
                while endpoint.meter.bytes() == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                stop.store(true, Relaxed);
            });
            let sent = endpoint.meter.bytes();
            assert!(if whole_blocks { sent == 131_072 } else { sent <= 10_000 }, "{whole_blocks}: {sent}");
        }
    }
}
