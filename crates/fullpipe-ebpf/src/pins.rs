//! Where loaded controllers are kept: one pinned link each, in a BPF file system.
//!
//! A link that nobody holds unregisters its controller, so a pin is the one thing that keeps it:
//! there is no state in which half of a controller is left behind. Everything else (map, programs,
//! build) is found from the link.
//!
//! On a kernel without links (before Linux 6.4) it is the controller's map that is pinned. A
//! registered map stays without any pin, so it is pinned before it is registered, and its pin
//! removed after that ends: whatever is registered can be found. A controller that is there for one
//! process has its pin in a directory that the process keeps locked.

use crate::error::{Error, Result};
use libbpf_rs::{MapCore, MapHandle};
use nix::mount::MsFlags;
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where the BPF file system is mounted on every distribution.
pub const BPFFS: &str = "/sys/fs/bpf";
const DIRECTORY: &str = "fullpipe";
/// The directory among the pins that is for control groups.
pub(crate) const CGROUPS: &str = "cgroups";
/// The directory among the pins of what processes hold on kernels without links: a directory each.
pub(crate) const HELD: &str = "held";
/// The pin of the controller in such a directory.
const HELD_MAP: &str = "map";
/// What the name of a pin ends with that is to take the place of the one without it. No
/// controller's name can.
const NEXT: &str = "@next";
/// How long to wait for another loader.
const PATIENCE: Duration = Duration::from_secs(20);

/// The pins of this machine.
#[derive(Debug)]
pub struct Pins {
    directory: PathBuf,
    _turn: Option<File>,
}

impl Pins {
    /// The pins, to look at. `None` when there is no BPF file system, and so nothing pinned.
    pub(crate) fn existing() -> Option<Self> {
        let directory = Path::new(BPFFS).join(DIRECTORY);
        (is_bpffs(Path::new(BPFFS)) && directory.is_dir()).then_some(Pins { directory, _turn: None })
    }

    /// The pins, to change: no other fullpipe changes them while this lives. Mounts the BPF file
    /// system when nothing else has done it yet, as ip and bpftool do.
    ///
    /// # Errors
    /// [`Error::Impossible`] when it cannot be mounted, or another loader keeps it too long.
    pub fn lock() -> Result<Self> {
        let root = Path::new(BPFFS);
        if !is_bpffs(root) {
            mount(root)?;
        }
        let directory = root.join(DIRECTORY);
        make_directory(&directory)?;
        let turn = File::open(&directory).map_err(Error::io("cannot open", &directory))?;
        let started = Instant::now();
        while turn.try_lock().is_err() {
            if started.elapsed() > PATIENCE {
                return Err(Error::impossible(
                    format!("another fullpipe has been changing controllers for {} s", PATIENCE.as_secs()),
                    format!("wait for it, or end it; `fuser {}` names it", directory.display()),
                ));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let pins = Pins { directory, _turn: Some(turn) };
        pins.sweep()?;
        Ok(pins)
    }

    /// Takes away what processes that are gone held on a kernel without links.
    fn sweep(&self) -> Result<()> {
        for directory in held_in(&self.directory) {
            let Ok(lock) = File::open(&directory) else { continue };
            if lock.try_lock().is_ok() {
                remove_leftover(&directory)?;
            }
        }
        Ok(())
    }

    /// Where the link of this name is pinned, or would be.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Where the map of another build is pinned until it has taken this one's place.
    pub(crate) fn next_path(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}{NEXT}"))
    }

    /// A place for a controller that is there for this process alone.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub(crate) fn hold(&self, name: &str) -> Result<ProcessPin> {
        let held = self.directory.join(HELD);
        make_directory(&held)?;
        let directory = held.join(format!("{name}@{}", std::process::id()));
        make_directory(&directory)?;
        let lock = File::open(&directory).map_err(Error::io("cannot open", &directory))?;
        lock.try_lock().map_err(|_| {
            Error::impossible(
                format!("another process holds {}", directory.display()),
                "end it, or load the controller under another name",
            )
        })?;
        let map = directory.join(HELD_MAP);
        Ok(ProcessPin { directory, map, _lock: lock })
    }

    /// Where the program that gives a control group a controller is pinned, or would be.
    ///
    /// # Errors
    /// When the directory for them cannot be made.
    pub(crate) fn cgroup_path(&self, name: &str, inode: u64) -> Result<PathBuf> {
        let directory = self.directory.join(CGROUPS);
        if !directory.is_dir() {
            std::fs::create_dir(&directory).map_err(Error::io("cannot create", &directory))?;
        }
        Ok(directory.join(format!("{name}@{inode}")))
    }

    /// The control groups, by inode, that are given the controller.
    ///
    /// # Errors
    /// When the directory cannot be read.
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

    /// The names that are pinned.
    ///
    /// # Errors
    /// When the directory cannot be read.
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

/// The place of a controller that is there for this process alone, gone with this.
#[derive(Debug)]
pub(crate) struct ProcessPin {
    directory: PathBuf,
    map: PathBuf,
    /// The kernel lets go of it with the process, however that ends.
    _lock: File,
}

impl ProcessPin {
    /// Where its map is to be pinned.
    pub(crate) fn map(&self) -> &Path {
        &self.map
    }
}

impl Drop for ProcessPin {
    fn drop(&mut self) {
        // What cannot be removed is found by whoever comes next.
        let _ = remove_leftover(&self.directory);
    }
}

/// The places of what processes hold.
fn held_in(directory: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(directory.join(HELD))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect()
}

/// Takes away what processes that were killed have left registered, which only a kernel without
/// links lets them.
///
/// # Errors
/// When something that is left cannot be taken away.
pub fn clean_up() -> Result<()> {
    match Pins::existing() {
        Some(pins) if !held_in(&pins.directory).is_empty() => Pins::lock().map(drop),
        _ => Ok(()),
    }
}

/// Unregisters what a process that is gone had, and removes its place.
fn remove_leftover(directory: &Path) -> Result<()> {
    let map = directory.join(HELD_MAP);
    if map.exists() {
        let handle = MapHandle::from_pinned_path(&map).map_err(|error| {
            Error::impossible(format!("{} cannot be opened: {error}", map.display()), "run as root")
        })?;
        // It may not have come to be registered.
        let _ = handle.delete(&0u32.to_ne_bytes());
        std::fs::remove_file(&map).map_err(Error::io("cannot remove", &map))?;
    }
    std::fs::remove_dir(directory).map_err(Error::io("cannot remove", directory))
}

fn make_directory(path: &Path) -> Result<()> {
    match std::fs::create_dir(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(Error::io("cannot create", path)(error))
        }
        _ => Ok(()),
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
                "there is no BPF file system at {} and it cannot be mounted: {}",
                root.display(),
                std::io::Error::from(reason)
            ),
            format!("as root: mount -t bpf bpf {}", root.display()),
        )
    })
}
