//! Controllers in other programs: `exec:PROGRAM` names one, a child process per flow runs it, and
//! lines of JSON carry events and values (`docs/reference/controller-protocol.md`).

mod answer;
mod child;
mod controller;
mod failure;
mod message;

pub use answer::{Answer, Values};
pub use failure::ProgramError;
pub use message::{Message, seed};

use crate::RunError;
use crate::programs::Command;
use controller::ProgramController;
use fullpipe_cc::{Config, CongestionControl};
use fullpipe_experiment::Recording;
use fullpipe_experiment::scenario::{Case, is_program};
use fullpipe_sim::{ControllerSource, Simulation};
use fullpipe_units::Time;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Form and version of the protocol.
pub const SCHEMA: &str = "fullpipe/controller/1";

/// Wall time between two reports of progress.
const REPORT_INTERVAL: Duration = Duration::from_millis(20);

/// Most programs of one run.
const MAX_PROGRAMS: usize = 256;

/// How long a program may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// For its first answer: runtimes take time to start.
    pub start: Duration,
    /// For every other answer.
    pub answer: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { start: Duration::from_secs(10), answer: Duration::from_secs(5) }
    }
}

/// What the programs of a run share.
#[derive(Debug, Default)]
struct Session {
    limits: Limits,
    started: AtomicUsize,
    stopped: AtomicBool,
    failure: Mutex<Option<ProgramError>>,
}

impl Session {
    /// Keeps the first failure and stops everything.
    fn fail(&self, error: ProgramError) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert(error);
        self.stopped.store(true, Ordering::Release);
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}

/// The programs of one run.
#[derive(Debug, Default)]
struct Programs {
    session: Arc<Session>,
}

/// Runs the simulation of `case`. The failure of a program stops it and is its error.
pub(crate) fn run(
    simulation: Simulation<'_>,
    case: &Case,
    progress: &mut dyn FnMut(Time) -> ControlFlow<()>,
) -> Result<Recording, RunError> {
    if !case.scenario.flows.iter().any(|flow| is_program(&flow.cc)) {
        return simulation.run_with(progress).map_err(|error| RunError::of_simulation(case, error));
    }
    run_with(Limits::default(), simulation, case, progress)
}

fn run_with(
    limits: Limits,
    simulation: Simulation<'_>,
    case: &Case,
    progress: &mut dyn FnMut(Time) -> ControlFlow<()>,
) -> Result<Recording, RunError> {
    let session = Arc::new(Session { limits, ..Session::default() });
    let programs = Programs { session: Arc::clone(&session) };
    let mut reported = Instant::now();
    // Called on every event: a failure stops the run at once.
    let ended = simulation.controller_source(&programs).run_with(&mut |now| {
        if session.is_stopped() {
            return ControlFlow::Break(());
        }
        if reported.elapsed() < REPORT_INTERVAL {
            return ControlFlow::Continue(());
        }
        reported = Instant::now();
        let go_on = progress(now);
        if go_on.is_break() {
            // The programs are ended without waiting for them.
            session.stopped.store(true, Ordering::Release);
        }
        go_on
    });
    // The controllers are dropped by now, and their programs have ended.
    let failure = session.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
    match failure {
        Some(error) => Err(RunError::Program { run: case.label(), error: Box::new(error) }),
        None => ended.map_err(|error| RunError::of_simulation(case, error)),
    }
}

impl ControllerSource for Programs {
    fn knows(&self, name: &str) -> bool {
        is_program(name)
    }

    fn create(
        &self,
        flow: usize,
        name: &str,
        config: &Config,
        settings: &[(&str, &str)],
    ) -> Result<Box<dyn CongestionControl>, String> {
        let command = Command::parse(name).map_err(|fault| fault.reason)?;
        if self.session.started.fetch_add(1, Ordering::Relaxed) >= MAX_PROGRAMS {
            return Err(format!("a run starts at most {MAX_PROGRAMS} programs, one for each flow"));
        }
        let session = Arc::clone(&self.session);
        ProgramController::start(&command, flow, name, config, settings, session)
            .map(|controller| Box::new(controller) as Box<dyn CongestionControl>)
    }
}

/// A line of the protocol of controllers in other programs, `fullpipe/controller/1`: a message to the
/// program, or an answer from it.
#[derive(schemars::JsonSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "only its schema is used")]
enum Line<'a> {
    Message(Message),
    Answer(Answer<'a>),
}

/// The JSON Schema of the protocol's lines, in both directions.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Line<'_>).to_value()
}
