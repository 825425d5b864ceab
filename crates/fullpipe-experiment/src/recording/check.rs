//! Results of a scenario's checks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The result of a check.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CheckResult {
    /// What was checked, as the scenario wrote it (`goodput >= 85mbit`).
    pub check: String,
    /// The measured value, formatted.
    pub measured: String,
    /// Whether it passed.
    pub passed: bool,
    /// The bounded quantity; `None` for states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantity: Option<Quantity>,
    /// The measured value, in `unit`; `None` if nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// The unit of `value` and `bound`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<Unit>,
    /// The interval it had to be in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Interval>,
}

/// A quantity that a check can bound.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Payload delivered per second.
    Goodput,
    /// Goodput as a share of what the bottleneck can carry.
    Utilization,
    /// Data packets lost on the path, as a share of those sent.
    Loss,
    /// Retransmissions as a share of the data packets sent.
    Retransmitted,
    /// Minimum round-trip time.
    RttMin,
    /// Median round-trip time.
    RttP50,
    /// 95th percentile of the round-trip time.
    RttP95,
    /// 99th percentile of the round-trip time.
    RttP99,
    /// Median queueing delay.
    QueueP50,
    /// 95th percentile of the queueing delay.
    QueueP95,
    /// Maximum queueing delay.
    QueueMax,
    /// Jain's index over the flows' goodputs.
    Fairness,
    /// Time until the last byte was delivered.
    Completion,
}

impl Quantity {
    /// The key of a `[[check]]` that bounds it.
    pub fn name(self) -> &'static str {
        match self {
            Quantity::Goodput => "goodput",
            Quantity::Utilization => "utilization",
            Quantity::Loss => "loss",
            Quantity::Retransmitted => "retransmitted",
            Quantity::RttMin => "rtt_min",
            Quantity::RttP50 => "rtt_p50",
            Quantity::RttP95 => "rtt_p95",
            Quantity::RttP99 => "rtt_p99",
            Quantity::QueueP50 => "queue_p50",
            Quantity::QueueP95 => "queue_p95",
            Quantity::QueueMax => "queue_max",
            Quantity::Fairness => "fairness",
            Quantity::Completion => "completion",
        }
    }

    /// Its unit.
    pub fn unit(self) -> Unit {
        match self {
            Quantity::Goodput => Unit::BitsPerSecond,
            Quantity::Utilization | Quantity::Loss | Quantity::Retransmitted | Quantity::Fairness => {
                Unit::Share
            }
            _ => Unit::Milliseconds,
        }
    }
}

/// The unit of a check's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, JsonSchema)]
pub enum Unit {
    /// Bits per second.
    #[serde(rename = "bit/s")]
    BitsPerSecond,
    /// A fraction of 1.
    #[serde(rename = "share")]
    Share,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Milliseconds,
}

impl Unit {
    /// Formats `number`, given in this unit.
    pub fn format(self, number: f64) -> String {
        match (self, number) {
            (Unit::BitsPerSecond, bps) if bps >= 1e9 => format!("{:.3} Gbit/s", bps / 1e9),
            (Unit::BitsPerSecond, bps) if bps >= 1e6 => format!("{:.2} Mbit/s", bps / 1e6),
            (Unit::BitsPerSecond, bps) => format!("{:.1} kbit/s", bps / 1e3),
            (Unit::Share, share) => format!("{:.3}%", share * 100.0),
            (Unit::Milliseconds, ms) if ms >= 10_000.0 => format!("{:.3} s", ms / 1e3),
            (Unit::Milliseconds, ms) => format!("{ms:.2} ms"),
        }
    }
}

/// An interval.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// Lower bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<Edge>,
    /// Upper bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<Edge>,
}

/// A bound of an interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Edge {
    /// Its value.
    pub at: f64,
    /// Whether the value itself is inside.
    pub inclusive: bool,
}

impl Interval {
    /// Whether `value` is inside; NaN never is.
    pub fn contains(&self, value: f64) -> bool {
        let low = self.low.is_none_or(|e| value > e.at || (e.inclusive && value == e.at));
        let high = self.high.is_none_or(|e| value < e.at || (e.inclusive && value == e.at));
        low && high && !value.is_nan()
    }
}

impl CheckResult {
    /// The result of a bound on `quantity`, written as `check`.
    pub fn for_quantity(check: String, quantity: Quantity, bound: Interval, value: Option<f64>) -> Self {
        let value = value.filter(|v| v.is_finite());
        let unit = quantity.unit();
        CheckResult {
            check,
            measured: value.map_or_else(|| "nothing measured".to_owned(), |v| unit.format(v)),
            passed: value.is_some_and(|v| bound.contains(v)),
            quantity: Some(quantity),
            value,
            unit: Some(unit),
            bound: Some(bound),
        }
    }

    /// The result of a check on states; `seen` are the states entered.
    pub fn for_states(check: String, seen: &[&str], passed: bool) -> Self {
        const MAX_SHOWN: usize = 12;
        let mut measured = seen[..seen.len().min(MAX_SHOWN)].join(" → ");
        if seen.len() > MAX_SHOWN {
            measured += &format!(" → … ({} in all)", seen.len());
        }
        CheckResult { check, measured, passed, quantity: None, value: None, unit: None, bound: None }
    }
}
