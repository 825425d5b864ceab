//! sysctl.d: the directories, and the two programs that read them.

use super::assignment::{Assignment, Dialect, Line, is_glob, parse};
use super::{Program, glob_matches};
use crate::host::{Node, View};
use std::collections::{BTreeMap, BTreeSet};

/// In falling priority: of two files of one name, the first directory's counts (sysctl.d(5)).
const DIRECTORIES: [&str; 5] =
    ["/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d"];

/// The files that count, sorted by name, whatever their directory.
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

/// The settings and exclusions of a file, in order. One masked by a link to /dev/null has none.
fn lines(view: &dyn View, path: &str, program: Program, dialect: Dialect) -> (Vec<Assignment>, Vec<String>) {
    let Ok(resolved) = view.resolve(path) else { return Default::default() };
    let readable = view.stat(&resolved).is_ok_and(|s| s.node == Node::File);
    let Some(content) = readable.then(|| view.read(&resolved).ok()).flatten() else {
        return Default::default();
    };
    let (mut set, mut excluded) = (Vec::new(), Vec::new());
    for (line, parsed) in parse(&content, dialect) {
        match parsed {
            Line::Set { key, value, tolerant } => {
                set.push(Assignment { key, value, file: resolved.clone(), line, tolerant, program });
            }
            Line::Exclude { key } => excluded.push(key),
            Line::Nothing => {}
        }
    }
    (set, excluded)
}

/// Every setting that systemd-sysctl reads, before it keeps only the last for each key.
pub(super) fn systemd_lines(view: &dyn View) -> Vec<Assignment> {
    files(view, &DIRECTORIES, false)
        .iter()
        .flat_map(|f| lines(view, f, Program::Systemd, Dialect::Systemd).0)
        .collect()
}

/// One write a key: a later line replaces an earlier one of the same key, and a key that is set by name (or
/// excluded) is left out of every glob.
pub(super) fn systemd(view: &dyn View) -> Vec<Assignment> {
    let (mut kept, mut excluded): (Vec<Assignment>, BTreeSet<String>) = Default::default();
    for file in files(view, &DIRECTORIES, false) {
        let (set, exclude) = lines(view, &file, Program::Systemd, Dialect::Systemd);
        for assignment in set {
            // The same value again changes nothing, not even the place in the order.
            if let Some(old) = kept.iter().position(|a| a.key == assignment.key) {
                if kept[old].value == assignment.value {
                    continue;
                }
                kept.remove(old);
            }
            kept.push(assignment);
        }
        excluded.extend(exclude);
    }
    expand(view, kept, &excluded)
}

/// Replaces each glob by the keys that it stands for, less those that are named or excluded elsewhere.
fn expand(view: &dyn View, lines: Vec<Assignment>, excluded: &BTreeSet<String>) -> Vec<Assignment> {
    let named: BTreeSet<String> = lines
        .iter()
        .filter(|a| !is_glob(&a.key))
        .map(|a| a.key.clone())
        .chain(excluded.iter().cloned())
        .collect();
    lines
        .into_iter()
        .flat_map(|line| {
            if !is_glob(&line.key) {
                return vec![line];
            }
            matching_keys(view, &line.key)
                .into_iter()
                .filter(|key| {
                    !named.contains(key) && !excluded.iter().any(|e| is_glob(e) && glob_matches(e, key))
                })
                .map(|key| Assignment { key, ..line.clone() })
                .collect()
        })
        .collect()
}

/// The keys of this kernel that the glob stands for. On an image without a kernel, the ones that this crate asks about.
fn matching_keys(view: &dyn View, glob: &str) -> Vec<String> {
    let directory = |path: &str| view.list(path).unwrap_or_default();
    let mut keys: Vec<String> = ["net/ipv4", "net/core"]
        .iter()
        .flat_map(|d| directory(&format!("/proc/sys/{d}")).into_iter().map(move |n| format!("{d}/{n}")))
        .collect();
    if keys.is_empty() {
        keys = ["tcp_congestion_control", "tcp_rmem", "tcp_wmem"].map(|k| format!("net/ipv4/{k}")).to_vec();
        keys.push("net/core/default_qdisc".into());
    }
    keys.retain(|k| glob_matches(glob, k));
    keys
}

/// Every line is written in turn, /etc/sysctl.conf last of all.
pub(super) fn procps(view: &dyn View) -> Vec<Assignment> {
    in_turn(view, &DIRECTORIES, Program::Procps)
}

/// tuned reads /etc/sysctl.d before /run/sysctl.d of the same name, nothing under /usr, then /etc/sysctl.conf.
pub(super) fn tuned_reapply(view: &dyn View) -> Vec<Assignment> {
    in_turn(view, &["/etc/sysctl.d", "/run/sysctl.d"], Program::TunedReapply)
}

fn in_turn(view: &dyn View, directories: &[&str], program: Program) -> Vec<Assignment> {
    let mut paths = files(view, directories, true);
    paths.push("/etc/sysctl.conf".into());
    let (mut all, mut excluded): (Vec<Assignment>, BTreeSet<String>) = Default::default();
    for path in paths {
        let (set, exclude) = lines(view, &path, program, Dialect::Procps);
        all.extend(set);
        excluded.extend(exclude);
    }
    expand(view, all, &excluded)
}
