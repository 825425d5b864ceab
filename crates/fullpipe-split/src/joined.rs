//! An application's figures by arm.

use crate::ledger::{FEWEST_CONNECTIONS, contrast_of};
use crate::stats::Sample;
use crate::{Comparison, Estimate, Log, Plan, Statistic};
use serde::Serialize;
use std::collections::HashMap;

/// The arm of each connection by its cookie, and what its figures count as.
pub(crate) type Places = HashMap<u64, (usize, u64)>;

/// What a log came to.
#[derive(Clone, Debug, Serialize)]
pub struct Joined {
    /// Lines that were read.
    pub rows: u64,
    /// Lines that could not be.
    pub bad: u64,
    /// The first of these, with their places.
    pub troubles: Vec<String>,
    /// Connections that it has figures of and that are in the split.
    pub connections: u64,
    /// Connections that it has figures of and that are not.
    pub others: u64,
    /// Figures that cannot be compared, and why.
    pub left_out: Vec<String>,
    /// The others.
    pub figures: Vec<JoinedFigure>,
}

/// One figure of an application's.
#[derive(Clone, Debug, Serialize)]
pub struct JoinedFigure {
    /// The column's name.
    pub name: String,
    /// How it is compared.
    pub comparison: Comparison,
    /// Values in the split's arms.
    pub values: u64,
    /// Of all arms but the control; none while there is too little. Nobody but the application knows whether more of it is
    /// better.
    pub effects: Vec<Estimate>,
}

impl Joined {
    pub(crate) fn new(log: &Log, places: &Places, plan: &Plan, alpha: f64) -> Joined {
        let (mut figures, mut left_out) = (Vec::new(), Vec::new());
        for (name, values) in log.figures() {
            let of = |(cookie, value): &(u64, f64)| places.get(cookie).map(|place| (*place, *value));
            let known: Vec<((usize, u64), f64)> = values.iter().filter_map(of).collect();
            match Comparison::of(known.iter().map(|(_, value)| *value)) {
                Some(comparison) => figures.push(figure(name, &known, comparison, plan, alpha)),
                None => left_out.push(format!(
                    "{name}: some values are zero or below, and some above 1: neither ratios nor shares can be compared"
                )),
            }
        }
        let (connections, others) = log.matches(places);
        let (rows, bad, troubles) = (log.rows, log.bad, log.troubles.clone());
        Joined { rows, bad, troubles, connections, others, left_out, figures }
    }
}

fn figure(
    name: &str,
    known: &[((usize, u64), f64)],
    comparison: Comparison,
    plan: &Plan,
    alpha: f64,
) -> JoinedFigure {
    // A connection may have many lines: they count as one, whatever was assigned.
    let mut arms: Vec<Sample> =
        plan.arms.all().iter().map(|_| Sample::new(comparison.bucket(), true)).collect();
    for ((arm, unit), value) in known {
        arms[*arm].add(comparison.scaled(*value), *unit);
    }
    let statistics: &[Statistic] = match comparison {
        Comparison::Ratio => &[Statistic::Mean, Statistic::P50, Statistic::P95],
        Comparison::Difference => &[Statistic::Mean],
    };
    let control = plan.control_place();
    let mut effects = Vec::new();
    for (place, arm) in plan.arms.all().iter().enumerate().filter(|(place, _)| *place != control) {
        for statistic in statistics {
            let samples = [&arms[place], &arms[control]];
            let Some(c) = contrast_of(samples, FEWEST_CONNECTIONS, comparison, *statistic, alpha) else {
                continue;
            };
            let level = |value| comparison.level(value);
            effects.push(Estimate::new(&arm.label, *statistic, &c, level, ["more", "less"]));
        }
    }
    JoinedFigure { name: name.to_owned(), comparison, values: known.len() as u64, effects }
}
