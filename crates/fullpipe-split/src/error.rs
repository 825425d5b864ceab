//! What is wrong with what somebody asked for or wrote.

/// Why a split cannot be as asked, or a file of one cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// Arms, shares, bounds or what is assigned make no sense.
    #[error("`{written}`: {reason}")]
    Asked {
        /// What was written.
        written: String,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// A file of outcomes is not one.
    #[error("line {line}: {reason}")]
    File {
        /// Counted from 1.
        line: u64,
        /// What is wrong there.
        reason: String,
    },
}

impl SplitError {
    /// Something that was asked for.
    pub fn asked(written: impl Into<String>, reason: impl Into<String>) -> Self {
        SplitError::Asked { written: written.into(), reason: reason.into() }
    }
}
