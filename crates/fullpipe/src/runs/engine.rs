//! Which engine runs a case.

use super::lent;
use crate::failure::Failure;
use fullpipe_experiment::Recording;
use fullpipe_experiment::recording::Engine;
use fullpipe_experiment::scenario::Case;
use fullpipe_lab::LabError;
use fullpipe_sim::SimError;
use fullpipe_units::Time;
use std::ops::ControlFlow;
use std::path::PathBuf;

/// What the user may choose.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Choice {
    /// Simulated TCP in virtual time: quick, deterministic, nothing needed
    #[default]
    Sim,
    /// The running kernel's TCP over an emulated path, in real time; needs no root
    Lab,
    /// Each run in both
    Both,
}

impl Choice {
    /// The engines, in the order in which each case is run by them.
    pub fn engines(self) -> &'static [Engine] {
        match self {
            Choice::Sim => &[Engine::Sim],
            Choice::Lab => &[Engine::Lab],
            Choice::Both => &[Engine::Sim, Engine::Lab],
        }
    }
}

/// How a run ended.
pub enum Ended {
    Finished(Box<Recording>),
    Interrupted,
    Failed(Failure),
}

/// Whether the kernel offers a controller, or could be given it for as long as this process lives.
pub fn kernel_offers(cc: &str) -> bool {
    lent::lend(cc).is_ok() && fullpipe_lab::offers(cc)
}

/// Runs `case` in `engine`; `progress` hears how far it is and may stop it. With `pcap` the lab writes captures.
pub fn run(
    engine: Engine,
    case: &Case,
    pcap: Option<PathBuf>,
    progress: &mut dyn FnMut(Time) -> ControlFlow<()>,
) -> Ended {
    let scenario = &case.scenario;
    let ended = match engine {
        Engine::Sim => fullpipe_sim::run(scenario, scenario.seed, progress).map_err(|e| match e {
            SimError::Interrupted { .. } => None,
            e => Some(Failure::usage(format!("{}: {e}", case.label))),
        }),
        Engine::Lab => {
            for flow in &scenario.flows {
                if let Err(error) = lent::lend(&flow.cc) {
                    return Ended::Failed(Failure::Impossible(format!("{}: {error}", flow.cc)));
                }
            }
            let options =
                fullpipe_lab::Options { pcap, inspect: lent::watcher(scenario), ..Default::default() };
            fullpipe_lab::run_with(scenario, scenario.seed, &options, progress).map_err(|e| match e {
                LabError::Stopped => None,
                e => Some(crate::commands::lab::failure(e)),
            })
        }
        Engine::Net => {
            Err(Some(Failure::usage(format!("{}: a real network has no path to set", case.label))))
        }
    };
    match ended {
        Ok(mut recording) => {
            recording.label.clone_from(&case.label);
            Ended::Finished(Box::new(recording))
        }
        Err(Some(failure)) => Ended::Failed(failure),
        Err(None) => Ended::Interrupted,
    }
}
