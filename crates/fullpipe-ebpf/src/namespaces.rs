//! Lists and enters the network namespaces of this machine.

use crate::error::Error;
use nix::sched::{CloneFlags, setns};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// An open network namespace.
#[derive(Debug)]
pub struct Namespace {
    /// Its inode, as in `net:[4026531840]`.
    pub inode: u64,
    file: File,
    /// Whether this process is in it.
    pub is_own: bool,
}

/// The namespaces used by processes or named in /run/netns, this process's own first.
pub fn all() -> Vec<Namespace> {
    let own = std::fs::metadata("/proc/self/ns/net").map(|about| about.ino()).unwrap_or(0);
    let mut found: BTreeMap<u64, File> = BTreeMap::new();
    let mut consider = |path: PathBuf| {
        let Ok(about) = std::fs::metadata(&path) else { return };
        if let std::collections::btree_map::Entry::Vacant(place) = found.entry(about.ino())
            && let Ok(file) = File::open(&path)
        {
            place.insert(file);
        }
    };
    consider("/proc/self/ns/net".into());
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()) {
            consider(entry.path().join("ns/net"));
        }
    }
    for entry in std::fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        consider(entry.path());
    }
    let mut namespaces: Vec<Namespace> =
        found.into_iter().map(|(inode, file)| Namespace { inode, file, is_own: inode == own }).collect();
    namespaces.sort_by_key(|namespace| !namespace.is_own);
    namespaces
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
