//! What fullpipe writes to a program: one line of JSON per event.

use fullpipe_cc::{
    Ack, Config, Lost, RateSample, Recovery, RecoveryContext, RecoveryState, Sent, Span, Time,
};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// The largest integer in a message: every JSON implementation has it exactly.
pub const MAX_INTEGER: u64 = (1 << 53) - 1;

/// A line to the program. Times are nanoseconds of virtual time since the start of the run, sizes
/// bytes as the window counts them (TCP payload). Booleans that are false and values that are not
/// known are omitted. Readers must ignore fields that they do not know.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Message {
    /// The first line. Answered.
    Init {
        /// Form and version of the protocol: `fullpipe/controller/1`.
        schema: &'static str,
        /// Index of the connection in the run, from 0.
        flow: usize,
        /// Largest packet.
        packet_bytes: u32,
        /// Initial window.
        initial_window: u64,
        /// Seed for random numbers, different for each connection.
        seed: u64,
        /// The transport paces controllers without a pacing rate by their window.
        #[serde(skip_serializing_if = "is_false")]
        paced: bool,
        /// Settings by key, as the user wrote them.
        settings: BTreeMap<String, String>,
    },
    /// The handshake measured a first round-trip time. Answered.
    Handshake {
        /// When.
        now: u64,
        /// The round-trip time.
        rtt: u64,
    },
    /// A packet is about to leave. Not answered.
    Sent {
        /// When.
        now: u64,
        /// Its size.
        bytes: u64,
        /// In flight before it.
        inflight: u64,
        /// Delivered on the connection so far.
        delivered: u64,
        /// The application limited sending: with nothing in flight, the connection restarts.
        #[serde(skip_serializing_if = "is_false")]
        app_limited: bool,
        /// It is a retransmission.
        #[serde(skip_serializing_if = "is_false")]
        retransmission: bool,
    },
    /// A packet is marked lost. Not answered. On an ACK it precedes `recovery` and `acked`.
    Lost {
        /// When.
        now: u64,
        /// Its size.
        bytes: u64,
        /// In flight when it was sent, itself included.
        tx_in_flight: u64,
        /// Delivered on the connection when it was sent.
        delivered_at_send: u64,
        /// Lost on the connection when it was sent.
        lost_at_send: u64,
        /// Delivered on the connection so far, including the ACK that revealed the loss.
        delivered: u64,
        /// Lost on the connection so far, this packet included.
        lost: u64,
        /// The connection was application-limited when it was sent.
        #[serde(skip_serializing_if = "is_false")]
        app_limited: bool,
    },
    /// An ACK is processed. Answered.
    Acked {
        /// When it arrived.
        now: u64,
        /// Newly acknowledged, cumulatively or selectively.
        bytes: u64,
        /// Newly marked lost.
        lost_bytes: u64,
        /// Contiguous ranges newly marked lost.
        lost_ranges: u32,
        /// Round-trip time of the newest acknowledged packet.
        #[serde(skip_serializing_if = "Option::is_none")]
        rtt: Option<u64>,
        /// Smoothed round-trip time (RFC 6298).
        #[serde(skip_serializing_if = "Option::is_none")]
        srtt: Option<u64>,
        /// In flight before the ACK.
        inflight_before: u64,
        /// In flight after it.
        inflight: u64,
        /// Delivered on the connection so far.
        delivered: u64,
        /// Marked lost on the connection so far.
        lost: u64,
        /// The window limited sending in the last round trip.
        #[serde(skip_serializing_if = "is_false")]
        cwnd_limited: bool,
        /// Packets newly reported as marked Congestion Experienced.
        ce_packets: u32,
        /// The receiver may have delayed this ACK.
        #[serde(skip_serializing_if = "is_false")]
        delayed: bool,
        /// Loss-recovery state after it.
        recovery: State,
        /// When the pacer releases the next packet, if later than `now`.
        #[serde(skip_serializing_if = "Option::is_none")]
        next_departure: Option<u64>,
        /// The delivery-rate sample, if a packet was newly acknowledged.
        #[serde(skip_serializing_if = "Option::is_none")]
        sample: Option<Sample>,
    },
    /// The loss-recovery state changes. Answered.
    Recovery {
        /// When.
        now: u64,
        /// The change.
        change: Change,
        /// In flight: for `enter` including the lost packets, for `timeout` after everything
        /// outstanding is presumed lost.
        inflight: u64,
        /// Delivered on the connection so far.
        delivered: u64,
        /// Marked lost on the connection so far.
        lost: u64,
    },
    /// The size of the largest packet changed. Answered.
    Mtu {
        /// When.
        now: u64,
        /// The new size.
        packet_bytes: u32,
    },
    /// A question between two events: after losses that a timer found, and when an idle connection
    /// restarts. Answered.
    Ask {
        /// When.
        now: u64,
    },
}

/// A delivery-rate sample (draft-ietf-ccwg-bbr, "Delivery Rate Samples").
#[derive(Debug, Serialize, JsonSchema)]
pub struct Sample {
    /// Delivery rate in bytes per second, if the sample is valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// Delivered over `interval`.
    pub delivered: u64,
    /// The longer of the send and the ACK phase.
    pub interval: u64,
    /// Delivered on the connection when the sample's newest packet was sent.
    pub prior_delivered: u64,
    /// When that count had last increased.
    pub prior_delivered_at: u64,
    /// In flight when that packet was sent, itself included.
    pub tx_in_flight: u64,
    /// Marked lost between that packet's sending and now.
    pub lost: u64,
    /// That packet was sent while the application had nothing more to send.
    #[serde(skip_serializing_if = "is_false")]
    pub app_limited: bool,
}

/// Loss-recovery states.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// No loss outstanding.
    Open,
    /// Selective ACKs leave a hole of which nothing is marked lost.
    Disorder,
    /// Fast recovery.
    Recovery,
    /// After a retransmission timeout.
    Loss,
}

/// Changes of the loss-recovery state.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Fast recovery begins.
    Enter,
    /// The retransmission timer fired.
    Timeout,
    /// Everything outstanding when recovery began is acknowledged.
    Exit,
    /// The losses were spurious: undo their effects.
    Spurious,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

fn int(value: u64) -> u64 {
    value.min(MAX_INTEGER)
}

fn ns(time: Time) -> u64 {
    int(time.as_nanos())
}

fn span(span: Span) -> u64 {
    int(span.as_nanos())
}

impl Message {
    pub(super) fn init(flow: usize, config: &Config, settings: &[(&str, &str)]) -> Self {
        Message::Init {
            schema: super::SCHEMA,
            flow,
            packet_bytes: config.smss,
            initial_window: int(config.initial_cwnd),
            seed: seed(config.seed),
            paced: config.paced,
            settings: settings.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect(),
        }
    }

    pub(super) fn handshake(now: Time, rtt: Span) -> Self {
        Message::Handshake { now: ns(now), rtt: span(rtt) }
    }

    pub(super) fn sent(sent: &Sent) -> Self {
        Message::Sent {
            now: ns(sent.now),
            bytes: int(sent.bytes),
            inflight: int(sent.inflight),
            delivered: int(sent.delivered),
            app_limited: sent.app_limited,
            retransmission: sent.retransmit,
        }
    }

    pub(super) fn lost(lost: &Lost) -> Self {
        Message::Lost {
            now: ns(lost.now),
            bytes: int(lost.bytes),
            tx_in_flight: int(lost.tx_in_flight),
            delivered_at_send: int(lost.delivered_at_send),
            lost_at_send: int(lost.lost_at_send),
            delivered: int(lost.delivered),
            lost: int(lost.lost),
            app_limited: lost.app_limited,
        }
    }

    pub(super) fn acked(ack: &Ack) -> Self {
        Message::Acked {
            now: ns(ack.now),
            bytes: int(ack.newly_acked),
            lost_bytes: int(ack.newly_lost),
            lost_ranges: ack.lost_ranges,
            rtt: ack.rtt.map(span),
            srtt: ack.srtt.map(span),
            inflight_before: int(ack.inflight_before),
            inflight: int(ack.inflight),
            delivered: int(ack.delivered),
            lost: int(ack.lost),
            cwnd_limited: ack.cwnd_limited,
            ce_packets: ack.ce_count,
            delayed: ack.delayed,
            recovery: match ack.recovery {
                RecoveryState::Open => State::Open,
                RecoveryState::Disorder => State::Disorder,
                RecoveryState::Recovery => State::Recovery,
                RecoveryState::Loss => State::Loss,
            },
            next_departure: (ack.next_departure > ack.now).then(|| ns(ack.next_departure)),
            sample: ack.sample.has_packet.then(|| Sample::new(&ack.sample)),
        }
    }

    /// `None` for a change that this version of the protocol does not have.
    pub(super) fn recovery(event: Recovery, context: &RecoveryContext) -> Option<Self> {
        let change = match event {
            Recovery::EnterFast => Change::Enter,
            Recovery::EnterRto => Change::Timeout,
            Recovery::Exit => Change::Exit,
            Recovery::Spurious => Change::Spurious,
            _ => return None,
        };
        Some(Message::Recovery {
            now: ns(context.now),
            change,
            inflight: int(context.inflight),
            delivered: int(context.delivered),
            lost: int(context.lost),
        })
    }

    pub(super) fn mtu(now: Time, packet_bytes: u32) -> Self {
        Message::Mtu { now: ns(now), packet_bytes }
    }

    pub(super) fn ask(now: Time) -> Self {
        Message::Ask { now: ns(now) }
    }
}

impl Sample {
    fn new(sample: &RateSample) -> Self {
        Sample {
            rate: sample.rate.map(|rate| int(rate.as_bytes_per_sec())),
            delivered: int(sample.delivered),
            interval: span(sample.interval),
            prior_delivered: int(sample.prior_delivered),
            prior_delivered_at: ns(sample.prior_delivered_at),
            tx_in_flight: int(sample.tx_in_flight),
            lost: int(sample.lost),
            app_limited: sample.app_limited,
        }
    }
}

/// The seed of a program: the upper 53 bits of the connection's.
pub fn seed(seed: u64) -> u64 {
    seed >> 11
}
