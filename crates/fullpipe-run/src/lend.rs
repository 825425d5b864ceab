//! Controllers that the kernel is lent for a run.

use fullpipe_experiment::scenario::Scenario;
use fullpipe_lab::Inspect;
use std::sync::Arc;

/// What can bring the kernel controllers that it lacks, for as long as this process lives, and look into them.
pub trait Lend: Sync {
    /// Has the kernel offer the controller `cc`, if that is one of those it can be lent.
    ///
    /// # Errors
    /// Why it cannot be brought, in words.
    fn lend(&self, cc: &str) -> Result<(), String>;

    /// How the lab sees what the controllers of `scenario` believe; without it a run is whole but for that.
    fn watcher(&self, scenario: &Scenario) -> Option<Arc<dyn Inspect>> {
        let _ = scenario;
        None
    }
}

/// Lends nothing: runs have what the kernel has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nothing;

impl Lend for Nothing {
    fn lend(&self, _: &str) -> Result<(), String> {
        Ok(())
    }
}

/// Whether the kernel offers a controller, or could be given it for as long as this process lives.
pub fn kernel_offers(cc: &str, lend: &dyn Lend) -> bool {
    lend.lend(cc).is_ok() && fullpipe_lab::offers(cc)
}
