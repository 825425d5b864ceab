//! What limited one direction of a connection, and when.

use super::serde_units::s;
use fullpipe_units::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What can limit the rate of one direction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Limitation {
    /// The sending application had nothing to send.
    Application,
    /// The receiver's advertised window was full.
    ReceiveWindow,
    /// A constant amount in flight, below the receive window and the path's capacity: the sender's
    /// buffer or a fixed window.
    SendBuffer,
    /// The congestion window, below the path's capacity.
    CongestionWindow,
    /// The path's bandwidth.
    Bandwidth,
    /// A token bucket that drops what is above its rate.
    Policer,
    /// The sender's pacing rate, below what its congestion window and the path allow. Only logs of
    /// an endpoint show it.
    Pacing,
}

impl Limitation {
    /// All, in the order of output.
    pub const ALL: [Limitation; 7] = [
        Limitation::Application,
        Limitation::ReceiveWindow,
        Limitation::SendBuffer,
        Limitation::CongestionWindow,
        Limitation::Bandwidth,
        Limitation::Policer,
        Limitation::Pacing,
    ];

    /// Its name in tables and plots.
    pub fn name(self) -> &'static str {
        match self {
            Limitation::Application => "application",
            Limitation::ReceiveWindow => "receive window",
            Limitation::SendBuffer => "send buffer",
            Limitation::CongestionWindow => "congestion window",
            Limitation::Bandwidth => "bandwidth",
            Limitation::Policer => "policer",
            Limitation::Pacing => "pacing",
        }
    }
}

/// What limited one direction.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Limits {
    /// Shares of the time from the first data to the last, in descending order; they sum to 1,
    /// or to less if the capture or log does not show what the limit was. Empty if it never does, or
    /// too little was sent.
    pub shares: Vec<LimitShare>,
    /// Intervals of each limitation, in order. Between them it is unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Interval>,
    /// A plain-language explanation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<String>,
}

impl Limits {
    /// The share of `by`, 0 to 1.
    pub fn share(&self, by: Limitation) -> f64 {
        self.shares.iter().find(|s| s.by == by).map_or(0.0, |s| s.share)
    }

    /// The limitation with the largest share.
    pub fn dominant(&self) -> Option<LimitShare> {
        self.shares.first().copied()
    }
}

/// Share of time of one limitation.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LimitShare {
    /// The limitation.
    pub by: Limitation,
    /// 0 to 1.
    pub share: f64,
}

/// A time interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// Start, from the connection's first packet.
    #[serde(rename = "from_s", with = "s")]
    #[schemars(with = "f64")]
    pub from: Span,
    /// End.
    #[serde(rename = "to_s", with = "s")]
    #[schemars(with = "f64")]
    pub to: Span,
    /// The limitation.
    pub by: Limitation,
}
