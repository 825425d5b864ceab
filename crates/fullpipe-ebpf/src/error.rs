//! Why a controller could not be loaded, used or removed.

use crate::features::Feature;
use std::path::PathBuf;

/// What went wrong, with what would help.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This machine or this process cannot do it.
    #[error("{what}\n  help: {help}")]
    Impossible {
        /// The exact thing that is missing.
        what: String,
        /// What would provide it.
        help: String,
    },
    /// The kernel lacks what a controller needs.
    #[error("{}\n  help: {}", lacks(what, *feature), newer(*feature))]
    MissingFeature {
        /// The controller.
        what: String,
        /// What it needs.
        feature: Feature,
    },
    /// There is no controller of that name here.
    #[error("there is no controller {name:?}; known: {known}")]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// The names that would have been understood.
        known: String,
    },
    /// A file or a kernel interface refused.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// What was being done, such as "cannot read".
        what: &'static str,
        /// To what.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file given to us is not what it should be.
    #[error("{0}")]
    Malformed(String),
}

impl Error {
    /// Something missing on this machine, and what would help.
    pub fn impossible(what: impl Into<String>, help: impl Into<String>) -> Self {
        Error::Impossible { what: what.into(), help: help.into() }
    }

    /// What is missing and what would help, where this machine is the reason.
    pub fn missing(&self) -> Option<(String, String)> {
        match self {
            Error::Impossible { what, help } => Some((what.clone(), help.clone())),
            Error::MissingFeature { what, feature } => Some((lacks(what, *feature), newer(*feature))),
            _ => None,
        }
    }

    /// For `map_err`: names the path and what was tried.
    pub fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Error::Io { what, path, source }
    }
}

fn lacks(what: &str, feature: Feature) -> String {
    format!("this kernel has no {}, which {what} needs", feature.about())
}

fn newer(feature: Feature) -> String {
    format!(
        "a newer kernel: Linux has it since {}; docs/reference/kernels.md says which has what",
        feature.since()
    )
}

/// The crate's results.
pub type Result<T> = std::result::Result<T, Error>;
