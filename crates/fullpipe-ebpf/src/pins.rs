//! Pins of loaded controllers: one pinned link each, in a BPF file system.
//! A link without references unregisters its controller, so the pin alone keeps the controller
//! loaded, and no partial state can remain. Map, programs and build are found from the link.
//! On a kernel without links (before Linux 6.4) the controller's map is pinned. A map stays
//! registered without a pin, so it is pinned before registration and unpinned after unregistration:
//! every registered map can be found. A controller loaded for one process has its pin in a
//! directory that the process keeps locked.
//!
//! Pins are opened by path. Other users can neither write the directories of pins nor rename them,
//! which is verified, because a BPF file system mounted without options is writable for everyone.

use crate::error::{Error, Result};
use libbpf_rs::{MapCore, MapHandle};
use nix::fcntl::OFlag;
use nix::mount::MsFlags;
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use std::fs::{File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Mount point of the BPF file system on all distributions.
pub const BPFFS: &str = "/sys/fs/bpf";
const DIRECTORY: &str = "fullpipe";
/// Subdirectory for control groups.
pub(crate) const CGROUPS: &str = "cgroups";
/// Subdirectory for controllers of single processes on kernels without links: one directory each.
pub(crate) const HELD: &str = "held";
/// The controller's pin in such a directory.
const HELD_MAP: &str = "map";
/// The locked subdirectory. Not valid as a controller name.
const LOCK: &str = "@lock";
/// Suffix of a pin that is about to replace the pin without it. Not valid in controller names.
const NEXT: &str = "@next";
/// Time to wait for another loader.
const LOCK_TIMEOUT: Duration = Duration::from_secs(20);

/// The pins of this machine.
#[derive(Debug)]
pub struct Pins {
    directory: PathBuf,
    _lock: Option<File>,
}

impl Pins {
    /// Opens the pins read-only. `None` without a BPF file system, when nothing can be pinned, and
    /// without the permission to read pins.
    ///
    /// # Errors
    /// [`Error::Impossible`] if another user may change or replace them.
    pub(crate) fn existing() -> Result<Option<Self>> {
        let root = Path::new(BPFFS);
        let directory = root.join(DIRECTORY);
        if !is_bpffs(root) {
            return Ok(None);
        }
        match open_directory(&directory) {
            Ok(opened) => {
                refuse_shared_root(root)?;
                refuse_others(&directory, &opened)?;
                Ok(Some(Pins { directory, _lock: None }))
            }
            Err(error) if [ErrorKind::NotFound, ErrorKind::PermissionDenied].contains(&error.kind()) => {
                Ok(None)
            }
            Err(error) => Err(no_directory(&directory, error)),
        }
    }

    /// Opens the pins for changes; no other fullpipe process can change them meanwhile. Mounts the
    /// BPF file system if necessary, as ip and bpftool do.
    ///
    /// # Errors
    /// [`Error::Impossible`] if it cannot be mounted, another user may change or replace the pins,
    /// or another loader holds the lock for too long.
    pub fn lock() -> Result<Self> {
        let root = Path::new(BPFFS);
        if !is_bpffs(root) {
            mount(root)?;
        }
        refuse_shared_root(root)?;
        let directory = root.join(DIRECTORY);
        make_private_directory(&directory)?;
        // Other users may have the directory of an older version open, and hold a lock on it.
        let lock = make_private_directory(&directory.join(LOCK))?;
        let started = Instant::now();
        while lock.try_lock().is_err() {
            if started.elapsed() > LOCK_TIMEOUT {
                return Err(Error::impossible(
                    format!("another fullpipe process has held the lock for {} s", LOCK_TIMEOUT.as_secs()),
                    format!("wait or end that process; `fuser {}` shows it", directory.join(LOCK).display()),
                ));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let pins = Pins { directory, _lock: Some(lock) };
        pins.sweep()?;
        Ok(pins)
    }

    /// Removes what exited processes left behind on a kernel without links.
    fn sweep(&self) -> Result<()> {
        for directory in process_directories(&self.directory) {
            let Ok(lock) = File::open(&directory) else { continue };
            if lock.try_lock().is_ok() {
                remove_leftover(&directory)?;
            }
        }
        Ok(())
    }

    /// The path of a controller's pin.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The path of the pin of a build that is about to replace this one.
    pub(crate) fn next_path(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}{NEXT}"))
    }

    /// Reserves a pin for a controller of this process only.
    ///
    /// # Errors
    /// If the directory cannot be created.
    pub(crate) fn reserve(&self, name: &str) -> Result<ProcessPin> {
        let held = self.directory.join(HELD);
        make_private_directory(&held)?;
        let directory = held.join(format!("{name}@{}", std::process::id()));
        let lock = make_private_directory(&directory)?;
        lock.try_lock().map_err(|_| {
            Error::impossible(
                format!("another process has locked {}", directory.display()),
                "end it, or load the controller under another name",
            )
        })?;
        let map = directory.join(HELD_MAP);
        Ok(ProcessPin { directory, map, _lock: lock })
    }

    /// The path of the pin of a control group's program.
    ///
    /// # Errors
    /// If the directory cannot be created.
    pub(crate) fn cgroup_path(&self, name: &str, inode: u64) -> Result<PathBuf> {
        let directory = self.directory.join(CGROUPS);
        make_private_directory(&directory)?;
        Ok(directory.join(format!("{name}@{inode}")))
    }

    /// Inodes of the control groups that use the controller.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub(crate) fn cgroups(&self, name: &str) -> Result<Vec<u64>> {
        let directory = self.directory.join(CGROUPS);
        if !directory.is_dir() {
            return Ok(Vec::new());
        }
        let entries = std::fs::read_dir(&directory).map_err(Error::io("cannot read", &directory))?;
        Ok(entries
            .flatten()
            .filter_map(|entry| {
                let pin = entry.file_name().to_string_lossy().into_owned();
                pin.strip_prefix(name)?.strip_prefix('@')?.parse().ok()
            })
            .collect())
    }

    /// The names of pinned controllers.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.directory).map_err(Error::io("cannot read", &self.directory))? {
            let entry = entry.map_err(Error::io("cannot read", &self.directory))?;
            if entry.path().is_dir() {
                continue;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            if !name.ends_with(NEXT) {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }
}

/// The pin of a controller of this process only; removed on drop.
#[derive(Debug)]
pub(crate) struct ProcessPin {
    directory: PathBuf,
    map: PathBuf,
    /// Released by the kernel when the process ends.
    _lock: File,
}

impl ProcessPin {
    /// The path to pin its map at.
    pub(crate) fn map(&self) -> &Path {
        &self.map
    }
}

impl Drop for ProcessPin {
    fn drop(&mut self) {
        // Leftovers are removed by the next process.
        let _ = remove_leftover(&self.directory);
    }
}

/// The pin directories of single processes.
fn process_directories(directory: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(directory.join(HELD))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect()
}

/// Unregisters controllers left by killed processes, which is possible only on a kernel without
/// links.
///
/// # Errors
/// If something cannot be removed.
pub fn clean_up() -> Result<()> {
    match Pins::existing()? {
        Some(pins) if !process_directories(&pins.directory).is_empty() => Pins::lock().map(drop),
        _ => Ok(()),
    }
}

/// Unregisters the controller of an exited process and removes its directory.
fn remove_leftover(directory: &Path) -> Result<()> {
    let map = directory.join(HELD_MAP);
    if map.exists() {
        let handle = MapHandle::from_pinned_path(&map).map_err(|error| {
            Error::impossible(format!("{} cannot be opened: {error}", map.display()), "run as root")
        })?;
        // It may never have been registered.
        let _ = handle.delete(&0u32.to_ne_bytes());
        std::fs::remove_file(&map).map_err(Error::io("cannot remove", &map))?;
    }
    std::fs::remove_dir(directory).map_err(Error::io("cannot remove", directory))
}

/// Whether the caller may see what is pinned.
pub fn are_readable() -> bool {
    let is_refused =
        |path: &Path| std::fs::read_dir(path).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
    let root = Path::new(BPFFS);
    !is_refused(root) && !is_refused(&root.join(DIRECTORY))
}

/// Opens a directory that is not a link.
fn open_directory(path: &Path) -> std::io::Result<File> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
    std::fs::OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)
}

/// Creates a directory that only root may open, or opens an existing one. Earlier versions created
/// directories that everyone may read; their permissions are reduced.
fn make_private_directory(path: &Path) -> Result<File> {
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(Error::io("cannot create", path)(error));
        }
        _ => {}
    }
    let directory = open_directory(path).map_err(|error| no_directory(path, error))?;
    if refuse_others(path, &directory)? & 0o077 != 0 {
        directory.set_permissions(Permissions::from_mode(0o700)).map_err(Error::io("cannot change", path))?;
    }
    Ok(directory)
}

/// The mode of an open directory, if no other user may change what is in it.
fn refuse_others(path: &Path, directory: &File) -> Result<u32> {
    let about = directory.metadata().map_err(Error::io("cannot read", path))?;
    if about.uid() != 0 {
        return Err(planted(path, format_args!("is not private to root: owned by user {}", about.uid())));
    }
    if about.mode() & 0o022 != 0 {
        let mode = about.mode() & 0o7777;
        return Err(planted(
            path,
            format_args!("is not private to root: writable by other users (mode {mode:04o})"),
        ));
    }
    Ok(about.mode())
}

/// Checks that no other user can rename or remove a directory of root in the BPF file system.
/// Without options it is mounted writable for everyone with the sticky bit, which prevents that
/// except for its owner.
fn refuse_shared_root(root: &Path) -> Result<()> {
    let about = std::fs::metadata(root).map_err(Error::io("cannot read", root))?;
    let is_sticky = about.mode() & 0o1000 != 0;
    if about.uid() == 0 && (is_sticky || about.mode() & 0o022 == 0) {
        return Ok(());
    }
    Err(Error::impossible(
        format!(
            "other users can replace files in the BPF file system at {} (owner {}, mode {:04o})",
            root.display(),
            about.uid(),
            about.mode() & 0o7777
        ),
        format!("as root: chown 0 {0} && chmod 0700 {0}", root.display()),
    ))
}

/// A directory of pins that root did not create, or that others may have changed.
fn planted(path: &Path, reason: std::fmt::Arguments<'_>) -> Error {
    Error::impossible(
        format!("{} {reason}", path.display()),
        format!("as root: chmod 0700 {BPFFS}, and remove {} with its contents", path.display()),
    )
}

/// Why a directory of pins cannot be opened: a link or a file in its place, or the system.
fn no_directory(path: &Path, error: std::io::Error) -> Error {
    match error.raw_os_error() {
        Some(nix::libc::ENOTDIR | nix::libc::ELOOP) => {
            planted(path, format_args!("cannot be opened as a directory: {error}"))
        }
        _ => Error::io("cannot open", path)(error),
    }
}

fn is_bpffs(path: &Path) -> bool {
    statfs(path).is_ok_and(|about| about.filesystem_type() == BPF_FS_MAGIC)
}

fn mount(root: &Path) -> Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    nix::mount::mount(Some("bpf"), root, Some("bpf"), flags, Some("mode=0700")).map_err(|reason| {
        Error::impossible(
            format!(
                "no BPF file system at {}, and it cannot be mounted: {}",
                root.display(),
                std::io::Error::from(reason)
            ),
            format!("as root: mount -t bpf -o mode=0700 bpf {}", root.display()),
        )
    })
}
