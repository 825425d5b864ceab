//! Compares the responsiveness by congestion controller in interleaved rounds.

use super::outcome::{Direction, Interval, Outcome};
use super::{Config, RpmError, measure};
use crate::compare::{self, Estimate, Finding, compare, estimate};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::atomic::AtomicBool;

/// A plan for a comparison.
pub type Plan = compare::Plan<Config>;

/// Why a comparison failed.
#[derive(Debug, thiserror::Error)]
#[error("round {round}, {controller}: {source}")]
pub struct ComparisonError {
    /// Round, counted from 1.
    pub round: usize,
    /// The controller.
    pub controller: String,
    /// The cause.
    pub source: RpmError,
}

/// Output of `fullpipe rpm --compare --json`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Comparison {
    /// `fullpipe/rpm-comparison/1`.
    pub schema: &'static str,
    /// The baseline.
    pub baseline: String,
    /// Seed of the intervals' bootstrap.
    pub seed: u64,
    /// One entry per controller and direction.
    pub controllers: Vec<Compared>,
    /// One entry per other controller and direction.
    pub contrasts: Vec<Contrast>,
    /// The measurements, by controller as given, then by round.
    pub runs: Vec<Vec<Outcome>>,
}

/// Medians over rounds, with 95 % intervals.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Compared {
    /// The controller of the sender.
    pub controller: String,
    /// The direction.
    pub direction: Direction,
    /// Round trips per minute.
    pub rpm: Estimate,
    /// On connections of their own.
    pub foreign_rpm: Estimate,
    /// On load-generating connections.
    pub self_rpm: Estimate,
    /// Goodput, bit/s.
    pub goodput_bps: Estimate,
}

/// A controller compared with the baseline.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Contrast {
    /// The controller.
    pub controller: String,
    /// The direction.
    pub direction: Direction,
    /// Ratio of the medians of the responsiveness, with its 95 % interval.
    pub ratio: Estimate,
    /// What it means; `faster` is more responsive.
    pub finding: Finding,
}

impl Plan {
    /// Runs the rounds. `begun` is called before each measurement with the number of the round,
    /// counted from 0.
    ///
    /// # Errors
    /// At the first measurement that fails.
    pub fn run(
        &self,
        interrupt: &AtomicBool,
        begun: &mut dyn FnMut(usize, &str),
        progress: &mut dyn FnMut(Direction, &Interval),
    ) -> Result<Comparison, ComparisonError> {
        let runs = self.interleaved(self.rounds, |round, name| {
            begun(round, name);
            let config = Config { controller: Some(name.to_owned()), ..self.config.clone() };
            measure::run(&config, interrupt, progress).map_err(|source| ComparisonError {
                round: round + 1,
                controller: name.to_owned(),
                source,
            })
        })?;
        Ok(self.compare(runs))
    }

    /// Evaluates the outcomes, by controller and round.
    fn compare(&self, runs: Vec<Vec<Outcome>>) -> Comparison {
        let figures = |runs: &[Outcome], direction, figure: fn(&super::DirectionOutcome) -> f64| {
            let found = runs.iter().filter_map(|run| run.direction(direction)).map(figure);
            found.collect::<Vec<f64>>()
        };
        let rpm = |runs: &[Outcome], direction| figures(runs, direction, |one| one.responsiveness.rpm);
        let base = self.controllers.iter().position(|name| *name == self.baseline).unwrap_or(0);
        let (mut controllers, mut contrasts) = (Vec::new(), Vec::new());
        for &direction in &self.config.directions {
            for (controller, own) in self.controllers.iter().zip(&runs) {
                let of = |figure| estimate(&figures(own, direction, figure), self.seed);
                controllers.push(Compared {
                    controller: controller.clone(),
                    direction,
                    rpm: of(|one| one.responsiveness.rpm),
                    foreign_rpm: of(|one| one.responsiveness.foreign_rpm),
                    self_rpm: of(|one| one.responsiveness.self_rpm),
                    goodput_bps: of(|one| one.goodput_bps),
                });
                if *controller != self.baseline {
                    let (ratio, finding) =
                        compare(&rpm(own, direction), &rpm(&runs[base], direction), self.seed);
                    contrasts.push(Contrast { controller: controller.clone(), direction, ratio, finding });
                }
            }
        }
        Comparison {
            schema: "fullpipe/rpm-comparison/1",
            baseline: self.baseline.clone(),
            seed: self.seed,
            controllers,
            contrasts,
            runs,
        }
    }
}
