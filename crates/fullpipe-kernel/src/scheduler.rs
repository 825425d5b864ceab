//! When the calling thread has its turn (sched(7)).

use nix::errno::Errno;
use std::io;

/// How the scheduler chooses between a thread and others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// By turns, with niceness for a weight (`SCHED_OTHER`).
    Other,
    /// It goes before all that take turns, as long as it likes (`SCHED_FIFO`). Of two such the one with the higher priority, 1 to
    /// 99, goes first.
    Fifo(i32),
}

/// Sets the policy of the calling thread, which threads and processes that it starts inherit. Only makes a system call, so it
/// may be called between fork and exec.
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE`, or a limit (`RLIMIT_RTPRIO`) that allows it.
pub fn set_policy(policy: Policy) -> io::Result<()> {
    let (policy, priority) = match policy {
        Policy::Other => (libc::SCHED_OTHER, 0),
        Policy::Fifo(priority) => (libc::SCHED_FIFO, priority),
    };
    // By the kernel's own call: musl's `sched_setscheduler` only answers ENOSYS, since POSIX means a process and the kernel a
    // thread. The kernel's `struct sched_param` is the priority alone.
    // SAFETY: the parameter lives through the call; 0 means the calling thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) };
    Errno::result(result)?;
    Ok(())
}

/// Sets how nice the calling thread is, from -20 (it has the most of each turn) to 19; what it starts inherits it. Only makes a
/// system call, so it may be called between fork and exec.
///
/// # Errors
/// `EACCES` for less than before without `CAP_SYS_NICE`, or a limit (`RLIMIT_NICE`) that allows it.
pub fn set_nice(value: i32) -> io::Result<()> {
    // SAFETY: takes plain numbers; 0 means the calling thread.
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
        // The second is a name in parentheses, in which there may be anything.
        let rest = text.rsplit_once(')').unwrap().1;
        rest.split_whitespace().nth(number - 3).unwrap().parse().unwrap()
    }

    #[test]
    fn a_thread_is_as_nice_as_it_was_asked_to_be_and_takes_turns() {
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
        assert!(field(19) < nicer, "the other threads are as they were");
    }
}
