//! Deterministic simulation of TCP endpoints over an emulated path, in virtual time.
//!
//! [`run`] takes a [`Scenario`] and gives a [`Recording`]: time series, figures, and the path's own
//! account of what it did. The path is the one that the lab uses for kernel TCP; the endpoints behave
//! as Linux's do: SACK, RACK-TLP, time-outs with back-off, proportional rate reduction, undo of
//! spurious losses, delayed and compressed ACKs, receive window tuning, pacing.
//!
//! ```
//! use fullpipe_experiment::scenario::{FlowSpec, PathSpec, Scenario};
//! use std::ops::ControlFlow;
//!
//! let path = PathSpec::bottleneck("100mbit".parse()?, "100ms".parse()?, "1bdp".parse()?);
//! let mut scenario = Scenario::new(path, vec![FlowSpec::bulk("bbr")]);
//! scenario.duration = "5s".parse()?;
//! let recording = fullpipe_sim::run(&scenario, 1, &mut |_now| ControlFlow::Continue(()))?;
//! assert!(recording.summary.utilization.unwrap() > 0.8);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The same scenario and seed give the same bytes, on any machine. Time is virtual: a minute of
//! 100 Mbit/s takes about a tenth of a second.
#![forbid(unsafe_code)]

mod app;
mod capture;
mod controllers;
mod engine;
mod error;
mod processor;
mod receiver;
mod recorder;
mod segment;
mod sender;

pub use capture::{End, Passed, What};
pub use controllers::Controllers;
pub use engine::{Simulation, Stepped};
pub use error::SimError;
pub use receiver::Receiving;

use fullpipe_experiment::{Recording, Scenario};
use fullpipe_units::Time;
use std::ops::ControlFlow;

/// Runs `scenario` with all that is random in it drawn from `seed`. Tells `progress` now and then how
/// far it is; [`ControlFlow::Break`] ends the run. The scenario's checks are for the caller to judge
/// ([`Scenario::judge`]).
///
/// # Errors
/// See [`SimError`].
pub fn run(
    scenario: &Scenario,
    seed: u64,
    progress: &mut dyn FnMut(Time) -> ControlFlow<()>,
) -> Result<Recording, SimError> {
    Simulation::new(scenario, seed).run_with(progress)
}
