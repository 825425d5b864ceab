//! What prevents the load of a module that is on disk: modprobe.d(5), the kernel's requirement of
//! signatures, and compression that neither modprobe nor the kernel can read.

use super::kernel::{ModuleIndex, Presence};
use crate::host::View;
use fullpipe_kernel::facts::Config;
use std::collections::BTreeMap;

/// The rules for loading modules on this host.
///
/// `softdep` is not among them: modprobe loads a module whose soft dependency failed
/// (`kmod_module_probe_insert_module`).
#[derive(Clone, Debug, Default)]
pub struct Modprobe {
    /// Modules that modprobe does not load, with the line that causes it: `install NAME /bin/false`
    /// and `alias NAME off` in modprobe.d, `module_blacklist=` on the kernel command line.
    refused: BTreeMap<String, String>,
    /// Modules for which modprobe runs a command that may or may not load them.
    commands: BTreeMap<String, String>,
    /// `blacklist` only disables aliases. The kernel requests controllers by the module's name
    /// (tcp_cong.c), so it still loads them; systemd-modules-load(8) does not.
    deny_listed: BTreeMap<String, String>,
    /// Why the kernel loads only signed modules.
    enforcement: Option<String>,
    /// `+ZSTD +XZ -ZLIB …` of modprobe, and its file.
    features: Option<(String, String)>,
}

/// Commands of `install` that load nothing.
const REFUSALS: [&str; 8] =
    ["/bin/false", "/usr/bin/false", "/bin/true", "/usr/bin/true", "/sbin/nologin", "false", "true", ":"];

impl Modprobe {
    /// Reads the rules.
    pub(super) fn read(view: &dyn View, config: Option<&Config>) -> Modprobe {
        let mut rules = Modprobe {
            enforcement: enforcement(view, config),
            features: features(view),
            ..Modprobe::default()
        };
        for file in files(view) {
            let text = view.content(&file).unwrap_or_default();
            let mut lines = text.lines().enumerate();
            while let Some((number, first)) = lines.next() {
                // A backslash continues a line (`freadline_wrapped`).
                let mut line = first.to_owned();
                while line.ends_with('\\') {
                    line.pop();
                    line.push_str(lines.next().map_or("", |(_, next)| next));
                }
                rules.add(&line, &format!("{file}:{}", number + 1));
            }
        }
        let command_line = view.text("/proc/cmdline").unwrap_or_default();
        for word in command_line.split_ascii_whitespace() {
            let modules =
                |prefix| word.strip_prefix(prefix).into_iter().flat_map(|list: &str| list.split(','));
            for module in modules("module_blacklist=") {
                let place = "module_blacklist= on the kernel command line";
                rules.refused.insert(with_underscores(module), place.into());
            }
            for module in modules("modprobe.blacklist=") {
                let place = "modprobe.blacklist= on the kernel command line";
                rules.deny_listed.insert(with_underscores(module), place.into());
            }
        }
        rules
    }

    fn add(&mut self, line: &str, place: &str) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words[..] {
            ["install", module, command, ..] if REFUSALS.contains(&command) => {
                self.refused.entry(with_underscores(module)).or_insert(format!("`install` in {place}"));
            }
            ["install", module, ..] if !line.contains("--ignore-install") && !line.contains(" -i ") => {
                self.commands.entry(with_underscores(module)).or_insert(format!("`install` in {place}"));
            }
            // Aliases of modprobe.d take precedence over modules (`kmod_module_new_from_lookup`).
            ["alias", name, module] if with_underscores(name) != with_underscores(module) => {
                self.refused
                    .entry(with_underscores(name))
                    .or_insert(format!("`alias {name} {module}` in {place}"));
            }
            ["blacklist", module] => {
                self.deny_listed.entry(with_underscores(module)).or_insert(format!("`blacklist` in {place}"));
            }
            _ => {}
        }
    }

    /// Why systemd-modules-load(8) skips a module.
    pub fn skipped_at_boot(&self, module: &str) -> Option<&str> {
        self.deny_listed.get(module).map(String::as_str)
    }

    /// The controllers and queueing disciplines of a kernel that are on disk and cannot be loaded, or
    /// of which that is unknown.
    pub(super) fn exceptions(
        &self,
        view: &dyn View,
        index: &ModuleIndex,
        config: Option<&Config>,
    ) -> BTreeMap<String, Presence> {
        let decompresses = config.is_some_and(|config| config.get("CONFIG_MODULE_DECOMPRESS") == "y");
        let names = index.names().filter(|name| name.starts_with("tcp_") || name.starts_with("sch_"));
        let judge = |name: &String| Some((name.clone(), self.exception(view, index, name, decompresses)?));
        let mut found: BTreeMap<String, Presence> = names.filter_map(judge).collect();
        // Also of kernels whose modules are not listed.
        let refused =
            self.refused.iter().map(|(name, place)| (name.clone(), Presence::Missing(place.clone())));
        found.extend(refused);
        found
    }

    fn exception(
        &self,
        view: &dyn View,
        index: &ModuleIndex,
        module: &str,
        decompresses: bool,
    ) -> Option<Presence> {
        let path = index.path(module)?;
        let kind = [(".zst", "ZSTD"), (".xz", "XZ"), (".gz", "ZLIB")]
            .into_iter()
            .find_map(|(extension, kind)| path.ends_with(extension).then_some(kind));
        if let (Some(kind), Some((features, program)), false) = (kind, &self.features, decompresses)
            && !features.contains(&format!("+{kind}"))
        {
            let why = format!("{path} is compressed, and {program} is built without {kind}");
            return Some(Presence::Missing(why));
        }
        let is_unknown = match &self.enforcement {
            Some(why) if kind.is_none() && !is_signed(view, &path) => {
                return Some(Presence::Missing(format!("{path} is not signed, and {why}")));
            }
            // Modules outside of kernel/ come from other builds, whose key the kernel may not have.
            Some(_) => !path.contains("/kernel/"),
            None => false,
        };
        (is_unknown || self.commands.contains_key(module)).then_some(Presence::Unknown)
    }
}

fn with_underscores(module: &str) -> String {
    module.replace('-', "_")
}

/// The files of modprobe.d in their order; a file hides those of its name in later directories.
fn files(view: &dyn View) -> Vec<String> {
    const DIRECTORIES: [&str; 5] = [
        "/etc/modprobe.d",
        "/run/modprobe.d",
        "/usr/local/lib/modprobe.d",
        "/usr/lib/modprobe.d",
        "/lib/modprobe.d",
    ];
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for directory in DIRECTORIES {
        for name in view.list(directory).unwrap_or_default().into_iter().filter(|n| n.ends_with(".conf")) {
            let path = format!("{directory}/{name}");
            files.entry(name).or_insert(path);
        }
    }
    files.into_values().collect()
}

/// Why the kernel loads only modules with a valid signature (`module_sig_check`).
fn enforcement(view: &dyn View, config: Option<&Config>) -> Option<String> {
    let lockdown = view.text("/sys/kernel/security/lockdown").unwrap_or_default();
    if lockdown.contains("[integrity]") || lockdown.contains("[confidentiality]") {
        return Some("kernel lockdown requires a signature".into());
    }
    let forced = view.text("/sys/module/module/parameters/sig_enforce").as_deref() == Some("Y")
        || config.is_some_and(|config| config.get("CONFIG_MODULE_SIG_FORCE") == "y");
    forced.then(|| "the kernel requires a signature (module.sig_enforce)".into())
}

/// Whether a file of a module ends with a signature (`mod_verify_sig`). Unreadable counts as signed.
fn is_signed(view: &dyn View, path: &str) -> bool {
    view.read(path).map_or(true, |bytes| bytes.ends_with(b"~Module signature appended~\n"))
}

/// The features that kmod's `modprobe --version` prints, which are one string in its program.
fn features(view: &dyn View) -> Option<(String, String)> {
    let modprobe = ["/usr/sbin/modprobe", "/sbin/modprobe", "/usr/bin/modprobe"]
        .iter()
        .find_map(|path| view.resolve(path).ok().filter(|file| view.stat(file).is_ok()))?;
    let bytes = view.read(&modprobe).ok()?;
    let is_feature = |byte: &u8| byte.is_ascii_uppercase() || b"+- 0123456789".contains(byte);
    let begins = |window: &[u8]| [&b"+ZSTD "[..], b"-ZSTD ", b"+XZ ", b"-XZ "].contains(&window);
    let at = (0..bytes.len()).find(|&at| {
        bytes.get(at..at + 6).is_some_and(&begins) || bytes.get(at..at + 4).is_some_and(&begins)
    })?;
    let text: Vec<u8> = bytes[at..].iter().copied().take_while(is_feature).take(200).collect();
    Some((String::from_utf8_lossy(&text).into_owned(), modprobe))
}
