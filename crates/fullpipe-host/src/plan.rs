//! What would change, exactly, in which order and why.
//!
//! A [`Plan`] is a list of [`Step`]s, each a [`Change`] that knows the state before it and the state after it, can
//! tell which of the two holds, and can go either way. Order matters: the queueing discipline is there before the
//! controller that wants it, and the running kernel changes before its boot files, so that a host which a change
//! makes unreachable comes back as it was when it is restarted.

mod allowed;
pub(crate) mod boot_files;
mod change;
mod make;
mod state;
mod step_state;
mod tree;
pub(crate) mod unit;

pub(crate) use boot_files::BootFiles;
pub use boot_files::{DISABLED_PREFIX, MODULES_FILE, SYSCTL_FILE};
pub use change::Change;
pub(crate) use change::choice;
pub use make::make;
pub(crate) use make::{ALLOWED, CONTROLLER, buffer_needed, controller_changes, find_controller};
pub use state::{Content, FileState, install, tidy};
pub use step_state::StepState;
pub use tree::Tree;
pub(crate) use unit::unit_path;
pub use unit::{ControllerUnit, unit_name, unit_word};

use crate::host::{Host, View};
use fullpipe_units::{Rate, Span};
use serde::{Deserialize, Serialize};
use std::io;

/// What is asked for.
#[derive(Clone, PartialEq, Debug)]
pub struct Request {
    /// The controller: `bbr`, `cubic`, `fp_hybla`…
    pub controller: String,
    /// The queueing discipline of real devices.
    pub qdisc: QdiscChoice,
    /// Devices whose discipline someone chose by hand and which may be replaced all the same.
    pub replace_on: Vec<String>,
    /// Raise the socket buffer limits for this path.
    pub buffers: Option<(Rate, Span)>,
    /// Change only the running kernel: after a restart everything is as before.
    pub live_only: bool,
    /// Try the controller on this destination alone.
    pub canary: Option<String>,
}

impl Request {
    /// A controller with everything else as recommended.
    pub fn new(controller: &str) -> Request {
        Request {
            controller: controller.to_owned(),
            qdisc: QdiscChoice::Recommended,
            replace_on: Vec::new(),
            buffers: None,
            live_only: false,
            canary: None,
        }
    }
}

/// Which queueing discipline devices should have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QdiscChoice {
    /// fq for a controller that paces, where the kernel has it; otherwise what is there.
    Recommended,
    /// What is there.
    Keep,
    /// This one, or a refusal.
    Kind(String),
}

/// One change and its reason.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// The change.
    pub change: Change,
    /// Why it is needed.
    pub why: String,
    /// The use of a loaded controller that it is part of; nothing if it is part of an apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_of: Option<Use>,
}

/// A controller that was loaded and put to use (`fullpipe cc load`): what it does in the running kernel ends with the run
/// of the machine, as the loaded controller does.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Use {
    /// The name that it is registered under.
    pub controller: String,
    /// The run of the machine in which it was put to use.
    pub boot: String,
}

impl Step {
    /// A step of an apply.
    pub(crate) fn new(change: Change, why: impl Into<String>) -> Step {
        Step { change, why: why.into(), part_of: None }
    }

    /// Whether it is part of the use of this controller.
    pub(crate) fn uses(&self, controller: &str) -> bool {
        self.part_of.as_ref().is_some_and(|part| part.controller == controller)
    }

    /// Whether a restart has ended what it did.
    pub(crate) fn is_over(&self, boot: &str) -> bool {
        self.change.is_live() && self.part_of.as_ref().is_some_and(|part| part.boot != boot)
    }

    /// Whether the process has ended whose doing it was, and with it what it did.
    pub(crate) fn is_abandoned(&self, view: &dyn View) -> bool {
        matches!(&self.change, Change::Split { owner, .. } if !owner.runs(view))
    }
}

/// The steps, in order, and what the reader should know besides.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The controller that new connections will have.
    pub controller: String,
    /// The steps that are needed, in order.
    pub steps: Vec<Step>,
    /// What was found and left as it is, and what to expect.
    pub notes: Vec<String>,
    /// The destination on which the controller is tried first, if that is all the plan does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<String>,
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Whether new connections are divided between controllers, so that one of them says nothing of the default.
    pub(crate) fn divides(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.change, Change::Split { .. }))
    }

    /// Whether an apply is part of it, not only uses of loaded controllers.
    pub(crate) fn has_apply(&self) -> bool {
        self.steps.iter().any(|step| step.part_of.is_none())
    }

    /// Whether its apply has files decide the default after a restart. A loaded controller's unit comes after all files.
    pub(crate) fn lasts(&self) -> bool {
        !self.controller.starts_with("fp_")
            && self
                .steps
                .iter()
                .any(|step| step.part_of.is_none() && matches!(step.change, Change::File { .. }))
    }

    /// The next step that changes the same thing as the one of that number.
    pub(crate) fn next_step_on_same_target(&self, number: usize) -> Option<usize> {
        let change = &self.steps[number].change;
        (number + 1..self.steps.len()).find(|&later| self.steps[later].change.same_target(change))
    }

    /// Where the host stands with a step. What a later step changed further is as this step left it if that is where the
    /// later one began.
    ///
    /// # Errors
    /// The object cannot be read.
    pub(crate) fn state(&self, host: &dyn Host, number: usize) -> io::Result<StepState> {
        let change = &self.steps[number].change;
        match self
            .next_step_on_same_target(number)
            .and_then(|later| change.state_before(&self.steps[later].change))
        {
            Some(standing) => Ok(standing),
            None => change.state(host),
        }
    }
}
