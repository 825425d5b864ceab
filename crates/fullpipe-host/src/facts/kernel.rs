//! Features of the kernel, by its configuration and modules.

use super::Modprobe;
use crate::host::View;
use fullpipe_kernel::facts::Config;
use std::collections::{BTreeMap, BTreeSet};

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

impl Presence {
    /// Itself, or the exception for this module if it needs to be loaded.
    pub(super) fn unless_loading(self, exceptions: &BTreeMap<String, Presence>, module: &str) -> Presence {
        match self {
            Presence::Loadable(_) => exceptions.get(module).cloned().unwrap_or(self),
            found => found,
        }
    }
}

/// Reads the configuration of a kernel of this release.
pub(super) fn config(view: &dyn View, release: &str) -> Option<Config> {
    Config::paths(release).iter().find_map(|place| Config::parse(place, &view.read(place).ok()?))
}

/// Availability by an option's value. A module is assumed to be loadable; `listed` means that a
/// built-in feature would be registered already.
pub(super) fn configured(config: &Config, name: &str, listed: bool) -> Presence {
    let from = format!("{name}={} in {}", config.get(name), config.from);
    match config.get(name) {
        "y" if !listed => Presence::Ready(from),
        "m" => Presence::Loadable(from),
        _ => Presence::Missing(from),
    }
}

/// The default kernel of the boot loader, if it is not the running one.
#[derive(Clone, Debug)]
pub struct NextKernel {
    /// Its release.
    pub release: String,
    config: Option<Config>,
    modules: ModuleIndex,
    exceptions: BTreeMap<String, Presence>,
}

impl NextKernel {
    pub(super) fn read(view: &dyn View, release: &str, modprobe: &Modprobe) -> NextKernel {
        // /proc/config.gz belongs to the running kernel.
        let paths = Config::paths(release);
        let config = paths
            .iter()
            .filter(|path| !path.starts_with("/proc/"))
            .find_map(|path| Config::parse(path, &view.read(path).ok()?));
        let modules = ModuleIndex { loaded: BTreeSet::new(), ..ModuleIndex::read(view, release) };
        let exceptions = modprobe.exceptions(view, &modules, config.as_ref());
        NextKernel { release: release.to_owned(), config, modules, exceptions }
    }

    /// Whether it has a controller.
    pub fn controller(&self, name: &str) -> Presence {
        if name == "reno" {
            return Presence::Ready("part of every kernel".into());
        }
        let module = format!("tcp_{name}");
        let found = match self.modules.find(&module) {
            Presence::Unknown => self.config.as_ref().map_or(Presence::Unknown, |config| {
                configured(config, &format!("CONFIG_TCP_CONG_{}", name.to_uppercase()), false)
            }),
            found => found,
        };
        found.unless_loading(&self.exceptions, &module)
    }
}

/// The modules of the kernel, by name with underscores.
#[derive(Clone, Debug, Default)]
pub struct ModuleIndex {
    directory: Option<String>,
    /// Only a list of files, without modules.dep and modules.builtin: OpenWrt.
    flat: bool,
    builtin: BTreeSet<String>,
    /// The file of each, relative to the directory.
    on_disk: BTreeMap<String, String>,
    loaded: BTreeSet<String>,
}

impl ModuleIndex {
    /// Reads `modules.builtin` and `modules.dep` of the release.
    pub fn read(view: &dyn View, release: &str) -> ModuleIndex {
        let places: Vec<String> = ["/lib/modules", "/usr/lib/modules"]
            .iter()
            .filter(|_| !release.is_empty())
            .map(|d| format!("{d}/{release}"))
            .collect();
        let loaded = view.list("/sys/module").unwrap_or_default().into_iter().collect();
        if let Some(directory) = places.iter().find(|d| view.exists(&format!("{d}/modules.dep"))) {
            let modules = |file: &str| -> BTreeMap<String, String> {
                let text = view.content(&format!("{directory}/{file}")).unwrap_or_default();
                let paths = text.lines().filter_map(|line| line.split(':').next());
                paths.filter_map(|path| Some((module_name(path)?, path.trim().to_owned()))).collect()
            };
            return ModuleIndex {
                builtin: modules("modules.builtin").into_keys().collect(),
                on_disk: modules("modules.dep"),
                loaded,
                directory: Some(directory.clone()),
                flat: false,
            };
        }
        for directory in places {
            let names = view.list(&directory).unwrap_or_default();
            let on_disk: BTreeMap<String, String> =
                names.into_iter().filter_map(|name| Some((module_name(&name)?, name))).collect();
            if !on_disk.is_empty() {
                return ModuleIndex {
                    on_disk,
                    loaded,
                    directory: Some(directory),
                    flat: true,
                    ..ModuleIndex::default()
                };
            }
        }
        ModuleIndex { loaded, ..ModuleIndex::default() }
    }

    /// Whether a module is available.
    pub fn find(&self, name: &str) -> Presence {
        if self.loaded.contains(name) {
            return Presence::Ready(format!("/sys/module/{name}"));
        }
        match &self.directory {
            None => Presence::Unknown,
            Some(d) if self.builtin.contains(name) => Presence::Ready(format!("{d}/modules.builtin")),
            Some(d) if self.on_disk.contains_key(name) && self.flat => Presence::Loadable(d.clone()),
            Some(d) if self.on_disk.contains_key(name) => Presence::Loadable(format!("{d}/modules.dep")),
            Some(_) if self.flat => Presence::Unknown,
            Some(d) => Presence::Missing(format!("{d}/modules.dep")),
        }
    }

    /// Whether a kernel that may not be running has a module.
    pub fn on_disk(&self, name: &str) -> Presence {
        ModuleIndex { loaded: BTreeSet::new(), ..self.clone() }.find(name)
    }

    /// The modules that are files.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.on_disk.keys().filter(|name| !self.builtin.contains(*name))
    }

    /// The file of a module that is not built in.
    pub(super) fn path(&self, name: &str) -> Option<String> {
        let (directory, path) = (self.directory.as_ref()?, self.on_disk.get(name)?);
        Some(if path.starts_with('/') { path.clone() } else { format!("{directory}/{path}") })
    }

    /// Whether the module is a file (and not built in).
    pub fn is_module(&self, name: &str) -> bool {
        self.on_disk.contains_key(name) && !self.builtin.contains(name)
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
