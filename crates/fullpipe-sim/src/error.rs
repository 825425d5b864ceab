//! Errors of simulations.

use fullpipe_experiment::scenario::Fault;
use fullpipe_path::BuildError;
use fullpipe_units::Span;

/// A simulation failed and has no recording.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// The scenario contradicts itself or asks for something impossible.
    #[error("{0}")]
    Scenario(#[from] Fault),
    /// A flow's controller cannot be created.
    #[error("flow.{flow}.cc: {reason}")]
    Controller {
        /// Index of the flow, from 0, in the order of the scenario.
        flow: usize,
        /// What is wrong, and the valid values.
        reason: String,
    },
    /// A flow's transport closed the connection.
    #[error("flow.{flow}: {cc} closed the connection at {:.3} s: {reason}", at.as_secs_f64())]
    Transport {
        /// Index of the connection, from 0.
        flow: usize,
        /// The flow's controller.
        cc: String,
        /// Virtual time at which the run stopped.
        at: Span,
        /// The transport's reason, in its own words.
        reason: String,
    },
    /// The path cannot be built.
    #[error("path.{direction}.{0}.{1}: {2}", error.link, error.key, error.reason)]
    Path {
        /// `forward` or `reverse`.
        direction: &'static str,
        /// The link, the key, and what is wrong.
        error: BuildError,
    },
    /// The run had more events than the scenario's rates and duration can account for.
    #[error(
        "stopped after {events} events at {at} of {duration}: the path carries more packets than a run can \
         simulate; set a rate, a longer delay or a shorter duration"
    )]
    TooManyEvents {
        /// Number of events.
        events: u64,
        /// Virtual time at which the run stopped.
        at: Span,
        /// Duration of the scenario.
        duration: Span,
    },
    /// The caller stopped the run.
    #[error("interrupted at {at}")]
    Interrupted {
        /// Virtual time at which the run stopped.
        at: Span,
    },
}
