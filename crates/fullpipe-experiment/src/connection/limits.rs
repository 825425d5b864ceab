//! What limited one direction of a connection, and when.

use super::serde_units::s;
use fullpipe_units::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What can limit data in one direction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Limitation {
    /// The sending application had nothing to send.
    Application,
    /// The receiver's advertised window was full.
    ReceiveWindow,
    /// The sender held a constant amount in flight, below what receiver and path would have taken: its own buffer, or
    /// a window that its owner fixed.
    SendBuffer,
    /// The congestion window, below what the path would have carried.
    CongestionWindow,
    /// The path's bandwidth: it was full.
    Bandwidth,
    /// A token bucket that drops what is above its rate.
    Policer,
}

impl Limitation {
    /// All, in the order in which they are written.
    pub const ALL: [Limitation; 6] = [
        Limitation::Application,
        Limitation::ReceiveWindow,
        Limitation::SendBuffer,
        Limitation::CongestionWindow,
        Limitation::Bandwidth,
        Limitation::Policer,
    ];

    /// As written in tables and plots.
    pub fn name(self) -> &'static str {
        match self {
            Limitation::Application => "application",
            Limitation::ReceiveWindow => "receive window",
            Limitation::SendBuffer => "send buffer",
            Limitation::CongestionWindow => "congestion window",
            Limitation::Bandwidth => "bandwidth",
            Limitation::Policer => "policer",
        }
    }
}

/// What limited one direction.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Limits {
    /// Shares of the time from the first data to the last, the greatest first; they add up to 1. Empty where too
    /// little was sent to tell.
    pub shares: Vec<LimitShare>,
    /// When each held, in order and without gaps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Interval>,
    /// The same in words that need no knowledge of TCP.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<String>,
}

impl Limits {
    /// The share of `by`, 0 to 1.
    pub fn share(&self, by: Limitation) -> f64 {
        self.shares.iter().find(|s| s.by == by).map_or(0.0, |s| s.share)
    }

    /// What limited most of the time.
    pub fn dominant(&self) -> Option<LimitShare> {
        self.shares.first().copied()
    }
}

/// A share of the time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LimitShare {
    /// Of what.
    pub by: Limitation,
    /// 0 to 1.
    pub share: f64,
}

/// A stretch of time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// Its beginning, from the connection's first packet.
    #[serde(rename = "from_s", with = "s")]
    #[schemars(with = "f64")]
    pub from: Span,
    /// Its end.
    #[serde(rename = "to_s", with = "s")]
    #[schemars(with = "f64")]
    pub to: Span,
    /// What limited.
    pub by: Limitation,
}
