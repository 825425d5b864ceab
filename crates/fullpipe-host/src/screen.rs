//! Terminal output: the doctor's findings, plans as diffs, and the status of a host.

use crate::apply::Applied;
use crate::checks::{Finding, Report, Verdict};
use crate::diff;
use crate::plan::{Change, FileState, Plan, choice};
use crate::revert::Reverted;
use crate::status::Status;
use crate::verify::{Outcome, Verified};
use std::fmt::Write;
use std::io::IsTerminal;

/// Output style.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// With ANSI colours.
    pub colour: bool,
    /// Columns.
    pub width: usize,
}

impl Style {
    /// The style for standard output: colours on a terminal unless `NO_COLOR` is set; the
    /// terminal's width, or `COLUMNS`, at most 110.
    pub fn for_stdout() -> Style {
        let terminal = std::io::stdout().is_terminal();
        let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let configured = || std::env::var("COLUMNS").ok()?.parse().ok();
        let columns =
            fullpipe_kernel::terminal::columns(&std::io::stdout()).ok().or_else(configured).unwrap_or(0);
        Style { colour: terminal && !plain, width: if columns < 40 { 100 } else { columns.min(110) } }
    }

    pub(crate) fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    pub(crate) fn verdict(self, verdict: Verdict, text: &str) -> String {
        self.paint(
            match verdict {
                Verdict::Fail => "1;31",
                Verdict::Warn => "1;33",
                Verdict::Unknown => "35",
                Verdict::Advice => "36",
                Verdict::Ok => "32",
            },
            text,
        )
    }

    /// Wraps `text` beside an indent; the first line begins with `head`, which is as wide as the
    /// indent.
    pub fn wrap(self, head: &str, indent: usize, text: &str) -> String {
        let room = self.width.saturating_sub(indent).max(20);
        let mut out = head.to_owned();
        for (i, paragraph) in text.lines().enumerate() {
            let mut column = 0;
            if i > 0 {
                out += &format!("\n{:indent$}", "");
            }
            for word in paragraph.split(' ') {
                let length = word.chars().count();
                if column > 0 && column + 1 + length > room {
                    out += &format!("\n{:indent$}", "");
                    column = 0;
                } else if column > 0 {
                    out.push(' ');
                    column += 1;
                }
                out += word;
                column += length;
            }
        }
        out + "\n"
    }
}

const INDENT: usize = 31;

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Fail => "FAIL",
        Verdict::Warn => "WARN",
        Verdict::Unknown => "?",
        Verdict::Advice => "advice",
        Verdict::Ok => "ok",
    }
}

fn finding(style: Style, finding: &Finding, whole: bool) -> String {
    let head = format!(
        "{}  {}",
        style.verdict(finding.verdict, &format!("{:<6}", word(finding.verdict))),
        style.bold(&format!("{:<23}", finding.id))
    );
    let mut out = style.wrap(&head, INDENT, &finding.state);
    let mut part = |name: &str, text: &str| {
        let head = format!("{:8}{}", "", style.dim(&format!("{name:<23}")));
        out += &style.wrap(&head, INDENT, text);
    };
    if whole {
        for reading in &finding.read {
            let value = if reading.value.is_empty() { "(empty)" } else { &reading.value };
            part("read", &format!("{}: {}", reading.from, value.replace('\t', " ")));
        }
        part("why", &format!("{} [{}]", finding.why, finding.source));
    }
    if let Some(advice) = finding.advice.as_ref().filter(|_| whole || finding.verdict == Verdict::Advice) {
        part("do", advice);
    }
    out
}

/// The doctor's findings: problems in full, passed checks in one line each (in full with
/// `verbose`).
pub fn doctor(style: Style, report: &Report, verbose: bool) -> String {
    let mut out = String::new();
    let title = format!("Is this host ready for {}?", report.controller);
    let kernel = if report.kernel.is_empty() { String::new() } else { format!("Linux {}", report.kernel) };
    let facts: Vec<&str> = [report.system.as_str(), kernel.as_str(), report.scope.as_str()]
        .into_iter()
        .filter(|f| !f.is_empty())
        .collect();
    let _ = writeln!(out, "{}\n{}", style.bold(&title), style.wrap("", 0, &facts.join(" · ")));
    let mut previous = None;
    for one in &report.findings {
        let whole = verbose || one.verdict < Verdict::Advice;
        if previous.is_some_and(|(v, w)| w || v != one.verdict) {
            out.push('\n');
        }
        out += &finding(style, one, whole);
        previous = Some((one.verdict, whole));
    }
    let count = |verdict| report.findings.iter().filter(|f| f.verdict == verdict).count();
    let summary: Vec<String> = [
        (Verdict::Fail, "failed"),
        (Verdict::Warn, "warnings"),
        (Verdict::Unknown, "unknown"),
        (Verdict::Advice, "with advice"),
        (Verdict::Ok, "passed"),
    ]
    .iter()
    .filter(|(v, _)| count(*v) > 0)
    .map(|(v, what)| match count(*v) {
        1 => format!("1 {}", what.trim_end_matches('s')),
        n => format!("{n} {what}"),
    })
    .collect();
    let hint = if verbose { "" } else { "  (--verbose shows readings and reasons)" };
    let count = format!("{} checks: {}", report.findings.len(), summary.join(", "));
    let fits = count.chars().count() + hint.len() <= style.width;
    let _ = writeln!(out, "\n{count}{}{}", if fits { "" } else { "\n" }, style.dim(hint));
    out += &style.wrap(&style.bold("Next: "), 6, &report.next);
    out
}

fn diff_lines(style: Style, out: &mut String, old: &str, new: &str) {
    for line in diff::lines(old, new) {
        let code = match line.as_bytes().first() {
            Some(b'-') => "31",
            Some(b'+') => "32",
            _ => "2",
        };
        let _ = writeln!(out, "       {}", style.paint(code, &line));
    }
}

/// A change as a diff.
pub(crate) fn change(style: Style, out: &mut String, change: &Change) {
    let mut both = |old: &str, new: &str| diff_lines(style, out, old, new);
    match change {
        Change::Module { name } => both("", &format!("modprobe {name}")),
        Change::Sysctl { name, before, after } if before == after => {
            both("", &format!("{name} = {after} (unchanged)"))
        }
        Change::Sysctl { name, before, after } => {
            both(&format!("{name} = {before}"), &format!("{name} = {after}"));
        }
        Change::Qdisc { before, after, .. } => {
            let leaves = before.leaves().len();
            let new = if before.root().is_some_and(|r| r.kind == "mq") {
                format!("mq with {leaves} × {after}")
            } else {
                after.clone()
            };
            both(&before.describe(), &new);
        }
        Change::Route { route } => {
            let gateway = route.gateway.map(|g| format!(" via {g}")).unwrap_or_default();
            let settings =
                if route.metrics.is_empty() { "" } else { ", other attributes as the covering route" };
            both(
                "",
                &format!(
                    "ip route add {}{gateway} dev {} congctl {}{settings}",
                    route.prefix, route.device, route.controller
                ),
            );
        }
        Change::Congctl { route, before, after } => {
            let line = |of| format!("{}: {}", route.prefix, choice(of));
            both(&line(before.as_ref()), &line(Some(after)));
        }
        Change::Cgroup { group, controller, .. } => both("", &format!("{group}: {controller}")),
        Change::Split { group, arms, .. } => both("", &format!("{group}: {arms}")),
        Change::BootDefault { variable, before, after } => {
            let name = variable.loader.name();
            both(
                &before.as_ref().map(|before| format!("{name} boots {before}")).unwrap_or_default(),
                &format!("{name} boots {after}"),
            );
        }
        Change::Packages { manager, asked, from, .. } => both("", &manager.install(asked, *from).line()),
        Change::File { before, after, .. }
        | Change::BootSettings { before, after, .. }
        | Change::BootOnce { before, after, .. } => match (before, after) {
            (_, FileState::File { .. }) => both(&before.text(), &after.text()),
            _ => both(&before.describe(), &after.describe()),
        },
    }
}

/// A plan: changes of the running kernel, then of the boot files, each with its reason.
pub fn plan(style: Style, plan: &Plan) -> String {
    let mut out = String::new();
    if plan.is_empty() {
        let _ = writeln!(out, "{} is already applied: nothing to change.", plan.controller);
    } else {
        let _ = writeln!(out, "{}", style.bold(&format!("Steps to apply {}, in order:", plan.controller)));
    }
    let mut live = None;
    for (i, step) in plan.steps.iter().enumerate() {
        if live != Some(step.change.is_live()) {
            live = Some(step.change.is_live());
            let part = if step.change.is_live() { "Running kernel" } else { "Next boot" };
            let _ = writeln!(out, "\n{}", style.dim(part));
        }
        let head = format!("  {:>2}. ", i + 1);
        out += &style.wrap(&head, 6, &format!("{}: {}", style.bold(&step.change.title()), step.why));
        change(style, &mut out, &step.change);
    }
    if !plan.notes.is_empty() {
        let _ = writeln!(out, "\n{}", style.dim("Notes"));
        for note in &plan.notes {
            out += &style.wrap("  · ", 4, note);
        }
    }
    out
}

/// Result of an apply.
pub fn applied(style: Style, applied: &Applied) -> String {
    let mut out = String::new();
    let plan = &applied.plan;
    match applied.made {
        0 => {
            let _ = writeln!(out, "{} was already applied: nothing changed.", style.bold(&plan.controller));
        }
        made => {
            let waits = |change: &Change| applied.on_trial && !change.is_live();
            for step in &plan.steps {
                let mark = match waits(&step.change) {
                    true => style.dim("·"),
                    false => style.verdict(Verdict::Ok, "✓"),
                };
                let _ = writeln!(out, "{mark} {}: {}", step.change.title(), step.change.wanted());
            }
            let _ = writeln!(out, "{made} of {} steps performed, all read back.", plan.steps.len());
            if plan.steps.iter().any(|s| waits(&s.change)) {
                let _ = writeln!(out, "Steps marked · are for the next boot and wait for the confirmation.");
            }
        }
    }
    match &plan.canary {
        Some(prefix) => {
            let _ = writeln!(
                out,
                "Connections to {prefix} use {}. Check them, then run apply without --canary for all \
                 connections.",
                plan.controller
            );
        }
        None => {
            if let Some(seen) = &applied.observed {
                let _ = writeln!(out, "A new test connection uses {}.", style.bold(seen));
            }
        }
    }
    for note in applied.warnings.iter().chain(&plan.notes) {
        out += &style.wrap("  · ", 4, note);
    }
    out
}

/// Result of a revert.
pub fn reverted(style: Style, reverted: &Option<Reverted>) -> String {
    let Some(report) = reverted else {
        return "Nothing is applied on this host: nothing to revert.\n".into();
    };
    let mut out = String::new();
    for title in report.undone() {
        let _ = writeln!(out, "{} {title}", style.verdict(Verdict::Ok, "↩"));
    }
    for note in report.notes() {
        out += &style.wrap("  · ", 4, &note);
    }
    let conclusion = if report.is_exact() {
        "The host is in its original state."
    } else {
        "Everything else is in its original state."
    };
    out + conclusion + "\n"
}

/// Status of a host.
pub fn status(style: Style, status: &Status) -> String {
    let mut out = String::new();
    let verdict = if status.consistent { Verdict::Ok } else { Verdict::Warn };
    out +=
        &style.wrap(&style.verdict(verdict, if status.consistent { "✓ " } else { "! " }), 2, &status.summary);
    let mut row = |name: &str, text: &str| {
        let head = style.dim(&format!("  {name:<18}"));
        out += &style.wrap(&head, 20, text);
    };
    row("default now", status.live.as_deref().unwrap_or("not readable"));
    row("default at boot", &status.boot);
    if !status.connections.is_empty() {
        let total: usize = status.connections.values().sum();
        let shares: Vec<String> = status
            .connections
            .iter()
            .map(|(c, n)| format!("{c} {n} ({:.0} %)", *n as f64 / total as f64 * 100.0))
            .collect();
        row("connections", &shares.join(", "));
    }
    for used in &status.uses {
        row("assigned", &format!("{}: {}", used.controller, used.changes.join(", ")));
    }
    for (name, controller) in &status.other_namespaces {
        row("other namespace", &format!("{name}: {controller}"));
    }
    for drift in &status.drift {
        row("changed since", drift);
    }
    out
}

/// Result of a verification: one line per check, then the conclusion.
pub fn verified(style: Style, verified: &Verified) -> String {
    let mut out = String::new();
    for check in &verified.checks {
        let name = match check.id {
            "applied" => "applied",
            "live" => "running kernel",
            "boot" => "next boot",
            "connection" => "new connection",
            _ => "to a peer",
        };
        let (mark, verdict) = match check.outcome {
            Outcome::Passed => ("✓", Verdict::Ok),
            Outcome::Skipped => ("–", Verdict::Advice),
            Outcome::Unknown => ("?", Verdict::Unknown),
            Outcome::Failed => ("✗", Verdict::Fail),
        };
        let head = format!("{} {}", style.verdict(verdict, mark), style.dim(&format!("{name:<16}")));
        out += &style.wrap(&head, 18, &check.observed);
        for wrong in &check.wrong {
            out += &style.wrap(&format!("{:18}", ""), 18, wrong);
        }
    }
    let name = verified.controller.as_deref().unwrap_or_default();
    let sentence = match (verified.worst(), verified.controller.is_some()) {
        (_, false) => {
            format!(
                "`fullpipe advise HOST` tells whether a change is worthwhile; {} makes it",
                verified.identity.command("apply CC")
            )
        }
        (Outcome::Passed | Outcome::Skipped, _) => format!("{name} is applied and verified"),
        (Outcome::Unknown, _) => {
            format!("some checks are inconclusive: {name} is not verified")
        }
        (Outcome::Failed, _) => format!(
            "{name} is not in place as applied: {} sets it again, {} rolls it back",
            verified.identity.command(format_args!("apply {name}")),
            verified.identity.command("revert")
        ),
    };
    out + &style.wrap(&style.bold("→ "), 2, &sentence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::{Group, Reading};

    fn report() -> Report {
        let finding = |id, verdict, state: &str, advice: Option<&str>| Finding {
            id,
            group: Group::Kernel,
            verdict,
            state: state.into(),
            read: vec![Reading { from: "net.ipv4.tcp_rmem".into(), value: "4096\t131072\t6291456".into() }],
            why: "a window smaller than the path stops any controller",
            advice: advice.map(str::to_owned),
            source: "tcp(7)",
        };
        Report {
            schema: crate::checks::SCHEMA,
            kernel: "6.1.0".into(),
            system: "Debian GNU/Linux 12".into(),
            scope: "the host's network".into(),
            controller: "bbr".into(),
            findings: vec![
                finding("receive-limit", Verdict::Fail, "6MiB is 0.3 × the path", Some("raise it")),
                finding("kernel", Verdict::Ok, "Linux 6.1: paces by itself", None),
            ],
            next: "do this".into(),
        }
    }

    #[test]
    fn doctor_shows_problems_in_full_and_passed_checks_in_one_line() {
        let text = doctor(Style { colour: false, width: 100 }, &report(), false);
        let expected = "\
Is this host ready for bbr?
Debian GNU/Linux 12 · Linux 6.1.0 · the host's network

FAIL    receive-limit          6MiB is 0.3 × the path
        read                   net.ipv4.tcp_rmem: 4096 131072 6291456
        why                    a window smaller than the path stops any controller [tcp(7)]
        do                     raise it

ok      kernel                 Linux 6.1: paces by itself

2 checks: 1 failed, 1 passed  (--verbose shows readings and reasons)
Next: do this
";
        assert_eq!(text, expected);
    }

    #[test]
    fn lines_fit_the_terminal_and_colours_are_optional() {
        let mut long = report();
        long.findings[0].state = "word ".repeat(60);
        let text = doctor(Style { colour: false, width: 80 }, &long, true);
        assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
        assert!(!text.contains('\x1b'));
        assert!(doctor(Style { colour: true, width: 80 }, &long, true).contains("\x1b[1;31m"));
    }
}
