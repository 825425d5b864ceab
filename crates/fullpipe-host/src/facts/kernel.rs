//! The kernel: its version, its configuration and its modules.

use crate::host::View;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A kernel's version, compared by its first two numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version(pub u32, pub u32);

impl Version {
    /// Reads the front of a release (`5.10.0-28-amd64`).
    pub fn parse(release: &str) -> Option<Version> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        Some(Version(numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// Whether the kernel has something, and what says so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Presence {
    /// Usable now.
    Ready(String),
    /// A module that is on disk and not loaded.
    Loadable(String),
    /// Not there.
    Missing(String),
    /// Nothing readable says.
    Unknown,
}

/// The options that a kernel was built with.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file.
    pub from: String,
    values: BTreeMap<String, String>,
}

impl Config {
    /// Reads `/proc/config.gz`, `/boot/config-RELEASE` or the one beside the modules.
    pub fn read(view: &dyn View, release: &str) -> Option<Config> {
        let compressed = view.read("/proc/config.gz").ok().and_then(|b| gunzip(&b));
        let plain = [format!("/boot/config-{release}"), format!("/lib/modules/{release}/config")];
        let (from, bytes) = compressed
            .map(|b| ("/proc/config.gz".to_owned(), b))
            .or_else(|| plain.into_iter().find_map(|p| view.read(&p).ok().map(|b| (p, b))))?;
        let values = String::from_utf8_lossy(&bytes)
            .lines()
            .filter_map(|line| {
                let unset = line.strip_prefix("# ").and_then(|l| l.strip_suffix(" is not set"));
                let (name, value) = unset.map(|n| (n, "n")).or_else(|| line.split_once('='))?;
                name.starts_with("CONFIG_").then(|| (name.to_owned(), value.to_owned()))
            })
            .collect();
        Some(Config { from, values })
    }

    /// The value of an option; `n` for one that is not set.
    pub fn get(&self, name: &str) -> &str {
        self.values.get(name).map_or("n", String::as_str)
    }

    /// What an option's value means for the thing that it configures. A module whose file could not be looked
    /// for is taken for loadable; `listed` says that a built-in would have shown itself already.
    pub(super) fn presence(&self, name: &str, listed: bool) -> Presence {
        let from = format!("{name}={} in {}", self.get(name), self.from);
        match self.get(name) {
            "y" if !listed => Presence::Ready(from),
            "m" => Presence::Loadable(from),
            _ => Presence::Missing(from),
        }
    }
}

/// The content of a gzip file (RFC 1952) of at most 16 MiB; the checksum is not needed to read a configuration.
fn gunzip(bytes: &[u8]) -> Option<Vec<u8>> {
    let flags = *bytes.get(3).filter(|_| bytes.starts_with(&[0x1f, 0x8b, 8]))?;
    let mut at = 10;
    if flags & 4 != 0 {
        at += 2 + usize::from(u16::from_le_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    }
    for name in [8, 16] {
        if flags & name != 0 {
            at += bytes.get(at..)?.iter().position(|&b| b == 0)? + 1;
        }
    }
    if flags & 2 != 0 {
        at += 2;
    }
    miniz_oxide::inflate::decompress_to_vec_with_limit(bytes.get(at..)?, 16 << 20).ok()
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

    /// Whether a module is there.
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

    /// Whether the module is a file that must be loaded (and not part of the kernel).
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
    use proptest::prelude::*;

    #[test]
    fn releases_are_compared_by_number() {
        let old = Version::parse("4.9.0-13-amd64").unwrap();
        assert!(old < Version(4, 20) && Version::parse("5.10.0").unwrap() > Version(4, 20));
        assert_eq!(Version::parse("unknown"), None);
    }

    #[test]
    fn modules_are_known_by_name_whatever_their_packing() {
        for path in ["kernel/net/ipv4/tcp_bbr.ko", "kernel/net/ipv4/tcp-bbr.ko.zst", "tcp_bbr.ko.xz"] {
            assert_eq!(module_name(path).as_deref(), Some("tcp_bbr"));
        }
    }

    #[test]
    fn a_compressed_configuration_is_read() {
        let text = b"CONFIG_TCP_CONG_BBR=m\n# CONFIG_NET_SCH_FQ is not set\n";
        let mut gz = vec![0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 3];
        gz.extend_from_slice(b"config\0");
        // One stored block (RFC 1951 §3.2.4).
        gz.push(1);
        gz.extend_from_slice(&(text.len() as u16).to_le_bytes());
        gz.extend_from_slice(&(!(text.len() as u16)).to_le_bytes());
        gz.extend_from_slice(text);
        assert_eq!(gunzip(&gz).as_deref(), Some(&text[..]));
    }

    proptest! {
        #[test]
        fn no_compressed_bytes_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), framed in any::<bool>()) {
            if framed && bytes.len() > 3 {
                bytes[..3].copy_from_slice(&[0x1f, 0x8b, 8]);
            }
            let _ = gunzip(&bytes);
        }
    }
}
