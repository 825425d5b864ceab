//! Kernels of a host, their boot loader, and advice.

use super::installed::{self, Kernel, OPTIONS};
use super::loader::Loader;
use super::packages::Manager;
use super::trial::{Stage, Trial};
use super::{INSTALL, Reason};
use crate::error::Result;
use crate::facts::{Scope, System};
use crate::host::{Host, View};
use crate::journal::Store;
use serde::Serialize;

/// EFI variable of Secure Boot.
const SECURE_BOOT: &str = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";

/// The boot loader.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Boots {
    /// The loader's name.
    pub loader: &'static str,
    /// Its menu.
    pub menu: String,
    /// The default release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// The one-time entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Releases on disk without an entry.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub without_entry: Vec<String>,
}

/// A kernel on trial, or its last result.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Tried {
    /// Its release.
    pub release: String,
    /// Its stage.
    pub stage: Stage,
    /// Why the trial failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<Reason>,
}

/// Status of a host's kernels.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Status {
    /// One or two sentences, with advice.
    pub summary: String,
    /// The running release.
    pub running: String,
    /// Kernels on disk, newest first.
    pub kernels: Vec<Kernel>,
    /// The boot loader, if supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boots: Option<Boots>,
    /// Free bytes in /boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_free: Option<u64>,
    /// Whether Secure Boot is on.
    pub secure_boot: bool,
    /// DKMS modules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dkms: Vec<String>,
    /// The package manager.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manager: Option<&'static str>,
    /// Why this host's kernel cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<String>,
    /// The current or last trial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trial: Option<Tried>,
    /// The release that fullpipe installed and that is not kept yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installed: Option<String>,
    /// Whether an installation was interrupted.
    pub interrupted: bool,
}

/// Whether Secure Boot is on.
pub(super) fn secure_boot(view: &dyn View) -> bool {
    // Four bytes of attributes, then the value.
    view.read(SECURE_BOOT).is_ok_and(|bytes| bytes.get(4) == Some(&1))
}

/// DKMS modules with their versions.
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

/// Why this host cannot boot another kernel, if so.
pub(super) fn obstacle(host: &dyn Host, kernels: &[Kernel], loader: Option<&Loader>) -> Option<String> {
    let identity = host.identity();
    if !identity.running {
        return Some(
            "this is an image, not a running host: install a kernel into it with its own package manager"
                .into(),
        );
    }
    let refused = host.unread().into_iter().next().or_else(|| loader.and_then(Loader::excess));
    if let Some(text) = refused {
        return Some(format!("{text}, so that the boot menu was not read completely"));
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
    let system = System::detect(host, &identity, &scope);
    if let Some(System::Wsl) = system {
        return Some(System::Wsl.way_to_another_kernel().into());
    }
    if !kernels.iter().any(|kernel| kernel.running && kernel.image.is_some()) {
        let release = &identity.release;
        if let Some(system) = system {
            return Some(format!(
                "Linux {release}, which runs, has no image in /boot: {}",
                system.way_to_another_kernel()
            ));
        }
        let names = host.list("/boot").unwrap_or_default();
        let is_image = |name: &&String| {
            ["vmlinu", "bzImage", "zImage", "Image", "kernel"].iter().any(|begin| name.starts_with(begin))
        };
        let of_others = kernels.iter().filter(|kernel| kernel.image.is_some()).count();
        if names.iter().filter(is_image).count() > of_others {
            return Some(format!(
                "the image of Linux {release}, which runs, is in no known place below /boot"
            ));
        }
        return Some(format!(
            "Linux {release}, which runs, is not among those in /boot: it is booted from outside (by the \
             provider), and so would any other be. Choose another kernel, or the disk's own boot loader, \
             in the provider's console"
        ));
    }
    if loader.is_none() {
        return Some("no supported boot loader (GRUB, systemd-boot, EXTLINUX) has its menu in /boot".into());
    }
    None
}

/// Reads the status. Changes nothing.
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
            "an installation was interrupted: {} resumes it, {} rolls it back; until then Linux {} is booted",
            command("kernel install"),
            command("kernel back"),
            status.running
        );
    }
    if let Some(trial) = &status.trial {
        let release = &trial.release;
        return match trial.stage {
            Stage::Armed => format!(
                "Linux {release} is booted once at the next restart: `systemctl reboot` starts the trial, {} \
                 cancels it",
                command("kernel back")
            ),
            Stage::Running => format!(
                "Linux {release} is on trial: {} keeps it, {} returns to the previous kernel",
                command("kernel keep"),
                command("kernel back")
            ),
            Stage::Over => {
                let reasons: Vec<String> =
                    trial.failed.iter().map(|reason| format!("{}: {}", reason.what, reason.why)).collect();
                format!("the trial of Linux {release} failed: {}", reasons.join("; "))
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
    // BTF is only needed for eBPF controllers.
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
    let default = status.boots.as_ref().and_then(|boots| boots.default.as_ref());
    let default = status.kernels.iter().find(|kernel| !kernel.running && Some(&kernel.release) == default);
    if let Some(default) = default.filter(|kernel| kernel.has(OPTIONS[0]) == Some(false) && lacks.is_empty())
    {
        return format!(
            "the next boot uses Linux {}, the default of {}, which lacks {}; the running Linux {} has it: \
             make it the default",
            default.release,
            status.boots.as_ref().map_or("the boot loader", |boots| boots.loader),
            OPTIONS[0],
            status.running
        );
    }
    match (&lacks[..], other) {
        ([], _) => "the running kernel has all options: another is not needed".into(),
        (lacks, Some(kernel)) => format!(
            "the running kernel lacks {}, and the installed Linux {} has it: {} boots it once",
            lacks.join(", "),
            kernel.release,
            command(&format!("kernel try {}", kernel.release))
        ),
        (lacks, None) => format!(
            "the running kernel lacks {}: {} shows the distribution's kernels",
            lacks.join(", "),
            command("kernel plan")
        ),
    }
}
