//! Interleaved comparison of controllers on one path.

use super::BbrChoice;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Results of repeated, interleaved measurements of one path. The runs are stored separately, each
/// with its round as a varied key ([`Variation::ROUND`](super::Variation::ROUND)).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// The controller the others are compared with.
    pub baseline: String,
    /// Measurements per controller.
    pub rounds: usize,
    /// Seed of the bootstrap for the intervals.
    pub seed: u64,
    /// How medians, differences, ratios and intervals were computed.
    pub estimator: String,
    /// How the time was spent.
    pub time: TimeBreakdown,
    /// The lowest RTT of the idle path in milliseconds, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_rtt_ms: Option<f64>,
    /// The controllers, in the order requested.
    pub controllers: Vec<ControllerRounds>,
    /// One verdict per controller other than the baseline.
    pub verdicts: Vec<Verdict>,
    /// Why there are no tests beside a CUBIC flow, if they failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_shares_because: Option<String>,
    /// The version of BBR that is recommended, if BBR v1 and v3 were compared with a conclusive result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bbr_choice: Option<BbrChoice>,
}

/// How the time of a comparison was spent, in seconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TimeBreakdown {
    /// Transfer time included in the results.
    pub measured_s: f64,
    /// Transfer time at the start of tests, excluded because it measures start-up.
    pub left_out_s: f64,
    /// Connection set-up, probing of the idle path and exchange of results.
    pub between_s: f64,
}

/// The rounds of one controller.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ControllerRounds {
    /// The controller.
    pub controller: String,
    /// Its version of BBR; none for other controllers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bbr_version: Option<u8>,
    /// Goodput in bit/s, per round.
    pub goodput_bps: Vec<f64>,
    /// Retransmitted segments in percent, per round.
    pub retransmits_percent: Vec<f64>,
    /// Packets with an ECN mark in percent of all packets, over all rounds, where marks are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marked_percent: Option<f64>,
    /// Round-trip time under load in milliseconds, per round, where known.
    pub loaded_rtt_ms: Vec<Option<f64>>,
    /// Median goodput in bit/s.
    pub goodput: Estimate,
    /// Median round-trip time under load in milliseconds, if every round has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded_rtt: Option<Estimate>,
    /// Share of the goodput (0 to 1) in tests beside a CUBIC flow from the same host: only BBR v1 and
    /// v3 are tested that way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares_beside_cubic: Vec<f64>,
}

/// One candidate against the baseline.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// The controller.
    pub controller: String,
    /// The baseline it is compared with.
    pub baseline: String,
    /// Median goodput relative to the baseline's.
    pub ratio: Estimate,
    /// The finding.
    #[serde(flatten)]
    pub finding: Finding,
    /// Retransmitted segments in percent: median minus the baseline's.
    pub retransmits_added: Estimate,
    /// RTT under load in milliseconds: median minus the baseline's.
    pub rtt_added_ms: Option<Estimate>,
    /// A one-sentence summary.
    pub words: String,
}

/// An estimate with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// The estimate, computed from medians.
    pub median: f64,
    /// Lower bound of the interval.
    pub low: f64,
    /// Upper bound of the interval.
    pub high: f64,
}

/// The outcome of a comparison with the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Finding {
    /// Faster by enough to be worth a change.
    Faster,
    /// Slower by as much.
    Slower,
    /// No difference worth a change.
    Same,
    /// Not enough data.
    Inconclusive {
        /// Additional rounds that would probably decide it.
        more_rounds: usize,
    },
}
