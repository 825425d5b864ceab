//! Runs a scenario on kernel TCP: from its flows and links to a recording.
//!
//! The caller's side is here. Inside, in the lab's namespaces, the run is prepared, its threads run
//! and are sampled, and the results are recorded.

mod prepare;
mod record;
mod sampling;
mod threads;

use crate::LabError;
use crate::capture::Capture;
use crate::flow::{Connection, StartOptions};
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

/// Options of a run that are not part of the scenario.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Use IPv6. Its header is 20 bytes longer, at the cost of payload.
    pub ipv6: bool,
    /// Prefix of captures: `PREFIX-client.pcap`, `PREFIX-server.pcap`.
    pub pcap: Option<PathBuf>,
    /// Reads the state of controllers that the kernel does not report.
    pub inspect: Option<Arc<dyn Inspect>>,
}

/// Runs `scenario` on the running kernel's TCP, in real time, with everything random on the path
/// drawn from `seed`. Calls `progress` about every 100 ms with the time of the run;
/// [`ControlFlow::Break`] stops it. The caller judges the scenario's checks ([`Scenario::judge`]).
///
/// Namespaces and processes are gone when this returns, or when the calling process dies.
///
/// # Errors
/// [`LabError::Impossible`] if the machine lacks something, [`LabError::Input`] for a scenario that
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
        // A missing controller is reported when the flow is created.
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
    let lent = lent.map_err(|e| LabError::failed("cannot read the controllers' state", e))?;
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

/// A run as it is passed to the lab's process.
#[derive(Serialize, Deserialize)]
pub(crate) struct RunJob {
    scenario: Scenario,
    seed: u64,
    ipv6: bool,
    pcap: Option<PathBuf>,
    /// Whether the state of controllers can be read.
    pub(crate) inspects: bool,
    /// The kernel's name of the steerable controller, if there is one.
    steered: Option<String>,
}

/// Performs the run; returns the recording as JSON.
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
    start_options: StartOptions,
    inspect: Option<Arc<dyn Inspect>>,
    captures: [Option<Capture>; 2],
    notes: Vec<String>,
}
