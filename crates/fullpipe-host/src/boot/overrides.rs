//! Settings outside sysctl.d: the kernel command line before it, UFW, tuned and scripts after it.

use super::Program;
use super::assignment::Assignment;
use super::directories::{Only, add, procps_files};
use crate::host::View;
use crate::names::{CONTROLLER, UNIT, default_of, normalise};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// `sysctl.net.ipv4.tcp_congestion_control=bbr` (kernel-parameters, since 5.8).
pub(super) fn command_line(view: &dyn View) -> Vec<Assignment> {
    let text = view.text("/proc/cmdline").unwrap_or_default();
    text.split_ascii_whitespace()
        .filter_map(|word| {
            let rest = word.strip_prefix("sysctl.").or_else(|| word.strip_prefix("sysctl/"))?;
            let (key, value) = rest.split_once('=')?;
            Some(Assignment {
                key: normalise(key),
                value: value.to_owned(),
                file: "/proc/cmdline".into(),
                line: 0,
                tolerant: true,
                program: Program::CommandLine,
            })
        })
        .collect()
}

/// The last value of `NAME=value` in a shell-like file, without quotes.
fn shell_value(view: &dyn View, path: &str, name: &str) -> Option<String> {
    let text = view.text(path)?;
    text.lines()
        .filter_map(|l| l.trim().strip_prefix(name)?.trim_start().strip_prefix('='))
        .next_back()
        .map(|v| v.trim().trim_matches(['"', '\'']).to_owned())
}

/// The sysctl file that UFW applies at start, if UFW is enabled.
pub(super) fn ufw_file(view: &dyn View) -> Option<String> {
    let on = shell_value(view, "/etc/ufw/ufw.conf", "ENABLED")?.eq_ignore_ascii_case("yes");
    let file = shell_value(view, "/etc/default/ufw", "IPT_SYSCTL")
        .filter(|f| !f.is_empty())
        .unwrap_or_else(|| "/etc/ufw/sysctl.conf".into());
    (on && view.exists(&file)).then_some(file)
}

/// UFW calls `sysctl -p` with its file.
pub(super) fn ufw(view: &dyn View, only: Only<'_>) -> Vec<Assignment> {
    let files: Vec<String> = ufw_file(view).into_iter().collect();
    procps_files(view, &files, Program::Ufw, only)
}

/// The files of tuned's active profiles, in the order in which it merges them, if tuned starts at
/// boot.
pub(super) fn tuned_profiles(view: &dyn View) -> Vec<String> {
    let enabled =
        ["/etc/systemd/system/multi-user.target.wants/tuned.service", "/etc/runlevels/default/tuned"]
            .iter()
            .any(|link| view.stat(link).is_ok());
    if !enabled {
        return Vec::new();
    }
    let named = ["/etc/tuned/active_profile", "/etc/tuned/post_loaded_profile"];
    let names = named.iter().filter_map(|path| view.text(path)).collect::<Vec<_>>().join(" ");
    names.split_ascii_whitespace().take(PROFILES).filter_map(|name| profile_file(view, name)).collect()
}

fn profile_file(view: &dyn View, name: &str) -> Option<String> {
    ["/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned"]
        .iter()
        .map(|d| format!("{d}/{name}/tuned.conf"))
        .find(|p| view.exists(p))
}

/// Whether tuned applies the sysctl files again after its profile, which is the default.
pub(super) fn tuned_reapplies(view: &dyn View) -> bool {
    shell_value(view, "/etc/tuned/tuned-main.conf", "reapply_sysctl")
        .is_none_or(|v| !["0", "false", "no"].contains(&v.to_lowercase().as_str()))
}

/// The settings of all active profiles. Where several set one key, tuned keeps the last
/// (merger.py).
pub(super) fn tuned(view: &dyn View) -> Vec<Assignment> {
    let (mut all, mut variables, mut seen) = (Vec::new(), BTreeMap::new(), HashSet::new());
    for file in tuned_profiles(view) {
        profile(view, &file, &mut seen, &mut all, &mut variables);
    }
    for assignment in &mut all {
        assignment.value = resolve_variables(&assignment.value, &variables);
    }
    all
}

/// Replaces `${name}` by the variables of tuned's profiles, and strips quotes. Functions (`${f:…}`)
/// stay.
fn resolve_variables(value: &str, variables: &BTreeMap<String, String>) -> String {
    const MAX_DEPTH: usize = 8;
    const MAX_LENGTH: usize = 4096;
    let mut value = value.to_owned();
    for _ in 0..MAX_DEPTH {
        let before = value.clone();
        for (name, text) in variables {
            if value.len() < MAX_LENGTH {
                value = value.replace(&format!("${{{name}}}"), text);
            }
        }
        if value == before {
            break;
        }
    }
    unquoted(&value).to_owned()
}

fn unquoted(value: &str) -> &str {
    let value = value.trim();
    let quoted = |quote| value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    quoted('"').or_else(|| quoted('\'')).unwrap_or(value)
}

/// Most profiles that are read; tuned's own include three or four.
const PROFILES: usize = 32;

/// The `[sysctl]` section of a profile after its included profiles, each read once, as in tuned.
fn profile(
    view: &dyn View,
    file: &str,
    seen: &mut HashSet<String>,
    all: &mut Vec<Assignment>,
    variables: &mut BTreeMap<String, String>,
) {
    if seen.len() >= PROFILES || !seen.insert(file.to_owned()) {
        return;
    }
    let Some(text) = view.read(file).ok().map(|b| String::from_utf8_lossy(&b).into_owned()) else { return };
    let (mut section, mut own) = (String::new(), Vec::new());
    for (i, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            section = name.to_owned();
            continue;
        }
        let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with(['#', ';'])) else {
            continue;
        };
        let (key, value) = (key.trim(), value.trim().trim_start_matches('>').trim());
        match section.as_str() {
            "main" if key == "include" => {
                let names = value.split([',', ' ', ';']).filter(|n| !n.is_empty());
                for name in names.take(PROFILES) {
                    if let Some(included) = profile_file(view, name) {
                        profile(view, &included, seen, all, variables);
                    }
                }
            }
            "variables" => {
                variables.insert(key.to_owned(), unquoted(value).to_owned());
            }
            "sysctl" => own.push(Assignment {
                key: normalise(key),
                value: value.to_owned(),
                file: file.to_owned(),
                line: i + 1,
                tolerant: true,
                program: Program::Tuned,
            }),
            _ => {}
        }
    }
    all.extend(own);
}

/// Scripts that run at boot or when a device comes up: rc.local, OpenRC's local, ifupdown,
/// NetworkManager, networkd-dispatcher.
const SCRIPTS: [&str; 9] = [
    "/etc/rc.local",
    "/etc/rc.d/rc.local",
    "/etc/local.d",
    "/etc/network/if-pre-up.d",
    "/etc/network/if-up.d",
    "/etc/NetworkManager/dispatcher.d",
    "/etc/networkd-dispatcher/configured.d",
    "/etc/networkd-dispatcher/routable.d",
    "/usr/lib/networkd-dispatcher/routable.d",
];

/// Files with commands in some lines: cron's `@reboot`, interfaces(5), wsl.conf.
const COMMAND_FILES: [&str; 8] = [
    "/etc/crontab",
    "/etc/cron.d",
    "/var/spool/cron/crontabs/root",
    "/var/spool/cron/root",
    "/etc/crontabs/root",
    "/etc/network/interfaces",
    "/etc/network/interfaces.d",
    "/etc/wsl.conf",
];

/// Directories of systemd units, those of higher priority first.
const UNITS: [&str; 4] =
    ["/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];

/// Most units that are read.
const MAX_UNITS: usize = 1024;

/// The files at these paths, or in these directories.
pub(super) fn expand(view: &dyn View, paths: &[&str]) -> Vec<String> {
    let mut files = Vec::new();
    for path in paths {
        match view.list(path) {
            Ok(names) => files.extend(names.iter().map(|name| format!("{path}/{name}"))),
            Err(_) => files.push((*path).to_owned()),
        }
    }
    files
}

/// Settings in commands of enabled units.
pub(super) fn services(view: &dyn View, only: Only<'_>) -> Vec<Assignment> {
    let mut all = Vec::new();
    for file in enabled_units(view) {
        let is_start = |key: &str| ["ExecStartPre", "ExecStart", "ExecStartPost"].contains(&key);
        let command = |line: &str| {
            let (key, value) = line.split_once('=')?;
            let value = value.trim_start_matches(['-', '@', ':', '+', '!', '|']);
            is_start(key.trim()).then(|| value.to_owned())
        };
        read_commands(view, &file, (Program::Service, only), &command, &mut all);
    }
    all
}

/// Settings in cron's `@reboot`, interfaces(5) and wsl.conf.
pub(super) fn commands(view: &dyn View, only: Only<'_>) -> Vec<Assignment> {
    let mut all = Vec::new();
    let command = |line: &str| {
        let line = line.trim();
        let after = |word: &str| Some(line.strip_prefix(word)?.trim_start().to_owned());
        let wsl = || Some(after("command")?.strip_prefix('=')?.trim().trim_matches('"').to_owned());
        ["@reboot", "pre-up", "up", "post-up"].iter().find_map(|word| after(word)).or_else(wsl)
    };
    for file in expand(view, &COMMAND_FILES) {
        if let Ok(file) = view.resolve(&file) {
            read_commands(view, &file, (Program::Script, only), &command, &mut all);
        }
    }
    all
}

/// Settings in cloud-init's bootcmd, and in its runcmd until that has run, which it does once.
pub(super) fn cloud_init(view: &dyn View, only: Only<'_>) -> Vec<Assignment> {
    const FILES: [&str; 4] = [
        "/etc/cloud/cloud.cfg",
        "/etc/cloud/cloud.cfg.d",
        "/var/lib/cloud/instance/cloud-config.txt",
        "/var/lib/cloud/instance/user-data.txt",
    ];
    let has_run = view.exists("/var/lib/cloud/instance/sem/config_runcmd");
    let mut all = Vec::new();
    for file in expand(view, &FILES) {
        let Ok(file) = view.resolve(&file) else { continue };
        let is_in = std::cell::Cell::new(false);
        let command = |line: &str| {
            let item = line.trim_start();
            if !line.starts_with([' ', '-', '#']) && !item.is_empty() {
                is_in.set(line.starts_with("bootcmd:") || line.starts_with("runcmd:") && !has_run);
                return None;
            }
            // A list in brackets holds one word per element.
            let words = item.strip_prefix('-')?.trim().trim_matches(['[', ']']);
            is_in.get().then(|| words.replace(", ", " ").replace(['"', '\''], ""))
        };
        read_commands(view, &file, (Program::Script, only), &command, &mut all);
    }
    all
}

fn read_commands(
    view: &dyn View,
    file: &str,
    (program, only): (Program, Only<'_>),
    command: &dyn Fn(&str) -> Option<String>,
    all: &mut Vec<Assignment>,
) {
    let text = view.content(file).unwrap_or_default();
    // Most units and crontabs set no sysctls.
    if !text.contains("sysctl") && !text.contains("/proc/sys/") {
        return;
    }
    for (number, line) in text.lines().enumerate() {
        let Some(command) = command(line) else { continue };
        let set = settings_in(view, &command, only).into_iter().map(|(key, value)| {
            let (file, line) = (file.to_owned(), number + 1);
            Assignment { key, value, file, line, tolerant: true, program }
        });
        add(view, file, all, set);
    }
}

/// Files of the units that are enabled by a link in a `.wants` or `.requires` directory, with their
/// drop-ins, without fullpipe's own.
pub(super) fn enabled_units(view: &dyn View) -> Vec<String> {
    let mut names: BTreeSet<String> = BTreeSet::new();
    for directory in UNITS {
        let wants = view.list(directory).unwrap_or_default().into_iter();
        for wants in wants.filter(|name| name.ends_with(".wants") || name.ends_with(".requires")) {
            let path = format!("{directory}/{wants}");
            let enabled = view.list(&path).unwrap_or_default().into_iter();
            names.extend(enabled.filter(|name| name.ends_with(".service") && !is_own(name)));
            if names.len() > MAX_UNITS {
                view.refuse(&path, &format!("and others enable more than {MAX_UNITS} units"));
                names = names.into_iter().take(MAX_UNITS).collect();
            }
        }
    }
    let mut files = Vec::new();
    for name in &names {
        // An instance `a@b.service` is made from the template `a@.service`.
        let template = name.split_once('@').map(|(base, _)| format!("{base}@.service"));
        let candidates = [Some(name.clone()), template];
        let places = candidates.iter().flatten().flat_map(|name| {
            UNITS.iter().filter_map(move |directory| view.resolve(&format!("{directory}/{name}")).ok())
        });
        files.extend(places.into_iter().find(|path| view.stat(path).is_ok()));
        for directory in UNITS {
            let drop_ins = format!("{directory}/{name}.d");
            let confs = view.list(&drop_ins).unwrap_or_default().into_iter();
            let confs = confs.filter(|conf| conf.ends_with(".conf")).map(|conf| format!("{drop_ins}/{conf}"));
            add(view, &drop_ins, &mut files, confs);
        }
    }
    files
}

/// Whether a unit is one that fullpipe writes for eBPF controllers.
fn is_own(name: &str) -> bool {
    name == UNIT || (name.starts_with("fullpipe-cc-") && name.ends_with(".service"))
}

/// Lines of start-up scripts that set a sysctl (`sysctl -w key=value`) or write to /proc/sys.
/// Scripts are not executed: conditional lines count as if the condition were true.
pub(super) fn scripts(view: &dyn View, only: Only<'_>) -> Vec<Assignment> {
    let files = expand(view, &SCRIPTS);
    let mut all = Vec::new();
    let mut seen = HashSet::new();
    for file in files {
        let Ok(file) = view.resolve(&file) else { continue };
        // A script that is not executable is not started.
        let Ok(stat) = view.stat(&file) else { continue };
        if stat.mode & 0o111 == 0 || seen.contains(&file) {
            continue;
        }
        let text = view.content(&file).unwrap_or_default();
        for (i, line) in text.lines().enumerate() {
            let set = settings_in(view, line, only).into_iter().map(|(key, value)| {
                let program = Program::Script;
                Assignment { key, value, file: file.clone(), line: i + 1, tolerant: true, program }
            });
            add(view, &file, &mut all, set);
        }
        seen.insert(file);
    }
    all
}

/// Defaults set by the enabled units that fullpipe wrote for eBPF controllers.
pub(super) fn units(view: &dyn View) -> Vec<Assignment> {
    let wants = "/etc/systemd/system/multi-user.target.wants";
    let mut all = Vec::new();
    for name in view.list(wants).unwrap_or_default().into_iter().filter(|name| is_own(name)) {
        let Ok(file) = view.resolve(&format!("{wants}/{name}")) else { continue };
        let text = view.content(&file).unwrap_or_default();
        for (i, line) in text.lines().enumerate() {
            // Earlier builds set the default with a shell command.
            let by_shell =
                || script_setting(line.strip_prefix("ExecStart=/bin/sh -c '")?.strip_suffix('\'')?);
            let loaded = || Some((normalise(CONTROLLER), default_of(line)?));
            if let Some((key, value)) = by_shell().or_else(loaded) {
                let file = file.clone();
                let program = Program::Unit;
                all.push(Assignment { key, value, file, line: i + 1, tolerant: true, program });
            }
        }
    }
    all
}

/// The settings of a command line, of which `;` and `&&` may separate several: `sysctl -w
/// KEY=VALUE…`, `sysctl -p FILE`, or writes to /proc/sys. Of files, `only` those of one key.
fn settings_in(view: &dyn View, line: &str, only: Only<'_>) -> Vec<(String, String)> {
    let line = line.trim();
    if line.starts_with('#') || !(line.contains("sysctl") || line.contains("/proc/sys/")) {
        return Vec::new();
    }
    let mut all = Vec::new();
    for command in line.split("&&").flat_map(|part| part.split(';')) {
        let command = command.trim().trim_matches(['"', '\'']);
        let words: Vec<&str> = command.split_ascii_whitespace().collect();
        let is_sysctl = |word: &&str| unquoted(word) == "sysctl" || word.ends_with("/sysctl");
        let Some(at) = words.iter().position(|word| is_sysctl(&word.trim_start_matches(['"', '\'']))) else {
            all.extend(script_setting(command));
            continue;
        };
        let loads = words[at..].iter().any(|word| word.starts_with("-p") || word.starts_with("--load"));
        for word in words[at + 1..].iter().filter(|word| !word.starts_with('-')) {
            if loads && word.starts_with('/') {
                let files = [unquoted(word).to_owned()];
                let lines = procps_files(view, &files, Program::Script, only);
                if !add(view, &files[0], &mut all, lines.into_iter().map(|line| (line.key, line.value))) {
                    return all;
                }
            } else if word.matches('=').count() == 1 && !word.ends_with('=') {
                let (key, value) = word.split_once('=').unwrap_or_default();
                let trim = |text: &str| text.trim_matches(['"', '\'']).to_owned();
                all.push((normalise(&trim(key)), trim(value)));
            }
        }
        if all.is_empty() {
            all.extend(script_setting(command));
        }
    }
    all
}

/// `sysctl -w net.core.default_qdisc=fq` or `echo fq > /proc/sys/net/core/default_qdisc`.
fn script_setting(line: &str) -> Option<(String, String)> {
    if line.starts_with('#') {
        return None;
    }
    if let Some((before, path)) = line.split_once("/proc/sys/") {
        let value = before.trim_start().strip_prefix("echo ")?.split(['>', '|']).next()?.trim();
        let key = path.split(|c: char| c.is_whitespace() || c == ';').next()?;
        return Some((normalise(key), value.trim_matches(['"', '\'']).to_owned()));
    }
    let mut words = line.split_ascii_whitespace();
    words.find(|w| *w == "sysctl" || w.ends_with("/sysctl"))?;
    let rest: Vec<&str> = words.filter(|w| !w.starts_with('-')).collect();
    let joined = rest.join(" ");
    let (key, value) = joined.split_once('=')?;
    let value = value.split([';', '&', '|', '>']).next()?.trim().trim_matches(['"', '\'']);
    Some((normalise(key.trim().trim_matches(['"', '\''])), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_settings_are_found() {
        let bbr = Some(("net/ipv4/tcp_congestion_control".to_owned(), "bbr".to_owned()));
        for line in [
            "sysctl -w net.ipv4.tcp_congestion_control=bbr",
            "/sbin/sysctl -q -w net.ipv4.tcp_congestion_control=bbr >/dev/null 2>&1",
            "echo bbr > /proc/sys/net/ipv4/tcp_congestion_control",
            "echo \"bbr\" | tee /proc/sys/net/ipv4/tcp_congestion_control",
        ] {
            assert_eq!(script_setting(line), bbr, "{line}");
        }
        for line in ["# sysctl -w a.b=1", "sysctl -p", "exit 0", "sysctl"] {
            assert_eq!(script_setting(line), None, "{line}");
        }
    }
}
