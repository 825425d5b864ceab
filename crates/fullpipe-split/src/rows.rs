//! Rows of the report tables, independent of their rendering.

use crate::effect::UNCLEAR;
use crate::{Comparison, Effect, Estimate, JoinedFigure, Metric, Report, Statistic};

/// A row of the table of differences.
pub(crate) struct Row<'a> {
    pub name: String,
    pub estimate: &'a Estimate,
    pub comparison: Comparison,
}

impl<'a> Row<'a> {
    pub fn from_effect(effect: &'a Effect) -> Self {
        Row::new(effect.metric.name(), &effect.estimate, effect.metric.comparison())
    }

    pub fn all(effects: &'a [Effect]) -> Vec<Self> {
        effects.iter().map(Row::from_effect).collect()
    }

    pub fn from_joined(figure: &'a JoinedFigure) -> Vec<Self> {
        figure.effects.iter().map(|estimate| Row::new(&figure.name, estimate, figure.comparison)).collect()
    }

    fn new(name: &str, estimate: &'a Estimate, comparison: Comparison) -> Self {
        let name = match estimate.statistic {
            Statistic::Mean => name.to_owned(),
            quantile => format!("{name} {}", quantile.name()),
        };
        Row { name, estimate, comparison }
    }

    pub fn difference(&self) -> String {
        self.comparison.difference(self.estimate.difference)
    }

    /// Bounds of the interval, formatted.
    pub fn interval(&self) -> [String; 2] {
        let (low, high) = (self.estimate.low, self.estimate.high);
        [low.unwrap_or(f64::NEG_INFINITY), high.unwrap_or(f64::INFINITY)]
            .map(|end| self.comparison.difference(end))
    }

    /// Verdict; empty if not significant.
    pub fn verdict(&self) -> &'static str {
        if self.estimate.verdict == UNCLEAR { "" } else { self.estimate.verdict }
    }
}

/// Headings of the table of arms.
pub(crate) const ARM: [&str; 9] =
    ["share", "connections", "units", "transfers", "delivered", "retr", "goodput p50", "RTT p50", "RTT p95"];

/// Arms by name, with cells for [`ARM`].
pub(crate) fn arms(report: &Report) -> Vec<(String, [String; 9])> {
    let level = |metric: Metric, x: Option<f64>| x.map_or("–".to_owned(), |x| metric.level(x.ln()));
    let row = |(arm, share): (&crate::ArmReport, fullpipe_units::Fraction)| {
        let name = format!("{}{}", arm.label, if arm.is_control { " (control)" } else { "" });
        let cells = [
            share.to_string(),
            arm.connections.to_string(),
            arm.units.to_string(),
            arm.transfers.to_string(),
            bytes(arm.delivered_bytes),
            format!("{:.2} %", 100.0 * arm.resent_bytes as f64 / arm.sent_bytes.max(1) as f64),
            level(Metric::Goodput, arm.goodput_p50_bps),
            level(Metric::Rtt, arm.rtt_p50_ms),
            level(Metric::Rtt, arm.rtt_p95_ms),
        ];
        (name, cells)
    };
    report.arms.iter().zip(report.plan.arms.shares()).map(row).collect()
}

fn bytes(n: u64) -> String {
    let n = n as f64;
    let (size, unit) = match n {
        n if n >= 1e12 => (1e12, "TB"),
        n if n >= 1e9 => (1e9, "GB"),
        n if n >= 1e6 => (1e6, "MB"),
        _ => (1e3, "kB"),
    };
    format!("{:.2} {unit}", n / size)
}
