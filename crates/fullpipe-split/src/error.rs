//! Errors in plans and files.

/// An invalid plan, or an unreadable file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// Invalid arms, shares, bounds or unit of assignment.
    #[error("`{input}`: {reason}")]
    Invalid {
        /// The input.
        input: String,
        /// The problem, and a correction.
        reason: String,
    },
    /// An invalid file of outcomes.
    #[error("line {line}: {reason}")]
    File {
        /// Line number, from 1.
        line: u64,
        /// The problem.
        reason: String,
    },
}

impl SplitError {
    /// An error in `input`.
    pub fn invalid(input: impl Into<String>, reason: impl Into<String>) -> Self {
        SplitError::Invalid { input: input.into(), reason: reason.into() }
    }
}
