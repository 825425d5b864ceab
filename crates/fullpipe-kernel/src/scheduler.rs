//! Scheduling policy and niceness of the calling thread (sched(7)).

use nix::errno::Errno;
use std::io;

/// Scheduling policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// Time sharing, weighted by niceness (`SCHED_OTHER`).
    Other,
    /// Real-time, before all time-sharing threads, without a time limit (`SCHED_FIFO`), with a
    /// priority of 1 to 99.
    Fifo(i32),
}

/// Sets the policy of the calling thread; its children inherit it. It only makes a system call, so
/// it may be called between fork and exec.
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE` or a sufficient `RLIMIT_RTPRIO`.
pub fn set_policy(policy: Policy) -> io::Result<()> {
    let (policy, priority) = match policy {
        Policy::Other => (libc::SCHED_OTHER, 0),
        Policy::Fifo(priority) => (libc::SCHED_FIFO, priority),
    };
    // A direct system call: musl's `sched_setscheduler` returns ENOSYS, since POSIX defines it per
    // process and the kernel per thread. The kernel's `struct sched_param` contains only the
    // priority. SAFETY: the parameter lives through the call; 0 means the calling thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) };
    Errno::result(result)?;
    Ok(())
}

/// Sets the niceness of the calling thread, from -20 (highest weight) to 19; its children inherit
/// it. It only makes a system call, so it may be called between fork and exec.
///
/// # Errors
/// `EACCES` when lowering it without `CAP_SYS_NICE` or a sufficient `RLIMIT_NICE`.
pub fn set_nice(value: i32) -> io::Result<()> {
    // SAFETY: only integer arguments; 0 means the calling thread.
    let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, value) };
    Errno::result(result)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// A field of the thread's `stat`, counted from 1 (proc_pid_stat(5)).
    fn field(number: usize) -> i32 {
        let text = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        // The second field is a name in parentheses with arbitrary characters.
        let rest = text.rsplit_once(')').unwrap().1;
        rest.split_whitespace().nth(number - 3).unwrap().parse().unwrap()
    }

    #[test]
    fn policy_and_niceness_apply_to_the_calling_thread() {
        let nicer = field(19).max(0) + 1;
        let test = thread::spawn(move || {
            set_nice(nicer).unwrap();
            if set_policy(Policy::Fifo(1)).is_ok() {
                assert_eq!((field(40), field(41)), (1, libc::SCHED_FIFO));
            }
            set_policy(Policy::Other).unwrap();
            assert_eq!((field(19), field(40), field(41)), (nicer, 0, libc::SCHED_OTHER));
        });
        test.join().unwrap();
        assert!(field(19) < nicer, "other threads are unchanged");
    }
}
