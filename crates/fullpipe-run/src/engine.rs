//! The engines that can run a case.

#[cfg(feature = "lab")]
use crate::ControllerLoader;
use crate::RunError;
use fullpipe_experiment::recording::Source;
use fullpipe_experiment::scenario::Case;
use fullpipe_experiment::{Recording, Scenario};
use fullpipe_sim::Simulation;
use fullpipe_units::Time;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;

/// An engine that can run a scenario.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Engine {
    /// The simulator: virtual time, deterministic.
    Sim,
    /// Kernel TCP over an emulated path, in real time.
    #[cfg(feature = "lab")]
    Lab,
}

impl Engine {
    /// The source recorded in this engine's recordings.
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

/// Simulates a scenario, without its checks. The error is the reason as text.
///
/// # Errors
/// An invalid path, or one that is too large to simulate.
pub fn simulate(scenario: &Scenario, seed: u64) -> Result<Recording, String> {
    Simulation::new(scenario, seed).run().map_err(|error| error.to_string())
}

/// Simulates `case` and judges its checks. `progress` receives the virtual time now and then;
/// returning [`ControlFlow::Break`] stops the run.
///
/// # Errors
/// [`RunError::Sim`], or [`RunError::Interrupted`] if `progress` stopped it.
pub fn run(case: &Case, progress: &mut dyn FnMut(Time) -> ControlFlow<()>) -> Result<Recording, RunError> {
    simulate_case(case, 1, progress).map(without_distributions)
}

/// Like [`run`], but on up to `threads` threads, and keeps the flows' distributions.
pub(crate) fn simulate_case(
    case: &Case,
    threads: usize,
    progress: &mut dyn FnMut(Time) -> ControlFlow<()>,
) -> Result<Recording, RunError> {
    let scenario = &case.scenario;
    let threads = NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN);
    let simulation = Simulation::new(scenario, scenario.seed).threads(threads);
    #[cfg(feature = "quic")]
    let simulation = simulation.transports(&fullpipe_quic::harness::Stacks);
    #[cfg(all(feature = "exec", target_os = "linux"))]
    let recording = crate::exec::run(simulation, case, progress)?;
    #[cfg(not(all(feature = "exec", target_os = "linux")))]
    let recording = simulation.run_with(progress).map_err(|error| RunError::of_simulation(case, error))?;
    Ok(judged(case, recording))
}

/// Like [`simulate_case`], with kernel TCP in the lab; with `pcap` the lab writes captures.
#[cfg(feature = "lab")]
pub(crate) fn run_in_lab(
    case: &Case,
    pcap: Option<std::path::PathBuf>,
    loader: &dyn ControllerLoader,
    progress: &mut dyn FnMut(Time) -> ControlFlow<()>,
) -> Result<Recording, RunError> {
    let scenario = &case.scenario;
    for flow in &scenario.flows {
        let unavailable = |reason| RunError::ControllerUnavailable { cc: flow.cc.clone(), reason };
        loader.load(&flow.cc).map_err(unavailable)?;
    }
    let options = fullpipe_lab::Options { pcap, inspect: loader.inspector(scenario), ..Default::default() };
    let recording =
        fullpipe_lab::run_with(scenario, scenario.seed, &options, progress).map_err(|error| match error {
            fullpipe_lab::LabError::Stopped => RunError::Interrupted,
            error => RunError::Lab(error),
        })?;
    Ok(judged(case, recording))
}

/// Adds the case's label, contender, varied values and draft to its recording, and judges its
/// checks.
fn judged(case: &Case, mut recording: Recording) -> Recording {
    recording.label = case.label();
    recording.contender.clone_from(&case.contender);
    recording.varied.clone_from(&case.varied);
    recording.provenance.draft = draft(&recording);
    recording.checks = case.scenario.judge(&recording);
    recording
}

/// The draft that a flow's BBR v3 follows. A kernel's own `bbr3` is another implementation.
fn draft(recording: &Recording) -> Option<String> {
    use fullpipe_cc::bbr::v3::{DRAFT_COMMIT, DRAFT_REVISION};
    let ours = fullpipe_cc::CONTROLLERS.iter().find(|controller| controller.name == "bbr3")?;
    let is_ours = |cc: &str| match recording.source {
        Source::Sim => ours.is_named(cc),
        _ => ours.kernel == Some(cc),
    };
    let follows = recording.flows.iter().any(|flow| is_ours(&flow.cc));
    follows.then(|| format!("{DRAFT_REVISION}, commit {DRAFT_COMMIT}"))
}

/// Drops the flows' distributions, which few callers need once the checks are judged.
pub(crate) fn without_distributions(mut recording: Recording) -> Recording {
    recording.flows.iter_mut().for_each(|flow| flow.distributions = None);
    recording
}
