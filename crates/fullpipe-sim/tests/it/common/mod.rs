//! What the tests build their scenarios from.

use fullpipe_experiment::scenario::{FlowSpec, PathSpec, Scenario};
use fullpipe_experiment::{Recording, recording::Summary};
use fullpipe_path::LossSpec;
use fullpipe_sim::Simulation;
use fullpipe_units::{Fraction, Span};

/// A bottleneck of `rate` with the two-way delay `rtt` and a buffer, as people write them.
pub fn path(rate: &str, rtt: &str, buffer: &str) -> PathSpec {
    PathSpec::bottleneck(rate.parse().unwrap(), rtt.parse().unwrap(), buffer.parse().unwrap())
}

/// The same path losing this share of packets behind the bottleneck.
pub fn losing(mut path: PathSpec, share: &str) -> PathSpec {
    let share: Fraction = share.parse().unwrap();
    path.forward[0].loss = Some(LossSpec::from(share));
    path
}

/// Bulk flows of these controllers for `seconds`.
pub fn scenario(path: PathSpec, controllers: &[&str], seconds: u64) -> Scenario {
    let mut s = Scenario::new(path, controllers.iter().map(|cc| FlowSpec::bulk(*cc)).collect());
    s.duration = Span::from_secs(seconds);
    s.sample = Span::from_millis(100);
    s
}

pub fn run(scenario: &Scenario) -> Recording {
    run_seeded(scenario, 1)
}

pub fn run_seeded(scenario: &Scenario, seed: u64) -> Recording {
    Simulation::new(scenario, seed).run().unwrap_or_else(|e| panic!("{e}"))
}

/// One bulk flow of `cc` on `path` for `seconds`.
pub fn bulk(path: PathSpec, cc: &str, seconds: u64) -> Summary {
    run(&scenario(path, &[cc], seconds)).summary
}
