//! The record of one TCP connection, in one format for captures, live sockets and tests.
//!
//! Values that a source cannot know are `None`: a socket sees no captured packets, a capture no
//! congestion window.

mod anonymised;
mod capture;
mod limits;
mod log;
mod sender;
mod sequence;
mod serde_units;
mod socket;

pub use anonymised::{ANONYMISED_PREFIX, is_anonymised};
pub use capture::{Capture, CaptureDamage, TunnelCount, UnreadCount};
pub use limits::{Interval, LimitShare, Limitation, Limits};
pub use log::{EventCount, Judged, Judgement, Log, LogFile, Spread, StateTime};
pub use sender::{Likelihood, Sender};
pub use sequence::{Mark, MarkKind, Sequence};
pub use socket::{Owner, Socket};

use fullpipe_units::{Rate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_units::{ms, optional_bps, optional_ms, s};
use std::net::SocketAddr;

/// Schema of [`Connections`] and [`Connection`]; changes when the format becomes incompatible.
pub const SCHEMA: &str = "fullpipe/connection/1";

/// A list of connections.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Connections {
    /// [`SCHEMA`].
    pub schema: String,
    /// The connections, in the order in which they were first seen.
    pub connections: Vec<Connection>,
    /// Connections that were counted and not listed, as there were too many: those with least data.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unlisted: u64,
    /// The captures that were read, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub captures: Vec<Capture>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Connections {
    /// Connections in the current schema.
    pub fn new(connections: Vec<Connection>) -> Self {
        Connections { schema: SCHEMA.to_owned(), connections, unlisted: 0, captures: Vec::new() }
    }
}

/// One TCP connection from its first packet to its last.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Connection {
    /// Number of the connection within its source, from 1.
    pub number: u32,
    /// The active opener, known or inferred.
    pub client: SocketAddr,
    /// The passive opener.
    pub server: SocketAddr,
    /// First packet, in seconds since 1970.
    pub start_s: f64,
    /// From the first packet to the last.
    #[serde(rename = "duration_s", with = "s")]
    #[schemars(with = "f64")]
    pub duration: Span,
    /// Handshake.
    #[serde(default)]
    pub opening: Opening,
    /// How it ended.
    #[serde(default)]
    pub closing: Closing,
    /// Where it was observed.
    #[serde(default)]
    pub vantage: Vantage,
    /// Data sent by the client.
    #[serde(default)]
    pub to_server: Direction,
    /// Data sent by the server.
    #[serde(default)]
    pub to_client: Direction,
    /// Caveats about the figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What the socket of one endpoint reported, if available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<Box<Socket>>,
    /// What the log of one endpoint reported, if the connection was read from one. Its addresses are
    /// `[::]:0` where the log does not have them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<Box<Log>>,
}

impl Connection {
    /// The direction with more bytes.
    pub fn bulk(&self) -> (&Direction, Heading) {
        if self.to_server.bytes > self.to_client.bytes {
            (&self.to_server, Heading::ToServer)
        } else {
            (&self.to_client, Heading::ToClient)
        }
    }

    /// The direction with more bytes, mutable.
    pub fn bulk_mut(&mut self) -> &mut Direction {
        match self.bulk().1 {
            Heading::ToServer => &mut self.to_server,
            Heading::ToClient => &mut self.to_client,
        }
    }

    /// One of the two directions.
    pub fn direction(&self, heading: Heading) -> &Direction {
        match heading {
            Heading::ToServer => &self.to_server,
            Heading::ToClient => &self.to_client,
        }
    }
}

/// Direction of data within a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Heading {
    /// From the client.
    ToServer,
    /// From the server.
    ToClient,
}

/// How a connection was opened.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Opening {
    /// How much of the handshake was observed.
    pub handshake: Handshake,
    /// Retransmitted SYNs and SYN-ACKs.
    pub retransmitted: u32,
    /// Time from the first SYN to the first ACK of the client, retransmissions included.
    #[serde(rename = "connect_ms", with = "optional_ms", default)]
    #[schemars(with = "Option<f64>")]
    pub connect: Option<Span>,
    /// Time from SYN to SYN-ACK at the observation point: round trip to the server.
    #[serde(rename = "to_server_ms", with = "optional_ms", default)]
    #[schemars(with = "Option<f64>")]
    pub to_server: Option<Span>,
    /// Time from SYN-ACK to its ACK at the observation point: round trip to the client.
    #[serde(rename = "to_client_ms", with = "optional_ms", default)]
    #[schemars(with = "Option<f64>")]
    pub to_client: Option<Span>,
}

/// How much of the handshake was observed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Handshake {
    /// SYN and SYN-ACK.
    Seen,
    /// One of the two.
    Half,
    /// Neither: the connection was open before.
    #[default]
    NotSeen,
}

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Closing {
    /// Still open when the source ended.
    #[default]
    Open,
    /// Closed in one direction only.
    HalfClosed,
    /// Closed in both directions.
    Closed,
    /// Reset by the client.
    ResetByClient,
    /// Reset by the server.
    ResetByServer,
    /// Timed out: an endpoint gave up after receiving no more replies.
    TimedOut,
}

/// Where a connection was observed.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Vantage {
    /// The observation point.
    pub point: Point,
    /// Whether the point is a guess: one end acknowledged no data and no handshake. It answered only
    /// with data, so its response times may be those of its application.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_guess: bool,
    /// The evidence it was inferred from.
    pub evidence: Vec<String>,
}

/// Observation points.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Point {
    /// At the client.
    Client,
    /// At the server.
    Server,
    /// In the network between them.
    Between,
    /// Unknown.
    #[default]
    Unknown,
}

/// The observation point relative to one direction's data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// At the sender.
    Sender,
    /// At the receiver.
    Receiver,
    /// In the network between them.
    Between,
    /// Unknown.
    #[default]
    Unknown,
}

impl Point {
    /// This point relative to data of one direction.
    pub fn place(self, heading: Heading) -> Place {
        match (self, heading) {
            (Point::Client, Heading::ToServer) | (Point::Server, Heading::ToClient) => Place::Sender,
            (Point::Client, Heading::ToClient) | (Point::Server, Heading::ToServer) => Place::Receiver,
            (Point::Between, _) => Place::Between,
            (Point::Unknown, _) => Place::Unknown,
        }
    }
}

/// The data sent by one endpoint.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Direction {
    /// The observation point relative to this data.
    pub place: Place,
    /// Payload bytes observed, each counted once.
    pub bytes: u64,
    /// Payload bytes acknowledged but not observed: the capture missed their packets.
    pub bytes_missed: u64,
    /// Payload bytes, retransmissions included.
    pub bytes_sent: u64,
    /// Captured packets: offloads combine several segments into one.
    pub packets: u64,
    /// Captured packets with payload.
    pub data_packets: u64,
    /// Copies of packets that were captured twice. No other figure includes them.
    #[serde(skip_serializing_if = "is_zero")]
    pub duplicate_packets: u64,
    /// Packets that the capture wrote out of order, such as data behind its own acknowledgment.
    #[serde(skip_serializing_if = "is_zero")]
    pub misordered_packets: u64,
    /// Acknowledgments of this data beyond what was sent plus a window, or as far behind: they
    /// belong to another connection, and no other figure includes them.
    #[serde(skip_serializing_if = "is_zero")]
    pub unbelieved_acks: u64,
    /// Data segments on the wire, retransmissions included: offloaded packets divided by the
    /// segment size.
    pub segments: u64,
    /// Payload bytes of a full segment.
    pub segment_bytes: Option<u32>,
    /// Time from the first data to the last acknowledgment of data, to the last data if no
    /// acknowledgment was observed, or to the end of a zero window that the sender waited for.
    #[serde(rename = "active_s", with = "s")]
    #[schemars(with = "f64")]
    pub active: Span,
    /// `bytes` and `bytes_missed` over `active`.
    #[serde(rename = "goodput_bps", with = "optional_bps")]
    #[schemars(with = "Option<f64>")]
    pub goodput: Option<Rate>,
    /// TCP options in the sender's SYN.
    pub options: Options,
    /// Minimum round-trip time: RTprop of the BBR paper (§2).
    #[serde(rename = "rtprop_ms", with = "optional_ms")]
    #[schemars(with = "Option<f64>")]
    pub rtprop: Option<Span>,
    /// Highest sustained delivery rate of payload: BtlBw of the BBR paper (§2). `None` if the
    /// application was the limit throughout.
    #[serde(rename = "btlbw_bps", with = "optional_bps")]
    #[schemars(with = "Option<f64>")]
    pub btlbw: Option<Rate>,
    /// The same including IP and TCP headers, comparable with a link's nominal rate.
    #[serde(rename = "btlbw_on_the_wire_bps", with = "optional_bps")]
    #[schemars(with = "Option<f64>")]
    pub btlbw_on_the_wire: Option<Rate>,
    /// BtlBw · RTprop in payload bytes.
    pub bdp_bytes: Option<u64>,
    /// Round-trip times.
    pub rtt: RoundTrips,
    /// Maximum payload bytes in flight.
    pub inflight_max_bytes: Option<u64>,
    /// The receive window.
    pub window: Window,
    /// Lower bound of the congestion window in bytes: the maximum in flight while the receive
    /// window was not the limit.
    pub cwnd_at_least_bytes: Option<u64>,
    /// Burst sizes, if observed at the sender.
    pub pacing: Option<Pacing>,
    /// Retransmissions.
    pub retransmissions: Retransmissions,
    /// Segments that arrived out of order.
    pub reordering: Reordering,
    /// Segments lost on the path: retransmitted and not spurious, or missing at the observation
    /// point.
    pub lost_segments: u64,
    /// Idle times between the first and the last data.
    pub idle: Idle,
    /// Keep-alives, which are neither data nor retransmissions.
    pub keep_alives: u64,
    /// Small segments that waited for an acknowledgment, if there were several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub small_writes: Option<SmallWrites>,
    /// Explicit congestion notification.
    pub ecn: Ecn,
    /// What limited its rate.
    pub limits: Limits,
    /// The sender's congestion controller, if identified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<Sender>,
}

/// TCP options of an endpoint's SYN. `None` where no SYN was observed.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Options {
    /// Maximum segment size.
    pub mss: Option<u16>,
    /// Window scale (power of two).
    pub window_scale: Option<u8>,
    /// Whether selective acknowledgments are permitted.
    pub sack: Option<bool>,
    /// Whether timestamps are used.
    pub timestamps: Option<bool>,
}

/// A distribution of round-trip times.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RoundTrips {
    /// Samples: unambiguous acknowledgments (Karn) and echoed timestamps.
    pub samples: u64,
    /// Minimum.
    #[serde(rename = "min_ms", with = "optional_ms")]
    #[schemars(with = "Option<f64>")]
    pub min: Option<Span>,
    /// Median.
    #[serde(rename = "p50_ms", with = "optional_ms")]
    #[schemars(with = "Option<f64>")]
    pub p50: Option<Span>,
    /// 95th percentile.
    #[serde(rename = "p95_ms", with = "optional_ms")]
    #[schemars(with = "Option<f64>")]
    pub p95: Option<Span>,
    /// Maximum.
    #[serde(rename = "max_ms", with = "optional_ms")]
    #[schemars(with = "Option<f64>")]
    pub max: Option<Span>,
}

/// The window that the receiver advertised, in bytes.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Window {
    /// Minimum after the handshake.
    pub min_bytes: Option<u64>,
    /// Maximum.
    pub max_bytes: Option<u64>,
    /// Number of zero-window periods.
    pub zero: u64,
    /// Their total time, as the sender saw it. A period that the sender still probes at the end of
    /// the capture lasts until then.
    #[serde(rename = "zero_total_s", with = "s")]
    #[schemars(with = "f64")]
    pub zero_total: Span,
    /// The longest of them.
    #[serde(rename = "zero_longest_s", with = "s")]
    #[schemars(with = "f64")]
    pub zero_longest: Span,
    /// Probes of a closed window by the sender, which are neither data nor retransmissions.
    pub probes: u64,
    /// Whether the window scale is unknown. The figures are then lower bounds, computed with the
    /// smallest scale that permits the bytes in flight.
    pub scale_unknown: bool,
}

/// Burst sizes at the sender.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Pacing {
    /// Bytes sent without a pause: median.
    pub burst_p50_bytes: u64,
    /// 95th percentile.
    pub burst_p95_bytes: u64,
    /// Maximum.
    pub burst_max_bytes: u64,
    /// Share of bursts not triggered by an acknowledgment, 0 to 1: high for a paced sender, low for
    /// an ACK-clocked one.
    pub unprompted: f64,
}

/// Retransmissions, in segments on the wire.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Retransmissions {
    /// Total.
    pub segments: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// After later data was acknowledged (fast retransmit, RACK).
    pub fast: u64,
    /// Tail loss probes: of the last data, before a timeout.
    pub tail_loss: u64,
    /// After a retransmission timeout.
    pub timeout: u64,
    /// Spurious: the data had arrived, as shown by DSACK or by an ACK of the original transmission
    /// (Eifel).
    pub spurious: u64,
    /// Of `segments`, those inferred from holes filled later; the original was not observed.
    pub inferred: u64,
}

/// Segments received out of order.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Reordering {
    /// Number of segments.
    pub segments: u64,
    /// Maximum reordering distance in bytes of later data.
    pub extent_bytes: u64,
    /// Maximum reordering delay.
    #[serde(rename = "extent_ms", with = "ms")]
    #[schemars(with = "f64")]
    pub extent: Span,
}

/// Idle periods.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Idle {
    /// Number of periods longer than a round trip.
    pub times: u64,
    /// Total time.
    #[serde(rename = "total_s", with = "s")]
    #[schemars(with = "f64")]
    pub total: Span,
    /// Longest period.
    #[serde(rename = "longest_s", with = "s")]
    #[schemars(with = "f64")]
    pub longest: Span,
}

/// Small segments that Nagle's algorithm held back: sent at once when an acknowledgment of the small
/// segment before arrived.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SmallWrites {
    /// Number of segments.
    pub held: u64,
    /// Of these, those that waited for a delayed acknowledgment.
    pub delayed_acks: u64,
    /// Total time that they waited.
    #[serde(rename = "waited_s", with = "s")]
    #[schemars(with = "f64")]
    pub waited: Span,
}

/// Explicit congestion notification.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Ecn {
    /// Whether the handshake negotiated it; `None` if not observed.
    pub agreed: Option<bool>,
    /// ECN-capable data packets (ECT).
    pub capable_packets: u64,
    /// Data packets marked Congestion Experienced.
    pub marked_packets: u64,
    /// Acknowledgments with ECE.
    pub echoes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection() -> Connection {
        let direction = Direction {
            rtprop: Some(Span::from_nanos(40_116_001)),
            btlbw: Some(Rate::from_bytes_per_sec(2_413_333)),
            limits: Limits {
                shares: vec![LimitShare { by: Limitation::ReceiveWindow, share: 1.0 }],
                intervals: vec![Interval {
                    from: Span::ZERO,
                    to: Span::from_millis(1500),
                    by: Limitation::ReceiveWindow,
                }],
                words: Vec::new(),
            },
            sender: Some(Sender::default()),
            ..Direction::default()
        };
        Connection {
            number: 1,
            client: "[2001:db8::1]:40000".parse().unwrap(),
            server: "192.0.2.7:443".parse().unwrap(),
            start_s: 1_700_000_000.25,
            duration: Span::from_millis(1500),
            opening: Opening { to_server: Some(Span::from_micros(40_116)), ..Opening::default() },
            closing: Closing::ResetByServer,
            vantage: Vantage::default(),
            to_server: direction,
            to_client: Direction { bytes: 7, ..Direction::default() },
            notes: Vec::new(),
            socket: None,
            log: None,
        }
    }

    #[test]
    fn record_survives_json_to_the_nanosecond() {
        let all = Connections::new(vec![connection()]);
        let text = serde_json::to_string(&all).unwrap();
        for part in [
            "\"schema\":\"fullpipe/connection/1\"",
            "\"rtprop_ms\":40.116001",
            "\"btlbw_bps\":19306664",
            "\"by\":\"receive_window\"",
            "\"closing\":\"reset_by_server\"",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let back: Connections = serde_json::from_str(&text).unwrap();
        assert_eq!(back, all);
    }

    #[test]
    fn schema_describes_every_field_of_a_direction() {
        let schema = schemars::schema_for!(Connections).to_value();
        let described = schema["$defs"]["Direction"]["properties"].as_object().unwrap();
        let written = serde_json::to_value(connection()).unwrap();
        for (field, _) in written["to_server"].as_object().unwrap() {
            assert!(described.contains_key(field), "{field} is not in the schema");
        }
    }

    /// Writers may omit figures they do not have.
    #[test]
    fn sparse_record_is_read() {
        let sparse = r#"{"number":1,"client":"192.0.2.1:40000","server":"192.0.2.7:443",
            "start_s":1.0,"duration_s":0.5,
            "closing":"timed_out","to_server":{"bytes":7,"rtt":{"min_ms":2.5}},
            "socket":{"sends":"to_server","controller":"bbr","owner":{"pid":4},"busy_s":0.25}}"#;
        let read: Connection = serde_json::from_str(sparse).unwrap();
        assert_eq!(
            (read.closing, read.to_server.bytes, &read.to_client),
            (Closing::TimedOut, 7, &Direction::default())
        );
        assert_eq!(read.to_server.rtt.min, Some(Span::from_micros(2500)));
        let socket = read.socket.as_deref().unwrap();
        assert_eq!(
            (socket.sends, socket.owner.pid, socket.busy),
            (Heading::ToServer, Some(4), Span::from_millis(250))
        );
        let again: Connection = serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap();
        assert_eq!(again, read);
    }

    #[test]
    fn place_follows_from_point_and_heading() {
        assert_eq!(Point::Client.place(Heading::ToServer), Place::Sender);
        assert_eq!(Point::Client.place(Heading::ToClient), Place::Receiver);
        assert_eq!(connection().bulk().1, Heading::ToClient);
    }
}
