//! Errors of runs.

use fullpipe_experiment::scenario::Case;
use fullpipe_sim::SimError;

/// A run failed and has no recording.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The simulator failed.
    #[error("{run}: {error}")]
    Sim {
        /// The run's label.
        run: String,
        /// The cause.
        error: SimError,
    },
    /// A controller in another program failed.
    #[cfg(all(feature = "exec", target_os = "linux"))]
    #[error("{run}: {error}")]
    Program {
        /// The run's label.
        run: String,
        /// The cause.
        error: Box<crate::exec::ProgramError>,
    },
    /// The lab failed.
    #[cfg(feature = "lab")]
    #[error(transparent)]
    Lab(#[from] fullpipe_lab::LabError),
    /// The kernel lacks a controller, and it could not be loaded.
    #[error("{cc}: {reason}")]
    ControllerUnavailable {
        /// The controller's name.
        cc: String,
        /// The cause.
        reason: String,
    },
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl RunError {
    /// The error of the simulation of `case`.
    pub(crate) fn of_simulation(case: &Case, error: SimError) -> Self {
        match error {
            SimError::Interrupted { .. } => RunError::Interrupted,
            error => RunError::Sim { run: case.label(), error },
        }
    }

    /// Why a flow's transport closed its connection, if that is what happened.
    pub fn closed_connection(&self) -> Option<String> {
        match self {
            RunError::Sim { error: error @ SimError::Transport { .. }, .. } => Some(error.to_string()),
            _ => None,
        }
    }
}
