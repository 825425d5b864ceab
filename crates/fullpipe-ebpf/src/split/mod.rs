//! Assigns new connections of a control group to arms with different controllers and reports their
//! results: the program in `bpf/split.bpf.c`, its owner, and inspection by other processes.
//! Nothing is pinned: program, link and maps exist as long as the owner's process. When that
//! process ends for any reason, new connections use their usual controller again.

mod attached;
mod filter;
mod owner;
mod raw;

pub use attached::{AttachedSplit, list_attached, list_loaded};
pub use filter::ConnectionFilter;
pub use owner::{Batch, CgroupState, Request, SplitConfig, SplitProgram};
pub use raw::{Closed, Counts, End, MAX_ARMS, MAX_PORTS, Setup, SplitInfo, SplitOwner, Table, arm_for};

use crate::error::Error;
use std::path::{Path, PathBuf};

/// The mount point of the version 2 control groups.
///
/// # Errors
/// If they are not mounted.
pub fn root_group() -> Result<PathBuf, Error> {
    const MOUNTS: &str = "/proc/self/mountinfo";
    let mounts = std::fs::read_to_string(MOUNTS).map_err(Error::io("cannot read", MOUNTS))?;
    let root = mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        after.starts_with("cgroup2 ").then(|| before.split(' ').nth(4).map(PathBuf::from))?
    });
    root.ok_or_else(|| {
        Error::impossible(
            "the version 2 control groups are not mounted",
            "mount -t cgroup2 none /sys/fs/cgroup (or another directory alongside version 1)",
        )
    })
}

/// The control group of a systemd unit, by its name with or without `.service`.
///
/// # Errors
/// If there is none, or more than one.
pub fn unit_group(unit: &str) -> Result<PathBuf, Error> {
    let names = [unit.to_owned(), format!("{unit}.service")];
    let mut found = Vec::new();
    let mut pending = vec![root_group()?];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if names.iter().any(|name| entry.file_name() == name.as_str()) {
                    found.push(entry.path());
                }
                pending.push(entry.path());
            }
        }
    }
    let all: Vec<String> = found.iter().map(|path| path.display().to_string()).collect();
    match (found.pop(), found.is_empty()) {
        (Some(only), true) => Ok(only),
        (None, _) => Err(Error::impossible(
            format!("no control group for unit {unit}"),
            "`systemctl status` lists running units; --cgroup takes a directory",
        )),
        (Some(_), false) => Err(Error::impossible(
            format!("several control groups for unit {unit}: {}", all.join(", ")),
            "select one with --cgroup",
        )),
    }
}

fn refused(path: &Path, error: &std::io::Error) -> Error {
    Error::impossible(
        format!("cannot attach the program to control group {}: {error}", path.display()),
        "name a directory of the version 2 control groups, usually under /sys/fs/cgroup, and run as root",
    )
}

fn unreadable(error: libbpf_rs::Error) -> Error {
    Error::impossible(format!("the split's maps cannot be used: {error}"), "run as root")
}
