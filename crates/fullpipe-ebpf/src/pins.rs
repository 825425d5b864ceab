//! Where loaded controllers are kept: one pinned link each, in a BPF file system.
//!
//! A link that nobody holds unregisters its controller, so a pin is the one thing that keeps it: there is
//! no state in which half of a controller is left behind. Everything else (map, programs, build) is found
//! from the link.

use crate::error::{Error, Result};
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
    pub(crate) fn look() -> Option<Self> {
        let directory = Path::new(BPFFS).join(DIRECTORY);
        (is_bpffs(Path::new(BPFFS)) && directory.is_dir()).then_some(Pins { directory, _turn: None })
    }

    /// The pins, to change: no other fullpipe changes them while this lives. Mounts the BPF file system when
    /// nothing else has done it yet, as ip and bpftool do.
    ///
    /// # Errors
    /// [`Error::Impossible`] when it cannot be mounted, or another loader keeps it too long.
    pub fn change() -> Result<Self> {
        let root = Path::new(BPFFS);
        if !is_bpffs(root) {
            mount(root)?;
        }
        let directory = root.join(DIRECTORY);
        match std::fs::create_dir(&directory) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(Error::io("cannot create", &directory)(error));
            }
            _ => {}
        }
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
        Ok(Pins { directory, _turn: Some(turn) })
    }

    /// Where the link of this name is pinned, or would be.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
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
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
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
