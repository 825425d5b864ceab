//! Sysctls that container managers set in the network namespaces of their containers: podman's
//! containers.conf(5) and quadlets (podman-systemd.unit(5)), and `--sysctl` in enabled units. They
//! replace what a container would copy from its host; they do not change the host.

use super::overrides::{enabled_units, expand};
use crate::host::View;
use crate::names::normalise;

/// A sysctl that a container manager sets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContainerSysctl {
    /// The value.
    pub value: String,
    /// `file:line`.
    pub place: String,
}

const SETTINGS: [&str; 3] = [
    "/usr/share/containers/containers.conf",
    "/etc/containers/containers.conf",
    "/etc/containers/containers.conf.d",
];

const QUADLETS: [&str; 3] =
    ["/etc/containers/systemd", "/run/containers/systemd", "/usr/share/containers/systemd"];

/// The values of one sysctl in containers that this host starts.
pub fn container_sysctls(view: &dyn View, key: &str) -> Vec<ContainerSysctl> {
    let key = normalise(key);
    let mut found = Vec::new();
    let quadlets = QUADLETS.iter().flat_map(|directory| {
        let names = view.list(directory).unwrap_or_default().into_iter();
        names.filter(|name| name.ends_with(".container")).map(move |name| format!("{directory}/{name}"))
    });
    let files = expand(view, &SETTINGS).into_iter().chain(quadlets).chain(enabled_units(view));
    for file in files {
        let text = view.content(&file).unwrap_or_default();
        if !text.contains("sysctl") && !text.contains("Sysctl") {
            continue;
        }
        let mut is_default = false;
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.starts_with(['#', ';']) {
                continue;
            }
            is_default |= line.starts_with("default_sysctls");
            for pair in pairs(line, is_default) {
                let Some((name, value)) = pair.split_once('=') else { continue };
                if normalise(name) == key {
                    let place = format!("{file}:{}", number + 1);
                    found.push(ContainerSysctl { value: value.to_owned(), place });
                }
            }
            is_default &= !line.contains(']');
        }
    }
    found
}

/// The `KEY=VALUE` of a line: of `default_sysctls`, of `Sysctl=`, and behind `--sysctl`.
fn pairs(line: &str, is_default: bool) -> Vec<&str> {
    const QUOTES: [char; 2] = ['"', '\''];
    if is_default {
        return line.split(QUOTES).skip(1).step_by(2).collect();
    }
    if let Some(values) = line.strip_prefix("Sysctl=") {
        return values.split_ascii_whitespace().map(|word| word.trim_matches(QUOTES)).collect();
    }
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let behind = |at: usize| match words[at].strip_prefix("--sysctl")? {
        "" => words.get(at + 1).copied(),
        joined => joined.strip_prefix('='),
    };
    (0..words.len()).filter_map(behind).map(|word| word.trim_matches(QUOTES)).collect()
}
