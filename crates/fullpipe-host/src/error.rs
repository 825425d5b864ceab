//! Why something about a host could not be done, in the three kinds that a caller tells apart.

use std::fmt;

/// A refusal or a failure. The text says what was wrong, where, and what to do about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// The host is not as it must be: something changed, a verification failed. Exit code 1.
    Check(String),
    /// The request makes no sense here: unknown controller, contradictory options. Exit code 2.
    Usage(String),
    /// Not possible on this machine or with these privileges. Exit code 3.
    Impossible(String),
}

impl Error {
    /// The host is not as it must be.
    pub fn check(text: impl fmt::Display) -> Self {
        Error::Check(text.to_string())
    }

    /// The request makes no sense here.
    pub fn usage(text: impl fmt::Display) -> Self {
        Error::Usage(text.to_string())
    }

    /// Not possible on this machine.
    pub fn impossible(text: impl fmt::Display) -> Self {
        Error::Impossible(text.to_string())
    }

    /// The text alone.
    pub fn text(&self) -> &str {
        match self {
            Error::Check(t) | Error::Usage(t) | Error::Impossible(t) => t,
        }
    }

    /// An operating-system error while doing `what`, with the advice that the error number allows.
    pub fn io(what: impl fmt::Display, error: &std::io::Error) -> Self {
        use std::io::ErrorKind::*;
        let advice = match error.kind() {
            PermissionDenied => ": run it as root (sudo fullpipe …)",
            ReadOnlyFilesystem => ": the file system is read-only (in a container, act on the host instead)",
            StorageFull => ": the disk is full; free some space and run the command again",
            _ => "",
        };
        Error::Impossible(format!("{what}: {error}{advice}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for Error {}

/// What this crate's operations give.
pub type Result<T> = std::result::Result<T, Error>;
