//! Controllers measured in turns over one path, and what follows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What repeated, interleaved measurements of one path came to. Its runs stand beside it, each with the round it belongs to as
/// varied key ([`Variation::ROUND`](super::Variation::ROUND)).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// What the others are held against.
    pub baseline: String,
    /// How often each was measured.
    pub rounds: usize,
    /// Of the intervals' bootstrap.
    pub seed: u64,
    /// How every median, difference, ratio and interval here was made.
    pub estimator: String,
    /// Where the time went.
    pub time: TimeBreakdown,
    /// Each controller, in the order asked for.
    pub controllers: Vec<ControllerRounds>,
    /// Each controller but the baseline, held against it.
    pub verdicts: Vec<Verdict>,
}

/// Where the time of a comparison went, in seconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TimeBreakdown {
    /// Data moved and counted.
    pub measured_s: f64,
    /// Data moved at the beginning of tests and were left out, because they say how fast a controller starts.
    pub left_out_s: f64,
    /// Connections were made, the idle path was probed, results were exchanged.
    pub between_s: f64,
}

/// The rounds of one controller.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ControllerRounds {
    /// The controller.
    pub controller: String,
    /// Bits per second that arrived, by round.
    pub goodput_bps: Vec<f64>,
    /// Segments retransmitted per hundred sent, by round.
    pub retransmits_percent: Vec<f64>,
    /// Round-trip time under load in milliseconds, by round, where it is known.
    pub loaded_rtt_ms: Vec<Option<f64>>,
    /// The median of the goodputs, bits per second.
    pub goodput: Estimate,
    /// The median of the round-trip times under load, milliseconds, where all rounds have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded_rtt: Option<Estimate>,
}

/// One candidate against the baseline.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// The controller.
    pub controller: String,
    /// What it is held against.
    pub baseline: String,
    /// The controller's median goodput over that of the baseline.
    pub ratio: Estimate,
    /// What follows.
    #[serde(flatten)]
    pub finding: Finding,
    /// Retransmits per hundred segments: the controller's median minus the baseline's.
    pub retransmits_added: Estimate,
    /// RTT under load, milliseconds: the controller's median minus the baseline's.
    pub rtt_added_ms: Option<Estimate>,
    /// In words.
    pub words: String,
}

/// A figure and the interval that covers the true one in 95 % of cases.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// The figure, made of medians.
    pub median: f64,
    /// The interval's low end.
    pub low: f64,
    /// The interval's high end.
    pub high: f64,
}

/// What a comparison of a candidate with the baseline comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Finding {
    /// The candidate is faster, and by enough to be worth a change.
    Faster,
    /// The candidate is slower, and by as much.
    Slower,
    /// Whatever the difference is, it is not worth a change.
    Same,
    /// Too little is known.
    Inconclusive {
        /// Further rounds that would probably flush it.
        more_rounds: usize,
    },
}
