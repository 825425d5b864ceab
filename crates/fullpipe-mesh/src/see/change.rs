//! A change: where, since when, of what, by how much, how sure.

use crate::place::Place;
use crate::record::{ControllerId, History, Pair};
use fullpipe_net::compare::Estimate;
use serde::Serialize;
use std::fmt::Write as _;

/// What changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Transfers fail.
    Failures,
    /// Goodput.
    Rate,
    /// The share of segments sent again, and of probes that did not arrive.
    Loss,
    /// The round trip of probes.
    Rtt,
    /// Goodput there against goodput back.
    Asymmetry,
}

impl Metric {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Failures => "failures",
            Metric::Rate => "rate",
            Metric::Loss => "loss",
            Metric::Rtt => "RTT",
            Metric::Asymmetry => "asymmetry",
        }
    }
}

/// Of what a figure is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// The goodput of whichever controller carried most: what the path gave, bit/s.
    Best,
    /// A controller's goodput, bit/s.
    Goodput(ControllerId),
    /// A controller's retransmitted share, 0 to 1.
    Retransmitted(ControllerId),
    /// The share of probes that did not arrive, 0 to 1.
    ProbesLost,
    /// The median round trip of probes, milliseconds.
    Rtt,
    /// Goodput there over goodput back.
    Asymmetry,
    /// The share of transfers that failed, 0 to 1.
    Failed,
}

/// One metric of one direction (RTT and asymmetry: of both) that changed.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Shift {
    /// Of which direction; of both, from the lower site.
    pub pair: Pair,
    /// What.
    pub metric: Metric,
    /// Whether it rose.
    pub up: bool,
    /// The first period with it.
    pub begin: i64,
    /// The first without it, if it is over.
    pub end: Option<i64>,
    /// How much speaks for it: nats.
    pub evidence: f64,
    /// Each figure before, and since as far as there is one: medians with their intervals.
    pub sizes: Vec<(Quantity, Estimate, Option<Estimate>)>,
}

/// Shifts that are of one cause, as far as time and place tell.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Change {
    /// Where it is.
    pub place: Place,
    /// The first period with it.
    pub begin: i64,
    /// The period after which it was told.
    pub told: i64,
    /// The period after which its place was last corrected.
    pub located: i64,
    /// The first period without it, if it is over.
    pub end: Option<i64>,
    /// How sure it is that this is no accident: one less the accidents of this strength expected in a day of as many pairs, as the
    /// distributions assumed have it; at least 0.
    pub confidence: f64,
    /// What it was seen by.
    pub shifts: Vec<Shift>,
}

/// Looks a day that the threshold is for: 1440 periods of 56 pairs, five metrics up and down.
const LOOKS: f64 = 1440.0 * 56.0 * 10.0;

impl Change {
    /// See [`Change::confidence`].
    pub(super) fn confidence_of(evidence: f64) -> f64 {
        (1.0 - LOOKS * (-evidence).exp()).max(0.0)
    }

    /// The metrics that it was seen by.
    pub fn metrics(&self) -> Vec<Metric> {
        let mut all: Vec<Metric> = self.shifts.iter().map(|shift| shift.metric).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// What it is, in a few words, as far as its shifts tell: `down`, `loss`, `slower`, `longer round trip`.
    pub fn kind(&self) -> &'static str {
        let rose = |metric| self.shifts.iter().any(|shift| shift.metric == metric && shift.up);
        let fell = |metric| self.shifts.iter().any(|shift| shift.metric == metric && !shift.up);
        if rose(Metric::Failures) {
            return "down";
        }
        if fell(Metric::Failures) {
            return "up again";
        }
        if rose(Metric::Rtt) {
            return "longer round trip";
        }
        if rose(Metric::Loss) {
            return if self.all_fell() && !self.probes_lost() {
                "drops what is above a rate"
            } else {
                "loss"
            };
        }
        if fell(Metric::Rtt) {
            return "shorter round trip";
        }
        match () {
            () if fell(Metric::Rate) => "slower",
            () if rose(Metric::Rate) => "faster",
            () if fell(Metric::Loss) => "less loss",
            () => "asymmetric",
        }
    }

    /// Whether probes are lost, too: a policer has nothing against them.
    fn probes_lost(&self) -> bool {
        let lost = |(quantity, _, after): &(Quantity, Estimate, Option<Estimate>)| {
            *quantity == Quantity::ProbesLost && after.is_some_and(|after| after.median >= 0.002)
        };
        self.shifts.iter().any(|shift| shift.sizes.iter().any(lost))
    }

    /// Random loss takes little from a controller that does not take it for congestion; a lower rate takes from each.
    fn all_fell(&self) -> bool {
        let sizes = self.shifts.iter().filter(|s| s.metric == Metric::Rate).flat_map(|s| &s.sizes);
        let shares: Vec<f64> = sizes
            .filter_map(|size| {
                let (Quantity::Goodput(_), before, Some(after)) = size else { return None };
                Some(after.median / before.median.max(1.0))
            })
            .collect();
        !shares.is_empty() && shares.iter().all(|share| *share < 0.7)
    }

    /// What was seen, in words: the strongest shift of each metric with its sizes.
    pub fn said(&self, history: &History) -> Vec<String> {
        let mut all = Vec::new();
        for metric in self.metrics() {
            let of = self.shifts.iter().filter(|shift| shift.metric == metric);
            let Some(strongest) = of.clone().max_by(|a, b| a.evidence.total_cmp(&b.evidence)) else {
                continue;
            };
            for (quantity, before, after) in &strongest.sizes {
                let mut text = format!("{} {}", quantity.name(history), quantity.figure(before.median));
                if let Some(after) = after {
                    let _ = write!(text, " → {}", quantity.figure(after.median));
                }
                if of.clone().count() > 1 {
                    let _ = write!(text, " ({})", history.name(strongest.pair));
                }
                all.push(text);
            }
        }
        all
    }
}

impl Quantity {
    /// Of what: `bbr`, `cubic, sent again`.
    pub fn name(self, history: &History) -> String {
        let cc = |id: ControllerId| history.controllers.get(usize::from(id)).map_or("?", String::as_str);
        match self {
            Quantity::Best => "best".to_owned(),
            Quantity::Goodput(id) => cc(id).to_owned(),
            Quantity::Retransmitted(id) => format!("{}, sent again", cc(id)),
            Quantity::ProbesLost => "probes lost".to_owned(),
            Quantity::Rtt => "RTT".to_owned(),
            Quantity::Asymmetry => "there over back".to_owned(),
            Quantity::Failed => "failed".to_owned(),
        }
    }

    /// A value with its unit.
    pub fn figure(self, value: f64) -> String {
        match self {
            Quantity::Best | Quantity::Goodput(_) => fullpipe_report::rate(value),
            Quantity::Retransmitted(_) | Quantity::ProbesLost | Quantity::Failed if value < 5e-5 => {
                "0 %".to_owned()
            }
            Quantity::Retransmitted(_) | Quantity::ProbesLost | Quantity::Failed => {
                fullpipe_report::percent(value)
            }
            Quantity::Rtt => fullpipe_report::millis(value),
            Quantity::Asymmetry => format!("×{value:.2}"),
        }
    }
}
