//! What stands in for [`lent`](super::lent) where the controllers that can be loaded are not built in.

use fullpipe_experiment::scenario::Scenario;
use fullpipe_lab::{Inspect, offers};
use std::sync::Arc;

/// The first thing that the program does: the lab starts it again as its own process.
pub use fullpipe_lab::reenter;

/// Refuses what the kernel lacks and only a loaded controller could be.
pub fn lend(cc: &str) -> Result<(), &'static str> {
    if cc.starts_with("fp_") && !offers(cc) {
        return Err("this fullpipe was built without the controllers it can load (feature `ebpf`)");
    }
    Ok(())
}

pub fn watcher(_: &Scenario) -> Option<Arc<dyn Inspect>> {
    None
}
