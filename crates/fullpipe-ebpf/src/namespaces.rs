//! Lists and enters the network namespaces of this machine.

use crate::error::Error;
use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// An open network namespace.
#[derive(Debug)]
pub struct Namespace {
    /// Its inode, as in `net:[4026531840]`.
    pub inode: u64,
    file: File,
    /// Whether this process is in it.
    pub is_own: bool,
}

const OWN: &str = "/proc/self/ns/net";
/// Directory of namespaces with a name (ip-netns(8)).
const NAMED: &str = "/run/netns";
/// Maximum listings: when a process ends between listing and opening, another process may still use
/// its namespace.
const MAX_LISTINGS: usize = 3;

/// Calls `visit` with each namespace used by a process or named in /run/netns, this process's own
/// first. One is open at a time: any user may create more namespaces than a process may open files.
///
/// Namespaces that end meanwhile are skipped, as are those of processes that the caller may not
/// inspect. The latter needs `CAP_SYS_PTRACE`, which root of a container may lack; with it, no other
/// user can hide a process.
///
/// # Errors
/// An error of `visit` is returned at once. If a namespace exists but cannot be opened, the error is
/// returned after all others were visited.
pub fn visit<E: From<Error>>(
    mut visit: impl FnMut(&Namespace) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let own = std::fs::metadata(OWN).map_err(Error::io("cannot read", OWN))?;
    let mut visited = BTreeSet::new();
    let mut refused = None;
    for _ in 0..MAX_LISTINGS {
        let (listed, unreadable) = list(&own, &visited);
        refused = unreadable;
        let mut has_vanished = false;
        for (is_other, inode, path) in listed {
            match open(&path, &own, inode) {
                Ok(Some(file)) => {
                    visited.insert(inode);
                    visit(&Namespace { inode, file, is_own: !is_other })?;
                }
                Ok(None) => has_vanished = true,
                Err(error) => refused = refused.or(Some((path, error))),
            }
        }
        if !has_vanished {
            break;
        }
    }
    match refused {
        Some((path, error)) => Err(Error::impossible(
            format!("network namespace {} cannot be opened: {error}", path.display()),
            "close files or raise the limits of open files (ulimit -n, fs.file-max)",
        )
        .into()),
        None => Ok(()),
    }
}

/// An error at the path of a namespace.
type Refused = (PathBuf, std::io::Error);

/// The namespaces not yet `visited`, each as: whether it is not the own one (which is thus the first),
/// its inode, and a path to it. Also the first path that exists but cannot be read.
fn list(own: &Metadata, visited: &BTreeSet<u64>) -> (BTreeSet<(bool, u64, PathBuf)>, Option<Refused>) {
    let processes = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit))
        .map(|entry| entry.path().join("ns/net"));
    let named = std::fs::read_dir(NAMED).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found = BTreeSet::new();
    let mut inodes = visited.clone();
    let mut refused = None;
    for path in [PathBuf::from(OWN)].into_iter().chain(processes).chain(named) {
        match std::fs::metadata(&path) {
            // A name without a mount, left by another mount namespace, is an ordinary file.
            Ok(about) if about.dev() == own.dev() => {
                if inodes.insert(about.ino()) {
                    found.insert((about.ino() != own.ino(), about.ino(), path));
                }
            }
            Ok(_) => {}
            Err(error) if is_end(&error) => {}
            Err(error) => refused = refused.or(Some((path, error))),
        }
    }
    (found, refused)
}

/// Opens a namespace; `None` if the path no longer leads to it.
fn open(path: &Path, own: &Metadata, inode: u64) -> std::io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => {
            let about = file.metadata()?;
            Ok(((about.dev(), about.ino()) == (own.dev(), inode)).then_some(file))
        }
        Err(error) if is_end(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether an error means that the process or the name no longer exists, or that the caller may not
/// inspect it.
fn is_end(error: &std::io::Error) -> bool {
    [ErrorKind::NotFound, ErrorKind::PermissionDenied].contains(&error.kind())
        || error.raw_os_error() == Some(Errno::ESRCH as i32)
}

impl Namespace {
    /// Runs `action` in this namespace, on its own thread. /proc/sys/net and started programs then
    /// belong to the namespace.
    ///
    /// # Errors
    /// If the namespace cannot be entered; also errors of `action`.
    pub fn enter<T: Send, E: From<Error> + Send>(
        &self,
        action: impl FnOnce() -> Result<T, E> + Send,
    ) -> Result<T, E> {
        if self.is_own {
            return action();
        }
        std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    setns(&self.file, CloneFlags::CLONE_NEWNET).map_err(|reason| {
                        let reason = std::io::Error::from(reason);
                        Error::impossible(
                            format!("network namespace {} cannot be entered: {reason}", self.inode),
                            "run as root",
                        )
                    })?;
                    action()
                })
                .join()
                .unwrap_or_else(|_| Err(Error::Malformed("a thread panicked".to_owned()).into()))
        })
    }
}
