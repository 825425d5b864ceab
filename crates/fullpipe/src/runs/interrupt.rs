//! Ctrl-C: the first asks the runs to stop, so that what is finished can be reported; the second ends
//! the program at once.

use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

/// From now on Ctrl-C asks first. To be called once, by the command that runs something long.
pub fn watch() {
    // Without a handler Ctrl-C ends the program at once, which is still Ctrl-C.
    let _ = ctrlc::set_handler(|| {
        if ASKED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    });
}

/// Whether the user wants to stop.
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}
