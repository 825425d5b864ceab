//! How the lab's threads ask the scheduler for their turn. Other programs on the machine are the main
//! cause of late packets; where the machine does not grant a preference, the audit shows it.
//!
//! The first process takes all it can get before it enters its user namespace; threads and processes
//! inherit that. The ends of a path that the machine can keep up with stay in front of other programs, too, behind the emulator: while
//! a program that has its socket locked waits for a processor, packets wait for the socket, and are answered in one go. All others give
//! it back.

/// Real-time priorities.
const EMULATOR: libc::c_int = 2;
const END: libc::c_int = 1;

/// For the calling process: real-time priority and a negative nice value, if it may.
pub(crate) fn take() {
    // `ulimit -r` may allow less.
    if !schedule(libc::SCHED_FIFO, EMULATOR) {
        schedule(libc::SCHED_FIFO, END);
    }
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

/// For the calling thread, which is an end's or looks at both: timers to the nanosecond. Real-time priority, if there is one less than
/// the emulator's, unless the ends may be `busy` nearly all of the time.
pub(crate) fn endpoint(busy: bool) {
    let _ = nix::sys::prctl::set_timerslack(1);
    if busy || present() < EMULATOR || !schedule(libc::SCHED_FIFO, END) {
        schedule(libc::SCHED_OTHER, 0);
    }
}

/// The calling thread's real-time priority, 0 if it has none.
fn present() -> libc::c_int {
    let mut priority: libc::c_int = 0;
    // SAFETY: the kernel writes one int, `struct sched_param`, which outlives the call; 0 means the calling thread.
    let failed = unsafe { libc::syscall(libc::SYS_sched_getparam, 0, &raw mut priority) } != 0;
    if failed { 0 } else { priority }
}

/// For a command that is about to be executed: as any other. Only makes system calls.
pub(crate) fn ordinary() {
    schedule(libc::SCHED_OTHER, 0);
    nice(0);
}

/// By the kernel's own call: musl's `sched_setscheduler` only answers ENOSYS, since POSIX means a process and the kernel a
/// thread. The kernel's `struct sched_param` is the priority alone. Whether it was granted.
fn schedule(policy: libc::c_int, priority: libc::c_int) -> bool {
    // SAFETY: the parameter lives through the call; 0 means the calling thread.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) == 0 }
}

fn nice(value: libc::c_int) {
    // SAFETY: takes plain numbers; 0 means the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, value) };
}
