//! sysctl.d: its directories and the programs that read them.

use super::assignment::{
    Assignment, BLANKS, Dialect, Line, busybox_image_path, busybox_path, is_glob, parse_some,
};
use super::scripts::{self, Reader};
use super::{Program, glob_matches};
use crate::host::{Node, View, parent};
use crate::names::normalise;
use std::collections::{BTreeMap, HashMap, HashSet};

/// By priority: of two files with one name, the one in the first directory counts (sysctl.d(5)).
const DIRECTORIES: [&str; 5] =
    ["/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d"];

/// The effective files, sorted by name across directories.
fn files(view: &dyn View, directories: &[&str], hidden: bool) -> Vec<String> {
    let mut chosen: BTreeMap<String, String> = BTreeMap::new();
    for directory in directories {
        for name in view.list(directory).unwrap_or_default() {
            if name.ends_with(".conf") && (hidden || !name.starts_with('.')) {
                let path = format!("{directory}/{name}");
                chosen.entry(name).or_insert(path);
            }
        }
    }
    chosen.into_values().collect()
}

/// The files that a shell's pattern (`/etc/sysctl.d/*.conf`) or procps' makes of a path: itself if
/// nothing matches.
pub(super) fn matching(view: &dyn View, pattern: &str) -> Vec<String> {
    let directory = parent(pattern);
    let Some(name) = pattern.rsplit('/').next().filter(|name| is_glob(name) || name.contains('\\')) else {
        return vec![pattern.to_owned()];
    };
    let fits =
        |other: &String| glob_matches(name, other) && (name.starts_with('.') || !other.starts_with('.'));
    let names = view.list(directory).unwrap_or_default();
    let found: Vec<String> =
        names.into_iter().filter(fits).map(|name| format!("{directory}/{name}")).collect();
    if found.is_empty() { vec![pattern.to_owned()] } else { found }
}

/// Whether the path leads to a regular file, as `test -f`.
pub(super) fn is_file(view: &dyn View, path: &str) -> bool {
    view.resolve(path).and_then(|path| view.stat(&path)).is_ok_and(|stat| stat.node == Node::File)
}

/// Whether a path leads to something; an image may lack /dev/null.
pub(super) fn opens(view: &dyn View, path: &str) -> bool {
    let is_mask = matches!(view.stat(path), Ok(stat) if stat.node == Node::Link("/dev/null".into()));
    is_mask || view.exists(path)
}

/// An effective line: a setting, or the exclusion of a key from globs.
struct Entry {
    key: String,
    set: Option<Assignment>,
    /// Whether globs skip its key.
    skipped: bool,
}

/// The key of interest, or all keys. Lines of other keys are skipped, since a file may be long.
pub(super) type Only<'a> = Option<&'a str>;

/// Most settings of a boot program that are kept; a host has some hundreds of all keys.
const MAX_SETTINGS: usize = 30_000;

/// Appends what a file sets. Too much counts as not read; then it returns `false`.
pub(super) fn add<T>(
    view: &dyn View,
    file: &str,
    all: &mut Vec<T>,
    new: impl IntoIterator<Item = T>,
) -> bool {
    for setting in new {
        if all.len() >= MAX_SETTINGS {
            view.refuse(file, "and other boot files have too many lines that set sysctls");
            return false;
        }
        all.push(setting);
    }
    true
}

/// Whether the kernel accepts a value for a key.
pub(super) type Accepts<'a> = &'a dyn Fn(&str, &str) -> bool;

/// The entries of a file, in order. One masked by a link to /dev/null has none.
fn entries(view: &dyn View, path: &str, program: Program, dialect: Dialect, only: Only<'_>) -> Vec<Entry> {
    let Ok(resolved) = view.resolve(path) else { return Vec::new() };
    let readable = view.stat(&resolved).is_ok_and(|s| s.node == Node::File);
    let Some(content) = readable.then(|| view.read(&resolved).ok()).flatten() else { return Vec::new() };
    let concerns =
        |key: &str| only.is_none_or(|only| key == only || (is_glob(key) && glob_matches(key, only)));
    let entry = |(line, parsed)| match parsed {
        Line::Set { ref key, .. } | Line::Exclude { ref key } if !concerns(key) => None,
        Line::Set { key, value, tolerant, skipped } => {
            let set = Assignment { key: key.clone(), value, file: resolved.clone(), line, tolerant, program };
            Some(Entry { key, set: Some(set), skipped })
        }
        Line::Exclude { key } => Some(Entry { key, set: None, skipped: true }),
        Line::Nothing => None,
    };
    // Skip lines before parsing, which dominates in long files.
    let needle = only.and_then(|only| only.rsplit(['/', '.']).next());
    let may = |line: &str| needle.is_none_or(|needle| line.contains(needle) || is_glob(line));
    let mut all = Vec::new();
    add(view, path, &mut all, parse_some(&content, dialect, &may).into_iter().filter_map(entry));
    all
}

/// Places of lines that would set `key` if their key had no non-ASCII blanks.
pub(super) fn odd_blanks(view: &dyn View, key: &str) -> Vec<String> {
    let mut paths = files(view, &DIRECTORIES, true);
    paths.push("/etc/sysctl.conf".into());
    let is_odd = |line: &str| {
        let name = line.split_once('=').map_or("", |(name, _)| name);
        let (seen, read) = (normalise(name.trim()), normalise(name.trim_matches(BLANKS)));
        seen == key && read != key
    };
    let mut places = Vec::new();
    for path in paths.iter().filter_map(|path| view.resolve(path).ok()) {
        let text = view.content(&path).unwrap_or_default();
        let odd = text.lines().enumerate().filter(|(_, line)| !line.is_ascii() && is_odd(line));
        places.extend(odd.map(|(number, _)| format!("{path}:{}", number + 1)));
    }
    places.dedup();
    places
}

/// Every setting that systemd-sysctl reads, before it keeps only the last for each key.
pub(super) fn systemd_lines(view: &dyn View, only: Only<'_>) -> Vec<Assignment> {
    let mut all = Vec::new();
    for file in files(view, &DIRECTORIES, false) {
        let entries = entries(view, &file, Program::Systemd, Dialect::Systemd, only);
        add(view, &file, &mut all, entries.into_iter().filter_map(|entry| entry.set));
    }
    all
}

/// One write per key: a later line replaces an earlier one for the same key, whether value or
/// exclusion, and globs skip every key that is named either way.
pub(super) fn systemd(view: &dyn View, only: Only<'_>) -> Vec<Assignment> {
    let mut kept: Vec<Option<Entry>> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for file in files(view, &DIRECTORIES, false) {
        for entry in entries(view, &file, Program::Systemd, Dialect::Systemd, only) {
            // A repeated value does not change the order.
            if let Some(&old) = places.get(&entry.key) {
                let value = |e: &Entry| e.set.as_ref().map(|a| a.value.clone());
                if kept[old].as_ref().map(value) == Some(value(&entry)) {
                    continue;
                }
                kept[old] = None;
            }
            let place = kept.len();
            let key = entry.key.clone();
            add(view, &file, &mut kept, [Some(entry)]);
            if kept.len() > place {
                places.insert(key, place);
            }
        }
    }
    expand(view, kept.into_iter().flatten().collect(), only)
}

/// Expands each glob to its keys, without those that another line names. An exclusion (`-key`)
/// names a key, too; one with wildcards excludes nothing (`apply_glob_option`,
/// `settinglist_findpath`).
fn expand(view: &dyn View, entries: Vec<Entry>, only: Only<'_>) -> Vec<Assignment> {
    if !entries.iter().any(|e| is_glob(&e.key)) {
        return entries.into_iter().filter_map(|e| e.set).collect();
    }
    let named: HashSet<&str> =
        entries.iter().filter(|e| e.skipped && !is_glob(&e.key)).map(|e| e.key.as_str()).collect();
    let mut free = keys(view);
    free.retain(|key| only.is_none_or(|only| key == only) && !named.contains(key.as_str()));
    let mut all = Vec::new();
    for line in entries.into_iter().filter_map(|e| e.set) {
        if is_glob(&line.key) {
            let matching = free.iter().filter(|key| glob_matches(&line.key, key));
            let matching = matching.map(|key| Assignment { key: key.clone(), ..line.clone() });
            add(view, &line.file, &mut all, matching);
        } else {
            all.push(line);
        }
    }
    all
}

/// Keys of this kernel for globs; on an image, those that this crate uses.
fn keys(view: &dyn View) -> Vec<String> {
    let directory = |path: &str| view.list(path).unwrap_or_default();
    let mut keys: Vec<String> = ["net/ipv4", "net/core"]
        .iter()
        .flat_map(|d| directory(&format!("/proc/sys/{d}")).into_iter().map(move |n| format!("{d}/{n}")))
        .collect();
    if keys.is_empty() {
        keys = ["tcp_congestion_control", "tcp_rmem", "tcp_wmem"].map(|k| format!("net/ipv4/{k}")).to_vec();
        keys.push("net/core/default_qdisc".into());
    }
    keys
}

/// procps' `sysctl --system`: every line is written in turn, /etc/sysctl.conf last of all.
pub(super) fn procps(view: &dyn View, only: Only<'_>) -> Vec<Assignment> {
    let mut paths = files(view, &DIRECTORIES, true);
    paths.push("/etc/sysctl.conf".into());
    procps_files(view, &paths, Program::Procps, only)
}

/// procps takes each path for a pattern, and ends its files at one that it cannot open (`Preload`).
pub(super) fn procps_files(
    view: &dyn View,
    paths: &[String],
    program: Program,
    only: Only<'_>,
) -> Vec<Assignment> {
    let opened = |path: &String| matching(view, path).into_iter().take_while(|path| opens(view, path));
    let mut all = Vec::new();
    for path in paths.iter().flat_map(opened) {
        if !add(view, &path, &mut all, entries(view, &path, program, Dialect::Procps, only)) {
            break;
        }
    }
    expand(view, all, only)
}

/// TuneD reads /etc/sysctl.d before /run/sysctl.d of the same name, nothing under /usr, then
/// /etc/sysctl.conf. It knows no wildcards.
pub(super) fn tuned_reapply(view: &dyn View, only: Only<'_>) -> Vec<Assignment> {
    let mut paths = files(view, &["/etc/sysctl.d", "/run/sysctl.d"], true);
    paths.push("/etc/sysctl.conf".into());
    let mut all = Vec::new();
    for path in &paths {
        let entries = entries(view, path, Program::TunedReapply, Dialect::Tuned, only);
        let set = entries.into_iter().filter_map(|entry| entry.set).filter(|set| !is_glob(&set.key));
        add(view, path, &mut all, set);
    }
    all
}

/// The boot script's calls of sysctl, each with one file.
pub(super) fn per_file(view: &dyn View, only: Only<'_>, accepts: Accepts<'_>) -> Vec<Assignment> {
    let Reader::PerFile(script) = scripts::reader(view) else { return Vec::new() };
    let mut all = Vec::new();
    for path in script.files(view) {
        let set = match script.busybox {
            true => busybox(view, &path, accepts),
            false => procps_files(view, std::slice::from_ref(&path), Program::PerFile, only),
        };
        add(view, &path, &mut all, set);
    }
    all
}

/// Lines at which busybox stops reading their file.
pub(super) fn stops(view: &dyn View, accepts: Accepts<'_>) -> Vec<Assignment> {
    let Reader::PerFile(script) = scripts::reader(view) else { return Vec::new() };
    let files = script.files(view).into_iter().filter(|_| script.busybox);
    let last = |path: String| busybox(view, &path, accepts).pop();
    files.filter_map(last).filter(|line| !accepts(&line.key, &line.value)).collect()
}

/// busybox' `sysctl -p FILE` stops at the first line whose value the kernel refuses (`xwrite_str`),
/// but not at an unknown key.
fn busybox(view: &dyn View, path: &str, accepts: Accepts<'_>) -> Vec<Assignment> {
    let mut all = Vec::new();
    let is_image = view.list("/proc/sys/net/ipv4").is_err();
    let exists = |path: &str| !path.is_empty() && view.exists(&format!("/proc/sys/{path}"));
    let key_path = |key: &str| match is_image {
        true => busybox_image_path(key).filter(|path| !path.is_empty()),
        false => busybox_path(key, &exists).filter(|path| exists(path)),
    };
    for entry in entries(view, path, Program::PerFile, Dialect::Busybox, None) {
        let Some(line) = entry.set else { continue };
        let Some(key) = key_path(&line.key) else { continue };
        let is_accepted = accepts(&key, &line.value);
        all.push(Assignment { key, ..line });
        if !is_accepted {
            break;
        }
    }
    all
}
