//! Failures of commands, and their exit codes.

use fullpipe_kernel::printable;
use std::fmt::{self, Display, Formatter};
use std::process::ExitCode;

/// Why a command failed. Each kind has its exit code; the text says what is wrong, where, and what
/// to do.
#[derive(Debug)]
pub enum Failure {
    /// A check failed (exit code 1).
    Check(String),
    /// Bad usage or input (exit code 2).
    Usage(String),
    /// Not possible on this machine (exit code 3).
    Impossible(String),
    /// The exit code of a command that was run, or of a failure that is already printed.
    Passed(u8),
}

impl Failure {
    /// Bad usage or input.
    pub fn usage(reason: impl Display) -> Self {
        Failure::Usage(reason.to_string())
    }

    /// Prints the reason on stderr and returns the exit code.
    pub fn report(self) -> ExitCode {
        let code = match self {
            Failure::Check(_) => 1,
            Failure::Usage(_) => 2,
            Failure::Impossible(_) => 3,
            Failure::Passed(code) => return ExitCode::from(code),
        };
        // Reasons may quote peers and files.
        eprintln!("fullpipe: {}", printable::coloured(&self.to_string()));
        ExitCode::from(code)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Check(text) | Failure::Usage(text) | Failure::Impossible(text) => f.write_str(text),
            Failure::Passed(code) => write!(f, "exited with code {code}"),
        }
    }
}
