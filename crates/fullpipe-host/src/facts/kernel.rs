//! Features of the kernel, by its configuration and modules.

use crate::host::View;
use fullpipe_kernel::facts::Config;
use std::collections::BTreeSet;

/// Whether the kernel has a feature, and the evidence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Presence {
    /// Usable now.
    Ready(String),
    /// A module that is on disk and not loaded.
    Loadable(String),
    /// Not available.
    Missing(String),
    /// Nothing readable tells.
    Unknown,
}

/// Reads the configuration of a kernel of this release.
pub(super) fn config(view: &dyn View, release: &str) -> Option<Config> {
    Config::paths(release).iter().find_map(|place| Config::parse(place, &view.read(place).ok()?))
}

/// Availability by an option's value. A module is assumed to be loadable; `listed` means that a built-in
/// feature would be registered already.
pub(super) fn configured(config: &Config, name: &str, listed: bool) -> Presence {
    let from = format!("{name}={} in {}", config.get(name), config.from);
    match config.get(name) {
        "y" if !listed => Presence::Ready(from),
        "m" => Presence::Loadable(from),
        _ => Presence::Missing(from),
    }
}

/// The modules of the kernel, by name with underscores.
#[derive(Clone, Debug, Default)]
pub struct ModuleIndex {
    directory: Option<String>,
    builtin: BTreeSet<String>,
    on_disk: BTreeSet<String>,
    loaded: BTreeSet<String>,
}

impl ModuleIndex {
    /// Reads `modules.builtin` and `modules.dep` of the release.
    pub fn read(view: &dyn View, release: &str) -> ModuleIndex {
        let directory = ["/lib/modules", "/usr/lib/modules"]
            .iter()
            .map(|d| format!("{d}/{release}"))
            .find(|d| !release.is_empty() && view.exists(&format!("{d}/modules.dep")));
        let names = |file: &str| {
            let text =
                directory.as_ref().and_then(|d| view.content(&format!("{d}/{file}"))).unwrap_or_default();
            text.lines().filter_map(|l| module_name(l.split(':').next()?)).collect()
        };
        ModuleIndex {
            builtin: names("modules.builtin"),
            on_disk: names("modules.dep"),
            loaded: view.list("/sys/module").unwrap_or_default().into_iter().collect(),
            directory,
        }
    }

    /// Whether a module is available.
    pub fn find(&self, name: &str) -> Presence {
        if self.loaded.contains(name) {
            return Presence::Ready(format!("/sys/module/{name}"));
        }
        match &self.directory {
            None => Presence::Unknown,
            Some(d) if self.builtin.contains(name) => Presence::Ready(format!("{d}/modules.builtin")),
            Some(d) if self.on_disk.contains(name) => Presence::Loadable(format!("{d}/modules.dep")),
            Some(d) => Presence::Missing(format!("{d}/modules.dep")),
        }
    }

    /// Whether a kernel that may not be running has a module.
    pub fn on_disk(&self, name: &str) -> Presence {
        ModuleIndex { loaded: BTreeSet::new(), ..self.clone() }.find(name)
    }

    /// Whether the module is a file (and not built in).
    pub fn is_module(&self, name: &str) -> bool {
        self.on_disk.contains(name) && !self.builtin.contains(name)
    }
}

/// `tcp_bbr` for `kernel/net/ipv4/tcp_bbr.ko.xz`.
fn module_name(path: &str) -> Option<String> {
    let file = path.trim().rsplit('/').next()?;
    let (name, _) = file.split_once(".ko")?;
    Some(name.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_names_ignore_compression() {
        for path in ["kernel/net/ipv4/tcp_bbr.ko", "kernel/net/ipv4/tcp-bbr.ko.zst", "tcp_bbr.ko.xz"] {
            assert_eq!(module_name(path).as_deref(), Some("tcp_bbr"));
        }
    }
}
