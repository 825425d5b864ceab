//! Ending: in good order when the user or the system says so, or at once.

use nix::sys::signal::{SigSet, Signal};

/// Calls `end` at the first SIGINT or SIGTERM; a second one ends the process at once. To be called before
/// any other thread is started: they inherit that the signals are blocked.
///
/// # Errors
/// When a thread cannot be started.
pub fn on_termination(end: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.thread_block()?;
    std::thread::Builder::new().stack_size(128 * 1024).spawn(move || {
        if signals.wait().is_ok() {
            end();
        }
        if let Ok(signal) = signals.wait() {
            std::process::exit(128 + signal as i32);
        }
    })?;
    Ok(())
}

/// Ends the process at once with exit code `code`, without exit handlers: a process that was forked has its parent's, which are
/// the parent's to run.
pub fn exit_immediately(code: i32) -> ! {
    // SAFETY: ends the process; nothing is looked at afterwards.
    unsafe { libc::_exit(code) }
}
