//! How an arm differs from the control.

use crate::{Contrast, Ledger, Metric, Statistic};
use serde::Serialize;

/// What is compared of all metrics: means, and the tail that users feel.
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

/// What an estimate's verdict is where its interval has nothing in it.
pub(crate) const UNCLEAR: &str = "unclear";

/// How an arm differs from the control in one figure of a sample.
#[derive(Clone, Debug, Serialize)]
pub struct Estimate {
    /// Which arm.
    pub arm: String,
    /// Which of the sample's figures.
    pub statistic: Statistic,
    /// The arm's level, as people read it.
    pub level: String,
    /// The control's.
    pub control_level: String,
    /// The arm's less the control's: of natural logarithms where ratios are compared, of shares where these are.
    pub difference: f64,
    /// The low end of the always-valid 95 % interval; none: unbounded.
    pub low: Option<f64>,
    /// Its high end.
    pub high: Option<f64>,
    /// An always-valid p-value, of means.
    pub p: Option<f64>,
    /// `unclear`, or what the difference is: `better` or `worse`, and `more` or `less` of what only an application can judge.
    pub verdict: &'static str,
}

impl Estimate {
    /// With levels as `level` writes them, and a verdict in the words for `[more, less]`.
    pub(crate) fn new(
        arm: &str,
        statistic: Statistic,
        c: &Contrast,
        level: impl Fn(f64) -> String,
        [more, less]: [&'static str; 2],
    ) -> Self {
        let verdict = match (c.is_sure(), c.low > 0.0) {
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

/// How an arm differs from the control in one figure of the connections.
#[derive(Clone, Debug, Serialize)]
pub struct Effect {
    /// Of what.
    pub metric: Metric,
    /// How much, and how sure that is.
    #[serde(flatten)]
    pub estimate: Estimate,
}

impl Effect {
    /// Of all arms but the control, with intervals for `alpha`.
    pub(crate) fn all(ledger: &Ledger, compared: &[(Metric, Statistic)], alpha: f64) -> Vec<Effect> {
        let control = ledger.plan().control_place();
        let mut all = Vec::new();
        for (place, arm) in ledger.plan().arms.all().iter().enumerate().filter(|(place, _)| *place != control)
        {
            for (metric, statistic) in compared {
                let Some(contrast) = ledger.contrast(place, *metric, *statistic, alpha) else { continue };
                let words = if metric.more_is_better() { ["better", "worse"] } else { ["worse", "better"] };
                let level = |value| metric.level(value);
                let estimate = Estimate::new(&arm.label, *statistic, &contrast, level, words);
                all.push(Effect { metric: *metric, estimate });
            }
        }
        all
    }
}
