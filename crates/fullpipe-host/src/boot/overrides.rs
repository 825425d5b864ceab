//! Settings outside sysctl.d: the kernel command line before it, UFW, tuned and scripts after it.

use super::Program;
use super::assignment::{Assignment, Dialect, Line, normalise, parse};
use crate::host::View;
use crate::plan::{CONTROLLER, boot_files, unit};
use std::collections::HashSet;

/// `sysctl.net.ipv4.tcp_congestion_control=bbr` (kernel-parameters, since 5.8).
pub(super) fn command_line(view: &dyn View) -> Vec<Assignment> {
    let text = view.text("/proc/cmdline").unwrap_or_default();
    text.split_ascii_whitespace()
        .filter_map(|word| {
            let (key, value) = word.strip_prefix("sysctl.")?.split_once('=')?;
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

pub(super) fn ufw(view: &dyn View) -> Vec<Assignment> {
    let Some(file) = ufw_file(view).and_then(|f| view.resolve(&f).ok()) else { return Vec::new() };
    let content = view.read(&file).unwrap_or_default();
    parse(&content, Dialect::Procps)
        .into_iter()
        .filter_map(|(line, parsed)| match parsed {
            Line::Set { key, value, .. } => Some(Assignment {
                key,
                value,
                file: file.clone(),
                line,
                tolerant: true,
                program: Program::Ufw,
            }),
            _ => None,
        })
        .collect()
}

/// The file of tuned's active profile, if tuned starts at boot.
pub(super) fn tuned_profile(view: &dyn View) -> Option<String> {
    let enabled =
        ["/etc/systemd/system/multi-user.target.wants/tuned.service", "/etc/runlevels/default/tuned"]
            .iter()
            .any(|link| view.stat(link).is_ok());
    let names = view.text("/etc/tuned/active_profile")?;
    let last = names.split_ascii_whitespace().next_back()?.to_owned();
    enabled.then(|| profile_file(view, &last)).flatten()
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

pub(super) fn tuned(view: &dyn View) -> Vec<Assignment> {
    let mut all = Vec::new();
    if let Some(file) = tuned_profile(view) {
        profile(view, &file, &mut HashSet::new(), &mut all);
    }
    all
}

/// Most profiles that are read; tuned's own include three or four.
const PROFILES: usize = 32;

/// The `[sysctl]` section of a profile after its included profiles, each read once, as in tuned.
fn profile(view: &dyn View, file: &str, seen: &mut HashSet<String>, all: &mut Vec<Assignment>) {
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
                        profile(view, &included, seen, all);
                    }
                }
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

const SCRIPTS: [&str; 4] = ["/etc/rc.local", "/etc/rc.d/rc.local", "/etc/local.d", "/etc/network/if-up.d"];

/// Lines of start-up scripts that set a sysctl (`sysctl -w key=value`) or write to /proc/sys. Scripts are not
/// executed: conditional lines count as if the condition were true.
pub(super) fn scripts(view: &dyn View) -> Vec<Assignment> {
    let mut files = Vec::new();
    for path in SCRIPTS {
        match view.list(path) {
            Ok(names) => files.extend(names.iter().map(|n| format!("{path}/{n}"))),
            Err(_) => files.push(path.to_owned()),
        }
    }
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
            if let Some((key, value)) = script_setting(line.trim()) {
                all.push(Assignment {
                    key,
                    value,
                    file: file.clone(),
                    line: i + 1,
                    tolerant: true,
                    program: Program::Script,
                });
            }
        }
        seen.insert(file);
    }
    all
}

/// Defaults set by the enabled units that fullpipe wrote for eBPF controllers.
pub(super) fn units(view: &dyn View) -> Vec<Assignment> {
    let wants = "/etc/systemd/system/multi-user.target.wants";
    let ours = |name: &String| {
        *name == boot_files::UNIT || (name.starts_with("fullpipe-cc-") && name.ends_with(".service"))
    };
    let mut all = Vec::new();
    for name in view.list(wants).unwrap_or_default().into_iter().filter(ours) {
        let Ok(file) = view.resolve(&format!("{wants}/{name}")) else { continue };
        let text = view.content(&file).unwrap_or_default();
        for (i, line) in text.lines().enumerate() {
            // Earlier builds set the default with a shell command.
            let by_shell =
                || script_setting(line.strip_prefix("ExecStart=/bin/sh -c '")?.strip_suffix('\'')?);
            let loaded = || Some((normalise(CONTROLLER), unit::default_of(line)?));
            if let Some((key, value)) = by_shell().or_else(loaded) {
                let file = file.clone();
                let program = Program::Unit;
                all.push(Assignment { key, value, file, line: i + 1, tolerant: true, program });
            }
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
