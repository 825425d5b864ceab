//! Errors of runs.

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
