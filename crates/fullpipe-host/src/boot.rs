//! Predicts the sysctls of the next boot: which program reads which file, in which order, and which
//! line is effective.
//!
//! The order is that of the programs: systemd-sysctl (sysctl.d(5)), procps' `sysctl --system`
//! (sysctl(8)) or a boot script that calls `sysctl -p`, then UFW and tuned, which run later and
//! override them.

mod assignment;
mod containers;
mod directories;
mod modules;
mod overrides;
mod scripts;

pub use crate::names::normalise;
pub use assignment::{Assignment, Dialect, glob_matches, parse};
pub use containers::{ContainerSysctl, container_sysctls};
pub use modules::{ModuleEntry, modules_at_boot};

use crate::host::View;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// A program that sets sysctls during boot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// The kernel itself, from `sysctl.…=` on its command line (since 5.8).
    CommandLine,
    /// systemd-sysctl: one value per key, from the last file name.
    Systemd,
    /// procps' `sysctl --system`: the same directories, then /etc/sysctl.conf.
    Procps,
    /// A boot script that calls `sysctl -p` for each file, often busybox': OpenWrt, Alpine, Void.
    PerFile,
    /// UFW's own sysctl.conf, when the firewall starts.
    Ufw,
    /// tuned's active profile.
    Tuned,
    /// tuned applying /etc and /run again after its profile (`reapply_sysctl`).
    TunedReapply,
    /// A start-up script, cron's `@reboot` or interfaces(5) that calls sysctl.
    Script,
    /// An enabled systemd unit that calls sysctl.
    Service,
    /// fullpipe's own unit, which loads an eBPF controller and makes it the default.
    Unit,
}

impl Program {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Program::CommandLine => "kernel command line",
            Program::Systemd => "systemd-sysctl",
            Program::Procps => "sysctl --system",
            Program::PerFile => "sysctl -p of the boot script",
            Program::Ufw => "UFW",
            Program::Tuned => "tuned",
            Program::TunedReapply => "tuned (applying sysctl files again)",
            Program::Script => "start-up script",
            Program::Service => "systemd unit",
            Program::Unit => "fullpipe's unit",
        }
    }
}

/// Every setting of one program, in the order of its writes.
pub fn simulate(view: &dyn View, program: Program) -> Vec<Assignment> {
    simulate_with(view, program, &|_, _| true)
}

/// As [`simulate`], with the values (of a key with slashes) that the kernel accepts: busybox stops
/// reading a file at a refused one.
pub fn simulate_with(
    view: &dyn View,
    program: Program,
    accepts: &dyn Fn(&str, &str) -> bool,
) -> Vec<Assignment> {
    assignments(view, program, None, accepts)
}

/// Settings of one program, with `only` those that affect one key.
fn assignments(
    view: &dyn View,
    program: Program,
    only: directories::Only<'_>,
    accepts: directories::Accepts<'_>,
) -> Vec<Assignment> {
    match program {
        Program::CommandLine => overrides::command_line(view),
        Program::Systemd => directories::systemd(view, only),
        Program::Procps => directories::procps(view, only),
        Program::PerFile => directories::per_file(view, only, accepts),
        Program::Ufw => overrides::ufw(view, only),
        Program::Tuned => overrides::tuned(view),
        Program::TunedReapply => directories::tuned_reapply(view, only),
        Program::Script => {
            let mut all = overrides::scripts(view, only);
            all.extend(overrides::commands(view, only));
            all.extend(overrides::cloud_init(view, only));
            all
        }
        Program::Service => overrides::services(view, only),
        Program::Unit => overrides::units(view),
    }
}

/// The programs that set sysctls on this host at boot, in order.
pub fn programs(view: &dyn View) -> Vec<Program> {
    let mut found = vec![Program::CommandLine];
    found.extend(match scripts::reader(view) {
        scripts::Reader::Systemd => Some(Program::Systemd),
        scripts::Reader::System => Some(Program::Procps),
        scripts::Reader::PerFile(_) => Some(Program::PerFile),
        scripts::Reader::None => None,
    });
    if overrides::ufw_file(view).is_some() {
        found.push(Program::Ufw);
    }
    // Ordered before network.target, which TuneD and rc.local follow.
    found.push(Program::Unit);
    if !overrides::tuned_profiles(view).is_empty() {
        found.push(Program::Tuned);
        if overrides::tuned_reapplies(view) {
            found.push(Program::TunedReapply);
        }
    }
    found.push(Program::Service);
    found.push(Program::Script);
    found
}

/// The line that sets `key` after `programs` have run in turn. `accepts` reports whether the kernel
/// accepts a value for a key (with slashes): a refused one leaves the earlier value in place (for
/// systemd-sysctl, which writes each key once, the value from before that program).
pub fn winner(
    view: &dyn View,
    programs: &[Program],
    key: &str,
    accepts: &dyn Fn(&str, &str) -> bool,
) -> Option<Assignment> {
    predict(view, programs, key, accepts).line
}

/// Prediction of a sysctl's value after boot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Prediction {
    /// The last line with an accepted value.
    pub line: Option<Assignment>,
    /// Later lines whose value is computed at boot (`$CC`), which may override it.
    pub unresolved: Vec<Assignment>,
}

/// As [`winner`], with the lines that may override it.
pub fn predict(
    view: &dyn View,
    programs: &[Program],
    key: &str,
    accepts: &dyn Fn(&str, &str) -> bool,
) -> Prediction {
    let key = normalise(key);
    let mut prediction = Prediction::default();
    // A controller that a unit loads is not a module; later lines can set it, too.
    let mut loaded: HashSet<String> = HashSet::new();
    for &program in programs {
        for assignment in assignments(view, program, Some(&key), accepts) {
            if !assignment.sets(&key) {
                continue;
            }
            if assignment.is_unresolved() {
                prediction.unresolved.push(assignment.clone());
            }
            if program == Program::Unit {
                loaded.insert(assignment.value.clone());
            }
            if loaded.contains(&assignment.value) || accepts(&key, &assignment.value) {
                if !assignment.is_unresolved() {
                    prediction.unresolved.clear();
                }
                prediction.line = Some(assignment);
            }
        }
    }
    prediction
}

/// Lines at which busybox' sysctl stops reading their file, since the kernel refuses their value.
pub fn stops(view: &dyn View, accepts: &dyn Fn(&str, &str) -> bool) -> Vec<Assignment> {
    directories::stops(view, accepts)
}

/// Places of lines that do not set `key` because of non-ASCII blanks around it.
pub fn odd_blanks(view: &dyn View, key: &str) -> Vec<String> {
    directories::odd_blanks(view, &normalise(key))
}

/// Every line of this host's boot configuration that sets `key`, effective or not, each once.
pub fn mentions(view: &dyn View, key: &str) -> Vec<Assignment> {
    let key = normalise(key);
    let mut found: Vec<Assignment> = Vec::new();
    let mut known: HashSet<(String, usize)> = HashSet::new();
    let mut programs = programs(view);
    if !programs.contains(&Program::Procps) {
        programs.push(Program::Procps);
    }
    for program in programs {
        let lines = match program {
            Program::Systemd => directories::systemd_lines(view, Some(&key)),
            program => assignments(view, program, Some(&key), &|_, _| true),
        };
        for assignment in lines {
            if assignment.sets(&key) && known.insert((assignment.file.clone(), assignment.line)) {
                found.push(assignment);
            }
        }
    }
    found
}
