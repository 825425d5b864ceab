//! Progress reports of runs, and how a caller stops them.

use fullpipe_units::Span;

/// Receives the progress of runs, on whichever thread runs them, and can stop them. `()` ignores
/// progress and never stops.
pub trait Monitor: Sync {
    /// Whether to stop all runs; called often during a run. Finished runs are kept.
    fn interrupted(&self) -> bool {
        false
    }

    /// A run has advanced by `by`.
    fn advanced(&self, by: Span) {
        let _ = by;
    }

    /// A run has ended, `left` before its scenario's duration.
    fn finished(&self, left: Span) {
        let _ = left;
    }

    /// A note about the batch for the user: one line of text.
    fn note(&self, text: &str) {
        let _ = text;
    }

    /// A finished run was invalid and is repeated now.
    fn repeated(&self, repeat: &Repeat) {
        let _ = repeat;
    }
}

impl Monitor for () {}

/// The repeat of an invalid run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Repeat {
    /// Label of the run.
    pub label: String,
    /// Why it was invalid.
    pub reasons: Vec<String>,
    /// How long the repeat takes.
    pub duration: Span,
}
