//! Values of an application by arm.

use crate::ledger::{MIN_CONNECTIONS, contrast_of_samples};
use crate::stats::Sample;
use crate::{Comparison, Estimate, Log, Plan, Statistic};
use serde::Serialize;
use std::collections::HashMap;

/// Arm and unit of each connection, by cookie.
pub(crate) type Places = HashMap<u64, (usize, u64)>;

/// Result of joining a log.
#[derive(Clone, Debug, Serialize)]
pub struct Joined {
    /// Valid lines.
    pub rows: u64,
    /// Invalid lines.
    pub invalid: u64,
    /// The first errors, with line numbers.
    pub errors: Vec<String>,
    /// Connections in the log and in the experiment.
    pub connections: u64,
    /// Connections in the log but not in the experiment.
    pub others: u64,
    /// Columns that cannot be compared, and why.
    pub not_compared: Vec<String>,
    /// Compared columns.
    pub figures: Vec<JoinedFigure>,
}

/// One column of the log.
#[derive(Clone, Debug, Serialize)]
pub struct JoinedFigure {
    /// The column's name.
    pub name: String,
    /// How it is compared.
    pub comparison: Comparison,
    /// Values in the split's arms.
    pub values: u64,
    /// Effects of all arms except the control; empty with too little data. Whether more is better
    /// depends on the application.
    pub effects: Vec<Estimate>,
}

impl Joined {
    pub(crate) fn new(log: &Log, places: &Places, plan: &Plan, alpha: f64) -> Joined {
        let (mut figures, mut not_compared) = (Vec::new(), Vec::new());
        for (name, values) in log.figures() {
            let locate = |(cookie, value): &(u64, f64)| places.get(cookie).map(|place| (*place, *value));
            let known: Vec<((usize, u64), f64)> = values.iter().filter_map(locate).collect();
            match Comparison::for_values(known.iter().map(|(_, value)| *value)) {
                Some(comparison) => figures.push(figure(name, &known, comparison, plan, alpha)),
                None => not_compared.push(format!(
                    "{name}: values include zero or negatives and values above 1, so they are neither \
                     ratios nor shares"
                )),
            }
        }
        let (connections, others) = log.matches(places);
        let (rows, invalid, errors) = (log.rows, log.invalid, log.errors.clone());
        Joined { rows, invalid, errors, connections, others, not_compared, figures }
    }
}

fn figure(
    name: &str,
    known: &[((usize, u64), f64)],
    comparison: Comparison,
    plan: &Plan,
    alpha: f64,
) -> JoinedFigure {
    // A connection may have several lines, which count as one unit.
    let mut arms: Vec<Sample> =
        plan.arms.all().iter().map(|_| Sample::new(comparison.bucket(), true)).collect();
    for ((arm, unit), value) in known {
        arms[*arm].add(comparison.scaled(*value), *unit);
    }
    let statistics: &[Statistic] = match comparison {
        Comparison::Ratio => &[Statistic::Mean, Statistic::P50, Statistic::P95],
        Comparison::Difference => &[Statistic::Mean],
    };
    let control = plan.control_index();
    let mut effects = Vec::new();
    for (place, arm) in plan.arms.all().iter().enumerate().filter(|(place, _)| *place != control) {
        for statistic in statistics {
            let samples = [&arms[place], &arms[control]];
            let Some(c) = contrast_of_samples(samples, MIN_CONNECTIONS, comparison, *statistic, alpha) else {
                continue;
            };
            let level = |value| comparison.level(value);
            effects.push(Estimate::new(&arm.label, *statistic, &c, level, ["more", "less"]));
        }
    }
    JoinedFigure { name: name.to_owned(), comparison, values: known.len() as u64, effects }
}
