//! What a process that faces the network gives up once it is set up: its user, its capabilities, files, programs, and the
//! system calls that it has no use for.
//!
//! Four layers, each of which holds without the others: another user (setresuid(2)), capabilities(7), Landlock
//! (landlock(7)) over files, TCP ports and signals, and a filter of system calls (seccomp(2)). What a kernel does not have
//! is told, never an error: a server that serves without a layer is better than none.

pub use crate::capabilities::Capability;

use crate::capabilities;
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use nix::unistd::{Gid, Uid, getgroups, getresgid, setgroups, setresgid, setresuid};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::io;
use std::path::Path;

/// What of the host may still be looked at.
#[derive(Clone, Copy, Debug)]
pub enum Sight<'a> {
    /// These files, and those in these directories.
    Files(&'a [&'a Path]),
    /// `readable` as with [`Files`](Sight::Files), and in the directories `kept` files are made, written and removed: a
    /// program that keeps a database. It is a peer among others and makes TCP connections itself.
    Peer {
        /// Files, and directories whose files may be read.
        readable: &'a [&'a Path],
        /// Directories whose files are its own.
        kept: &'a [&'a Path],
    },
    /// All files, directories and links; and what the kernel answers by netlink, and by walks of its sockets
    /// (bpf(2), `BPF_ITER_CREATE`) whose programs are loaded already.
    Host,
    /// And which descriptors other processes hold. Landlock would hide that (landlock(7), ptrace), so it is left out.
    Processes,
}

/// What is kept; all else goes.
#[derive(Clone, Copy, Debug)]
pub struct Confinement<'a> {
    /// Capabilities that are kept, of those that are there.
    pub capabilities: &'a [Capability],
    /// What may be read. Nothing else is opened, and nothing at all to be written.
    pub sight: Sight<'a>,
}

/// What holds from now on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Confined {
    /// Landlock: nothing but what may be read is opened, no TCP port is bound or connected to, and no process outside
    /// gets a signal; as far as this kernel's Landlock goes.
    pub landlock: Layer,
    /// The filter of system calls.
    pub system_calls: Layer,
}

/// Whether a layer holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Layer {
    /// All of it.
    Whole,
    /// As much as this kernel knows.
    Part,
    /// Nothing of it, for that would be in the way of what was asked for.
    Unwanted,
    /// Nothing of it, and why.
    Missing(String),
}

impl Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layer::Whole => f.write_str("yes"),
            Layer::Part => f.write_str("in part: this kernel is older than all of it"),
            Layer::Unwanted => f.write_str("no: it would hide what is to be seen"),
            Layer::Missing(why) => write!(f, "no: {why}"),
        }
    }
}

/// Becomes another user for good, without other groups. Capabilities stay as they are: [`confine`] is for them. To be
/// called while the process has one thread.
///
/// # Errors
/// When the caller may not, or the user does not exist in this user namespace: it then is who it was, groups and all. If even
/// these cannot be put back the process is aborted, for it would go on as neither.
pub fn become_user(uid: Uid, gid: Gid) -> io::Result<()> {
    use nix::sys::prctl::{get_pdeathsig, set_keepcaps, set_pdeathsig};

    // Else the kernel clears all capabilities with the change (capabilities(7)), and forgets that the process is to die
    // with its parent (PR_SET_PDEATHSIG(2const)).
    let dies = get_pdeathsig()?;
    let (groups, gids) = (getgroups()?, getresgid()?);
    set_keepcaps(true)?;
    // Groups come first, for the user may have no right to them. That they were given up shows that they can be put back.
    let became = setgroups(&[]).and_then(|()| {
        let became = setresgid(gid, gid, gid).and_then(|()| setresuid(uid, uid, uid));
        if became.is_err() {
            let back = setresgid(gids.real, gids.effective, gids.saved).and_then(|()| setgroups(&groups));
            if back.is_err() {
                std::process::abort();
            }
        }
        became
    });
    // Neither can fail: the one was allowed above, the other is told what it told.
    set_keepcaps(false)?;
    set_pdeathsig(dies)?;
    Ok(became?)
}

/// Confines the calling thread and the threads that it starts from now on, for good. To be called while the process has one
/// thread: the others would go on as they were.
///
/// # Errors
/// When it cannot give capabilities up: that must not be taken for done.
pub fn confine(to: &Confinement<'_>) -> io::Result<Confined> {
    capabilities::keep_only(to.capabilities)?;
    nix::sys::prctl::set_no_new_privs()?;
    let landlock = landlock(to.sight).unwrap_or_else(Layer::Missing);
    let system_calls = match filter(to.sight).and_then(|program| {
        seccompiler::apply_filter(&program).map_err(|e| format!("the kernel takes no filter ({e})"))
    }) {
        Ok(()) => Layer::Whole,
        Err(why) => Layer::Missing(why),
    };
    Ok(Confined { landlock, system_calls })
}

fn landlock(sight: Sight<'_>) -> Result<Layer, String> {
    let read = AccessFs::ReadFile.into();
    let (readable, access, kept) = match sight {
        Sight::Files(readable) => (readable, read, &[][..]),
        Sight::Peer { readable, kept } => (readable, read, kept),
        Sight::Host => (&[Path::new("/")][..], AccessFs::ReadFile | AccessFs::ReadDir, &[][..]),
        Sight::Processes => return Ok(Layer::Unwanted),
    };
    let failed = |e: &dyn Display| format!("Landlock fails ({e})");
    let abi = ABI::V6;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))
        .and_then(|rules| match sight {
            Sight::Peer { .. } => rules.handle_access(AccessNet::BindTcp),
            _ => rules.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp),
        })
        .and_then(|rules| rules.scope(Scope::AbstractUnixSocket | Scope::Signal))
        .and_then(Ruleset::create)
        .map_err(|e| failed(&e))?;
    let of_its_own = AccessFs::ReadFile
        | AccessFs::ReadDir
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::RemoveFile;
    let readable = readable.iter().map(|path| (path, access));
    for (path, access) in readable.chain(kept.iter().map(|path| (path, of_its_own))) {
        // What is not there cannot be read, with or without a rule.
        if let Ok(path) = PathFd::new(path) {
            let rule = PathBeneath::new(path, access);
            rules = rules.add_rule(rule).map_err(|e| failed(&e))?;
        }
    }
    let status = rules.restrict_self().map_err(|e| failed(&e))?;
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok(Layer::Whole),
        RulesetStatus::PartiallyEnforced => Ok(Layer::Part),
        RulesetStatus::NotEnforced => Err(
            "this kernel has no Landlock, or it is switched off (Linux 5.13, CONFIG_SECURITY_LANDLOCK, lsm=)"
                .into(),
        ),
    }
}

/// System calls of a server that has its sockets: data, time, memory, threads, and reading a few files.
const ALLOWED: &[libc::c_long] = &[
    // Data and what is waited for.
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
    libc::SYS_ioctl,
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
    // Time and chance.
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

/// System calls of a program that looks at files of the host or keeps its own: what is there, and what is in a place of it.
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

/// System calls of a program that looks at the host, besides [`FILES`]. openat2(2) has its flags where a filter cannot look:
/// it is Landlock that keeps it from writing.
const LOOKS: &[libc::c_long] = &[libc::SYS_openat2, libc::SYS_getegid, libc::SYS_getgid];

/// System calls of a program that keeps a database, besides [`FILES`]: places in files, their length, and that they are on the
/// disk.
const KEEPS: &[libc::c_long] = &[
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

/// `BPF_ITER_CREATE` of uapi/linux/bpf.h.
const BPF_ITER_CREATE: i32 = 33;

/// The program that lets [`ALLOWED`] pass, and some others with the right arguments; the rest is answered with EPERM.
fn filter(sight: Sight<'_>) -> Result<BpfProgram, String> {
    use SeccompCmpOp::{Eq, MaskedEq};
    let failed = |e: &dyn Display| format!("the filter cannot be made ({e})");
    let when = |argument: u8, op: SeccompCmpOp, value: i32| {
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value as u32 as u64)?;
        SeccompRule::new(vec![condition])
    };
    let some = || -> Result<Vec<(libc::c_long, SeccompRule)>, seccompiler::BackendError> {
        let written = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u32;
        Ok(vec![
            // Nothing is opened to be written; what may be read is Landlock's to say.
            (libc::SYS_openat, when(2, MaskedEq(written.into()), libc::O_RDONLY)?),
            // musl's way to open a file.
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_open, when(1, MaskedEq(written.into()), libc::O_RDONLY)?),
            (libc::SYS_socket, when(0, Eq, libc::AF_INET)?),
            (libc::SYS_socket, when(0, Eq, libc::AF_INET6)?),
            // No memory is made executable.
            (libc::SYS_mmap, when(2, MaskedEq(libc::PROT_EXEC as u64), 0)?),
            (libc::SYS_mprotect, when(2, MaskedEq(libc::PROT_EXEC as u64), 0)?),
            // Threads, but neither processes nor namespaces.
            (libc::SYS_clone, when(0, MaskedEq(libc::CLONE_THREAD as u64), libc::CLONE_THREAD)?),
            (libc::SYS_prlimit64, {
                // Asking is allowed, setting is not: the third argument is a null pointer.
                let null = SeccompCondition::new(2, SeccompCmpArgLen::Qword, Eq, 0)?;
                SeccompRule::new(vec![null])?
            }),
        ])
    };
    let looks = || -> Result<Vec<(libc::c_long, SeccompRule)>, seccompiler::BackendError> {
        Ok(vec![
            (libc::SYS_socket, when(0, Eq, libc::AF_NETLINK)?),
            // What tells the network namespace's cookie.
            (libc::SYS_socket, when(0, Eq, libc::AF_UNIX)?),
            (libc::SYS_bpf, when(0, Eq, BPF_ITER_CREATE)?),
        ])
    };
    let (more, some) = match sight {
        Sight::Files(_) => (Vec::new(), some()),
        Sight::Peer { .. } => ([FILES, KEEPS].concat(), some()),
        Sight::Host | Sight::Processes => {
            ([FILES, LOOKS].concat(), some().and_then(|some| Ok([some, looks()?].concat())))
        }
    };
    let all = ALLOWED.iter().chain(&more);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = all.map(|&call| (call, Vec::new())).collect();
    for (call, rule) in some.map_err(|e| failed(&e))? {
        // A call that passes whatever its arguments is listed without rules.
        if !more.contains(&call) {
            rules.entry(call).or_default().push(rule);
        }
    }
    let architecture = std::env::consts::ARCH.try_into().map_err(|e| failed(&e))?;
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let mut program: BpfProgram = SeccompFilter::new(rules, refused, SeccompAction::Allow, architecture)
        .and_then(TryInto::try_into)
        .map_err(|e: seccompiler::BackendError| failed(&e))?;
    without_clone3(&mut program);
    Ok(program)
}

/// clone3(2) has its flags where a filter cannot look. Answered with ENOSYS, the C library starts threads by clone(2).
fn without_clone3(program: &mut BpfProgram) {
    let op = |code: u32, jt, jf, k| seccompiler::sock_filter { code: code as u16, jt, jf, k };
    let front = [
        // The number of the call is the first word of `struct seccomp_data`.
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_clone3 as u32),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
    ];
    // Each program loads what it looks at itself, and jumps are relative: it does not mind what comes before it.
    program.splice(0..0, front);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::UnixStream;
    use std::process::Command;
    use std::thread;

    /// Set where this program is run to be confined: nobody comes back from that.
    const INSIDE: &str = "FULLPIPE_TEST_CONFINED";

    #[test]
    fn who_cannot_become_another_is_who_it_was() {
        const REFUSED: &str = "FULLPIPE_TEST_USER_REFUSED";
        if !Uid::effective().is_root() {
            println!("SKIPPED: needs root");
            return;
        }
        if std::env::var_os(REFUSED).is_none() {
            let mut again = Command::new(std::env::current_exe().unwrap());
            let name = "confine::tests::who_cannot_become_another_is_who_it_was";
            again.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(REFUSED, "1");
            let output = again.output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("stays who it was"), "{output:?}");
            return;
        }
        let groups = [Gid::from_raw(1), Gid::from_raw(2)];
        setgroups(&groups).unwrap();
        let gids = getresgid().unwrap();
        // The last of the three steps is refused, in all threads: the C library has each of them take it.
        let no_user: BpfProgram = SeccompFilter::new(
            [(libc::SYS_setresuid, Vec::new())].into(),
            SeccompAction::Allow,
            SeccompAction::Errno(libc::EPERM as u32),
            std::env::consts::ARCH.try_into().unwrap(),
        )
        .and_then(TryInto::try_into)
        .unwrap();
        if seccompiler::apply_filter_all_threads(&no_user).is_err() {
            println!("stays who it was: no filter of system calls here");
            return;
        }
        let error = become_user(Uid::from_raw(65534), Gid::from_raw(65534)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        assert_eq!((getgroups().unwrap(), getresgid().unwrap()), (groups.to_vec(), gids));
        println!("stays who it was");
    }

    /// Runs a test of this file in a process of its own, which is confined and tells what it met.
    fn told_by_a_confined(name: &str) {
        let name = format!("confine::tests::{name}");
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", &name, "--nocapture", "--test-threads=1"]).env(INSIDE, "1");
        let output = again.output().unwrap();
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        // A test has a thread of its own, which is the one that is confined: it says that it came to its end.
        assert!(output.status.success() && said.contains("confined:"), "{said}");
        said.lines().filter(|l| l.starts_with("confined:")).for_each(|l| println!("{l}"));
    }

    fn is_refused(what: &str, outcome: io::Result<()>) {
        let error = outcome.expect_err(what);
        assert!(matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES)), "{what}: {error}");
    }

    /// open(2), which musl opens files by; glibc takes openat(2).
    #[cfg(target_arch = "x86_64")]
    fn open(path: &Path, flags: i32) -> io::Result<()> {
        use std::os::fd::{FromRawFd, OwnedFd};
        let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the path ends in a zero byte and lives until the call returns.
        let opened = unsafe { libc::syscall(libc::SYS_open, path.as_ptr(), flags | libc::O_CLOEXEC) };
        if opened < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and nobody else's.
        drop(unsafe { OwnedFd::from_raw_fd(i32::try_from(opened).unwrap()) });
        Ok(())
    }

    #[test]
    fn who_looks_sees_the_host_and_changes_nothing() {
        if std::env::var_os(INSIDE).is_none() {
            return told_by_a_confined("who_looks_sees_the_host_and_changes_nothing");
        }
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "as it was").unwrap();
        let confined = confine(&Confinement { capabilities: &[], sight: Sight::Host }).unwrap();
        println!("confined: Landlock {}; system calls {}", confined.landlock, confined.system_calls);

        assert!(std::fs::read_dir("/proc/self").unwrap().count() > 5);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "as it was");
        assert!(
            std::fs::read_link("/proc/thread-self/ns/net").unwrap().to_str().unwrap().starts_with("net:")
        );
        crate::facts::network_namespace().unwrap();
        crate::sock_diag::connections().unwrap();

        if confined.system_calls == Layer::Whole {
            is_refused("a program", Command::new("/bin/true").status().map(drop));
            is_refused("a file to write", File::create(&file).map(drop));
            #[cfg(target_arch = "x86_64")]
            is_refused("a file to write, by open", open(&file, libc::O_WRONLY));
            #[cfg(target_arch = "x86_64")]
            open(&file, libc::O_RDONLY).unwrap();
            is_refused("a link", std::os::unix::fs::symlink(&file, directory.path().join("link")));
            is_refused("a removal", std::fs::remove_file(&file));
            // BPF_PROG_LOAD, of nothing.
            // SAFETY: a null pointer of no length, which the kernel refuses where the filter does not.
            let loaded = unsafe { libc::syscall(libc::SYS_bpf, 5, std::ptr::null::<u8>(), 0) };
            is_refused("a BPF program", if loaded < 0 { Err(io::Error::last_os_error()) } else { Ok(()) });
        }
        if confined.landlock == Layer::Whole {
            is_refused("a port", TcpListener::bind("127.0.0.1:0").map(drop));
            let how = nix::fcntl::OpenHow::new().flags(nix::fcntl::OFlag::O_WRONLY);
            let opened = nix::fcntl::openat2(nix::fcntl::AT_FDCWD, &file, how);
            is_refused("a file to write, by openat2", opened.map(drop).map_err(Into::into));
        }
        println!("confined: looked, and changed nothing");
    }

    #[test]
    fn a_peer_keeps_its_own_files_and_connects_and_no_more() {
        if std::env::var_os(INSIDE).is_none() {
            return told_by_a_confined("a_peer_keeps_its_own_files_and_connects_and_no_more");
        }
        let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sight = Sight::Peer { readable: &[], kept: &[own.path()] };
        let confined = confine(&Confinement { capabilities: &[], sight }).unwrap();
        println!("confined: Landlock {}; system calls {}", confined.landlock, confined.system_calls);

        let file = own.path().join("file");
        std::fs::write(&file, "kept").unwrap();
        File::options().write(true).open(&file).unwrap().set_len(2).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "ke");
        std::fs::remove_file(&file).unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        if confined.system_calls == Layer::Whole {
            is_refused("a program", Command::new("/bin/true").status().map(drop));
            is_refused("a local socket", UnixStream::pair().map(drop));
            #[cfg(target_arch = "x86_64")]
            open(&own.path().join("made"), libc::O_WRONLY | libc::O_CREAT).unwrap();
        }
        if confined.landlock == Layer::Whole {
            is_refused("another's file", std::fs::write(other.path().join("file"), "").map(drop));
            is_refused("another's directory", std::fs::read_dir(other.path()).map(drop));
            is_refused("a port", TcpListener::bind("127.0.0.1:0").map(drop));
        }
        println!("confined: kept what is its own");
    }

    #[test]
    fn what_is_given_up_is_gone_and_the_rest_goes_on() {
        if std::env::var_os(INSIDE).is_some() {
            return inside();
        }
        told_by_a_confined("what_is_given_up_is_gone_and_the_rest_goes_on");
    }

    fn inside() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let before = TcpStream::connect(address).unwrap();
        let user = Uid::effective().is_root().then_some((Uid::from_raw(65534), Gid::from_raw(65534)));
        if let Some((uid, gid)) = user {
            become_user(uid, gid).unwrap();
        }
        // As a unit with `SystemCallFilter=~@privileged` has it: what is gone needs not be given up again.
        capabilities::keep_only(&[Capability::NetAdmin]).unwrap();
        let no_capset: BpfProgram = SeccompFilter::new(
            [(libc::SYS_capset, Vec::new())].into(),
            SeccompAction::Allow,
            SeccompAction::Errno(libc::EPERM as u32),
            std::env::consts::ARCH.try_into().unwrap(),
        )
        .and_then(TryInto::try_into)
        .unwrap();
        nix::sys::prctl::set_no_new_privs().unwrap();
        if seccompiler::apply_filter(&no_capset).is_err() {
            println!("confined: no filter of system calls here");
        }
        let confined = confine(&Confinement {
            capabilities: &[Capability::NetAdmin],
            sight: Sight::Files(&[Path::new("/proc/sys/net/ipv4"), Path::new("/not/there")]),
        })
        .unwrap();
        println!("confined: Landlock {}; system calls {}", confined.landlock, confined.system_calls);
        let mut tried = 0;
        let mut refuse = |what, outcome| {
            is_refused(what, outcome);
            tried += 1;
        };
        if confined.system_calls == Layer::Whole {
            refuse("a program", Command::new("/bin/true").status().map(drop));
            refuse("a file to write", File::create("/tmp/fullpipe-confined").map(drop));
            refuse("a local socket", UnixStream::pair().map(drop));
            refuse(
                "a namespace",
                nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER).map_err(Into::into),
            );
            refuse(
                "a limit",
                nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0)
                    .map_err(Into::into),
            );
        }
        if !matches!(confined.landlock, Layer::Missing(_)) {
            refuse(
                "a file to read",
                File::open("/etc/hostname").or_else(|_| File::open("/etc/passwd")).map(drop),
            );
            refuse("a directory", std::fs::read_dir("/").map(drop));
        }
        if confined.landlock == Layer::Whole {
            refuse("a connection", TcpStream::connect(address).map(drop));
            refuse("a port", TcpListener::bind("127.0.0.1:0").map(drop));
        }
        println!("confined: {tried} refused");
        // What a server does goes on, in threads of its own too.
        let served = thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            crate::tcp_info::pin(&socket, "reno").unwrap();
            std::io::Write::write_all(&mut socket, b"hello").unwrap();
            UdpSocket::bind("127.0.0.1:0").unwrap().connect(address).unwrap();
            drop(vec![0u8; 64 << 20]);
        });
        let mut said = String::new();
        std::io::Read::read_to_string(&mut { before }, &mut said).unwrap();
        served.join().unwrap();
        assert_eq!(said, "hello");
        assert!(crate::facts::available_controllers().is_ok_and(|all| all.iter().any(|name| name == "reno")));
        let status = thread::spawn(Uid::effective).join().unwrap();
        assert_eq!(user.map(|(uid, _)| uid).unwrap_or(status), status, "in every thread");
    }
}
