//! Results of a measurement.

use super::{Confidence, Parameters, Responsiveness};
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt;

/// Where the load flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the server.
    Download,
    /// To the server.
    Upload,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Direction::Download => "download",
            Direction::Upload => "upload",
        })
    }
}

/// The draft's categories (section 1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rating {
    /// Less than 300 RPM: more than 200 ms.
    Poor,
    /// Less than 1000 RPM: more than 60 ms.
    Fair,
    /// Less than 6000 RPM: more than 10 ms.
    Good,
    /// 6000 RPM or more.
    Excellent,
}

impl Rating {
    /// The category of a responsiveness.
    pub fn new(rpm: f64) -> Rating {
        match rpm {
            rpm if rpm >= 6000.0 => Rating::Excellent,
            rpm if rpm >= 1000.0 => Rating::Good,
            rpm if rpm >= 300.0 => Rating::Fair,
            _ => Rating::Poor,
        }
    }
}

impl fmt::Display for Rating {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rating::Poor => "poor",
            Rating::Fair => "fair",
            Rating::Good => "good",
            Rating::Excellent => "excellent",
        })
    }
}

/// Output of `fullpipe rpm --json`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Outcome {
    /// `fullpipe/rpm/1`.
    pub schema: &'static str,
    /// Address of the configuration object.
    pub url: String,
    /// The server's address and port.
    pub address: String,
    /// The parameters of the test.
    pub parameters: Parameters,
    /// The path without load.
    pub idle: Idle,
    /// Each direction, in the order of measuring.
    pub directions: Vec<DirectionOutcome>,
}

impl Outcome {
    /// The value of `schema`.
    pub const SCHEMA: &'static str = "fullpipe/rpm/1";

    /// The result of a direction.
    pub fn direction(&self, direction: Direction) -> Option<&DirectionOutcome> {
        self.directions.iter().find(|one| one.direction == direction)
    }
}

/// Latency without load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Idle {
    /// Median round trip of a few connections: TCP, TLS and HTTP, milliseconds.
    pub rtt_ms: f64,
    /// The same as round trips per minute.
    pub rpm: f64,
}

/// Result of one direction.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DirectionOutcome {
    /// The direction.
    pub direction: Direction,
    /// Round trips per minute under load.
    #[serde(flatten)]
    pub responsiveness: Responsiveness,
    /// The draft's category.
    pub rating: Rating,
    /// Confidence in the responsiveness.
    pub confidence: Confidence,
    /// Moving average of the goodput, bit/s.
    pub goodput_bps: f64,
    /// Confidence in the goodput.
    pub goodput_confidence: Confidence,
    /// Congestion controller of the sender, if known.
    pub controller: Option<String>,
    /// Load-generating connections at the end.
    pub connections: usize,
    /// Completed probes on connections of their own.
    pub foreign_probes: u64,
    /// Completed probes on load-generating connections.
    pub self_probes: u64,
    /// Probes that failed.
    pub failed_probes: u64,
    /// Duration, seconds.
    pub seconds: f64,
    /// One entry per interval.
    pub intervals: Vec<Interval>,
}

/// One interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Interval {
    /// Goodput in this interval, bit/s.
    pub goodput_bps: f64,
    /// Load-generating connections.
    pub connections: usize,
    /// Responsiveness by the probes of the last intervals; null without probes.
    pub rpm: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratings_begin_at_the_limits_of_the_draft() {
        let ratings = [299.9, 300.0, 999.9, 1000.0, 5999.9, 6000.0].map(Rating::new);
        use Rating::{Excellent, Fair, Good, Poor};
        assert_eq!(ratings, [Poor, Fair, Fair, Good, Good, Excellent]);
    }
}
