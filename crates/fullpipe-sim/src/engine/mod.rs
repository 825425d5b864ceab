//! The event loop: what happens next on the path, at an end, or on the clock of the recording.

mod access;
mod connection;
mod finish;
mod flows;
mod one_way;
mod queueing;
#[cfg(test)]
mod random_scenarios;
mod stepped;
mod wakes;
mod world;

use crate::capture::{Capture, End, Passed};
use crate::controllers::Controllers;
use crate::error::SimError;
use crate::receiver::Receiving;
use fullpipe_cc::Time;
use fullpipe_experiment::recording::Recording;
use fullpipe_experiment::scenario::{Scenario, Vocabulary};
use std::ops::ControlFlow;
pub use stepped::Stepped;
use world::World;

/// A run of a scenario, to be adjusted before it starts.
///
/// ```
/// use fullpipe_experiment::scenario::{FlowSpec, PathSpec, Scenario};
/// use fullpipe_sim::Simulation;
///
/// let path = PathSpec::bottleneck("10mbit".parse()?, "40ms".parse()?, "1bdp".parse()?);
/// let mut scenario = Scenario::new(path, vec![FlowSpec::bulk("cubic")]);
/// scenario.duration = "5s".parse()?;
/// let recording = Simulation::new(&scenario, 1).most_events(1_000_000).run()?;
/// assert!(recording.summary.goodput_bps > 8e6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Simulation<'a> {
    scenario: &'a Scenario,
    seed: u64,
    most_events: Option<u64>,
    controllers: &'a Controllers,
    receiving: &'a [Receiving],
}

/// The controllers of a run that does not say more.
static KNOWN: Controllers = Controllers::new();

impl<'a> Simulation<'a> {
    /// `scenario` with all that is random in it drawn from `seed`.
    pub fn new(scenario: &'a Scenario, seed: u64) -> Self {
        Simulation { scenario, seed, most_events: None, controllers: &KNOWN, receiving: &[] }
    }

    /// Flows may name any of `controllers`, not only those of `fullpipe-cc`.
    pub fn controllers(mut self, controllers: &'a Controllers) -> Self {
        self.controllers = controllers;
        self
    }

    /// Ends the run with [`SimError::TooManyEvents`] after `n` events, instead of after the number
    /// that the path's rates can account for.
    pub fn most_events(mut self, n: u64) -> Self {
        self.most_events = Some(n);
        self
    }

    /// The receiver of the first flow allows and acknowledges as was `seen` of another, each from its byte on, in their order; nothing
    /// leaves it as the scenario has it.
    pub fn receiving(mut self, seen: &'a [Receiving]) -> Self {
        self.receiving = seen;
        self
    }

    /// Runs it.
    ///
    /// # Errors
    /// See [`SimError`].
    pub fn run(self) -> Result<Recording, SimError> {
        self.run_with(&mut |_| ControlFlow::Continue(()))
    }

    /// Runs it and tells `progress` now and then how far it is; [`ControlFlow::Break`] ends it.
    ///
    /// # Errors
    /// See [`SimError`].
    pub fn run_with(self, progress: &mut dyn FnMut(Time) -> ControlFlow<()>) -> Result<Recording, SimError> {
        let vocabulary = Vocabulary::new(self.controllers.names());
        self.scenario.validate(&vocabulary)?;
        let mut world = World::new(&self)?;
        world.run(progress)?;
        Ok(world.finish())
    }

    /// Begins it, for a caller who goes through it step by step.
    ///
    /// # Errors
    /// See [`SimError`].
    pub fn start(self) -> Result<Stepped, SimError> {
        self.scenario.validate(&Vocabulary::new(self.controllers.names()))?;
        Ok(Stepped::new(World::new(&self)?))
    }

    /// Runs it and gives what passed at `end` of its first flow as well.
    ///
    /// # Errors
    /// See [`SimError`].
    pub fn run_captured(self, end: End) -> Result<(Recording, Vec<Passed>), SimError> {
        let vocabulary = Vocabulary::new(self.controllers.names());
        self.scenario.validate(&vocabulary)?;
        let mut world = World::new(&self)?;
        if let Some(first) = world.flows.connections.first_mut() {
            first.capture = Some(Box::new(Capture::new(end)));
        }
        world.run(&mut |_| ControlFlow::Continue(()))?;
        let capture = world.flows.connections.first_mut().and_then(|first| first.capture.take());
        let passed = capture.map_or_else(Vec::new, |capture| capture.into_passed());
        Ok((world.finish(), passed))
    }
}
