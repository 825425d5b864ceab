//! What would change, exactly, in which order and why.
//!
//! A [`Plan`] is a list of [`Step`]s, each a [`Change`] that knows the state before it and the state after it, can
//! tell which of the two holds, and can go either way. Order matters: the queueing discipline is there before the
//! controller that wants it, and the running kernel changes before its boot files, so that a host which a change
//! makes unreachable comes back as it was when it is restarted.

mod boot_files;
mod change;
mod make;
mod state;

pub use boot_files::{BEGIN, MODULES_FILE, SYSCTL_FILE};
pub use change::{Change, Standing, Tree};
pub(crate) use make::buffer_needed;
pub use make::make;
pub use state::{Content, FileState, install, tidy};

use fullpipe_units::{Rate, Span};
use serde::{Deserialize, Serialize};

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
}
