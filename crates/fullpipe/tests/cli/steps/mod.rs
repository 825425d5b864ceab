//! Kills a program at a chosen step: before its n-th system call that may change the kernel or a
//! file system. A kill at any other moment is equivalent to one right before the next such call.
//! Every system call is a step that is not known to change nothing.

use nix::libc;
use nix::sys::ptrace::{self, Event, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::HashSet;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

/// How a run ended.
pub enum End {
    /// Killed before its n-th step, which is given.
    Killed(String),
    /// It has fewer steps, and completed.
    Itself(ExitStatus),
}

/// Runs `command`, which executes or starts `program`, and kills that before its step `n` (from 0).
/// Its children are not killed, as with `kill PID`.
pub fn kill_before(command: Command, program: &Path, n: usize) -> End {
    kill_before_step(command, program, n, &step)
}

/// As [`kill_before`], with only those steps that `is_counted`.
pub fn kill_before_some(
    command: Command,
    program: &Path,
    n: usize,
    is_counted: &dyn Fn(&str) -> bool,
) -> End {
    kill_before_step(command, program, n, &|pid| step(pid).filter(|step| is_counted(step)))
}

fn kill_before_step(
    mut command: Command,
    program: &Path,
    n: usize,
    step: &dyn Fn(Pid) -> Option<String>,
) -> End {
    command.stdout(Stdio::null());
    // SAFETY: between fork and exec only one system call is made.
    unsafe {
        command.pre_exec(|| Ok(ptrace::traceme()?));
    }
    let first = Pid::from_raw(command.spawn().unwrap().id() as i32);
    let options = Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_EXITKILL;
    let mut begun = HashSet::new();
    let (mut main, mut killed, mut steps) = (None, None, 0);
    loop {
        // Only for children of this thread: other tests wait for theirs.
        let (pid, pass) = match waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD)).unwrap() {
            WaitStatus::Exited(pid, code) if pid == first => {
                return killed.map_or_else(|| End::Itself(ExitStatus::from_raw(code << 8)), End::Killed);
            }
            WaitStatus::Signaled(pid, signal, _) if pid == first => {
                return killed.map_or_else(|| End::Itself(ExitStatus::from_raw(signal as i32)), End::Killed);
            }
            WaitStatus::Stopped(pid, _) if begun.insert(pid) => {
                if pid == first {
                    ptrace::setoptions(pid, options).unwrap();
                } else if main.is_some_and(|main| !is_thread_of(pid, main)) {
                    let _ = ptrace::detach(pid, None);
                    continue;
                }
                (pid, None)
            }
            WaitStatus::Stopped(pid, signal) => (pid, Some(signal)),
            WaitStatus::PtraceEvent(pid, _, event) => {
                let is_exec = event == Event::PTRACE_EVENT_EXEC as i32;
                if is_exec && std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program) {
                    main = Some(pid);
                }
                (pid, None)
            }
            WaitStatus::PtraceSyscall(pid) => {
                if let (Some(main), None, Some(step)) = (main, &killed, step(pid)) {
                    if steps == n {
                        kill(main, Signal::SIGKILL).unwrap();
                        killed = Some(step);
                    }
                    steps += 1;
                }
                (pid, None)
            }
            _ => continue,
        };
        // A thread that was killed meanwhile cannot continue, and need not.
        let _ = match main {
            Some(_) => ptrace::syscall(pid, pass),
            None => ptrace::cont(pid, pass),
        };
    }
}

fn is_thread_of(thread: Pid, process: Pid) -> bool {
    Path::new(&format!("/proc/{process}/task/{thread}")).exists()
}

/// The system call that a stopped thread is about to make, if it may change state.
fn step(pid: Pid) -> Option<String> {
    let info = ptrace::syscall_info(pid).ok()?;
    if info.op != libc::PTRACE_SYSCALL_INFO_ENTRY {
        return None;
    }
    // SAFETY: at the entry of a system call this is the member that the kernel filled in.
    let entry = unsafe { info.u.entry };
    let [a, b, c, ..] = entry.args;
    let writes = |flags: u64| {
        flags as i32 & libc::O_ACCMODE != libc::O_RDONLY
            || flags as i32 & (libc::O_CREAT | libc::O_TRUNC) != 0
    };
    match entry.nr as libc::c_long {
        libc::SYS_bpf => (!BPF_LOOKS.contains(&a)).then(|| format!("bpf command {a}")),
        libc::SYS_openat => writes(c).then(|| format!("open for writing {}", text(pid, b))),
        // `struct open_how` begins with the flags.
        libc::SYS_openat2 => writes(word(pid, c)).then(|| format!("open for writing {}", text(pid, b))),
        // Standard output and error do not count as state.
        libc::SYS_write | libc::SYS_writev => (a > 2).then(|| format!("write {}", target(pid, a))),
        libc::SYS_pwrite64 => Some(format!("write {}", target(pid, a))),
        libc::SYS_mkdirat => Some(format!("make directory {}", text(pid, b))),
        libc::SYS_unlinkat => Some(format!("remove {}", text(pid, b))),
        libc::SYS_symlinkat => Some(format!("link {} to {}", text(pid, c), text(pid, a))),
        libc::SYS_linkat => Some(format!("hard link {}", text(pid, b))),
        libc::SYS_renameat | libc::SYS_renameat2 => Some(format!("rename {}", text(pid, b))),
        libc::SYS_fchmod => Some(format!("change the mode of {}", target(pid, a))),
        libc::SYS_fchmodat => Some(format!("change the mode of {}", text(pid, b))),
        libc::SYS_fchown => Some(format!("change the owner of {}", target(pid, a))),
        libc::SYS_fchownat => Some(format!("change the owner of {}", text(pid, b))),
        libc::SYS_fsetxattr => Some(format!("set {} of {}", text(pid, b), target(pid, a))),
        libc::SYS_fremovexattr => Some(format!("remove {} of {}", text(pid, b), target(pid, a))),
        libc::SYS_ftruncate => Some(format!("truncate {}", target(pid, a))),
        libc::SYS_sendto => changes_a_route(pid, b, c).then(|| "change a route".to_owned()),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => writes(b).then(|| format!("open for writing {}", text(pid, a))),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_mkdir => Some(format!("make directory {}", text(pid, a))),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_unlink | libc::SYS_rmdir => Some(format!("remove {}", text(pid, a))),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rename => Some(format!("rename {}", text(pid, a))),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork | libc::SYS_vfork => Some("start a program".to_owned()),
        libc::SYS_clone | libc::SYS_clone3 => Some("start a thread or program".to_owned()),
        libc::SYS_mount => Some(format!("mount on {}", text(pid, b))),
        libc::SYS_flock => Some("lock".to_owned()),
        libc::SYS_setns => Some("enter a namespace".to_owned()),
        libc::SYS_kill | libc::SYS_pidfd_send_signal => Some("signal".to_owned()),
        libc::SYS_ioctl if HARMLESS_IOCTLS.contains(&(b as libc::Ioctl)) => None,
        call if HARMLESS.contains(&call) => None,
        #[cfg(target_arch = "x86_64")]
        call if HARMLESS_ON_X86.contains(&call) => None,
        call => Some(format!("system call {call} of {}", target(pid, a))),
    }
}

/// Questions about terminals, sockets and interfaces, and the blocking of descriptors.
const HARMLESS_IOCTLS: [libc::Ioctl; 6] =
    [libc::TCGETS, libc::TIOCGWINSZ, libc::FIONBIO, libc::FIONREAD, SIOCGIFNAME, SIOCGIFINDEX];
// Of linux/sockios.h.
const SIOCGIFNAME: libc::Ioctl = 0x8910;
const SIOCGIFINDEX: libc::Ioctl = 0x8933;

/// System calls that change nothing which outlives the process, with any arguments that fullpipe
/// and its libraries pass: memory, signals and threads of the process, reading, waiting, and
/// sockets (a message that changes the kernel is a step above).
const HARMLESS: &[libc::c_long] = &[
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_brk,
    libc::SYS_capget,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_connect,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_execve,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_fgetxattr,
    libc::SYS_flistxattr,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_futex,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_listen,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_memfd_create,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_newfstatat,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_open,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_prctl,
    libc::SYS_pread64,
    libc::SYS_prlimit64,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_sigaltstack,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_sysinfo,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_umask,
    libc::SYS_uname,
    libc::SYS_wait4,
    libc::SYS_waitid,
];

/// The older forms of such calls, which other architectures do not have.
#[cfg(target_arch = "x86_64")]
const HARMLESS_ON_X86: &[libc::c_long] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_dup2,
    libc::SYS_epoll_wait,
    libc::SYS_lstat,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_stat,
];

/// Read-only commands of bpf(2) (uapi/linux/bpf.h, `enum bpf_cmd`): map elements, pins, and objects
/// by ID.
const BPF_LOOKS: [u64; 14] = [1, 4, 7, 11, 12, 13, 14, 15, 16, 19, 20, 23, 30, 31];

/// Whether this is a netlink message that creates or replaces a route (`struct nlmsghdr`: length,
/// type).
fn changes_a_route(pid: Pid, address: u64, length: u64) -> bool {
    let word = word(pid, address);
    let (first, kind) = if cfg!(target_endian = "little") {
        (word & 0xffff_ffff, word >> 32 & 0xffff)
    } else {
        (word >> 32, word >> 16 & 0xffff)
    };
    first == length && kind == u64::from(libc::RTM_NEWROUTE)
}

fn word(pid: Pid, address: u64) -> u64 {
    ptrace::read(pid, address as ptrace::AddressType).map_or(0, |word| word as u64)
}

/// The string at an address of the thread.
fn text(pid: Pid, mut address: u64) -> String {
    let mut bytes = Vec::new();
    while let Ok(word) = ptrace::read(pid, address as ptrace::AddressType) {
        let word = word.to_ne_bytes();
        let end = word.iter().position(|byte| *byte == 0);
        bytes.extend_from_slice(&word[..end.unwrap_or(word.len())]);
        if end.is_some() {
            break;
        }
        address += word.len() as u64;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The target of a descriptor of the thread.
fn target(pid: Pid, descriptor: u64) -> String {
    let link = std::fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).unwrap_or_default();
    link.display().to_string()
}
