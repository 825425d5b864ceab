//! Errors of the lab.

use serde::{Deserialize, Serialize};

/// A run or a shell failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum LabError {
    /// This machine lacks something; the text names it and how to get it.
    #[error("the lab cannot run on this machine: {0}")]
    Impossible(String),
    /// The scenario, the path or the command is invalid, or asks for something that does not exist.
    #[error("{0}")]
    Input(String),
    /// The caller stopped the run.
    #[error("stopped")]
    Stopped,
    /// An unexpected failure.
    #[error("the lab failed: {0}")]
    Failed(String),
}

impl LabError {
    /// An unexpected failure of a system call during `what`.
    pub(crate) fn failed(what: &str, error: impl std::fmt::Display) -> Self {
        LabError::Failed(format!("{what}: {error}"))
    }
}
