//! The kernels on a host's disk, and their options.

use crate::facts::kernel::{ModuleIndex, Presence};
use crate::host::{Host, View};
use fullpipe_kernel::facts::Config;
use serde::Serialize;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The relevant options.
pub const OPTIONS: [&str; 3] = ["CONFIG_TCP_CONG_BBR", "CONFIG_NET_SCH_FQ", "CONFIG_DEBUG_INFO_BTF"];
/// Their modules.
const MODULES: [(&str, &str); 2] = [("CONFIG_TCP_CONG_BBR", "tcp_bbr"), ("CONFIG_NET_SCH_FQ", "sch_fq")];
/// Directories of out-of-tree modules.
const OUT_OF_TREE: [&str; 4] = ["updates", "extra", "weak-updates", "misc"];

/// A kernel on disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Kernel {
    /// Its release, as in `uname -r`.
    pub release: String,
    /// Whether it is still running.
    pub running: bool,
    /// Its image; without one it cannot be booted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Its initramfs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initrd: Option<String>,
    /// Values of the options, `y`, `m` or `n`; empty without its configuration.
    pub options: BTreeMap<String, String>,
    /// Configured modules that are missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Out-of-tree modules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub out_of_tree: Vec<String>,
    /// Bytes of its files in /boot.
    pub bytes: u64,
}

impl Kernel {
    /// Whether it has an option, built in or as an available module; `None` if unknown.
    pub fn has(&self, option: &str) -> Option<bool> {
        let set = self.options.get(option)?;
        let module = MODULES.iter().find(|(name, _)| *name == option).map(|(_, module)| *module);
        let is_gone = module.is_some_and(|module| self.missing.iter().any(|gone| gone == module));
        Some(set == "y" || set == "m" && !is_gone)
    }

    /// The flavour: `cloud-amd64` of `6.1.0-56-cloud-amd64`.
    pub fn flavour(&self) -> String {
        flavour(&self.release)
    }
}

/// Flavour of a release, the part after the numbers; may be empty.
pub fn flavour(release: &str) -> String {
    let parts: Vec<&str> = release.split('-').collect();
    let is_number = |part: &&&str| part.starts_with(|c: char| c.is_ascii_digit());
    let numbers = parts.iter().take_while(is_number).count();
    parts[numbers..].join("-")
}

/// Whether a release begins with a version: `6.1` matches 6.1.0-44-amd64, but not 6.12.
pub fn begins_with(release: &str, version: &str) -> bool {
    release.strip_prefix(version).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Compares two versions: numbers by value, other parts as text.
pub fn compare(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (one, other);
    loop {
        let text = |from: &str| from.find(|c: char| c.is_ascii_digit()).unwrap_or(from.len());
        let (a, b) = (text(one), text(other));
        // A release candidate sorts before its release.
        let rank = |part: &str| u8::from(!part.starts_with('~') && !part.contains("rc"));
        let word = |part: &str| (rank(part), part.to_owned());
        match word(&one[..a]).cmp(&word(&other[..b])) {
            Ordering::Equal => {}
            order => return order,
        }
        (one, other) = (&one[a..], &other[b..]);
        let digits = |from: &str| from.find(|c: char| !c.is_ascii_digit()).unwrap_or(from.len());
        let (a, b) = (digits(one), digits(other));
        let number = |part: &str| {
            let part = part.trim_start_matches('0').to_owned();
            (part.len(), part)
        };
        match number(&one[..a]).cmp(&number(&other[..b])) {
            Ordering::Equal if one.is_empty() && other.is_empty() => return Ordering::Equal,
            Ordering::Equal => {}
            order => return order,
        }
        (one, other) = (&one[a..], &other[b..]);
    }
}

fn first_of(view: &dyn View, paths: &[String]) -> Option<String> {
    paths.iter().find(|path| view.exists(path)).cloned()
}

/// Image and initramfs of a kernel, in the locations of common distributions.
fn files(view: &dyn View, release: &str) -> (Option<String>, Option<String>) {
    // Arch names them after the package, Alpine after the flavour.
    let package = view.text(&format!("/usr/lib/modules/{release}/pkgbase"));
    let name = package.unwrap_or_else(|| flavour(release));
    let image = [
        format!("/boot/vmlinuz-{release}"),
        format!("/boot/vmlinux-{release}"),
        format!("/boot/vmlinuz-{name}"),
        format!("/lib/modules/{release}/vmlinuz"),
    ];
    let initrd = [
        format!("/boot/initrd.img-{release}"),
        format!("/boot/initramfs-{release}.img"),
        format!("/boot/initrd-{release}"),
        format!("/boot/initramfs-{name}.img"),
        format!("/boot/initramfs-{name}"),
    ];
    (first_of(view, &image), first_of(view, &initrd))
}

fn kernel(host: &dyn Host, release: &str, running: bool) -> Kernel {
    let places = Config::paths(release);
    // /proc/config.gz belongs to the running kernel.
    let places = if running { &places[..] } else { &places[1..] };
    let config = places.iter().find_map(|place| Config::parse(place, &host.read(place).ok()?));
    let options = config.iter().flat_map(|config| {
        OPTIONS.iter().map(|option| ((*option).to_owned(), config.get(option).to_owned()))
    });
    let options: BTreeMap<String, String> = options.collect();
    let modules = ModuleIndex::read(host, release);
    let is_gone = |(option, module): &&(&str, &str)| {
        options.get(*option).is_some_and(|set| set == "m")
            && matches!(modules.on_disk(module), Presence::Missing(_))
    };
    let missing = MODULES.iter().filter(is_gone).map(|(_, module)| (*module).to_owned()).collect();
    let (image, initrd) = files(host, release);
    let mut out_of_tree = Vec::new();
    for folder in OUT_OF_TREE {
        collect_modules(host, &format!("/lib/modules/{release}/{folder}"), 3, &mut out_of_tree);
    }
    let beside = [format!("/boot/System.map-{release}"), format!("/boot/config-{release}")];
    let all = image.iter().chain(&initrd).chain(&beside);
    let bytes = all.filter(|path| path.starts_with("/boot/")).filter_map(|path| host.size(path).ok()).sum();
    Kernel { release: release.to_owned(), running, image, initrd, options, missing, out_of_tree, bytes }
}

/// Names of the modules below a directory.
fn collect_modules(view: &dyn View, directory: &str, depth: usize, into: &mut Vec<String>) {
    const MOST: usize = 64;
    for name in view.list(directory).unwrap_or_default() {
        if into.len() >= MOST {
            return;
        }
        match name.split_once(".ko") {
            Some((module, _)) => into.push(module.replace('-', "_")),
            None if depth > 0 => collect_modules(view, &format!("{directory}/{name}"), depth - 1, into),
            None => {}
        }
    }
}

/// Maximum kernels: reading one takes up to 30 ms.
const MAX_KERNELS: usize = 128;

/// All kernels on disk, newest first; at most 128, and the running one.
pub fn all(host: &dyn Host) -> Vec<Kernel> {
    let running = host.identity().release;
    let directories = ["/lib/modules", "/usr/lib/modules"];
    let mut releases: Vec<String> =
        directories.iter().flat_map(|directory| host.list(directory).unwrap_or_default()).collect();
    // A removed package may leave files that it did not install, such as depmod's output.
    releases.retain(|release| {
        directories.iter().any(|directory| host.exists(&format!("{directory}/{release}/modules.dep")))
            && (files(host, release).0.is_some() || *release == running)
    });
    let images = host.list("/boot").unwrap_or_default();
    releases.extend(images.iter().filter_map(|name| {
        let release = name.strip_prefix("vmlinuz-")?;
        // dracut's rescue image is a copy of a kernel: `vmlinuz-0-rescue-MACHINE`.
        let is_kernel =
            release.starts_with(|c: char| c.is_ascii_digit()) && !release.starts_with("0-rescue-");
        is_kernel.then(|| release.to_owned())
    }));
    releases.sort_by(|one, other| compare(other, one));
    releases.dedup();
    if releases.len() > MAX_KERNELS {
        host.refuse("/boot", &format!("has more than {MAX_KERNELS} kernels"));
        let rest = releases.split_off(MAX_KERNELS);
        releases.extend(rest.into_iter().filter(|release| *release == running));
    }
    releases.iter().map(|release| kernel(host, release, *release == running)).collect()
}

/// Whether an image has a Secure Boot signature: the certificate table of a PE file.
pub fn is_signed(image: &[u8]) -> bool {
    let word = |at: usize| {
        image.get(at..at + 4).map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    };
    let check = || {
        let header = usize::try_from(word(0x3c)?).ok()?;
        if !image.starts_with(b"MZ") || image.get(header..header + 4)? != b"PE\0\0" {
            return None;
        }
        // After the 20-byte file header; the data directories follow the fixed part, which is longer in
        // PE32+.
        let optional = header + 24;
        let directories = match image.get(optional..optional + 2)? {
            [0x0b, 0x01] => optional + 96,
            [0x0b, 0x02] => optional + 112,
            _ => return None,
        };
        const CERTIFICATES: usize = 4;
        word(directories + CERTIFICATES * 8 + 4)
    };
    check().is_some_and(|length| length > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn versions_are_compared_numerically() {
        let ordered = [
            "5.10.0-46-amd64",
            "6.1.0-0.deb11.21-amd64",
            "6.1.0-9-amd64",
            "6.1.0-56-amd64",
            "6.12.1",
            "6.12.1-2",
            "7.0",
        ];
        for pair in ordered.windows(2) {
            assert_eq!(compare(pair[0], pair[1]), Ordering::Less, "{pair:?}");
            assert_eq!(compare(pair[1], pair[0]), Ordering::Greater, "{pair:?}");
        }
        assert_eq!(compare("6.1", "6.1"), Ordering::Equal);
        assert_eq!(compare("6.12~rc1", "6.12"), Ordering::Less);
    }

    #[test]
    fn flavour_is_the_part_after_the_numbers() {
        for (release, word) in [
            ("6.1.0-56-cloud-amd64", "cloud-amd64"),
            ("6.1.0-0.deb11.21-amd64", "amd64"),
            ("5.15.0-91-generic", "generic"),
            ("6.6.14-0-lts", "lts"),
            ("6.12.0", ""),
        ] {
            assert_eq!(flavour(release), word, "{release}");
        }
    }

    #[test]
    fn signature_is_detected() {
        let mut image = vec![0; 512];
        image[..2].copy_from_slice(b"MZ");
        image[0x3c] = 0x80;
        image[0x80..0x84].copy_from_slice(b"PE\0\0");
        image[0x98..0x9a].copy_from_slice(&[0x0b, 0x02]);
        assert!(!is_signed(&image));
        image[0x98 + 112 + 4 * 8 + 4] = 1;
        assert!(is_signed(&image));
        assert!(!is_signed(b"MZ") && !is_signed(b""));
    }

    proptest! {
        #[test]
        fn comparison_is_antisymmetric_and_never_panics(
            one in "[0-9a-z.~-]{0,12}",
            other in "[0-9a-z.~-]{0,12}",
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            prop_assert_eq!(compare(&one, &other), compare(&other, &one).reverse());
            let _ = (flavour(&one), is_signed(&bytes), is_signed(&[b"MZ", &bytes[..]].concat()));
        }
    }
}
