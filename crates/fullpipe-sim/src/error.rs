//! Why a run gave no recording.

use fullpipe_experiment::scenario::Fault;
use fullpipe_path::BuildError;
use fullpipe_units::Span;

/// Why a run gave no recording.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// The scenario contradicts itself or asks for what cannot be.
    #[error("{0}")]
    Scenario(#[from] Fault),
    /// A flow's controller cannot be made.
    #[error("flow.{flow}.cc: {reason}")]
    Controller {
        /// Which flow, counted from 0 in the order of the scenario.
        flow: usize,
        /// What is wrong and what is possible.
        reason: String,
    },
    /// The path cannot be built.
    #[error("path.{direction}.{0}.{1}: {2}", error.link, error.key, error.reason)]
    Path {
        /// `forward` or `reverse`.
        direction: &'static str,
        /// Which link, which key, what is wrong.
        error: BuildError,
    },
    /// More happened than the scenario's rates and duration can account for.
    #[error(
        "stopped after {events} events at {at} of {duration}: the path lets more packets through than a run can \
         follow; give it a rate, a longer delay or a shorter duration"
    )]
    TooManyEvents {
        /// How many there were.
        events: u64,
        /// How far the run had come.
        at: Span,
        /// How long it should have been.
        duration: Span,
    },
    /// The caller ended the run.
    #[error("interrupted at {at}")]
    Interrupted {
        /// How far the run had come.
        at: Span,
    },
}
