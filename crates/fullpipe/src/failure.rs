//! How a command ends when it does not end well, and the exit code that goes with it.

use std::fmt::{self, Display, Formatter};
use std::process::ExitCode;

/// Why a command did not succeed. Each kind has its exit code; the text says what was wrong, where,
/// and what to do about it.
#[derive(Debug)]
pub enum Failure {
    /// A check of the user's did not hold (exit code 1).
    Check(String),
    /// Bad usage or input (exit code 2).
    Usage(String),
    /// Not possible on this machine (exit code 3).
    Impossible(String),
    /// The command that was run inside ended with this code; its own output said why.
    Passed(u8),
}

impl Failure {
    /// Bad usage or input.
    pub fn usage(reason: impl Display) -> Self {
        Failure::Usage(reason.to_string())
    }

    /// Prints the reason on stderr and gives the exit code.
    pub fn report(self) -> ExitCode {
        let code = match self {
            Failure::Check(_) => 1,
            Failure::Usage(_) => 2,
            Failure::Impossible(_) => 3,
            Failure::Passed(code) => return ExitCode::from(code),
        };
        eprintln!("fullpipe: {self}");
        ExitCode::from(code)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Check(text) | Failure::Usage(text) | Failure::Impossible(text) => f.write_str(text),
            Failure::Passed(code) => write!(f, "it ended with exit code {code}"),
        }
    }
}
