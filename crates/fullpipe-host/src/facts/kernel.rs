//! Features of the kernel, by its configuration and modules.

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

/// Modules that modprobe refuses to load, with the place that says so: `install NAME /bin/false` in
/// modprobe.d(5)
/// and `module_blacklist=` on the kernel command line. `blacklist` only disables aliases, and the
/// kernel requests
/// controllers by the module's name (tcp_cong.c).
pub(super) fn blocked_modules(view: &dyn View) -> BTreeMap<String, String> {
    const DIRECTORIES: [&str; 5] = [
        "/etc/modprobe.d",
        "/run/modprobe.d",
        "/usr/local/lib/modprobe.d",
        "/usr/lib/modprobe.d",
        "/lib/modprobe.d",
    ];
    const REFUSALS: [&str; 6] =
        ["/bin/false", "/usr/bin/false", "/bin/true", "/usr/bin/true", "false", "true"];
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for directory in DIRECTORIES {
        for name in view.list(directory).unwrap_or_default().into_iter().filter(|n| n.ends_with(".conf")) {
            let path = format!("{directory}/{name}");
            files.entry(name).or_insert(path);
        }
    }
    let mut blocked = BTreeMap::new();
    for file in files.values() {
        let text = view.content(file).unwrap_or_default();
        for (number, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            if let ["install", module, command, ..] = words[..]
                && REFUSALS.contains(&command)
            {
                let place = format!("`install` in {file}:{}", number + 1);
                blocked.entry(module.replace('-', "_")).or_insert(place);
            }
        }
    }
    let command_line = view.text("/proc/cmdline").unwrap_or_default();
    let lists =
        command_line.split_ascii_whitespace().filter_map(|word| word.strip_prefix("module_blacklist="));
    for module in lists.flat_map(|list| list.split(',')) {
        blocked.insert(module.replace('-', "_"), "module_blacklist= on the kernel command line".into());
    }
    blocked
}

/// The default kernel of the boot loader, if it is not the running one.
#[derive(Clone, Debug)]
pub struct NextKernel {
    /// Its release.
    pub release: String,
    config: Option<Config>,
    modules: ModuleIndex,
}

impl NextKernel {
    pub(super) fn read(view: &dyn View, release: &str) -> NextKernel {
        // /proc/config.gz belongs to the running kernel.
        let paths = Config::paths(release);
        let config = paths
            .iter()
            .filter(|path| !path.starts_with("/proc/"))
            .find_map(|path| Config::parse(path, &view.read(path).ok()?));
        let modules = ModuleIndex { loaded: BTreeSet::new(), ..ModuleIndex::read(view, release) };
        NextKernel { release: release.to_owned(), config, modules }
    }

    /// Whether it has a controller.
    pub fn controller(&self, name: &str) -> Presence {
        if name == "reno" {
            return Presence::Ready("part of every kernel".into());
        }
        match self.modules.find(&format!("tcp_{name}")) {
            Presence::Unknown => self.config.as_ref().map_or(Presence::Unknown, |config| {
                configured(config, &format!("CONFIG_TCP_CONG_{}", name.to_uppercase()), false)
            }),
            found => found,
        }
    }
}

/// The modules of the kernel, by name with underscores.
#[derive(Clone, Debug, Default)]
pub struct ModuleIndex {
    directory: Option<String>,
    /// Only a list of files, without modules.dep and modules.builtin: OpenWrt.
    flat: bool,
    builtin: BTreeSet<String>,
    on_disk: BTreeSet<String>,
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
            let names = |file: &str| {
                let text = view.content(&format!("{directory}/{file}")).unwrap_or_default();
                text.lines().filter_map(|l| module_name(l.split(':').next()?)).collect()
            };
            return ModuleIndex {
                builtin: names("modules.builtin"),
                on_disk: names("modules.dep"),
                loaded,
                directory: Some(directory.clone()),
                flat: false,
            };
        }
        for directory in places {
            let names = view.list(&directory).unwrap_or_default();
            let on_disk: BTreeSet<String> = names.iter().filter_map(|name| module_name(name)).collect();
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
            Some(d) if self.on_disk.contains(name) && self.flat => Presence::Loadable(d.clone()),
            Some(d) if self.on_disk.contains(name) => Presence::Loadable(format!("{d}/modules.dep")),
            Some(_) if self.flat => Presence::Unknown,
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
