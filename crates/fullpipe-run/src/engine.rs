//! What can run a case.

#[cfg(feature = "lab")]
use crate::Lend;
use crate::RunError;
use fullpipe_experiment::Recording;
use fullpipe_experiment::recording::Source;
use fullpipe_experiment::scenario::Case;
use fullpipe_sim::SimError;
use fullpipe_units::Time;
use std::ops::ControlFlow;

/// What can run a scenario.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Engine {
    /// The simulator: virtual time, deterministic.
    Sim,
    /// Kernel TCP over an emulated path, in real time.
    #[cfg(feature = "lab")]
    Lab,
}

impl Engine {
    /// Where its recordings say that they came from.
    pub fn source(self) -> Source {
        match self {
            Engine::Sim => Source::Sim,
            #[cfg(feature = "lab")]
            Engine::Lab => Source::Lab,
        }
    }

    /// As written on the command line and in JSON.
    pub fn name(self) -> &'static str {
        self.source().name()
    }
}

/// Simulates `case` and judges its checks; `progress` hears how far it is and may stop it.
///
/// # Errors
/// [`RunError::Sim`], or [`RunError::Interrupted`] if `progress` stopped it.
pub fn run(case: &Case, progress: &mut dyn FnMut(Time) -> ControlFlow<()>) -> Result<Recording, RunError> {
    simulate(case, progress).map(without_distributions)
}

/// The same, with the distributions of its flows.
pub(crate) fn simulate(
    case: &Case,
    progress: &mut dyn FnMut(Time) -> ControlFlow<()>,
) -> Result<Recording, RunError> {
    let scenario = &case.scenario;
    let recording = fullpipe_sim::run(scenario, scenario.seed, progress).map_err(|error| match error {
        SimError::Interrupted { .. } => RunError::Interrupted,
        error => RunError::Sim { run: case.label(), error },
    })?;
    Ok(judged(case, recording))
}

/// The same on the kernel's TCP; with `pcap` the lab writes captures.
#[cfg(feature = "lab")]
pub(crate) fn run_in_lab(
    case: &Case,
    pcap: Option<std::path::PathBuf>,
    lend: &dyn Lend,
    progress: &mut dyn FnMut(Time) -> ControlFlow<()>,
) -> Result<Recording, RunError> {
    let scenario = &case.scenario;
    for flow in &scenario.flows {
        let not_lent = |reason| RunError::NotLent { cc: flow.cc.clone(), reason };
        lend.lend(&flow.cc).map_err(not_lent)?;
    }
    let options = fullpipe_lab::Options { pcap, inspect: lend.watcher(scenario), ..Default::default() };
    let recording =
        fullpipe_lab::run_with(scenario, scenario.seed, &options, progress).map_err(|error| match error {
            fullpipe_lab::LabError::Stopped => RunError::Interrupted,
            error => RunError::Lab(error),
        })?;
    Ok(judged(case, recording))
}

/// What an engine recorded of `case`, with what the case knows of itself and whether its checks held.
fn judged(case: &Case, mut recording: Recording) -> Recording {
    recording.label = case.label();
    recording.contender.clone_from(&case.contender);
    recording.varied.clone_from(&case.varied);
    recording.checks = case.scenario.judge(&recording);
    recording
}

/// Once the checks are judged the distributions have served most.
pub(crate) fn without_distributions(mut recording: Recording) -> Recording {
    recording.flows.iter_mut().for_each(|flow| flow.distributions = None);
    recording
}
