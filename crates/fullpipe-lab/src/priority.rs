//! How the lab's threads ask the scheduler for their turn. Other programs on the machine are the main
//! cause of late packets; where the machine does not grant a preference, the audit shows it.
//!
//! The first process takes all it can get before it enters its user namespace; threads and processes
//! inherit that, and all but the emulator's give it back.

/// For the calling process: real-time priority and a negative nice value, if it may.
pub(crate) fn take() {
    schedule(libc::SCHED_FIFO, 1);
    nice(-10);
}

/// For the calling thread, which is the emulator's: timers to the nanosecond. If it will be `busy` nearly
/// all of the time it gives real-time priority back, because the kernel stops such threads for 50 ms in
/// each second (`sched_rt_runtime_us`).
pub(crate) fn emulator(busy: bool) {
    let _ = nix::sys::prctl::set_timerslack(1);
    if busy {
        schedule(libc::SCHED_OTHER, 0);
    }
}

/// For the calling thread, which is an end's: timers to the nanosecond, no real-time priority.
pub(crate) fn endpoint() {
    let _ = nix::sys::prctl::set_timerslack(1);
    schedule(libc::SCHED_OTHER, 0);
}

/// For a command that is about to be executed: as any other. Only makes system calls.
pub(crate) fn ordinary() {
    schedule(libc::SCHED_OTHER, 0);
    nice(0);
}

/// By the kernel's own call: musl's `sched_setscheduler` only answers ENOSYS, since POSIX means a process and the kernel a
/// thread. The kernel's `struct sched_param` is the priority alone.
fn schedule(policy: libc::c_int, priority: libc::c_int) {
    // SAFETY: the parameter lives through the call; 0 means the calling thread.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) };
}

fn nice(value: libc::c_int) {
    // SAFETY: takes plain numbers; 0 means the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, value) };
}
