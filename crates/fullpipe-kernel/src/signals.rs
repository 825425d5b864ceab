//! Termination: by signal in an orderly way, or immediately.

use nix::sys::signal::{SigSet, Signal};

/// Calls `end` at the first SIGINT or SIGTERM; a second one exits immediately. Call it before any
/// other thread is started, because threads inherit the blocked signals.
///
/// # Errors
/// When a thread cannot be started.
pub fn on_termination(end: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.thread_block()?;
    let started = std::thread::Builder::new().stack_size(128 * 1024).spawn(move || {
        if signals.wait().is_ok() {
            end();
        }
        if let Ok(signal) = signals.wait() {
            std::process::exit(128 + signal as i32);
        }
    });
    match started {
        Ok(_) => Ok(()),
        Err(e) => Err(std::io::Error::new(e.kind(), format!("cannot start a thread: {e}"))),
    }
}

/// Exits immediately with `code`, without running exit handlers, which in a forked process belong
/// to its parent.
pub fn exit_immediately(code: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}
