//! Differences between an arm and the control.

use crate::{Contrast, Ledger, Metric, Statistic};
use serde::Serialize;

/// Compared metrics and statistics: means, medians and tails.
pub(crate) const COMPARED: [(Metric, Statistic); 17] = [
    (Metric::Goodput, Statistic::Mean),
    (Metric::Goodput, Statistic::P50),
    (Metric::Goodput, Statistic::P5),
    (Metric::Deliver100kB, Statistic::Mean),
    (Metric::Deliver100kB, Statistic::P50),
    (Metric::Deliver100kB, Statistic::P95),
    (Metric::Deliver1MB, Statistic::Mean),
    (Metric::Deliver1MB, Statistic::P50),
    (Metric::Deliver1MB, Statistic::P95),
    (Metric::Deliver10MB, Statistic::Mean),
    (Metric::Deliver10MB, Statistic::P50),
    (Metric::Rtt, Statistic::Mean),
    (Metric::Rtt, Statistic::P50),
    (Metric::Rtt, Statistic::P95),
    (Metric::Queueing, Statistic::Mean),
    (Metric::Retransmitted, Statistic::Mean),
    (Metric::Processor, Statistic::Mean),
];

/// Verdict of an estimate whose interval contains zero.
pub(crate) const UNCLEAR: &str = "unclear";

/// Difference between an arm and the control in one statistic.
#[derive(Clone, Debug, Serialize)]
pub struct Estimate {
    /// Label of the arm.
    pub arm: String,
    /// The statistic.
    pub statistic: Statistic,
    /// Level of the arm, formatted.
    pub level: String,
    /// Level of the control, formatted.
    pub control_level: String,
    /// Arm minus control: of natural logarithms for ratios, of shares for differences.
    pub difference: f64,
    /// Lower bound of the always-valid 95 % interval; `None` if unbounded.
    pub low: Option<f64>,
    /// Upper bound.
    pub high: Option<f64>,
    /// Always-valid p-value, for means only.
    pub p: Option<f64>,
    /// `unclear`, `better` or `worse`; `more` or `less` for values of an application.
    pub verdict: &'static str,
}

impl Estimate {
    /// An estimate with levels formatted by `level`, and verdicts `[more, less]`.
    pub(crate) fn new(
        arm: &str,
        statistic: Statistic,
        c: &Contrast,
        level: impl Fn(f64) -> String,
        [more, less]: [&'static str; 2],
    ) -> Self {
        let verdict = match (c.is_significant(), c.low > 0.0) {
            (false, _) => UNCLEAR,
            (true, true) => more,
            (true, false) => less,
        };
        Estimate {
            arm: arm.to_owned(),
            statistic,
            level: level(c.arm),
            control_level: level(c.control),
            difference: c.difference,
            low: c.low.is_finite().then_some(c.low),
            high: c.high.is_finite().then_some(c.high),
            p: c.p,
            verdict,
        }
    }
}

/// Difference between an arm and the control in one metric.
#[derive(Clone, Debug, Serialize)]
pub struct Effect {
    /// The metric.
    pub metric: Metric,
    /// The estimate.
    #[serde(flatten)]
    pub estimate: Estimate,
}

impl Effect {
    /// Effects of all arms except the control, with intervals for `alpha`.
    pub(crate) fn all(ledger: &Ledger, compared: &[(Metric, Statistic)], alpha: f64) -> Vec<Effect> {
        let control = ledger.plan().control_index();
        let mut all = Vec::new();
        for (place, arm) in ledger.plan().arms.all().iter().enumerate().filter(|(place, _)| *place != control)
        {
            for (metric, statistic) in compared {
                let Some(contrast) = ledger.contrast(place, *metric, *statistic, alpha) else { continue };
                let verdicts =
                    if metric.more_is_better() { ["better", "worse"] } else { ["worse", "better"] };
                let level = |value| metric.level(value);
                let estimate = Estimate::new(&arm.label, *statistic, &contrast, level, verdicts);
                all.push(Effect { metric: *metric, estimate });
            }
        }
        all
    }
}
