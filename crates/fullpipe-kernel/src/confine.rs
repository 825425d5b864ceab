//! Sandboxing for processes that face the network: drop the user, capabilities, file access,
//! program execution and unused system calls once set-up is complete.
//!
//! Four independent layers: another user (setresuid(2)), capabilities(7), Landlock (landlock(7))
//! for files, TCP ports and signals, and a system call filter (seccomp(2)). A layer that the kernel
//! lacks is reported in [`Enforcement`] and is not an error: a server without one layer is better
//! than no server.

pub use crate::capabilities::Capability;

use crate::capabilities;
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, NetPort, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};
use nix::unistd::{Gid, Uid, dup2_stdin, getgroups, getresgid, setgroups, setresgid, setresuid};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Which files of the host stay accessible.
#[derive(Clone, Copy, Debug)]
pub enum FileAccess<'a> {
    /// Read access to these files, and to the files in these directories.
    Files(&'a [&'a Path]),
    /// `readable` as in [`Files`](FileAccess::Files), plus creating, writing and removing files in
    /// the `writable` directories, and outgoing TCP connections: for a mesh node, which keeps a
    /// database.
    Peer {
        /// Files, and directories whose files are readable.
        readable: &'a [&'a Path],
        /// Directories whose files the process owns.
        writable: &'a [&'a Path],
    },
    /// Read access to all files, directories and links, to netlink, and to socket iterators
    /// (bpf(2), `BPF_ITER_CREATE`) whose programs are already loaded.
    Host,
    /// As [`Host`](FileAccess::Host), plus other processes' file descriptors. Landlock would hide
    /// those (landlock(7), ptrace), so it is not used.
    Processes,
}

/// What a confined process keeps; everything else is dropped.
#[derive(Clone, Copy, Debug)]
pub struct Confinement<'a> {
    /// Capabilities to keep, if the process has them.
    pub capabilities: &'a [Capability],
    /// Accessible files.
    pub access: FileAccess<'a>,
    /// TCP ports, of any host, that stay reachable without [`FileAccess::Peer`].
    pub connect: &'a [u16],
}

/// Which layers are in effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Enforcement {
    /// Landlock: only permitted files can be opened, no TCP port can be bound, only permitted ones
    /// connected to, and no outside process can be signalled, as far as this kernel's Landlock
    /// version supports it.
    pub landlock: Layer,
    /// The system call filter.
    pub system_calls: Layer,
}

/// Whether a layer is in effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Layer {
    /// Fully enforced.
    Full,
    /// Partially enforced: the kernel supports only some of its rules.
    Partial,
    /// Not used: it would block what was asked for.
    Skipped,
    /// Not enforced, with the reason.
    Unavailable(String),
}

impl Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layer::Full => f.write_str("yes"),
            Layer::Partial => f.write_str("partly: this kernel does not support all of it"),
            Layer::Skipped => f.write_str("no: it would hide other processes"),
            Layer::Unavailable(why) => write!(f, "no: {why}"),
        }
    }
}

/// Switches permanently to another user, without supplementary groups. Capabilities are unchanged:
/// use [`confine`] for them. Call it while the process has a single thread.
///
/// # Errors
/// When the caller lacks the privilege, or the user does not exist in this user namespace. User and
/// groups are then as before; if the groups cannot be restored, the process aborts instead of
/// running with mixed identities.
pub fn become_user(uid: Uid, gid: Gid) -> io::Result<()> {
    use nix::sys::prctl::{get_pdeathsig, set_keepcaps, set_pdeathsig};

    // Otherwise the kernel clears all capabilities (capabilities(7)) and the parent-death signal
    // (PR_SET_PDEATHSIG(2const)) when the user changes.
    let death_signal = get_pdeathsig()?;
    let (groups, gids) = (getgroups()?, getresgid()?);
    set_keepcaps(true)?;
    // Groups first: the new user may lack the privilege. Dropping them proves that they can be
    // restored.
    let switched = setgroups(&[]).and_then(|()| {
        let switched = setresgid(gid, gid, gid).and_then(|()| setresuid(uid, uid, uid));
        if switched.is_err() {
            let restored = setresgid(gids.real, gids.effective, gids.saved).and_then(|()| setgroups(&groups));
            if restored.is_err() {
                std::process::abort();
            }
        }
        switched
    });
    // Neither can fail: the first was permitted above, the second restores a value the kernel returned.
    set_keepcaps(false)?;
    set_pdeathsig(death_signal)?;
    Ok(switched?)
}

/// Permanently confines the calling thread and the threads that it starts later. Call it while the
/// process has a single thread: other threads would stay unconfined. Standard input becomes
/// `/dev/null`, or an empty pipe where that is missing, since the terminal there may be another
/// user's.
///
/// # Errors
/// When capabilities cannot be dropped or standard input cannot be replaced.
pub fn confine(confinement: &Confinement<'_>) -> io::Result<Enforcement> {
    let empty = File::open("/dev/null").map(OwnedFd::from).or_else(|_| -> io::Result<OwnedFd> {
        // A root file system without devices: a pipe without a writer is at its end, too.
        Ok(nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?.0)
    })?;
    dup2_stdin(empty)?;
    capabilities::keep_only(confinement.capabilities)?;
    nix::sys::prctl::set_no_new_privs()?;
    let landlock = landlock(confinement).unwrap_or_else(Layer::Unavailable);
    let system_calls = match filter(confinement.access).and_then(|program| {
        seccompiler::apply_filter(&program)
            .map_err(|e| format!("the kernel rejects the system call filter ({e})"))
    }) {
        Ok(()) => Layer::Full,
        Err(why) => Layer::Unavailable(why),
    };
    Ok(Enforcement { landlock, system_calls })
}

fn landlock(confinement: &Confinement<'_>) -> Result<Layer, String> {
    let access = confinement.access;
    let read = AccessFs::ReadFile.into();
    let (readable, rights, writable) = match access {
        FileAccess::Files(readable) => (readable, read, &[][..]),
        FileAccess::Peer { readable, writable } => (readable, read, writable),
        FileAccess::Host => (&[Path::new("/")][..], AccessFs::ReadFile | AccessFs::ReadDir, &[][..]),
        FileAccess::Processes => return Ok(Layer::Skipped),
    };
    let failed = |e: &dyn Display| format!("Landlock failed ({e})");
    let abi = ABI::V6;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))
        .and_then(|rules| match access {
            FileAccess::Peer { .. } => rules.handle_access(AccessNet::BindTcp),
            _ => rules.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp),
        })
        .and_then(|rules| rules.scope(Scope::AbstractUnixSocket | Scope::Signal))
        .and_then(Ruleset::create)
        .map_err(|e| failed(&e))?;
    let read_write = AccessFs::ReadFile
        | AccessFs::ReadDir
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::RemoveFile;
    let readable = readable.iter().map(|path| (path, rights));
    for (path, rights) in readable.chain(writable.iter().map(|path| (path, read_write))) {
        // A path that does not exist needs no rule.
        if let Ok(path) = PathFd::new(path) {
            let rule = PathBeneath::new(path, rights);
            rules = rules.add_rule(rule).map_err(|e| failed(&e))?;
        }
    }
    if !matches!(access, FileAccess::Peer { .. }) {
        for &port in confinement.connect {
            rules = rules.add_rule(NetPort::new(port, AccessNet::ConnectTcp)).map_err(|e| failed(&e))?;
        }
    }
    let status = rules.restrict_self().map_err(|e| failed(&e))?;
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok(Layer::Full),
        RulesetStatus::PartiallyEnforced => Ok(Layer::Partial),
        RulesetStatus::NotEnforced => {
            Err("this kernel has no Landlock or it is disabled (needs Linux 5.13, CONFIG_SECURITY_LANDLOCK, \
             lsm=landlock)"
                .into())
        }
    }
}

/// System calls of a server whose sockets are open: data, time, memory, threads, and reading a few
/// files.
const ALLOWED: &[libc::c_long] = &[
    // I/O and readiness.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_close,
    libc::SYS_ppoll,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_fcntl,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_newfstatat,
    libc::SYS_pipe2,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_vmsplice,
    libc::SYS_sendfile,
    libc::SYS_dup,
    libc::SYS_getdents64,
    // Sockets.
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_listen,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_shutdown,
    // Time and randomness.
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_times,
    // Memory and threads.
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_membarrier,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_prctl,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_sysinfo,
    libc::SYS_tgkill,
    libc::SYS_uname,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_time,
];

/// Additional system calls of programs that inspect the host or keep files: metadata, and reads at
/// an offset.
const FILES: &[libc::c_long] = &[
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_pread64,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
];

/// System calls of a program that inspects the host, besides [`FILES`]. A filter cannot inspect the
/// flags of openat2(2), which are in memory: there, Landlock prevents writing.
const INSPECT: &[libc::c_long] = &[libc::SYS_openat2, libc::SYS_getegid, libc::SYS_getgid];

/// System calls of a program that keeps a database, besides [`FILES`]: writes at an offset,
/// truncation, locks, syncs.
const DATABASE: &[libc::c_long] = &[
    libc::SYS_openat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    libc::SYS_pwrite64,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fchmod,
    libc::SYS_getcwd,
    libc::SYS_unlinkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
];

/// Requests of ioctl(2): blocking and close-on-exec flags, bytes in a queue, and whether a
/// descriptor is a terminal. Others, such as `TIOCSTI`, would let a server type into the terminal
/// that it was started from.
const IOCTLS: &[libc::Ioctl] = &[
    libc::FIONBIO,
    libc::FIOCLEX,
    libc::FIONCLEX,
    libc::FIONREAD,
    libc::TIOCOUTQ,
    libc::TIOCGWINSZ,
    libc::TCGETS,
];

/// `BPF_ITER_CREATE` of uapi/linux/bpf.h.
const BPF_ITER_CREATE: i32 = 33;

/// Builds the filter: [`ALLOWED`] passes, some calls pass with certain arguments, all others fail
/// with EPERM.
fn filter(access: FileAccess<'_>) -> Result<BpfProgram, String> {
    use SeccompCmpOp::{Eq, MaskedEq};
    let failed = |e: &dyn Display| format!("cannot build the system call filter ({e})");
    let when = |argument: u8, op: SeccompCmpOp, value: i32| {
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value as u32 as u64)?;
        SeccompRule::new(vec![condition])
    };
    let conditional = || -> Result<Vec<(libc::c_long, SeccompRule)>, seccompiler::BackendError> {
        // Not `libc::O_ACCMODE`, which includes `O_PATH` in musl: that opens a place, for no access.
        let access_modes = libc::O_WRONLY | libc::O_RDWR;
        let write_flags = (access_modes | libc::O_CREAT | libc::O_TRUNC) as u32;
        let ioctls = IOCTLS.iter().map(|request| Ok((libc::SYS_ioctl, when(1, Eq, *request as i32)?)));
        let others = vec![
            // Files are opened read-only; Landlock decides which ones.
            (libc::SYS_openat, when(2, MaskedEq(write_flags.into()), libc::O_RDONLY)?),
            // musl opens files by open(2).
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_open, when(1, MaskedEq(write_flags.into()), libc::O_RDONLY)?),
            (libc::SYS_socket, when(0, Eq, libc::AF_INET)?),
            (libc::SYS_socket, when(0, Eq, libc::AF_INET6)?),
            // No executable memory.
            (libc::SYS_mmap, when(2, MaskedEq(libc::PROT_EXEC as u64), 0)?),
            (libc::SYS_mprotect, when(2, MaskedEq(libc::PROT_EXEC as u64), 0)?),
            // Threads, but no processes or namespaces.
            (libc::SYS_clone, when(0, MaskedEq(libc::CLONE_THREAD as u64), libc::CLONE_THREAD)?),
            (libc::SYS_prlimit64, {
                // Reading a limit is allowed, setting one is not: the third argument must be a null pointer.
                let null = SeccompCondition::new(2, SeccompCmpArgLen::Qword, Eq, 0)?;
                SeccompRule::new(vec![null])?
            }),
        ];
        ioctls.chain(others.into_iter().map(Ok)).collect()
    };
    let inspect = || -> Result<Vec<(libc::c_long, SeccompRule)>, seccompiler::BackendError> {
        Ok(vec![
            (libc::SYS_socket, when(0, Eq, libc::AF_NETLINK)?),
            // SO_NETNS_COOKIE is read from a UNIX socket.
            (libc::SYS_socket, when(0, Eq, libc::AF_UNIX)?),
            (libc::SYS_bpf, when(0, Eq, BPF_ITER_CREATE)?),
        ])
    };
    let (more, conditional) = match access {
        FileAccess::Files(_) => (Vec::new(), conditional()),
        FileAccess::Peer { .. } => ([FILES, DATABASE].concat(), conditional()),
        FileAccess::Host | FileAccess::Processes => {
            ([FILES, INSPECT].concat(), conditional().and_then(|rules| Ok([rules, inspect()?].concat())))
        }
    };
    let all = ALLOWED.iter().chain(&more);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = all.map(|&call| (call, Vec::new())).collect();
    for (call, rule) in conditional.map_err(|e| failed(&e))? {
        // A call that is allowed with any arguments has no rules.
        if !more.contains(&call) {
            rules.entry(call).or_default().push(rule);
        }
    }
    let architecture = std::env::consts::ARCH.try_into().map_err(|e| failed(&e))?;
    let deny = SeccompAction::Errno(libc::EPERM as u32);
    let mut program: BpfProgram = SeccompFilter::new(rules, deny, SeccompAction::Allow, architecture)
        .and_then(TryInto::try_into)
        .map_err(|e: seccompiler::BackendError| failed(&e))?;
    reject_clone3(&mut program);
    Ok(program)
}

/// A filter cannot inspect the flags of clone3(2), which are in memory. On ENOSYS, the C library
/// falls back to clone(2).
fn reject_clone3(program: &mut BpfProgram) {
    let op = |code: u32, jt, jf, k| seccompiler::sock_filter { code: code as u16, jt, jf, k };
    let front = [
        // The system call number is the first word of `struct seccomp_data`.
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_clone3 as u32),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
    ];
    // The rest of the program loads its own operands and its jumps are relative, so it can be preceded
    // by other code.
    program.splice(0..0, front);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::UnixStream;
    use std::process::Command;
    use std::thread;

    /// Set in the child process that confines itself, which cannot be undone.
    const INSIDE: &str = "FULLPIPE_TEST_CONFINED";

    #[test]
    fn a_failed_user_switch_restores_groups() {
        const REFUSED: &str = "FULLPIPE_TEST_USER_REFUSED";
        if !Uid::effective().is_root() {
            println!("SKIPPED: needs root");
            return;
        }
        if std::env::var_os(REFUSED).is_none() {
            let mut child = Command::new(std::env::current_exe().unwrap());
            let name = "confine::tests::a_failed_user_switch_restores_groups";
            child.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(REFUSED, "1");
            let output = child.output().unwrap();
            let output_text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && output_text.contains("identity restored"), "{output:?}");
            return;
        }
        let groups = [Gid::from_raw(1), Gid::from_raw(2)];
        setgroups(&groups).unwrap();
        let gids = getresgid().unwrap();
        // The last of the three steps is denied in all threads: the C library makes each of them call it.
        let deny_setresuid: BpfProgram = SeccompFilter::new(
            [(libc::SYS_setresuid, Vec::new())].into(),
            SeccompAction::Allow,
            SeccompAction::Errno(libc::EPERM as u32),
            std::env::consts::ARCH.try_into().unwrap(),
        )
        .and_then(TryInto::try_into)
        .unwrap();
        if seccompiler::apply_filter_all_threads(&deny_setresuid).is_err() {
            println!("identity restored: not tested, this kernel has no system call filter");
            return;
        }
        let error = become_user(Uid::from_raw(65534), Gid::from_raw(65534)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        assert_eq!((getgroups().unwrap(), getresgid().unwrap()), (groups.to_vec(), gids));
        println!("identity restored");
    }

    /// Runs a test of this file in a child process that confines itself, and prints its report.
    fn run_confined(name: &str) {
        let name = format!("confine::tests::{name}");
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", &name, "--nocapture", "--test-threads=1"]).env(INSIDE, "1");
        // The default is /dev/null.
        child.stdin(std::process::Stdio::piped());
        let output = child.output().unwrap();
        let output_text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        // The test thread is the confined one; its last line proves that it finished.
        assert!(output.status.success() && output_text.contains("confined:"), "{output_text}");
        output_text.lines().filter(|l| l.starts_with("confined:")).for_each(|l| println!("{l}"));
    }

    fn assert_denied(action: &str, outcome: io::Result<()>) {
        let error = outcome.expect_err(action);
        assert!(matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES)), "{action}: {error}");
    }

    /// open(2), which musl uses; glibc uses openat(2).
    #[cfg(target_arch = "x86_64")]
    fn open(path: &Path, flags: i32) -> io::Result<()> {
        use std::os::fd::{FromRawFd, OwnedFd};
        let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the path ends in a zero byte and lives until the call returns.
        let opened = unsafe { libc::syscall(libc::SYS_open, path.as_ptr(), flags | libc::O_CLOEXEC) };
        if opened < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and has no other owner.
        drop(unsafe { OwnedFd::from_raw_fd(i32::try_from(opened).unwrap()) });
        Ok(())
    }

    #[test]
    fn host_access_reads_the_host_and_changes_nothing() {
        if std::env::var_os(INSIDE).is_none() {
            return run_confined("host_access_reads_the_host_and_changes_nothing");
        }
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "as it was").unwrap();
        let confined =
            confine(&Confinement { capabilities: &[], access: FileAccess::Host, connect: &[] }).unwrap();
        println!("confined: Landlock {}; system call filter {}", confined.landlock, confined.system_calls);

        assert!(std::fs::read_dir("/proc/self").unwrap().count() > 5);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "as it was");
        assert!(
            std::fs::read_link("/proc/thread-self/ns/net").unwrap().to_str().unwrap().starts_with("net:")
        );
        crate::facts::network_namespace().unwrap();
        crate::sock_diag::connections().unwrap();

        if confined.system_calls == Layer::Full {
            assert_denied("a program", Command::new("/bin/true").status().map(drop));
            assert_denied("a file to write", File::create(&file).map(drop));
            #[cfg(target_arch = "x86_64")]
            assert_denied("a file to write, by open", open(&file, libc::O_WRONLY));
            #[cfg(target_arch = "x86_64")]
            open(&file, libc::O_RDONLY).unwrap();
            assert_denied("a link", std::os::unix::fs::symlink(&file, directory.path().join("link")));
            assert_denied("a removal", std::fs::remove_file(&file));
            // BPF_PROG_LOAD, of nothing.
            // SAFETY: a null pointer of no length, which the kernel refuses where the filter does not.
            let loaded = unsafe { libc::syscall(libc::SYS_bpf, 5, std::ptr::null::<u8>(), 0) };
            assert_denied("a BPF program", if loaded < 0 { Err(io::Error::last_os_error()) } else { Ok(()) });
        }
        if confined.landlock == Layer::Full {
            assert_denied("a port", TcpListener::bind("127.0.0.1:0").map(drop));
            let how = nix::fcntl::OpenHow::new().flags(nix::fcntl::OFlag::O_WRONLY);
            let opened = nix::fcntl::openat2(nix::fcntl::AT_FDCWD, &file, how);
            assert_denied("a file to write, by openat2", opened.map(drop).map_err(Into::into));
        }
        println!("confined: read the host, changed nothing");
    }

    #[test]
    fn peer_access_writes_its_own_files_and_connects_only() {
        if std::env::var_os(INSIDE).is_none() {
            return run_confined("peer_access_writes_its_own_files_and_connects_only");
        }
        let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let access = FileAccess::Peer { readable: &[], writable: &[own.path()] };
        let confined = confine(&Confinement { capabilities: &[], access, connect: &[] }).unwrap();
        println!("confined: Landlock {}; system call filter {}", confined.landlock, confined.system_calls);

        let file = own.path().join("file");
        std::fs::write(&file, "kept").unwrap();
        File::options().write(true).open(&file).unwrap().set_len(2).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "ke");
        std::fs::remove_file(&file).unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        if confined.system_calls == Layer::Full {
            assert_denied("a program", Command::new("/bin/true").status().map(drop));
            assert_denied("a local socket", UnixStream::pair().map(drop));
            #[cfg(target_arch = "x86_64")]
            open(&own.path().join("made"), libc::O_WRONLY | libc::O_CREAT).unwrap();
        }
        if confined.landlock == Layer::Full {
            assert_denied("another's file", std::fs::write(other.path().join("file"), "").map(drop));
            assert_denied("another's directory", std::fs::read_dir(other.path()).map(drop));
            assert_denied("a port", TcpListener::bind("127.0.0.1:0").map(drop));
        }
        println!("confined: wrote its own files");
    }

    #[test]
    fn dropped_privileges_stay_dropped_and_serving_continues() {
        if std::env::var_os(INSIDE).is_some() {
            return inside();
        }
        run_confined("dropped_privileges_stay_dropped_and_serving_continues");
    }

    /// Asks for the simulated input of a character, as ioctl_tty(2) has it.
    fn type_into_terminal() -> io::Result<()> {
        let character: libc::c_char = 0;
        // SAFETY: TIOCSTI reads one character from the pointer, which outlives the call.
        let result = unsafe { libc::ioctl(0, libc::TIOCSTI, &raw const character) };
        nix::errno::Errno::result(result).map(drop).map_err(Into::into)
    }

    fn inside() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let before = TcpStream::connect(address).unwrap();
        let permitted = TcpListener::bind("127.0.0.1:0").unwrap();
        let user = Uid::effective().is_root().then_some((Uid::from_raw(65534), Gid::from_raw(65534)));
        if let Some((uid, gid)) = user {
            become_user(uid, gid).unwrap();
        }
        // As in a unit with `SystemCallFilter=~@privileged`: capabilities already dropped need no
        // capset(2).
        capabilities::keep_only(&[Capability::NetAdmin]).unwrap();
        let deny_capset: BpfProgram = SeccompFilter::new(
            [(libc::SYS_capset, Vec::new())].into(),
            SeccompAction::Allow,
            SeccompAction::Errno(libc::EPERM as u32),
            std::env::consts::ARCH.try_into().unwrap(),
        )
        .and_then(TryInto::try_into)
        .unwrap();
        nix::sys::prctl::set_no_new_privs().unwrap();
        if seccompiler::apply_filter(&deny_capset).is_err() {
            println!("confined: this kernel has no system call filter");
        }
        let confined = confine(&Confinement {
            capabilities: &[Capability::NetAdmin],
            access: FileAccess::Files(&[Path::new("/proc/sys/net/ipv4"), Path::new("/not/there")]),
            connect: &[permitted.local_addr().unwrap().port()],
        })
        .unwrap();
        println!("confined: Landlock {}; system call filter {}", confined.landlock, confined.system_calls);
        let null = nix::sys::stat::makedev(1, 3);
        assert_eq!(nix::sys::stat::fstat(io::stdin()).unwrap().st_rdev, null, "standard input");
        let mut denied = 0;
        let mut deny = |action, outcome| {
            assert_denied(action, outcome);
            denied += 1;
        };
        if confined.system_calls == Layer::Full {
            deny("a program", Command::new("/bin/true").status().map(drop));
            deny("a file to write", File::create("/tmp/fullpipe-confined").map(drop));
            deny("a local socket", UnixStream::pair().map(drop));
            deny(
                "a namespace",
                nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER).map_err(Into::into),
            );
            deny("typing into a terminal", type_into_terminal());
            deny(
                "a limit",
                nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0)
                    .map_err(Into::into),
            );
        }
        if !matches!(confined.landlock, Layer::Unavailable(_)) {
            deny(
                "a file to read",
                File::open("/etc/hostname").or_else(|_| File::open("/etc/passwd")).map(drop),
            );
            deny("a directory", std::fs::read_dir("/").map(drop));
        }
        if confined.landlock == Layer::Full {
            deny("a connection", TcpStream::connect(address).map(drop));
            deny("a port", TcpListener::bind("127.0.0.1:0").map(drop));
        }
        TcpStream::connect(permitted.local_addr().unwrap()).expect("a permitted port");
        println!("confined: {denied} denied");
        // Serving continues, in new threads too.
        let served = thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            crate::tcp_info::pin(&socket, "reno").unwrap();
            std::io::Write::write_all(&mut socket, b"hello").unwrap();
            UdpSocket::bind("127.0.0.1:0").unwrap().connect(address).unwrap();
            drop(vec![0u8; 64 << 20]);
        });
        let mut received = String::new();
        std::io::Read::read_to_string(&mut { before }, &mut received).unwrap();
        served.join().unwrap();
        assert_eq!(received, "hello");
        assert!(crate::facts::available_controllers().is_ok_and(|all| all.iter().any(|name| name == "reno")));
        let status = thread::spawn(Uid::effective).join().unwrap();
        assert_eq!(user.map(|(uid, _)| uid).unwrap_or(status), status, "in every thread");
    }
}
