//! Why a run gave no recording.

use fullpipe_sim::SimError;

/// Why a run gave no recording.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The simulator cannot run it.
    #[error("{run}: {error}")]
    Sim {
        /// The run's label.
        run: String,
        /// Why.
        error: SimError,
    },
    /// The lab cannot run it.
    #[cfg(feature = "lab")]
    #[error(transparent)]
    Lab(#[from] fullpipe_lab::LabError),
    /// The kernel lacks a controller, and was not given it.
    #[error("{cc}: {reason}")]
    NotLent {
        /// Its name.
        cc: String,
        /// Why.
        reason: String,
    },
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
}
