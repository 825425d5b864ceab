//! The record of one TCP connection, in one form whoever saw it: a capture, a live socket, a test.
//!
//! What a source cannot know is `None`: a socket sees no captured packets, a capture no congestion window.

mod anonymised;
mod limits;
mod sender;
mod sequence;
mod serde_units;
mod socket;

pub use anonymised::{ANONYMISED_PREFIX, is_anonymised};
pub use limits::{Interval, LimitShare, Limitation, Limits};
pub use sender::{Likelihood, Sender};
pub use sequence::{Mark, MarkKind, Sequence};
pub use socket::{Owner, Socket};

use fullpipe_units::{Rate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_units::{ms, optional_bps, optional_ms, s};
use std::net::SocketAddr;

/// Names the form of [`Connections`] and [`Connection`]; changes when a reader would have to.
pub const SCHEMA: &str = "fullpipe/connection/1";

/// Connections together, with what may be said of where they were seen.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Connections {
    /// [`SCHEMA`].
    pub schema: String,
    /// The connections, in the order in which they were first seen.
    pub connections: Vec<Connection>,
}

impl Connections {
    /// These connections in the current form.
    pub fn new(connections: Vec<Connection>) -> Self {
        Connections { schema: SCHEMA.to_owned(), connections }
    }
}

/// One TCP connection from its first packet to its last.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Connection {
    /// Counts the connections of one source from 1.
    pub number: u32,
    /// The end that opened the connection, or is believed to have.
    pub client: SocketAddr,
    /// The end that was asked.
    pub server: SocketAddr,
    /// First packet, in seconds since 1970.
    pub start_s: f64,
    /// From the first packet to the last.
    #[serde(rename = "duration_s", with = "s")]
    #[schemars(with = "f64")]
    pub duration: Span,
    /// How it began.
    #[serde(default)]
    pub opening: Opening,
    /// How it ended.
    #[serde(default)]
    pub closing: Closing,
    /// Where it was seen.
    #[serde(default)]
    pub vantage: Vantage,
    /// What the client sent.
    #[serde(default)]
    pub to_server: Direction,
    /// What the server sent.
    #[serde(default)]
    pub to_client: Direction,
    /// What else a reader should know before believing the figures, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What the socket of one end knew besides, where it was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<Box<Socket>>,
}

impl Connection {
    /// The direction in which more bytes went.
    pub fn bulk(&self) -> (&Direction, Heading) {
        if self.to_server.bytes > self.to_client.bytes {
            (&self.to_server, Heading::ToServer)
        } else {
            (&self.to_client, Heading::ToClient)
        }
    }

    /// The direction in which more bytes went, to be added to.
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

/// Which way data went.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Heading {
    /// From the client.
    ToServer,
    /// From the server.
    ToClient,
}

/// How a connection began.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Opening {
    /// What was seen of the handshake.
    pub handshake: Handshake,
    /// SYNs and SYN-ACKs that were sent again.
    pub retransmitted: u32,
    /// From the SYN, at the place of capture, to the SYN-ACK: the round trip between here and the server.
    #[serde(rename = "to_server_ms", with = "optional_ms", default)]
    #[schemars(with = "Option<f64>")]
    pub to_server: Option<Span>,
    /// From the SYN-ACK, at the place of capture, to its ACK: the round trip between here and the client.
    #[serde(rename = "to_client_ms", with = "optional_ms", default)]
    #[schemars(with = "Option<f64>")]
    pub to_client: Option<Span>,
}

/// How much of the handshake was seen.
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
    /// It had not ended when the source did.
    #[default]
    Open,
    /// One end closed, the other did not.
    HalfClosed,
    /// Both ends closed.
    Closed,
    /// The client reset it.
    ResetByClient,
    /// The server reset it.
    ResetByServer,
    /// An end gave it up: nothing that it sent was answered any more.
    TimedOut,
}

/// Where a connection was seen.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Vantage {
    /// The place.
    pub point: Point,
    /// What it was concluded from, in words.
    pub evidence: Vec<String>,
}

/// Places to see a connection from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Point {
    /// At the end that opened it.
    Client,
    /// At the end that was asked.
    Server,
    /// On the way.
    Between,
    /// It cannot be told.
    #[default]
    Unknown,
}

/// The same as seen from one direction's data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Where the data is sent.
    Sender,
    /// Where it arrives.
    Receiver,
    /// On the way.
    Between,
    /// It cannot be told.
    #[default]
    Unknown,
}

impl Point {
    /// The place of this point for data of one direction.
    pub fn place(self, heading: Heading) -> Place {
        match (self, heading) {
            (Point::Client, Heading::ToServer) | (Point::Server, Heading::ToClient) => Place::Sender,
            (Point::Client, Heading::ToClient) | (Point::Server, Heading::ToServer) => Place::Receiver,
            (Point::Between, _) => Place::Between,
            (Point::Unknown, _) => Place::Unknown,
        }
    }
}

/// The data that one end sent.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Direction {
    /// Where the source stands for this data.
    pub place: Place,
    /// Payload bytes that were seen, each counted once however often it was sent.
    pub bytes: u64,
    /// Payload bytes that were acknowledged and not seen: the source missed their packets.
    pub bytes_missed: u64,
    /// Payload bytes, retransmissions included.
    pub bytes_sent: u64,
    /// Packets as captured: segmentation and receive offload make one of many.
    pub packets: u64,
    /// Packets with payload as captured.
    pub data_packets: u64,
    /// Data segments as they would be on the wire, retransmissions included: super-packets divided by the segment size.
    pub segments: u64,
    /// Payload bytes of a full segment.
    pub segment_bytes: Option<u32>,
    /// From the first data to the last acknowledgment of data, or to the last data if none was seen.
    #[serde(rename = "active_s", with = "s")]
    #[schemars(with = "f64")]
    pub active: Span,
    /// `bytes` and `bytes_missed` over `active`.
    #[serde(rename = "goodput_bps", with = "optional_bps")]
    #[schemars(with = "Option<f64>")]
    pub goodput: Option<Rate>,
    /// What the sender said in its SYN.
    pub options: Options,
    /// Least round-trip time: the BBR paper's RTprop (§2).
    #[serde(rename = "rtprop_ms", with = "optional_ms")]
    #[schemars(with = "Option<f64>")]
    pub rtprop: Option<Span>,
    /// Greatest delivery rate that lasted, in payload: the BBR paper's BtlBw (§2). None where nothing but the
    /// application's pauses was seen.
    #[serde(rename = "btlbw_bps", with = "optional_bps")]
    #[schemars(with = "Option<f64>")]
    pub btlbw: Option<Rate>,
    /// The same with the headers of IP and TCP: what a link of that rate is sold as.
    #[serde(rename = "btlbw_on_the_wire_bps", with = "optional_bps")]
    #[schemars(with = "Option<f64>")]
    pub btlbw_on_the_wire: Option<Rate>,
    /// BtlBw · RTprop in payload bytes.
    pub bdp_bytes: Option<u64>,
    /// Round-trip times.
    pub rtt: RoundTrips,
    /// Most payload bytes in flight.
    pub inflight_max_bytes: Option<u64>,
    /// What the receiver allowed.
    pub window: Window,
    /// The congestion window was at least this, in bytes: so much was in flight while the receiver would have taken
    /// more.
    pub cwnd_at_least_bytes: Option<u64>,
    /// How data left, where it was seen leaving.
    pub pacing: Option<Pacing>,
    /// What was sent again.
    pub retransmissions: Retransmissions,
    /// Segments that arrived out of order.
    pub reordering: Reordering,
    /// Segments that the path lost: retransmitted and not spurious, or missing where they should have passed.
    pub lost_segments: u64,
    /// Times without data in flight between the first data and the last.
    pub idle: Idle,
    /// Explicit congestion notification.
    pub ecn: Ecn,
    /// What limited it.
    pub limits: Limits,
    /// Which congestion controller sent it, where that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<Sender>,
}

/// What an end offered when the connection was opened. `None` where no SYN was seen.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Options {
    /// Maximum segment size that it takes.
    pub mss: Option<u16>,
    /// Power of two of its windows' unit.
    pub window_scale: Option<u8>,
    /// Whether it takes selective acknowledgments.
    pub sack: Option<bool>,
    /// Whether it uses timestamps.
    pub timestamps: Option<bool>,
}

/// A distribution of round-trip times.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RoundTrips {
    /// Samples: unambiguous acknowledgments (Karn) and echoed timestamps.
    pub samples: u64,
    /// Least.
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
    /// Most.
    #[serde(rename = "max_ms", with = "optional_ms")]
    #[schemars(with = "Option<f64>")]
    pub max: Option<Span>,
}

/// The window that the receiver advertised, in bytes.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Window {
    /// Least after the handshake.
    pub min_bytes: Option<u64>,
    /// Most.
    pub max_bytes: Option<u64>,
    /// How often it was closed altogether.
    pub zero: u64,
    /// Whether the scale is not known, so that the figures are lower bounds: they are given at the least scale that
    /// allows what was in flight.
    pub scale_unknown: bool,
}

/// How data left its sender.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Pacing {
    /// Bytes that left without a pause between them: median.
    pub burst_p50_bytes: u64,
    /// 95th percentile.
    pub burst_p95_bytes: u64,
    /// Most.
    pub burst_max_bytes: u64,
    /// Share of the bursts that left while no acknowledgment had just come, 0 to 1: high for a paced sender, low for
    /// one that its ACKs clock.
    pub unprompted: f64,
}

/// What was sent again, in segments as on the wire.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Retransmissions {
    /// All.
    pub segments: u64,
    /// Payload bytes of them.
    pub bytes: u64,
    /// After later data was acknowledged (fast retransmit, RACK).
    pub fast: u64,
    /// Of the last data, earlier than a time-out: tail loss probes.
    pub tail_loss: u64,
    /// After a retransmission time-out.
    pub timeout: u64,
    /// Of data that had arrived: said so by DSACK, or by an ACK that answers the first sending (Eifel).
    pub spurious: u64,
    /// Of `segments`, how many were concluded from holes that were filled later and not seen as a second sending.
    pub inferred: u64,
}

/// Segments that were overtaken.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Reordering {
    /// How many.
    pub segments: u64,
    /// By how many bytes of later data at most.
    pub extent_bytes: u64,
    /// By how much time at most.
    #[serde(rename = "extent_ms", with = "ms")]
    #[schemars(with = "f64")]
    pub extent: Span,
}

/// Pauses.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Idle {
    /// How many that were longer than a round trip.
    pub times: u64,
    /// Together.
    #[serde(rename = "total_s", with = "s")]
    #[schemars(with = "f64")]
    pub total: Span,
    /// Longest.
    #[serde(rename = "longest_s", with = "s")]
    #[schemars(with = "f64")]
    pub longest: Span,
}

/// Explicit congestion notification.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Ecn {
    /// Whether the handshake agreed on it; none if it was not seen.
    pub agreed: Option<bool>,
    /// Data packets that allowed to be marked.
    pub capable_packets: u64,
    /// Data packets that arrived marked.
    pub marked_packets: u64,
    /// Acknowledgments that echoed a mark.
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
        }
    }

    #[test]
    fn a_record_survives_json_to_the_nanosecond_and_names_its_units() {
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
    fn the_schema_names_every_field_of_a_direction() {
        let schema = schemars::schema_for!(Connections).to_value();
        let described = schema["$defs"]["Direction"]["properties"].as_object().unwrap();
        let written = serde_json::to_value(connection()).unwrap();
        for (field, _) in written["to_server"].as_object().unwrap() {
            assert!(described.contains_key(field), "{field} is not in the schema");
        }
    }

    /// Whoever writes few of the figures leaves the others out.
    #[test]
    fn a_record_with_only_what_is_known_is_read() {
        let sparse = r#"{"number":1,"client":"192.0.2.1:40000","server":"192.0.2.7:443","start_s":1.0,"duration_s":0.5,
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
    fn the_place_follows_from_the_point_and_the_heading() {
        assert_eq!(Point::Client.place(Heading::ToServer), Place::Sender);
        assert_eq!(Point::Client.place(Heading::ToClient), Place::Receiver);
        assert_eq!(connection().bulk().1, Heading::ToClient);
    }
}
