//! Signals that end a command.

use crate::failure::Failure;
use fullpipe_kernel::signals;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A flag that is set when the command is to end: by Ctrl-C or SIGTERM. Call it before threads are
/// started, which inherit the blocked signals.
pub fn flag() -> Result<Arc<AtomicBool>, Failure> {
    let set = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&set);
    signals::on_termination(move || flag.store(true, Relaxed))
        .map_err(|e| Failure::Impossible(e.to_string()))?;
    Ok(set)
}
