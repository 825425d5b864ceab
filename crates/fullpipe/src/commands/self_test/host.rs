//! The host as `doctor` and `apply` read it.

use super::outcome::Outcome;
use crate::commands::plan::program;
use fullpipe_host::Error;
use fullpipe_host::checks::{self, Question, Verdict};
use fullpipe_host::host::{Host, Machine, View};
use fullpipe_host::plan::{self, Request};

/// The outcome where the kernel's settings are not readable, as in a bare chroot.
fn unreadable(host: &Machine) -> Option<Outcome> {
    host.sysctl("net.ipv4.tcp_congestion_control").is_none().then(|| {
        Outcome::impossible(
            "/proc/sys/net/ipv4/tcp_congestion_control cannot be read",
            "run `mount -t proc proc /proc` in this root, or run fullpipe outside of the chroot or sandbox",
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
    let count = |verdict| report.findings.iter().filter(|finding| finding.verdict == verdict).count();
    let unknown = count(Verdict::Unknown);
    let (failing, warnings) = (count(Verdict::Fail), count(Verdict::Warn));
    let found = format!(
        "{}: {} checks for bbr: {failing} failed, {warnings} warning{}, {unknown} unknown",
        if report.system.is_empty() { "an unknown system" } else { &report.system },
        report.findings.len(),
        if warnings == 1 { "" } else { "s" }
    );
    let help =
        (failing + warnings + unknown > 0).then(|| "see `fullpipe doctor` for details and advice".to_owned());
    Outcome { help, ..Outcome::works(found) }
}

/// Whether a change could be made. Changes nothing.
pub fn apply() -> Outcome {
    let host = Machine::new();
    if let Some(unreadable) = unreadable(&host) {
        return unreadable;
    }
    match plan::make(&host, &Request::new("bbr"), &program()) {
        Ok(_) if !host.identity().privileged => Outcome::impossible(
            "bbr can be enabled, but not by this user",
            "run it as root; `fullpipe plan` shows the change without root",
        ),
        Ok(plan) if plan.is_empty() => Outcome::works("bbr is already enabled"),
        Ok(_) => Outcome::works("bbr can be enabled; `fullpipe plan` shows the change"),
        Err(Error::Impossible(reason) | Error::Check(reason) | Error::Usage(reason)) => {
            Outcome::impossible_because(reason)
        }
    }
}
