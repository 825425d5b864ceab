//! Deterministic simulation of TCP endpoints over an emulated path, in virtual time.
//!
//! [`run`] turns a [`Scenario`] into a [`Recording`]: time series, figures, and the path's counters. The
//! path is the one that the lab uses for kernel TCP. The endpoints behave like Linux: SACK,
//! RACK-TLP, timeouts with back-off, proportional rate reduction, undo of spurious losses, delayed
//! and compressed ACKs, receive-window tuning, pacing.
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
mod transport;

pub use capture::{CapturedPacket, End, PacketKind};
pub use controllers::{ControllerSource, Controllers};
pub use engine::{Engine, Simulation, SteppedRun};
pub use error::SimError;
pub use receiver::ReceiverBehaviour;
pub use transport::{
    DATAGRAM_HEADER_BYTES, Datagram, Opening, Telemetry, Transport, TransportEnd, TransportEvent, Transports,
};

use fullpipe_experiment::{Recording, Scenario};
use fullpipe_units::Time;
use std::ops::ControlFlow;

/// Runs `scenario`, with everything random drawn from `seed`. Calls `progress` now and then with
/// the virtual time; [`ControlFlow::Break`] stops the run. The caller judges the scenario's checks
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
