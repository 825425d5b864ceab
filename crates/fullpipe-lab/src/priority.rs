//! Scheduling priority of the lab's threads. Other programs on the machine are the main cause of
//! late packets; if the machine does not grant priority, the audit shows it.
//!
//! The first process raises its priority as far as it may before it enters its user namespace.
//! Threads and child processes inherit it, and all but the emulator's lower it again.

use fullpipe_kernel::scheduler::{self, Policy};

/// For the calling process: real-time priority and a negative nice value, if it may.
pub(crate) fn raise() {
    schedule(Policy::Fifo(1));
    nice(-10);
}

/// For a thread of the emulator: timers exact to the nanosecond. A thread that is `busy` nearly all
/// the time drops real-time priority, because the kernel throttles such threads for 50 ms per
/// second (`sched_rt_runtime_us`).
pub(crate) fn emulator(busy: bool) {
    let _ = nix::sys::prctl::set_timerslack(1);
    if busy {
        schedule(Policy::Other);
    }
}

/// For a thread of an end: timers exact to the nanosecond, no real-time priority.
pub(crate) fn endpoint() {
    let _ = nix::sys::prctl::set_timerslack(1);
    schedule(Policy::Other);
}

/// For a command that is about to be executed: ordinary priority. Only makes system calls.
pub(crate) fn ordinary() {
    schedule(Policy::Other);
    nice(0);
}

fn schedule(policy: Policy) {
    let _ = scheduler::set_policy(policy);
}

fn nice(value: i32) {
    let _ = scheduler::set_nice(value);
}
