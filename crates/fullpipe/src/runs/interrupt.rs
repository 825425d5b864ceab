//! Ctrl-C: the first stops the runs, so that finished ones can be reported; the second exits at
//! once.

use std::sync::atomic::{AtomicBool, Ordering};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Installs the handler. Call it once, in commands that run for long.
pub fn watch() {
    // If this fails, Ctrl-C exits at once, which is acceptable.
    let _ = ctrlc::set_handler(|| {
        if REQUESTED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    });
}

/// Whether Ctrl-C was pressed.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}
