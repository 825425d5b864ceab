//! Bounds that make a run pass or fail.

mod bound;
mod judge;
mod measurable;
mod window;

pub use bound::Bound;

use crate::recording::{Interval, Quantity, Variation};
use fullpipe_units::{Fraction, Rate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One `[[check]]`: bounds on a run, on some of its flows, or on a time window.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Selects flows by label or controller; by default all flows together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<String>,
    /// Start of the time window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Span>,
    /// End of the time window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Span>,
    /// Selects runs of a sweep by their values (`{ "flow.cc" = "bbr" }`).
    #[serde(default, rename = "where", skip_serializing_if = "BTreeMap::is_empty")]
    pub case: BTreeMap<String, String>,
    /// Payload delivered per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput: Option<Bound<Rate>>,
    /// Goodput as a share of what the bottleneck can carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization: Option<Bound<Fraction>>,
    /// Data packets lost on the path, as a share of those sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Bound<Fraction>>,
    /// Retransmissions as a share of the data packets sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmitted: Option<Bound<Fraction>>,
    /// Minimum round-trip time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_min: Option<Bound<Span>>,
    /// Median round-trip time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_p50: Option<Bound<Span>>,
    /// 95th percentile of the round-trip time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_p95: Option<Bound<Span>>,
    /// 99th percentile of the round-trip time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_p99: Option<Bound<Span>>,
    /// Median queueing delay at the bottleneck.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_p50: Option<Bound<Span>>,
    /// 95th percentile of the queueing delay at the bottleneck.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_p95: Option<Bound<Span>>,
    /// Maximum queueing delay at the bottleneck.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_max: Option<Bound<Span>>,
    /// Jain's index over the flows' goodputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness: Option<Bound<Fraction>>,
    /// Time until the last byte is delivered, for flows with a `size`; of the slowest flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion: Option<Bound<Span>>,
    /// Controller states that must be entered in this order; others may occur in between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub states: Option<Vec<String>>,
    /// Controller states that must not be entered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub never: Option<Vec<String>>,
}

impl Check {
    /// Whether the check applies to the run of a sweep with these `varied` values.
    pub(super) fn applies_to(&self, varied: &[Variation]) -> bool {
        self.case.iter().all(|(key, value)| varied.iter().any(|v| v.key == *key && v.value == *value))
    }

    /// Whether it covers a time window only.
    fn is_windowed(&self) -> bool {
        self.from.is_some() || self.to.is_some()
    }

    /// The bounded quantities, each with its bound in numbers and as written.
    fn bounds(&self) -> Vec<(Quantity, Interval, String)> {
        let mut all = Vec::new();
        let mut add = |quantity, bound: Option<(Interval, String)>| {
            all.extend(bound.map(|(interval, written)| (quantity, interval, written)));
        };
        add(Quantity::Goodput, bound::plain(&self.goodput));
        add(Quantity::Utilization, bound::plain(&self.utilization));
        add(Quantity::Loss, bound::plain(&self.loss));
        add(Quantity::Retransmitted, bound::plain(&self.retransmitted));
        add(Quantity::RttMin, bound::plain(&self.rtt_min));
        add(Quantity::RttP50, bound::plain(&self.rtt_p50));
        add(Quantity::RttP95, bound::plain(&self.rtt_p95));
        add(Quantity::RttP99, bound::plain(&self.rtt_p99));
        add(Quantity::QueueP50, bound::plain(&self.queue_p50));
        add(Quantity::QueueP95, bound::plain(&self.queue_p95));
        add(Quantity::QueueMax, bound::plain(&self.queue_max));
        add(Quantity::Fairness, bound::plain(&self.fairness));
        add(Quantity::Completion, bound::plain(&self.completion));
        all
    }
}
