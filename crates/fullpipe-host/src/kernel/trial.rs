//! What is written down of a kernel that is tried: what the host was before, and what became of it. It is beside the journal, and
//! outlives the restarts of a trial.

use super::Reason;
use crate::error::{Error, Result};
use crate::host::{Host, Network};
use crate::journal::Store;
use crate::plan::{Content, FileState, install, tidy};
use serde::{Deserialize, Serialize};
use std::io;

/// What a kernel that is tried is told besides: to restart after a panic, and so that it is known again. The words for dracut and
/// initramfs-tools have an initial file system that does not find its root restart, too, and ask nobody.
pub const TRIAL_ARGUMENTS: &str = "panic=10 rd.shell=0 rd.emergency=reboot fullpipe.trial=1";
/// What of it a running kernel is known by.
pub const MARK: &str = "fullpipe.trial=1";

const VERSION: u32 = 1;

/// A kernel that is tried, or was.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Trial {
    pub(super) version: u32,
    /// The kernel's release.
    pub release: String,
    /// The one that ran.
    pub before: String,
    /// The run of the machine in which it was asked for.
    pub boot: String,
    /// Seconds that it has, once it runs, to show that all is as before.
    pub within: u64,
    /// Whether someone must say that it is kept.
    pub asks: bool,
    /// The controller that must be there.
    pub controller: String,
    /// How the host was reached before.
    pub network: Network,
    /// Ports at which ssh listened.
    pub ssh: Vec<u16>,
    /// Why it was not kept, if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<Vec<Reason>>,
}

/// Where a trial stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// It is booted at the next restart.
    Armed,
    /// It runs, and is looked at.
    Running,
    /// The host came back from it, or never got there.
    Over,
}

impl Trial {
    /// A trial that is about to be armed.
    pub fn new(host: &dyn Host, release: &str, controller: &str) -> Result<Trial> {
        let network = host.network().map_err(|e| Error::io("cannot tell how this host is reached", &e))?;
        Ok(Trial {
            version: VERSION,
            release: release.to_owned(),
            before: host.identity().release,
            boot: host.clock().boot(),
            within: 180,
            asks: false,
            controller: controller.to_owned(),
            network,
            ssh: super::reachability::ssh_ports(host),
            failed: None,
        })
    }

    fn path(store: &Store) -> String {
        format!("{}/kernel.json", store.directory())
    }

    /// What is written down, if there is something.
    ///
    /// # Errors
    /// It cannot be read, or is not what fullpipe wrote.
    pub fn load(host: &dyn Host, store: &Store) -> Result<Option<Trial>> {
        let path = Trial::path(store);
        let text = match host.read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|e| Error::io(format_args!("cannot read {path}"), &e))?,
        };
        store.trust(host, &path)?;
        let trial: Trial = serde_json::from_slice(&text).map_err(|e| {
            Error::check(format_args!(
                "{path}: {e}: it is not as fullpipe wrote it; remove it, and try the kernel again"
            ))
        })?;
        if trial.version != VERSION {
            return Err(Error::check(format_args!(
                "{path}: it has format {}, this program knows {VERSION}",
                trial.version
            )));
        }
        Ok(Some(trial))
    }

    /// Writes it down, durably.
    ///
    /// # Errors
    /// From the file system.
    pub fn save(&self, host: &dyn Host, store: &Store) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        let owner = host.stat(store.directory())?;
        let state = FileState::File { content: Content(text), mode: 0o600, uid: owner.uid, gid: owner.gid };
        install(host, &Trial::path(store), &state)
    }

    /// Forgets it.
    ///
    /// # Errors
    /// From the file system.
    pub fn forget(host: &dyn Host, store: &Store) -> io::Result<()> {
        let path = Trial::path(store);
        tidy(host, &path)?;
        match host.stat(&path) {
            Ok(_) => install(host, &path, &FileState::Absent),
            Err(_) => Ok(()),
        }
    }

    /// Where it stands.
    pub fn stage(&self, host: &dyn Host) -> Stage {
        let line = host.text("/proc/cmdline").unwrap_or_default();
        let is_marked = line.split_ascii_whitespace().any(|word| word == MARK);
        if self.failed.is_none() && is_marked && host.identity().release == self.release {
            Stage::Running
        } else if self.failed.is_none() && host.clock().boot() == self.boot {
            Stage::Armed
        } else {
            Stage::Over
        }
    }
}
