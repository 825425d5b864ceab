//! Record of a kernel trial: the state of the host before it, and the result. It is stored beside
//! the journal and survives the restarts of a trial.

use super::Reason;
use crate::error::{Error, Result};
use crate::host::{Host, Network};
use crate::journal::Store;
use crate::plan::{Content, FileState, install, tidy_if};
use serde::{Deserialize, Serialize};
use std::io;

/// Additional arguments of a kernel on trial: restart after a panic, and a mark. With those for
/// dracut and initramfs-tools an initramfs that does not find its root restarts, too, without a
/// prompt.
pub const TRIAL_ARGUMENTS: &str = "panic=10 rd.shell=0 rd.emergency=reboot fullpipe.trial=1";
/// The mark of a running kernel on trial.
pub const MARK: &str = "fullpipe.trial=1";

const VERSION: u32 = 1;

/// The record in the journal's directory.
const RECORD: &str = "/kernel.json";

/// A kernel on trial, or its last result.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Trial {
    pub(super) version: u32,
    /// The kernel's release.
    pub release: String,
    /// The previous kernel.
    pub before: String,
    /// Boot ID of the boot that prepared the trial.
    pub boot: String,
    /// Seconds since boot within which all checks must pass.
    pub within: u64,
    /// Whether keeping it needs a confirmation.
    pub asks: bool,
    /// The required controller.
    pub controller: String,
    /// The network before the trial.
    pub network: Network,
    /// Ports on which sshd listened.
    pub ssh: Vec<u16>,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<Vec<Reason>>,
}

/// Stage of a trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The kernel is booted at the next restart.
    Armed,
    /// The kernel is running and being checked.
    Running,
    /// The host returned from it, or never booted it.
    Over,
}

impl Trial {
    /// A new trial.
    pub fn new(host: &dyn Host, release: &str, controller: &str) -> Result<Trial> {
        let network = host.network().map_err(|e| Error::io("cannot read the network configuration", &e))?;
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

    /// Reads the record, if there is one.
    ///
    /// # Errors
    /// It cannot be read or parsed.
    pub fn load(host: &dyn Host, store: &Store) -> Result<Option<Trial>> {
        let Some(text) = store.read_state(host, RECORD)? else { return Ok(None) };
        let path = store.path_of(RECORD);
        let trial: Trial = serde_json::from_slice(&text).map_err(|e| {
            Error::check(format_args!(
                "{path}: {e}: the record is damaged; remove it, then try the kernel again"
            ))
        })?;
        if trial.version != VERSION {
            return Err(Error::check(format_args!(
                "{path}: unsupported format {}, expected {VERSION}",
                trial.version
            )));
        }
        Ok(Some(trial))
    }

    /// Writes the record durably.
    ///
    /// # Errors
    /// From the file system.
    pub fn save(&self, host: &dyn Host, store: &Store) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        let directory = store.directory(host)?;
        let owner = directory.stat("/")?;
        let (uid, gid) = (owner.uid, owner.gid);
        let state = FileState::File { content: Content(text), mode: 0o600, uid, gid, attributes: None };
        install(&*directory, RECORD, &state)
    }

    /// Removes the record.
    ///
    /// # Errors
    /// From the file system.
    pub fn forget(host: &dyn Host, store: &Store) -> io::Result<()> {
        let Some(directory) = store.open(host).map_err(|e| io::Error::other(e.to_string()))? else {
            return Ok(());
        };
        // What a save leaves when it is interrupted.
        let begin = format!("{{\"version\":{VERSION},");
        let is_own = |found: &FileState| match found {
            FileState::File { content, .. } => {
                let length = content.len().min(begin.len());
                content[..length] == begin.as_bytes()[..length] || content.iter().all(|byte| *byte == 0)
            }
            _ => false,
        };
        tidy_if(&*directory, RECORD, &is_own)?;
        match directory.stat(RECORD) {
            Ok(_) => install(&*directory, RECORD, &FileState::Absent),
            Err(_) => Ok(()),
        }
    }

    /// Its stage.
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
