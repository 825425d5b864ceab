//! Results of a test.

use super::Latency;
use crate::iperf3::Params;
use crate::sample::SocketSample;
use crate::transfer::SocketFacts;
use std::net::SocketAddr;
use std::time::SystemTime;

/// One interval of a running test.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    /// Seconds since the start of the data.
    pub start: f64,
    /// Seconds since the start of the data.
    pub end: f64,
    /// Whether the interval is in the omitted seconds.
    pub omitted: bool,
    /// By stream.
    pub streams: Vec<StreamInterval>,
    /// Median RTT of the probes in the interval, seconds; fullpipe servers only.
    pub probe_rtt: Option<f64>,
}

/// One stream in one interval.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamInterval {
    /// Stream id, the same at both ends.
    pub id: u64,
    /// Whether this end sends.
    pub sends: bool,
    /// Bytes: acknowledged where this end sends over TCP, else counted.
    pub bytes: u64,
    /// Retransmits in this interval; `None` if the other end sends.
    pub retransmits: Option<u64>,
    /// Datagrams in this interval.
    pub packets: u64,
    /// Lost datagrams.
    pub lost: u64,
    /// Seconds.
    pub jitter: f64,
    /// The sending socket at either end; unknown if a stock server sends.
    pub socket: Option<SocketSample>,
}

/// A sample of one stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Seconds since the start of the data.
    pub seconds: f64,
    /// Stream id.
    pub stream: u64,
    /// Bytes since the start of the data.
    pub bytes: u64,
    /// The sending socket.
    pub socket: Option<SocketSample>,
    /// Whether it is the server's socket, as last reported.
    pub from_server: bool,
    /// The local receiving socket.
    pub receiver: Option<SocketSample>,
}

/// The results of one stream, without omitted seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamOutcome {
    /// Stream id, the same at both ends.
    pub id: u64,
    /// Whether this end sends.
    pub sends: bool,
    /// Bytes sent, as counted by the sender, if it reports them. A sender at this end counts what
    /// the peer's kernel acknowledges.
    pub sent: Option<u64>,
    /// Duration at the sender, seconds.
    pub sent_seconds: f64,
    /// Bytes received, as counted by the receiver, if it reports them.
    pub received: Option<u64>,
    /// Duration at the receiver, seconds.
    pub received_seconds: f64,
    /// Segments retransmitted, if the sender counts them.
    pub retransmits: Option<u64>,
    /// The sender's controller, as read from its socket.
    pub controller: Option<String>,
    /// UDP jitter, seconds.
    pub jitter: f64,
    /// Lost datagrams.
    pub lost: u64,
    /// Datagrams sent.
    pub packets: u64,
    /// Datagrams out of order, where this end receives.
    pub out_of_order: u64,
    /// Facts about the local socket.
    pub facts: SocketFacts,
    /// The sending socket at the end.
    pub socket: Option<SocketSample>,
    /// The local receiving socket at the end.
    pub receiver: Option<SocketSample>,
}

impl StreamOutcome {
    /// Bytes delivered and seconds, by the receiver if it reports them.
    pub fn delivered(&self) -> (u64, f64) {
        delivered((self.sent, self.sent_seconds), (self.received, self.received_seconds))
    }

    /// Goodput, bit/s.
    pub fn goodput(&self) -> f64 {
        rate(self.delivered())
    }
}

fn delivered(sent: (Option<u64>, f64), received: (Option<u64>, f64)) -> (u64, f64) {
    match (sent, received) {
        (_, (Some(bytes), seconds)) => (bytes, seconds),
        ((bytes, seconds), _) => (bytes.unwrap_or(0), seconds),
    }
}

fn rate((bytes, seconds): (u64, f64)) -> f64 {
    bytes as f64 * 8.0 / seconds.max(1e-9)
}

/// A whole test.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Start time.
    pub started: SystemTime,
    /// Local address of the control connection.
    pub local: SocketAddr,
    /// Server address.
    pub peer: SocketAddr,
    /// The test's cookie.
    pub cookie: String,
    /// Test parameters.
    pub params: Params,
    /// Version of a fullpipe server; `None` for a stock one.
    pub server: Option<String>,
    /// Version of an iperf 2 server, `?` if it does not report one; `None` if the server speaks
    /// iperf3.
    pub iperf2: Option<String>,
    /// A fullpipe server's `net.ipv4.tcp_rmem`.
    pub server_rmem: Option<String>,
    /// A fullpipe server's `net.ipv4.tcp_wmem`.
    pub server_wmem: Option<String>,
    /// Intervals as reported.
    pub intervals: Vec<Interval>,
    /// Samples, at a finer granularity than the intervals.
    pub samples: Vec<Sample>,
    /// By stream.
    pub streams: Vec<StreamOutcome>,
    /// Idle and loaded latency.
    pub latency: Latency,
    /// The controller of the receiving sockets, if reported.
    pub receiver_controller: Option<String>,
    /// CPU use of this process in percent of a core: total, user, system.
    pub cpu_local: [f64; 3],
    /// CPU use of the server, if it reports it.
    pub cpu_remote: Option<[f64; 3]>,
    /// The server's text output, if requested.
    pub server_output: Option<String>,
}

/// The sum of the streams of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sum {
    /// Bytes sent, if every sender reports them.
    pub sent: Option<u64>,
    /// Seconds.
    pub sent_seconds: f64,
    /// Bytes received, if every receiver reports them.
    pub received: Option<u64>,
    /// Seconds.
    pub received_seconds: f64,
    /// Segments retransmitted, if every sender counts them.
    pub retransmits: Option<u64>,
    /// Datagrams sent.
    pub packets: u64,
    /// Lost datagrams.
    pub lost: u64,
    /// Mean jitter over the streams, seconds.
    pub jitter: f64,
}

impl Sum {
    /// Bytes delivered and seconds, by the receiver if it reports them.
    pub fn delivered(&self) -> (u64, f64) {
        delivered((self.sent, self.sent_seconds), (self.received, self.received_seconds))
    }

    /// Goodput, bit/s.
    pub fn goodput(&self) -> f64 {
        rate(self.delivered())
    }
}

impl Outcome {
    /// The sum of the streams on which this end sends or receives; `None` if there are none.
    pub fn sum(&self, sends: bool) -> Option<Sum> {
        let streams: Vec<_> = self.streams.iter().filter(|s| s.sends == sends).collect();
        let longest = |f: fn(&StreamOutcome) -> f64| streams.iter().map(|s| f(s)).fold(0.0, f64::max);
        (!streams.is_empty()).then(|| Sum {
            sent: streams.iter().map(|s| s.sent).sum(),
            sent_seconds: longest(|s| s.sent_seconds),
            received: streams.iter().map(|s| s.received).sum(),
            received_seconds: longest(|s| s.received_seconds),
            retransmits: streams.iter().map(|s| s.retransmits).sum(),
            packets: streams.iter().map(|s| s.packets).sum(),
            lost: streams.iter().map(|s| s.lost).sum(),
            jitter: streams.iter().map(|s| s.jitter).sum::<f64>() / streams.len() as f64,
        })
    }
}
