//! The host as `doctor` and `apply` see it.

use super::outcome::Outcome;
use crate::commands::plan::program;
use fullpipe_host::Error;
use fullpipe_host::checks::{self, Question, Verdict};
use fullpipe_host::host::{Host, Machine, View};
use fullpipe_host::plan::{self, Request};

/// What to say where the kernel's settings are not in sight, as in a bare chroot.
fn unreadable(host: &Machine) -> Option<Outcome> {
    host.sysctl("net.ipv4.tcp_congestion_control").is_none().then(|| {
        Outcome::impossible(
            "/proc/sys/net/ipv4/tcp_congestion_control cannot be read",
            "`mount -t proc proc /proc` in this root, or run it outside of the chroot or sandbox",
        )
    })
}

/// Whether the host can be read.
pub fn doctor() -> Outcome {
    let host = Machine::new();
    if let Some(unreadable) = unreadable(&host) {
        return unreadable;
    }
    let report = checks::examine(&host, &Question { controller: "bbr".to_owned(), path: None });
    let of = |verdict| report.findings.iter().filter(|finding| finding.verdict == verdict).count();
    let unknown = of(Verdict::Unknown);
    let (failing, warnings) = (of(Verdict::Fail), of(Verdict::Warn));
    let told = format!(
        "{}: of {} checks for bbr {failing} fail, {warnings} warn, {unknown} cannot be read",
        if report.system.is_empty() { "an unknown system" } else { &report.system },
        report.findings.len()
    );
    let help = (failing + warnings + unknown > 0)
        .then(|| "`fullpipe doctor` tells which, and what to do".to_owned());
    Outcome { help, ..Outcome::works(told) }
}

/// Whether a change could be made. None is.
pub fn apply() -> Outcome {
    let host = Machine::new();
    if let Some(unreadable) = unreadable(&host) {
        return unreadable;
    }
    match plan::make(&host, &Request::new("bbr"), &program()) {
        Ok(_) if !host.identity().privileged => Outcome::impossible(
            "bbr could be put in force, but not by this user",
            "run it as root; `fullpipe plan` shows the change without",
        ),
        Ok(plan) if plan.is_empty() => Outcome::works("bbr is in force already"),
        Ok(_) => Outcome::works("bbr can be put in force; `fullpipe plan` shows how"),
        Err(Error::Impossible(reason) | Error::Check(reason) | Error::Usage(reason)) => {
            Outcome::impossible_because(reason)
        }
    }
}
