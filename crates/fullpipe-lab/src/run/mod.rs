//! A scenario on kernel TCP: from its flows and links to a recording.
//!
//! The caller's side is here; inside, in namespaces of its own, a run is prepared, its threads are set to work, sampled, and what they
//! leave is recorded.

mod prepare;
mod record;
mod sampling;
mod threads;

use crate::LabError;
use crate::capture::Capture;
use crate::flow::{Connection, Outset};
use crate::inspect::{Inspect, Steer};
use crate::kernel;
use crate::reenter::Job;
use crate::space::{Enclosure, Message, Outbox, Topology};
use fullpipe_experiment::recording::Recording;
use fullpipe_experiment::scenario::Scenario;
use fullpipe_units::Time;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

/// How a run differs from what the scenario says.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Use IPv6. Its header is 20 bytes longer, which the payload pays.
    pub ipv6: bool,
    /// Where to write captures: `PREFIX-client.pcap`, `PREFIX-server.pcap`.
    pub pcap: Option<PathBuf>,
    /// How to see what those controllers believe that the kernel tells nothing of.
    pub inspect: Option<Arc<dyn Inspect>>,
}

/// Runs `scenario` on the running kernel's TCP, in real time, with all that is random on the path drawn
/// from `seed`. Tells `progress` about every 100 ms how far it is; [`ControlFlow::Break`] ends the run. The scenario's
/// checks are for the caller to judge ([`Scenario::judge`]).
///
/// Nothing of it is left when this returns, or when the calling process dies.
///
/// # Errors
/// [`LabError::Impossible`] when the machine lacks something, [`LabError::Input`] for a scenario that
/// kernel TCP cannot run, [`LabError::Stopped`] after a break.
pub fn run(
    scenario: &Scenario,
    seed: u64,
    progress: &mut dyn FnMut(Time) -> ControlFlow<()>,
) -> Result<Recording, LabError> {
    run_with(scenario, seed, &Options::default(), progress)
}

/// [`run`] with options.
///
/// # Errors
/// As there.
pub fn run_with(
    scenario: &Scenario,
    seed: u64,
    options: &Options,
    progress: &mut dyn FnMut(Time) -> ControlFlow<()>,
) -> Result<Recording, LabError> {
    for flow in &scenario.flows {
        // What is missing is told where the flow is made.
        let _ = kernel::has_controller(&flow.cc);
    }
    let job = Job::Run(RunJob {
        scenario: scenario.clone(),
        seed,
        ipv6: options.ipv6,
        pcap: options.pcap.clone(),
        inspects: options.inspect.is_some(),
        steered: options.inspect.as_deref().and_then(|inspect| inspect.steer()).map(Steer::controller),
    });
    let job = serde_json::to_vec(&job).map_err(|e| LabError::failed("cannot write the job", e))?;
    let lent = options.inspect.as_ref().map_or(Ok(Vec::new()), |inspect| inspect.descriptors());
    let lent = lent.map_err(|e| LabError::failed("cannot look at what controllers believe", e))?;
    let mut enclosure = Enclosure::start(&job, &lent)?;
    drop(lent);
    loop {
        match enclosure.next()? {
            Message::Note(at) => {
                let at = at.first_chunk::<8>().map_or(0, |b| u64::from_ne_bytes(*b));
                if progress(Time::from_nanos(at)).is_break() {
                    return Err(LabError::Stopped);
                }
            }
            Message::Done(outcome) => {
                return serde_json::from_slice(&outcome?)
                    .map_err(|e| LabError::failed("cannot read the recording", e));
            }
        }
    }
}

/// A run as its process is told of it.
#[derive(Serialize, Deserialize)]
pub(crate) struct RunJob {
    scenario: Scenario,
    seed: u64,
    ipv6: bool,
    pcap: Option<PathBuf>,
    /// Whether there is a way to see what controllers believe.
    pub(crate) inspects: bool,
    /// The kernel's name of the controller that obeys trained ones, if there is a way to steer.
    steered: Option<String>,
}

/// Does the run; gives the recording as JSON.
pub(crate) fn inside(
    job: &RunJob,
    inspect: Option<Arc<dyn Inspect>>,
    outbox: &mut Outbox,
) -> Result<Vec<u8>, LabError> {
    let recording = Inside::prepare(job, inspect)?.run(outbox)?;
    serde_json::to_vec(&recording).map_err(|e| LabError::failed("cannot write the recording", e))
}

/// A run inside its own namespaces.
struct Inside<'a> {
    scenario: &'a Scenario,
    seed: u64,
    topology: Topology,
    connections: Vec<Connection>,
    outset: Outset,
    inspect: Option<Arc<dyn Inspect>>,
    captures: [Option<Capture>; 2],
    notes: Vec<String>,
}
