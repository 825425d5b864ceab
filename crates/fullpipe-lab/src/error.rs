//! Why the lab could not do what was asked.

use serde::{Deserialize, Serialize};

/// Why a run or a shell did not come about.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum LabError {
    /// This machine lacks something; the text names it and says how to get it.
    #[error("the lab cannot run on this machine: {0}")]
    Impossible(String),
    /// The scenario, the path or the command asks for something that makes no sense or does not exist.
    #[error("{0}")]
    Input(String),
    /// The caller asked to stop.
    #[error("stopped")]
    Stopped,
    /// Something failed that should not have.
    #[error("the lab failed: {0}")]
    Failed(String),
}

impl LabError {
    /// A system call failed while doing `what`: not anticipated, so told as it is.
    pub(crate) fn failed(what: &str, error: impl std::fmt::Display) -> Self {
        LabError::Failed(format!("{what}: {error}"))
    }
}
