//! What a test found.

use super::Latency;
use crate::iperf3::Params;
use crate::sample::SocketSample;
use crate::transfer::SocketFacts;
use std::net::SocketAddr;
use std::time::SystemTime;

/// One interval of a running test.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    /// Seconds since the data began.
    pub start: f64,
    /// Seconds since the data began.
    pub end: f64,
    /// Whether it lies in the seconds left out.
    pub omitted: bool,
    /// By stream.
    pub streams: Vec<StreamInterval>,
    /// The median RTT of the probes in it, seconds; from our servers only.
    pub probe_rtt: Option<f64>,
}

/// One stream in one interval.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamInterval {
    /// As both ends number it.
    pub id: u64,
    /// Whether this end sends.
    pub sends: bool,
    /// Acknowledged where this end sends over TCP, else counted.
    pub bytes: u64,
    /// In this interval; `None` when the sender is at the other end.
    pub retransmits: Option<u64>,
    /// Datagrams in this interval.
    pub packets: u64,
    /// Of them, missing.
    pub lost: u64,
    /// Seconds.
    pub jitter: f64,
    /// The sending socket, wherever it is; unknown when a stock server sends.
    pub socket: Option<SocketSample>,
}

/// One stream at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Seconds since the data began.
    pub seconds: f64,
    /// The stream's number.
    pub stream: u64,
    /// Bytes since the data began.
    pub bytes: u64,
    /// The sending socket.
    pub socket: Option<SocketSample>,
    /// Whether that is the server's, as it last reported.
    pub from_server: bool,
    /// Our receiving socket.
    pub receiver: Option<SocketSample>,
}

/// One stream from its beginning, without the seconds left out, to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamOutcome {
    /// As both ends number it.
    pub id: u64,
    /// Whether this end sends.
    pub sends: bool,
    /// Bytes, by the sender's account.
    pub sent: u64,
    /// Seconds, by the sender's clock.
    pub sent_seconds: f64,
    /// Bytes, by the receiver's account.
    pub received: u64,
    /// Seconds, by the receiver's clock.
    pub received_seconds: f64,
    /// Segments retransmitted, if the sender counts them.
    pub retransmits: Option<u64>,
    /// The sender's controller, as read back from its socket.
    pub controller: Option<String>,
    /// Seconds, over UDP.
    pub jitter: f64,
    /// Datagrams missing.
    pub lost: u64,
    /// Datagrams sent.
    pub packets: u64,
    /// Datagrams out of order, where this end receives.
    pub out_of_order: u64,
    /// This end's socket.
    pub facts: SocketFacts,
    /// The sending socket at the end.
    pub socket: Option<SocketSample>,
    /// Our receiving socket at the end.
    pub receiver: Option<SocketSample>,
}

impl StreamOutcome {
    /// Bits per second that arrived.
    pub fn goodput(&self) -> f64 {
        self.received as f64 * 8.0 / self.received_seconds.max(1e-9)
    }
}

/// A whole test.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// When it began.
    pub started: SystemTime,
    /// Our end of the control connection.
    pub local: SocketAddr,
    /// The server's.
    pub peer: SocketAddr,
    /// The test's cookie.
    pub cookie: String,
    /// What was asked for.
    pub params: Params,
    /// A fullpipe server's version; `None` for a stock one.
    pub server: Option<String>,
    /// A fullpipe server's `net.ipv4.tcp_rmem`.
    pub server_rmem: Option<String>,
    /// A fullpipe server's `net.ipv4.tcp_wmem`.
    pub server_wmem: Option<String>,
    /// As they were reported.
    pub intervals: Vec<Interval>,
    /// Finer than the intervals.
    pub samples: Vec<Sample>,
    /// By stream.
    pub streams: Vec<StreamOutcome>,
    /// Without and under load.
    pub latency: Latency,
    /// The controller of the receiving end's sockets, if that end tells.
    pub receiver_controller: Option<String>,
    /// Of this process, per cent of a core: total, user, system.
    pub cpu_local: [f64; 3],
    /// Of the server.
    pub cpu_remote: [f64; 3],
    /// What the server printed, if asked for.
    pub server_output: Option<String>,
}

/// The streams of one direction together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sum {
    /// Bytes, by the senders' account.
    pub sent: u64,
    /// Seconds.
    pub sent_seconds: f64,
    /// Bytes, by the receivers' account.
    pub received: u64,
    /// Seconds.
    pub received_seconds: f64,
    /// Segments retransmitted, if every sender counts them.
    pub retransmits: Option<u64>,
    /// Datagrams.
    pub packets: u64,
    /// Of them, missing.
    pub lost: u64,
    /// The mean over streams, seconds.
    pub jitter: f64,
}

impl Sum {
    /// Bits per second that arrived.
    pub fn goodput(&self) -> f64 {
        self.received as f64 * 8.0 / self.received_seconds.max(1e-9)
    }
}

impl Outcome {
    /// The streams this end sends on, or those it receives on; `None` when there are none.
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
