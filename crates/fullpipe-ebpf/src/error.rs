//! Why a controller could not be loaded, used or removed.

use crate::feature::Feature;
use std::path::PathBuf;

/// What went wrong, with a remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not possible on this machine or with these privileges.
    #[error("{what}\n  help: {help}")]
    Impossible {
        /// What is missing.
        what: String,
        /// The remedy.
        help: String,
    },
    /// The kernel lacks what a controller needs.
    #[error("{}\n  help: {}", missing_feature(what, *feature), newer_kernel(*feature))]
    MissingFeature {
        /// The controller.
        what: String,
        /// The missing feature.
        feature: Feature,
    },
    /// Unknown controller.
    #[error("unknown controller {name:?}; known: {known}")]
    Unknown {
        /// The requested name.
        name: String,
        /// The known names.
        known: String,
    },
    /// A file or kernel interface returned an error.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// What was being done, such as "cannot read".
        what: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Invalid input or an invalid file.
    #[error("{0}")]
    Malformed(String),
}

impl Error {
    /// An error about something missing on this machine, with a remedy.
    pub fn impossible(what: impl Into<String>, help: impl Into<String>) -> Self {
        Error::Impossible { what: what.into(), help: help.into() }
    }

    /// What is missing and the remedy, if this machine is the cause.
    pub fn missing(&self) -> Option<(String, String)> {
        match self {
            Error::Impossible { what, help } => Some((what.clone(), help.clone())),
            Error::MissingFeature { what, feature } => {
                Some((missing_feature(what, *feature), newer_kernel(*feature)))
            }
            _ => None,
        }
    }

    /// For `map_err`: adds the path and the attempted action.
    pub fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Error::Io { what, path, source }
    }
}

fn missing_feature(what: &str, feature: Feature) -> String {
    format!("this kernel has no {}, which {what} needs", feature.about())
}

fn newer_kernel(feature: Feature) -> String {
    format!("use a newer kernel: available since Linux {}; see docs/reference/kernels.md", feature.since())
}

/// The crate's results.
pub type Result<T> = std::result::Result<T, Error>;
