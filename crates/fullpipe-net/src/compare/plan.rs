//! What is compared, and in which order.

use crate::client;

/// A plan for a comparison by measurements with `C`.
#[derive(Clone, Debug)]
pub struct Plan<C = client::Config> {
    /// The measurement of one round; its controller is replaced.
    pub config: C,
    /// The controllers, at least two, without duplicates.
    pub controllers: Vec<String>,
    /// The baseline that the others are compared with.
    pub baseline: String,
    /// Measurements per controller.
    pub rounds: usize,
    /// Seed of the bootstrap.
    pub seed: u64,
}

/// Why a plan is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanError {
    /// There are fewer than two controllers, or the same one twice.
    #[error("a comparison needs at least two different controllers")]
    TooFewControllers,
    /// There are no rounds.
    #[error("a comparison needs at least one round")]
    NoRounds,
    /// The baseline is not compared.
    #[error("the baseline {0} is not among the compared controllers")]
    UnknownBaseline(String),
}

impl<C> Plan<C> {
    /// Creates a plan. The default baseline is CUBIC, the default of most systems, if it takes
    /// part, else the last controller.
    ///
    /// # Errors
    /// If there are fewer than two different controllers, or no rounds.
    pub fn new(
        config: C,
        controllers: Vec<String>,
        baseline: Option<String>,
        rounds: usize,
        seed: u64,
    ) -> Result<Plan<C>, PlanError> {
        let mut unique = controllers.clone();
        unique.sort();
        unique.dedup();
        if unique.len() < 2 || unique.len() != controllers.len() {
            return Err(PlanError::TooFewControllers);
        }
        if rounds == 0 {
            return Err(PlanError::NoRounds);
        }
        let usual = || {
            let cubic = controllers.iter().find(|c| *c == "cubic");
            cubic.or(controllers.last()).cloned().unwrap_or_default()
        };
        let baseline = baseline.unwrap_or_else(usual);
        if !controllers.contains(&baseline) {
            return Err(PlanError::UnknownBaseline(baseline));
        }
        Ok(Plan { config, controllers, baseline, rounds, seed })
    }

    /// The order of controllers in a round, counted from 0: alternating, so that a drifting path
    /// favours none.
    pub fn order(&self, round: usize) -> Vec<&str> {
        self.places(round).map(|place| self.controllers[place].as_str()).collect()
    }

    fn places(&self, round: usize) -> impl Iterator<Item = usize> + use<C> {
        let count = self.controllers.len();
        (0..count).map(move |i| if round.is_multiple_of(2) { i } else { count - 1 - i })
    }

    /// Measures each controller once per round, in the order of the round. Returns the results by
    /// controller, then by round.
    pub(crate) fn interleaved<T, E>(
        &self,
        rounds: usize,
        mut measure: impl FnMut(usize, &str) -> Result<T, E>,
    ) -> Result<Vec<Vec<T>>, E> {
        let mut results: Vec<Vec<T>> = self.controllers.iter().map(|_| Vec::new()).collect();
        for round in 0..rounds {
            for place in self.places(round) {
                results[place].push(measure(round, &self.controllers[place])?);
            }
        }
        Ok(results)
    }
}
