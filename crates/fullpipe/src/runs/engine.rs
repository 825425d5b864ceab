//! Which engine runs a case.

use crate::failure::Failure;
use fullpipe_experiment::Recording;
use fullpipe_experiment::recording::Engine;
use fullpipe_experiment::scenario::Case;
use fullpipe_sim::SimError;
use fullpipe_units::Time;
use std::ops::ControlFlow;

/// What the user may choose.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Choice {
    /// Simulated TCP in virtual time: quick, deterministic, nothing needed
    #[default]
    Sim,
}

impl Choice {
    /// The engines, in the order in which each case is run by them.
    pub fn engines(self) -> &'static [Engine] {
        match self {
            Choice::Sim => &[Engine::Sim],
        }
    }
}

/// How a run ended.
pub enum Ended {
    Finished(Box<Recording>),
    Interrupted,
    Failed(Failure),
}

/// Runs `case` in `engine`; `progress` hears how far it is and may stop it.
pub fn run(engine: Engine, case: &Case, progress: &mut dyn FnMut(Time) -> ControlFlow<()>) -> Ended {
    match engine {
        Engine::Sim => match fullpipe_sim::run(&case.scenario, case.scenario.seed, progress) {
            Ok(mut recording) => {
                recording.label.clone_from(&case.label);
                Ended::Finished(Box::new(recording))
            }
            Err(SimError::Interrupted { .. }) => Ended::Interrupted,
            Err(e) => Ended::Failed(Failure::usage(format!("{}: {e}", case.label))),
        },
        Engine::Lab | Engine::Net => {
            Ended::Failed(Failure::usage(format!("{}: cannot be run by {}", case.label, engine.name())))
        }
    }
}
