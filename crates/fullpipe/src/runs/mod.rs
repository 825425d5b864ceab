//! What the commands that run scenarios share: choice of engine, files, progress, Ctrl-C, results.

mod choice;
mod controllers;
mod input;
mod interrupt;
mod progress;
mod reporting;

pub use choice::Choice;
pub use controllers::{EBPF_CONTROLLERS, kernel_offers, reenter, unload_all};
#[cfg(any(feature = "ebpf", feature = "trace"))]
pub use input::open;
pub use input::{check_controller, contestants, listed, read, read_as, recording_text, unreadable};
pub use progress::Progress;
#[cfg(any(feature = "net", feature = "live"))]
pub use reporting::open_outputs;
#[cfg(feature = "net")]
pub use reporting::width;
#[cfg(feature = "live")]
pub use reporting::write;
pub use reporting::{Outputs, Reporting, command_line, print_hanging, quoted, verdict};

use crate::failure::Failure;
use fullpipe_lab::LabError;
use fullpipe_run::RunError;

/// The failure for an error of a run.
pub fn failure(error: RunError) -> Failure {
    match error {
        RunError::Lab(error) => in_lab(error),
        RunError::ControllerUnavailable { .. } => Failure::Impossible(error.to_string()),
        RunError::Interrupted => Failure::Passed(130),
        error => Failure::usage(error),
    }
}

/// The failure for an error of the lab.
pub fn in_lab(error: LabError) -> Failure {
    match error {
        LabError::Impossible(_) | LabError::Failed(_) => Failure::Impossible(error.to_string()),
        LabError::Input(_) => Failure::Usage(error.to_string()),
        LabError::Stopped => Failure::Passed(130),
    }
}
