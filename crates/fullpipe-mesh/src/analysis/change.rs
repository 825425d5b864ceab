//! A detected change: location, time, quantities, size and confidence.

use crate::location::Location;
use crate::record::{ControllerId, History, Pair, SiteId, place};
use fullpipe_net::compare::Estimate;
use serde::Serialize;
use std::fmt::Write as _;

/// The metric that changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Transfer failures.
    Failures,
    /// Goodput.
    Rate,
    /// Retransmitted segments and lost probes.
    Loss,
    /// RTT of probes.
    Rtt,
    /// Goodput of the forward path relative to the reverse path.
    Asymmetry,
}

impl Metric {
    /// A short name.
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

/// The quantity of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// The goodput of the best controller: what the path carried, bit/s.
    Best,
    /// A controller's goodput, bit/s.
    Goodput(ControllerId),
    /// A controller's retransmitted share, 0 to 1.
    Retransmitted(ControllerId),
    /// Probe loss share, 0 to 1.
    ProbesLost,
    /// Median RTT of probes, milliseconds.
    Rtt,
    /// Forward goodput divided by reverse goodput.
    Asymmetry,
    /// Share of failed transfers, 0 to 1.
    Failed,
}

/// A shift of one metric of one direction (RTT and asymmetry: of both).
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Shift {
    /// The direction; for both directions, from the lower site.
    pub pair: Pair,
    /// The metric.
    pub metric: Metric,
    /// Whether the metric rose.
    pub up: bool,
    /// The first period of the shift.
    pub begin: i64,
    /// The first period after the shift, if it has ended.
    pub end: Option<i64>,
    /// Evidence in nats.
    pub evidence: f64,
    /// Each quantity before and, if known, after: medians with intervals.
    pub sizes: Vec<(Quantity, Estimate, Option<Estimate>)>,
}

/// Shifts with a common cause, as far as time and location tell.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Change {
    /// Location of the change.
    pub location: Location,
    /// The first period of the shift.
    pub begin: i64,
    /// The period after which the change was reported.
    pub reported: i64,
    /// The period after which the location was last revised.
    pub located: i64,
    /// The first period after the change, if it has ended.
    pub end: Option<i64>,
    /// Confidence that the change is not random: 1 minus the false alarms of this strength expected
    /// in a day of as many pairs under the assumed distributions; at least 0.
    pub confidence: f64,
    /// The shifts that make up the change.
    pub shifts: Vec<Shift>,
}

/// Tests per day for which the threshold is chosen: 1440 periods of 56 pairs, five metrics up and
/// down.
const TESTS_PER_DAY: f64 = 1440.0 * 56.0 * 10.0;

impl Change {
    /// See [`Change::confidence`].
    pub(super) fn confidence_of(evidence: f64) -> f64 {
        (1.0 - TESTS_PER_DAY * (-evidence).exp()).max(0.0)
    }

    /// The change with other indices of sites and controllers; `None` if one of its sites has none.
    pub(crate) fn renumbered(
        mut self,
        sites: &[Option<SiteId>],
        controllers: &[Option<ControllerId>],
    ) -> Option<Change> {
        let site = |id| place(sites, id);
        self.location = match self.location {
            Location::Site(id) => Location::Site(site(id)?),
            Location::Sending(id) => Location::Sending(site(id)?),
            Location::Receiving(id) => Location::Receiving(site(id)?),
            Location::Both(both) => Location::Both(both.renumbered(sites)?.unordered()),
            Location::Direction(direction) => Location::Direction(direction.renumbered(sites)?),
        };
        for shift in &mut self.shifts {
            shift.pair = shift.pair.renumbered(sites)?;
            shift.sizes.retain_mut(|(quantity, ..)| match quantity {
                Quantity::Goodput(id) | Quantity::Retransmitted(id) => {
                    place(controllers, *id).map(|other| *id = other).is_some()
                }
                _ => true,
            });
        }
        Some(self)
    }

    /// The metrics that shifted.
    pub fn metrics(&self) -> Vec<Metric> {
        let mut all: Vec<Metric> = self.shifts.iter().map(|shift| shift.metric).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// A short description, as far as the shifts tell: `down`, `loss`, `slower`, `higher RTT`.
    pub fn kind(&self) -> &'static str {
        let rose = |metric| self.shifts.iter().any(|shift| shift.metric == metric && shift.up);
        let fell = |metric| self.shifts.iter().any(|shift| shift.metric == metric && !shift.up);
        if rose(Metric::Failures) {
            return "down";
        }
        if fell(Metric::Failures) {
            return "recovered";
        }
        if rose(Metric::Rtt) {
            return "higher RTT";
        }
        if rose(Metric::Loss) {
            return if self.all_fell() && !self.probes_lost() { "policed" } else { "loss" };
        }
        if fell(Metric::Rtt) {
            return "lower RTT";
        }
        match () {
            () if fell(Metric::Rate) => "slower",
            () if rose(Metric::Rate) => "faster",
            () if fell(Metric::Loss) => "less loss",
            () => "asymmetric",
        }
    }

    /// Whether probes are lost as well: a policer does not drop them.
    fn probes_lost(&self) -> bool {
        let lost = |(quantity, _, after): &(Quantity, Estimate, Option<Estimate>)| {
            *quantity == Quantity::ProbesLost && after.is_some_and(|after| after.median >= 0.002)
        };
        self.shifts.iter().any(|shift| shift.sizes.iter().any(lost))
    }

    /// Random loss slows only controllers that take it for congestion; a lower rate slows all of
    /// them.
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

    /// The details as text: the strongest shift of each metric with its sizes.
    pub fn details(&self, history: &History) -> Vec<String> {
        let mut all = Vec::new();
        for metric in self.metrics() {
            let of = self.shifts.iter().filter(|shift| shift.metric == metric);
            let Some(strongest) = of.clone().max_by(|a, b| a.evidence.total_cmp(&b.evidence)) else {
                continue;
            };
            for (quantity, before, after) in &strongest.sizes {
                let mut text = format!("{} {}", quantity.name(history), quantity.format(before.median));
                if let Some(after) = after {
                    let _ = write!(text, " → {}", quantity.format(after.median));
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
    /// A label: `bbr`, `cubic retr`.
    pub fn name(self, history: &History) -> String {
        let cc = |id: ControllerId| history.controllers.get(usize::from(id)).map_or("?", String::as_str);
        match self {
            Quantity::Best => "best".to_owned(),
            Quantity::Goodput(id) => cc(id).to_owned(),
            Quantity::Retransmitted(id) => format!("{} retr", cc(id)),
            Quantity::ProbesLost => "probes lost".to_owned(),
            Quantity::Rtt => "RTT".to_owned(),
            Quantity::Asymmetry => "forward/reverse".to_owned(),
            Quantity::Failed => "failed".to_owned(),
        }
    }

    /// Formats a value with its unit.
    pub fn format(self, value: f64) -> String {
        match self {
            Quantity::Best | Quantity::Goodput(_) => fullpipe_presentation::numbers::rate(value),
            Quantity::Retransmitted(_) | Quantity::ProbesLost | Quantity::Failed if value < 5e-5 => {
                "0 %".to_owned()
            }
            Quantity::Retransmitted(_) | Quantity::ProbesLost | Quantity::Failed => {
                fullpipe_presentation::numbers::percent(value)
            }
            Quantity::Rtt => fullpipe_presentation::numbers::millis(value),
            Quantity::Asymmetry => format!("×{value:.2}"),
        }
    }
}
