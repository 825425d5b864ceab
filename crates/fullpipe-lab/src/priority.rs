//! How the lab's threads ask the scheduler for their turn. Other programs on the machine are the main
//! cause of late packets; where the machine does not grant a preference, the audit shows it.
//!
//! The first process takes all it can get before it enters its user namespace; threads and processes
//! inherit that, and all but the emulator's give it back.

use fullpipe_kernel::scheduler::{self, Policy};

/// For the calling process: real-time priority and a negative nice value, if it may.
pub(crate) fn take() {
    schedule(Policy::Fifo(1));
    nice(-10);
}

/// For the calling thread, which is the emulator's: timers to the nanosecond. If it will be `busy` nearly
/// all of the time it gives real-time priority back, because the kernel stops such threads for 50 ms in
/// each second (`sched_rt_runtime_us`).
pub(crate) fn emulator(busy: bool) {
    let _ = nix::sys::prctl::set_timerslack(1);
    if busy {
        schedule(Policy::Other);
    }
}

/// For the calling thread, which is an end's: timers to the nanosecond, no real-time priority.
pub(crate) fn endpoint() {
    let _ = nix::sys::prctl::set_timerslack(1);
    schedule(Policy::Other);
}

/// For a command that is about to be executed: as any other. Only makes system calls.
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
