//! Controllers that are loaded into the kernel for a run.

use fullpipe_experiment::scenario::Scenario;
use fullpipe_lab::Inspect;
use std::sync::Arc;

/// Loads controllers that the kernel lacks, until this process exits, and reads their state.
pub trait ControllerLoader: Sync {
    /// Makes the kernel offer the controller `cc`, if this loader has it; otherwise does nothing.
    ///
    /// # Errors
    /// Why it cannot be loaded, as a message for the user.
    fn load(&self, cc: &str) -> Result<(), String>;

    /// Returns a reader of the state of the controllers in `scenario`, if there is one. Without it
    /// a recording lacks the controllers' estimates.
    fn inspector(&self, scenario: &Scenario) -> Option<Arc<dyn Inspect>> {
        let _ = scenario;
        None
    }
}

/// Loads nothing: runs use the controllers that the kernel has.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLoader;

impl ControllerLoader for NoLoader {
    fn load(&self, _: &str) -> Result<(), String> {
        Ok(())
    }
}

/// Whether the kernel offers the controller `cc`, or `loader` can load it.
pub fn kernel_offers(cc: &str, loader: &dyn ControllerLoader) -> bool {
    loader.load(cc).is_ok() && fullpipe_lab::has_controller(cc)
}
