//! Plans: the exact changes, their order, and the reasons.
//!
//! A [`Plan`] is a list of [`Step`]s. Each [`Change`] has the states before and after it, detects
//! which one is
//! current, and can be performed and undone. Order matters: the queueing discipline comes before
//! the controller that needs it, and the running kernel before the boot files, so that a restart
//! restores a host that a change made unreachable.

mod allowed;
pub(crate) mod boot_files;
mod change;
mod make;
mod state;
mod step_state;
mod tree;
pub(crate) mod unit;

pub(crate) use crate::names::{ALLOWED, CONTROLLER};
pub(crate) use boot_files::BootFiles;
pub use boot_files::{DISABLED_PREFIX, MODULES_FILE, SYSCTL_FILE};
pub use change::Change;
pub(crate) use change::choice;
pub use make::make;
pub(crate) use make::make_with;
pub(crate) use make::{buffer_needed, controller_changes, find_controller, version_note};
pub use state::{Content, FileState, install, tidy};
pub(crate) use state::{has_temporary, refuse_unsafe_file, tidy_if};
pub use step_state::StepState;
pub use tree::Tree;
pub use unit::{ControllerUnit, unit_name, unit_word};
pub(crate) use unit::{refuse_writable_program, unit_path};

use crate::controllers::is_ebpf;
use crate::host::{Host, Presence, View};
use fullpipe_units::{Rate, Span};
use serde::{Deserialize, Serialize};
use std::io;

/// A request.
#[derive(Clone, PartialEq, Debug)]
pub struct Request {
    /// The controller: `bbr`, `cubic`, `fp_hybla`…
    pub controller: String,
    /// The queueing discipline of real devices.
    pub qdisc: QdiscChoice,
    /// Devices whose manually chosen discipline may be replaced.
    pub replace_on: Vec<String>,
    /// Raise the socket buffer limits for this path.
    pub buffers: Option<(Rate, Span)>,
    /// Change only the running kernel: a restart rolls the change back.
    pub live_only: bool,
    /// Use the controller for this destination only.
    pub canary: Option<String>,
}

impl Request {
    /// A controller with recommended settings.
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
    /// fq for a controller that paces, if the kernel has it; otherwise unchanged.
    Recommended,
    /// Unchanged.
    Keep,
    /// This kind, or an error.
    Kind(String),
}

/// One change and its reason.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// The change.
    pub change: Change,
    /// The reason.
    pub why: String,
    /// The assignment of a loaded controller it belongs to; `None` for an apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_of: Option<Use>,
    /// Whether it is in the journal and was not begun yet: then a rollback leaves its object alone.
    /// Journals of earlier versions do not have this.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_pending: bool,
}

/// The assignment of a loaded controller (`fullpipe cc load`). Its effects on the running kernel
/// end with a restart, as the loaded controller does.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Use {
    /// The name it is registered under.
    pub controller: String,
    /// Boot ID of the boot in which it was assigned.
    pub boot: String,
}

impl Step {
    /// A step of an apply.
    pub(crate) fn new(change: Change, why: impl Into<String>) -> Step {
        Step { change, why: why.into(), part_of: None, is_pending: false }
    }

    /// This step as the journal has it before it is begun.
    pub(crate) fn pending(self) -> Step {
        Step { is_pending: true, ..self }
    }

    /// Whether it belongs to the assignment of this controller.
    pub(crate) fn uses(&self, controller: &str) -> bool {
        self.part_of.as_ref().is_some_and(|part| part.controller == controller)
    }

    /// Whether a restart has undone it.
    pub(crate) fn is_over(&self, boot: &str) -> bool {
        self.change.is_live() && self.part_of.as_ref().is_some_and(|part| part.boot != boot)
    }

    /// Whether the process that it depends on is known to have exited.
    pub(crate) fn is_abandoned(&self, view: &dyn View) -> bool {
        matches!(&self.change, Change::Split { owner, .. } if owner.presence(view) == Presence::Exited)
    }
}

/// Steps in order, with notes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The controller of new connections.
    pub controller: String,
    /// The required steps, in order.
    pub steps: Vec<Step>,
    /// Settings that were left unchanged, and what to expect.
    pub notes: Vec<String>,
    /// The destination of a canary, if the plan is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<String>,
}

impl Plan {
    /// This plan for a report, without the progress of its steps.
    pub(crate) fn without_progress(mut self) -> Plan {
        self.steps.iter_mut().for_each(|step| step.is_pending = false);
        self
    }

    /// Whether there are no steps.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Whether a split divides new connections, so that one connection does not show the default.
    pub(crate) fn divides(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.change, Change::Split { .. }))
    }

    /// Whether it has steps of an apply, not only assignments of loaded controllers.
    pub(crate) fn has_apply(&self) -> bool {
        self.steps.iter().any(|step| step.part_of.is_none())
    }

    /// Whether its apply writes files for the default after a restart: for an eBPF controller the
    /// unit, which only hosts with systemd get.
    pub(crate) fn lasts(&self) -> bool {
        let sets = |path: &str| !is_ebpf(&self.controller) || path.ends_with(crate::names::UNIT);
        self.steps.iter().any(|step| {
            step.part_of.is_none() && matches!(&step.change, Change::File { path, .. } if sets(path))
        })
    }

    /// The next step that changes the same object.
    pub(crate) fn next_step_on_same_target(&self, number: usize) -> Option<usize> {
        let change = &self.steps[number].change;
        (number + 1..self.steps.len()).find(|&later| self.steps[later].change.same_target(change))
    }

    /// State of a step. If a later step changed the same object, its `before` state is compared.
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
