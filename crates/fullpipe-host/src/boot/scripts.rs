//! What reads sysctl files on a host without systemd: its boot script and its `sysctl`.

use super::assignment::glob_matches;
use super::directories::{is_file, matching, opens};
use crate::host::{Node, View};
use crate::os_release::distribution;
use std::collections::BTreeMap;

/// The reader of the sysctl files at boot.
pub(super) enum Reader {
    /// systemd-sysctl.
    Systemd,
    /// procps' `sysctl --system`.
    System,
    /// A script that calls `sysctl -p` for each file.
    PerFile(Script),
    /// None: its service is masked or in no runlevel, or its `sysctl` has no `--system`.
    None,
}

/// A script that calls `sysctl -p` for each file.
pub(super) struct Script {
    loops: Vec<Loop>,
    /// Whether its `sysctl` is that of busybox.
    pub(super) busybox: bool,
}

/// A loop over files.
#[derive(Default)]
struct Loop {
    /// Their patterns, in order.
    patterns: Vec<String>,
    /// Directories in which a file of the same name replaces one of these.
    replaced_by: Vec<String>,
    /// Whether they are sorted by name, and the first of a name counts.
    merged: bool,
}

impl Loop {
    fn new(patterns: &[&str], replaced_by: &[&str]) -> Loop {
        let owned = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
        Loop { patterns: owned(patterns), replaced_by: owned(replaced_by), merged: false }
    }
}

impl Script {
    /// The files that it passes to sysctl, in order.
    pub(super) fn files(&self, view: &dyn View) -> Vec<String> {
        let mut all = Vec::new();
        for Loop { patterns, replaced_by, merged } in &self.loops {
            let found = patterns.iter().flat_map(|pattern| matching(view, pattern));
            // Void's script tests with `-e`, the others with `-f`.
            let found = found.filter(|path| *merged && opens(view, path) || is_file(view, path));
            let found = found.filter(|path| {
                let name = path.rsplit('/').next().unwrap_or_default();
                !replaced_by.iter().any(|directory| is_file(view, &format!("{directory}/{name}")))
            });
            if *merged {
                let mut by_name: BTreeMap<String, String> = BTreeMap::new();
                for path in found {
                    let name = path.rsplit('/').next().unwrap_or_default().to_owned();
                    by_name.entry(name).or_insert(path);
                }
                all.extend(by_name.into_values());
            } else {
                all.extend(found);
            }
        }
        all
    }
}

/// OpenWrt's /etc/init.d/sysctl (package/base-files).
fn openwrt() -> Vec<Loop> {
    vec![Loop::new(&["/etc/sysctl.d/*.conf", "/etc/sysctl.conf"], &[])]
}

/// Alpine's script for OpenRC (aports, main/openrc/sysctl.initd).
fn alpine() -> Vec<Loop> {
    vec![
        Loop::new(&["/lib/sysctl.d/*.conf", "/usr/lib/sysctl.d/*.conf"], &["/etc/sysctl.d", "/run/sysctl.d"]),
        Loop::new(&["/etc/sysctl.d/*.conf"], &["/run/sysctl.d"]),
        Loop::new(&["/etc/sysctl.conf"], &[]),
        Loop::new(&["/run/sysctl.d/*.conf"], &[]),
    ]
}

/// Void's stage 1 (void-runit, core-services/08-sysctl.sh).
fn void() -> Vec<Loop> {
    let directories = ["/run/sysctl.d", "/etc/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d"];
    let patterns = directories.map(|directory| format!("{directory}/*.conf")).to_vec();
    vec![Loop { patterns, merged: true, ..Loop::default() }, Loop::new(&["/etc/sysctl.conf"], &[])]
}

/// Scripts that apply sysctl files at boot: OpenRC and OpenWrt, Void, Chimera (dinit), sysvinit.
const SCRIPTS: [&str; 4] = [
    "/etc/init.d/sysctl",
    "/etc/runit/core-services/08-sysctl.sh",
    "/usr/lib/dinit.d/early/scripts/sysctl.sh",
    "/etc/init.d/procps",
];

/// The reader of this host's sysctl files.
pub(super) fn reader(view: &dyn View) -> Reader {
    if has_systemd_sysctl(view) {
        return if is_masked(view) { Reader::None } else { Reader::Systemd };
    }
    let busybox = has_busybox_sysctl(view);
    let script = SCRIPTS.iter().find_map(|path| Some((*path, view.content(path)?)));
    if let Some((path, text)) = &script {
        if !is_enabled(view, path) {
            return Reader::None;
        }
        match loops(text) {
            loops if !loops.is_empty() && (busybox || !calls_system(text)) => {
                return Reader::PerFile(Script { loops, busybox });
            }
            _ if calls_system(text) && busybox => return Reader::None,
            _ if calls_system(text) => return Reader::System,
            _ => {}
        }
    }
    let id = distribution(view, "ID").unwrap_or_default();
    let init = view.text("/proc/1/comm").unwrap_or_default();
    let loops = match (id.as_str(), init.as_str()) {
        ("openwrt", _) | (_, "procd") => openwrt(),
        ("alpine", _) => alpine(),
        ("void", _) => void(),
        _ => return Reader::System,
    };
    Reader::PerFile(Script { loops, busybox })
}

/// Whether systemd-sysctl reads the files: by process 1, for an image by /sbin/init, else by the
/// program. On NixOS the program is in /nix/store.
fn has_systemd_sysctl(view: &dyn View) -> bool {
    const OTHERS: [&str; 8] =
        ["runit", "openrc-init", "s6-svscan", "s6-linux-init", "busybox", "procd", "dinit", "shepherd"];
    let installed =
        ["/usr/lib/systemd/systemd-sysctl", "/lib/systemd/systemd-sysctl"].iter().any(|p| view.exists(p));
    let is_other = |init: &str| OTHERS.contains(&init);
    match view.text("/proc/1/comm").as_deref() {
        Some("systemd") => return true,
        Some(init) if is_other(init) => return false,
        _ => {}
    }
    if let Some(init) = view.resolve("/sbin/init").ok().filter(|path| view.exists(path)) {
        let name = init.rsplit('/').next().unwrap_or_default();
        if name == "systemd" {
            return true;
        }
        if is_other(name) {
            return false;
        }
    }
    installed || distribution(view, "ID").as_deref() == Some("nixos")
}

/// Whether systemd-sysctl's unit is masked.
fn is_masked(view: &dyn View) -> bool {
    ["/etc/systemd/system", "/run/systemd/system"].iter().any(|directory| {
        let unit = view.stat(&format!("{directory}/systemd-sysctl.service"));
        matches!(unit, Ok(stat) if stat.node == Node::Link("/dev/null".into()))
    })
}

/// Whether `sysctl` is busybox'.
fn has_busybox_sysctl(view: &dyn View) -> bool {
    let places = ["/sbin/sysctl", "/usr/sbin/sysctl", "/bin/sysctl", "/usr/bin/sysctl"];
    match places.iter().find(|path| view.stat(path).is_ok()) {
        Some(path) => view.resolve(path).is_ok_and(|program| program.ends_with("/busybox")),
        None => {
            let id = distribution(view, "ID").unwrap_or_default();
            let init = view.text("/proc/1/comm").unwrap_or_default();
            ["alpine", "openwrt"].contains(&id.as_str()) || ["procd", "busybox"].contains(&init.as_str())
        }
    }
}

/// Whether a script is in a runlevel: OpenRC's, OpenWrt's or sysvinit's. Where there is none to
/// read, it is assumed to be.
fn is_enabled(view: &dyn View, script: &str) -> bool {
    let Some(name) = script.strip_prefix("/etc/init.d/") else { return true };
    let mut known = false;
    for directory in ["sysinit", "boot", "default"].map(|level| format!("/etc/runlevels/{level}")) {
        let names = view.list(&directory).unwrap_or_default();
        if names.iter().any(|other| other == name) {
            return true;
        }
        known |= !names.is_empty();
    }
    for directory in ["/etc/rc.d", "/etc/rcS.d"] {
        let names = view.list(directory).unwrap_or_default();
        let starts: Vec<&String> = names.iter().filter(|link| glob_matches("S[0-9][0-9]*", link)).collect();
        if starts.iter().any(|link| link[3..] == *name) {
            return true;
        }
        known |= !starts.is_empty();
    }
    !known
}

/// Lines of a script without comments, with continued lines joined.
fn commands(text: &str) -> Vec<String> {
    let joined = text.replace("\\\n", " ");
    joined.lines().map(|line| line.trim().to_owned()).filter(|line| !line.starts_with('#')).collect()
}

fn calls_system(text: &str) -> bool {
    commands(text).iter().any(|line| line.contains("sysctl") && line.contains("--system"))
}

/// The loops of a script that call `sysctl -p`, and its calls outside loops.
fn loops(text: &str) -> Vec<Loop> {
    if text.contains("/run/vsysctl.d") {
        return void();
    }
    let mut all = Vec::new();
    let mut current: Option<(Loop, bool)> = None;
    for line in commands(text) {
        let words: Vec<&str> = line.split([' ', '\t', ';']).filter(|word| !word.is_empty()).collect();
        let loads = words.iter().any(|word| *word == "sysctl" || word.ends_with("/sysctl"))
            && words
                .iter()
                .any(|word| word.starts_with('-') && !word.starts_with("--") && word.contains('p'));
        if let ["for", _, "in", patterns @ ..] = &words[..] {
            let files: Vec<&str> = patterns.iter().copied().filter(|word| word.starts_with('/')).collect();
            current = Some((Loop::new(&files, &[]), false));
        }
        match &mut current {
            Some((one, called)) => {
                *called |= loads;
                // `[ -f /run/sysctl.d/"${f##*/}" ]`
                if let (Some(at), true) = (line.find("##*/"), line.contains("-f ")) {
                    let path = line[..at].rsplit([' ', '\t']).next().unwrap_or_default();
                    let directory = path.trim_matches('"').split(['"', '$']).next().unwrap_or_default();
                    one.replaced_by.push(directory.trim_end_matches('/').to_owned());
                }
                if words.contains(&"done") {
                    all.extend(current.take().filter(|(_, called)| *called).map(|(one, _)| one));
                }
            }
            None if loads => {
                let named: Vec<&str> =
                    words.iter().copied().filter(|word| word.starts_with("/etc/")).collect();
                let files = if named.is_empty() { vec!["/etc/sysctl.conf"] } else { named };
                all.push(Loop::new(&files, &[]));
            }
            None => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Patterns and replacing directories.
    fn read(text: &str) -> Vec<(Vec<String>, Vec<String>)> {
        loops(text).into_iter().map(|one| (one.patterns, one.replaced_by)).collect()
    }

    #[test]
    fn loops_over_files_are_found() {
        let openwrt = "start() {\n\tfor CONF in /etc/sysctl.d/*.conf /etc/sysctl.conf; do\n\
                       \t\t[ -f \"$CONF\" ] && sysctl -e -p \"$CONF\" >&-\n\tdone\n}\n";
        let patterns = vec!["/etc/sysctl.d/*.conf".to_owned(), "/etc/sysctl.conf".to_owned()];
        assert_eq!(read(openwrt), [(patterns, vec![])]);
        let replaced = "for f in /usr/lib/sysctl.d/*.conf \\\n  /lib/sysctl.d/*.conf; do\n\
                        if [ -f /etc/sysctl.d/\"${f##*/}\" ]; then continue; fi\n\
                        sysctl $quiet -p \"$f\"\ndone\nsysctl $quiet -p /etc/sysctl.conf\n";
        let found = read(replaced);
        assert_eq!(found[0].0.len(), 2);
        assert_eq!(found[0].1, ["/etc/sysctl.d"]);
        assert_eq!(found[1].0, ["/etc/sysctl.conf"]);
        // A loop for another kernel calls no `sysctl -p`.
        let bsd = "for conf in /etc/sysctl.conf; do\nwhile read var; do\nsysctl -w \"$var\"\ndone\ndone\n";
        assert_eq!(read(bsd), []);
        assert!(calls_system("sysctl ${quiet} --system\n"));
    }
}
