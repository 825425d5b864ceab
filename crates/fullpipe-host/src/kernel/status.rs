//! Which kernels a host has, what boots them, and what can be done about it.

use super::installed::{self, Kernel, OPTIONS};
use super::loader::Loader;
use super::packages::Manager;
use super::trial::{Stage, Trial};
use super::{INSTALL, Reason};
use crate::error::Result;
use crate::facts::Scope;
use crate::host::{Host, View};
use crate::journal::Store;
use serde::Serialize;

/// The variable of the firmware that says whether it checks signatures.
const SECURE_BOOT: &str = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";

/// What boots the host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Boots {
    /// The loader's name.
    pub loader: &'static str,
    /// Its menu.
    pub menu: String,
    /// The release that it boots unless another is booted once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// The entry that it boots next, once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Releases on disk that no entry boots.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub without_entry: Vec<String>,
}

/// A kernel that is tried, or was.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Tried {
    /// Its release.
    pub release: String,
    /// Where it stands.
    pub stage: Stage,
    /// Why the host came back from it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<Reason>,
}

/// What there is to say.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Status {
    /// In a sentence or two, with what to do.
    pub summary: String,
    /// The release that runs.
    pub running: String,
    /// What is on disk, the newest first.
    pub kernels: Vec<Kernel>,
    /// What boots them, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boots: Option<Boots>,
    /// Bytes that are free in /boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_free: Option<u64>,
    /// Whether the firmware boots only what is signed.
    pub secure_boot: bool,
    /// Modules that are built anew for each kernel (DKMS).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dkms: Vec<String>,
    /// The package manager.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manager: Option<&'static str>,
    /// Why this host's kernel cannot be changed from here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<String>,
    /// The kernel that is tried, or was last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trial: Option<Tried>,
    /// What fullpipe installed and nobody kept yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installed: Option<String>,
    /// Whether an installation was interrupted.
    pub interrupted: bool,
}

/// Whether the firmware boots only what is signed.
pub(super) fn secure_boot(view: &dyn View) -> bool {
    // Four bytes of attributes, then one.
    view.read(SECURE_BOOT).is_ok_and(|bytes| bytes.get(4) == Some(&1))
}

/// Modules that DKMS builds, with their versions.
pub(super) fn dkms(view: &dyn View) -> Vec<String> {
    let folder = "/var/lib/dkms";
    let mut all = Vec::new();
    for name in view.list(folder).unwrap_or_default() {
        let versions = view.list(&format!("{folder}/{name}")).unwrap_or_default();
        let is_version = |version: &&String| version.starts_with(|c: char| c.is_ascii_digit());
        all.extend(versions.iter().filter(is_version).map(|version| format!("{name} {version}")));
    }
    all
}

/// Why another kernel is out of the question here, whoever asks.
pub(super) fn obstacle(host: &dyn Host, kernels: &[Kernel], loader: Option<&Loader>) -> Option<String> {
    let identity = host.identity();
    if !identity.running {
        return Some(
            "this is an image that does not run: install a kernel into it by its own package manager".into(),
        );
    }
    let scope = Scope::detect(host, &identity);
    if let Some(kind) = &scope.container {
        return Some(format!(
            "this is a container ({kind}), which uses the kernel of its host: run fullpipe on the host"
        ));
    }
    if !scope.initial_user || !scope.initial_network || !scope.boots {
        return Some("this is a namespace of a host and shares its kernel: run fullpipe on the host".into());
    }
    if identity.release.to_lowercase().contains("microsoft") {
        return Some("the kernel of WSL comes with Windows: `wsl --update`, or kernel= in .wslconfig".into());
    }
    if !kernels.iter().any(|kernel| kernel.running && kernel.image.is_some()) {
        return Some(format!(
            "Linux {}, which runs, is not among those in /boot: it is booted from outside (by the provider), and so would any other be. \
             Choose another kernel, or the disk's own boot loader, in the provider's console",
            identity.release
        ));
    }
    if loader.is_none() {
        return Some("no boot loader that is known (GRUB, systemd-boot, EXTLINUX) has its menu in /boot: nothing here decides which kernel is booted".into());
    }
    None
}

/// Finds out. Changes nothing.
///
/// # Errors
/// The journal is damaged or not readable.
pub fn status(host: &dyn Host, store: &Store) -> Result<Status> {
    let kernels = installed::all(host);
    let loader = Loader::find(host);
    let trial = Trial::load(host, store)?;
    let journal = store.load(host)?;
    let steps = journal.iter().flat_map(|journal| &journal.plan.steps);
    let installed = steps.filter_map(super::release_of).next_back();
    let interrupted = journal.as_ref().is_some_and(|journal| journal.busy_with.as_deref() == Some(INSTALL));
    let boots = loader.as_ref().map(|loader| Boots {
        loader: loader.kind.name(),
        menu: loader.menu.clone(),
        default: loader.default_of(host, &kernels).map(|kernel| kernel.release.clone()),
        next: loader.next(host),
        without_entry: kernels
            .iter()
            .filter(|kernel| loader.entry(kernel).is_none())
            .map(|kernel| kernel.release.clone())
            .collect(),
    });
    let mut status = Status {
        summary: String::new(),
        running: host.identity().release,
        obstacle: obstacle(host, &kernels, loader.as_ref()),
        boots,
        boot_free: host.free("/boot").ok(),
        secure_boot: secure_boot(host),
        dkms: dkms(host),
        manager: Manager::find(host).map(Manager::name),
        trial: trial.map(|trial| Tried {
            stage: trial.stage(host),
            release: trial.release,
            failed: trial.failed.unwrap_or_default(),
        }),
        installed,
        interrupted,
        kernels,
    };
    status.summary = summary(host, &status);
    Ok(status)
}

fn summary(host: &dyn Host, status: &Status) -> String {
    let command = |words: &str| host.identity().as_root(words);
    let running = status.kernels.iter().find(|kernel| kernel.running);
    if status.interrupted {
        return format!(
            "an installation was interrupted: {} goes on with it, {} takes it back. Linux {} is booted until then",
            command("kernel install"),
            command("kernel back"),
            status.running
        );
    }
    if let Some(trial) = &status.trial {
        let release = &trial.release;
        return match trial.stage {
            Stage::Armed => format!(
                "Linux {release} is booted once at the next restart: `systemctl reboot` tries it, {} does not",
                command("kernel back")
            ),
            Stage::Running => format!(
                "Linux {release} is on trial: {} keeps it now, {} goes back",
                command("kernel keep"),
                command("kernel back")
            ),
            Stage::Over => {
                let reasons: Vec<String> =
                    trial.failed.iter().map(|reason| format!("{}: {}", reason.what, reason.why)).collect();
                format!("Linux {release} was tried, and the host came back: {}", reasons.join("; "))
            }
        };
    }
    if let Some(obstacle) = &status.obstacle {
        return obstacle.clone();
    }
    if let Some(release) = status.installed.as_ref().filter(|release| **release != status.running) {
        return format!(
            "Linux {release} is installed: {} boots it once, {} removes it",
            command(&format!("kernel try {release}")),
            command("kernel back")
        );
    }
    // Without BTF only controllers that are eBPF are not to be had.
    let needed = &OPTIONS[..2];
    let lacks: Vec<&str> = needed
        .iter()
        .copied()
        .filter(|option| running.and_then(|kernel| kernel.has(option)) == Some(false))
        .collect();
    let other = status
        .kernels
        .iter()
        .find(|kernel| !kernel.running && needed.iter().all(|option| kernel.has(option) == Some(true)));
    match (&lacks[..], other) {
        ([], _) => "the kernel that runs has what it takes: another is not needed".into(),
        (lacks, Some(kernel)) => format!(
            "the kernel that runs lacks {}, and Linux {} is there and has it: {} boots it once",
            lacks.join(", "),
            kernel.release,
            command(&format!("kernel try {}", kernel.release))
        ),
        (lacks, None) => format!(
            "the kernel that runs lacks {}: {} shows what the distribution has",
            lacks.join(", "),
            command("kernel plan")
        ),
    }
}
