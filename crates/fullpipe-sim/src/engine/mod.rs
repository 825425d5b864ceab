//! The event loop over the path, the endpoints and the recording's clock.

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
mod windowed;
mod workers;
mod world;

use crate::capture::{Capture, CapturedPacket, End};
use crate::controllers::{ControllerSource, Controllers};
use crate::error::SimError;
use crate::receiver::ReceiverBehaviour;
use crate::transport::Transports;
use fullpipe_cc::Time;
use fullpipe_experiment::recording::{Processing, ProcessingOrder, Recording};
use fullpipe_experiment::scenario::{Scenario, Vocabulary};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
pub use stepped::SteppedRun;
use windowed::Windows;
use world::World;

/// A simulation of a scenario, with options to set before it starts.
///
/// ```
/// use fullpipe_experiment::scenario::{FlowSpec, PathSpec, Scenario};
/// use fullpipe_sim::Simulation;
///
/// let path = PathSpec::bottleneck("10mbit".parse()?, "40ms".parse()?, "1bdp".parse()?);
/// let mut scenario = Scenario::new(path, vec![FlowSpec::bulk("cubic")]);
/// scenario.duration = "5s".parse()?;
/// let recording = Simulation::new(&scenario, 1).max_events(1_000_000).run()?;
/// assert!(recording.summary.goodput_bps > 8e6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Simulation<'a> {
    scenario: &'a Scenario,
    seed: u64,
    max_events: Option<u64>,
    controllers: &'a Controllers,
    controller_source: Option<&'a dyn ControllerSource>,
    receiver_behaviour: &'a [ReceiverBehaviour],
    transports: Option<&'a dyn Transports>,
    engine: Option<Engine>,
    threads: usize,
}

/// From this number of flows on, windows are as fast or faster, whatever the controller.
const MANY_FLOWS: u64 = 100;

/// How a simulation orders its work. The recording is the same, byte by byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// One event after another.
    Sequential,
    /// A flow's events of a window of time together, flow by flow, where the scenario allows it:
    /// faster with many flows, whose state exceeds the processor's caches.
    Windowed,
}

/// The controllers of a simulation to which none are added.
static DEFAULT_CONTROLLERS: Controllers = Controllers::new();

impl<'a> Simulation<'a> {
    /// A simulation of `scenario`, with everything random drawn from `seed`.
    pub fn new(scenario: &'a Scenario, seed: u64) -> Self {
        Simulation {
            scenario,
            seed,
            max_events: None,
            controllers: &DEFAULT_CONTROLLERS,
            controller_source: None,
            receiver_behaviour: &[],
            transports: None,
            engine: None,
            threads: 1,
        }
    }

    /// Lets flows name any of `controllers`, not only those of `fullpipe-cc`.
    pub fn controllers(mut self, controllers: &'a Controllers) -> Self {
        self.controllers = controllers;
        self
    }

    /// Lets flows name controllers of `source`, which takes precedence over [`Controllers`].
    pub fn controller_source(mut self, source: &'a dyn ControllerSource) -> Self {
        self.controller_source = Some(source);
        self
    }

    /// The source of the controller `name`, if it is not among [`Controllers`].
    fn source_of(&self, name: &str) -> Option<&'a dyn ControllerSource> {
        self.controller_source.filter(|source| source.knows(name))
    }

    /// Stops the run with [`SimError::TooManyEvents`] after `n` events, instead of after the number
    /// that the path's rates can account for.
    pub fn max_events(mut self, n: u64) -> Self {
        self.max_events = Some(n);
        self
    }

    /// Makes the first flow's receiver behave like an observed one: each entry of `behaviour`
    /// applies from its byte on, in their order. An empty slice leaves the receiver as the
    /// scenario defines it.
    pub fn receiver_behaviour(mut self, behaviour: &'a [ReceiverBehaviour]) -> Self {
        self.receiver_behaviour = behaviour;
        self
    }

    /// Lets flows run over other transports than the simulated TCP: a flow whose controller is one
    /// of their [names](Transports::names) does.
    pub fn transports(mut self, transports: &'a dyn Transports) -> Self {
        self.transports = Some(transports);
        self
    }

    /// Asks for an engine, instead of choosing one by the number of flows.
    pub fn engine(mut self, engine: Engine) -> Self {
        self.engine = Some(engine);
        self
    }

    /// Lets the run use up to `threads` threads, if it has [windows](Engine::Windowed): it uses one
    /// without the feature `threads`. The recording is the same with any number.
    pub fn threads(mut self, threads: NonZeroUsize) -> Self {
        self.threads = threads.get();
        self
    }

    /// Number of flows.
    fn flows(&self) -> u64 {
        self.scenario.flows.iter().map(|flow| u64::from(flow.count)).sum()
    }

    /// The chosen engine as recordings describe it; `None` with so few flows that there is no
    /// choice, and if a caller has chosen, which compares recordings.
    fn processing(&self) -> Option<Processing> {
        let (engine, because) = self.chosen_engine();
        let order = match engine {
            Engine::Sequential => ProcessingOrder::Events,
            Engine::Windowed => ProcessingOrder::Windows,
        };
        let because = because.to_owned();
        (self.engine.is_none() && self.flows() >= MANY_FLOWS).then_some(Processing { order, because })
    }

    /// The engine that [`run`](Self::run) uses, and why.
    pub fn chosen_engine(&self) -> (Engine, &'static str) {
        match (self.engine, Windows::reason_against(self)) {
            (Some(Engine::Sequential), _) => (Engine::Sequential, "it was asked for"),
            (_, Some(reason)) => (Engine::Sequential, reason),
            (Some(Engine::Windowed), None) => (Engine::Windowed, "it was asked for"),
            (None, None) if self.flows() < MANY_FLOWS => {
                (Engine::Sequential, "few flows fit the processor's caches")
            }
            (None, None) => (Engine::Windowed, "many flows exceed the processor's caches"),
        }
    }

    /// Checks the scenario against what the simulation knows.
    fn validate(&self) -> Result<(), SimError> {
        let own = self.controllers.names().map(str::to_owned);
        let transports = self.transports.iter().flat_map(|known| known.names());
        let flows = self.scenario.flows.iter().map(|flow| &flow.cc);
        let sourced = flows.filter(|cc| self.source_of(cc).is_some()).cloned();
        let vocabulary = Vocabulary::new(own.chain(transports).chain(sourced));
        Ok(self.scenario.validate(&vocabulary)?)
    }

    /// Runs it.
    ///
    /// # Errors
    /// See [`SimError`].
    pub fn run(self) -> Result<Recording, SimError> {
        self.run_with(&mut |_| ControlFlow::Continue(()))
    }

    /// Runs it and calls `progress` now and then with the virtual time; [`ControlFlow::Break`]
    /// stops it.
    ///
    /// # Errors
    /// See [`SimError`].
    pub fn run_with(self, progress: &mut dyn FnMut(Time) -> ControlFlow<()>) -> Result<Recording, SimError> {
        self.validate()?;
        let mut world = World::new(&self)?;
        match self.chosen_engine().0 {
            Engine::Sequential => world.run(progress)?,
            Engine::Windowed => world.run_in_windows(&mut Windows::new(&world, self.threads), progress)?,
        }
        let mut recording = world.finish();
        recording.provenance.processing = self.processing();
        Ok(recording)
    }

    /// Starts it, for a caller that advances its time step by step.
    ///
    /// # Errors
    /// See [`SimError`].
    pub fn start(self) -> Result<SteppedRun, SimError> {
        self.validate()?;
        Ok(SteppedRun::new(World::new(&self)?))
    }

    /// Runs it and captures the packets at `end` of its first flow.
    ///
    /// # Errors
    /// See [`SimError`].
    pub fn run_captured(self, end: End) -> Result<(Recording, Vec<CapturedPacket>), SimError> {
        let (recording, mut captured) = self.capture(1, Some(end))?;
        Ok((recording, captured.pop().unwrap_or_default()))
    }

    /// Runs it and captures the data packets at both ends of every flow: one list per flow, in the
    /// order of the recording's flows.
    ///
    /// # Errors
    /// See [`SimError`].
    pub fn run_captured_at_both_ends(self) -> Result<(Recording, Vec<Vec<CapturedPacket>>), SimError> {
        self.capture(usize::MAX, None)
    }

    /// Runs it and captures the packets of the first `flows` flows: see [`Capture`].
    fn capture(
        self,
        flows: usize,
        end: Option<End>,
    ) -> Result<(Recording, Vec<Vec<CapturedPacket>>), SimError> {
        self.validate()?;
        let mut world = World::new(&self)?;
        for connection in world.flows.connections.iter_mut().take(flows) {
            connection.capture = Some(Box::new(Capture::new(end)));
        }
        world.run(&mut |_| ControlFlow::Continue(()))?;
        let captures = world.flows.connections.iter_mut().filter_map(|connection| connection.capture.take());
        let captured = captures.map(|capture| capture.into_packets()).collect();
        Ok((world.finish(), captured))
    }
}
