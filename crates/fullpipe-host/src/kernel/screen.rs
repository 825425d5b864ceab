//! What a person sees of kernels.

use super::Reason;
use super::build::Built;
use super::install::{Installed, Plan, Step};
use super::installed::{Kernel, OPTIONS};
use super::status::Status;
use super::trial_boot;
use crate::checks::Verdict;
use crate::screen::{Style, change};
use std::fmt::Write;

fn row(style: Style, out: &mut String, name: &str, text: &str) {
    let head = style.dim(&format!("  {name:<14}"));
    *out += &style.wrap(&head, 16, text);
}

fn options(kernel: &Kernel) -> String {
    if kernel.options.is_empty() {
        return "its configuration is not there".into();
    }
    let one = |option: &&str| {
        let name = match *option {
            "CONFIG_TCP_CONG_BBR" => "bbr",
            "CONFIG_NET_SCH_FQ" => "fq",
            _ => "BTF",
        };
        let mark = if kernel.has(option) == Some(true) { "✓" } else { "✗" };
        format!("{name} {mark}")
    };
    OPTIONS.iter().map(one).collect::<Vec<_>>().join("  ")
}

/// Which kernels there are, and what can be done.
pub fn status(style: Style, status: &Status) -> String {
    let mut out = style.wrap(&style.bold("→ "), 2, &status.summary);
    if !status.kernels.is_empty() {
        out.push('\n');
    }
    for kernel in &status.kernels {
        let default = status.boots.as_ref().and_then(|boots| boots.default.as_ref()) == Some(&kernel.release);
        let mut words = Vec::new();
        words.extend(kernel.running.then_some("runs"));
        words.extend(default.then_some("default"));
        words.extend(
            (status.installed.as_ref() == Some(&kernel.release))
                .then_some("installed by fullpipe, not kept yet"),
        );
        words.extend(kernel.image.is_none().then_some("no file that a loader boots"));
        let words = if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) };
        let _ = writeln!(out, "  {}{words}", style.bold(&format!("Linux {}", kernel.release)));
        out += &style.wrap("      ", 6, &options(kernel));
        for module in &kernel.missing {
            out += &style.wrap(
                "      ",
                6,
                &format!("its configuration has {module} as a module, which is not there"),
            );
        }
        if !kernel.out_of_tree.is_empty() {
            out += &style.wrap("      ", 6, &format!("modules of others: {}", kernel.out_of_tree.join(", ")));
        }
    }
    let _ = writeln!(out);
    if let Some(boots) = &status.boots {
        row(style, &mut out, "boot loader", &format!("{} ({})", boots.loader, boots.menu));
        if let Some(next) = &boots.next {
            row(style, &mut out, "next start", next);
        }
        if !boots.without_entry.is_empty() {
            row(style, &mut out, "not in it", &boots.without_entry.join(", "));
        }
    }
    if let Some(free) = status.boot_free {
        row(style, &mut out, "/boot", &format!("{} MB free", free >> 20));
    }
    row(
        style,
        &mut out,
        "Secure Boot",
        if status.secure_boot { "on: only what is signed is booted" } else { "off" },
    );
    if !status.dkms.is_empty() {
        row(style, &mut out, "DKMS", &status.dkms.join(", "));
    }
    row(style, &mut out, "packages", status.manager.unwrap_or("no package manager that is known"));
    if status.trial.is_some()
        && let Some(obstacle) = &status.obstacle
    {
        row(style, &mut out, "obstacle", obstacle);
    }
    out
}

fn steps(style: Style, out: &mut String, steps: &[Step]) {
    for (number, step) in steps.iter().enumerate() {
        let head = format!("  {:>2}. ", number + 1);
        *out += &style.wrap(&head, 6, &format!("{}: {}", style.bold(&step.change.title()), step.why));
        change(style, out, &step.change);
    }
}

/// What an installation would do.
pub fn plan(style: Style, plan: &Plan) -> String {
    let kernel = &plan.kernel;
    let title = format!("To install Linux {} ({}), in this order:", kernel.release, kernel.version);
    let mut out = style.wrap("", 0, &style.bold(&title));
    out += &style.wrap("", 0, &format!("from {}", kernel.source));
    steps(style, &mut out, &plan.steps);
    let _ = writeln!(out, "\n{}", style.dim("Packages"));
    for package in &plan.packages.installed {
        let instead =
            package.instead_of.as_ref().map(|old| format!(", instead of {old}")).unwrap_or_default();
        out += &style.wrap("  · ", 4, &format!("{} {}{instead}", package.name, package.version));
    }
    if !plan.notes.is_empty() {
        let _ = writeln!(out, "\n{}", style.dim("To know"));
        for note in &plan.notes {
            out += &style.wrap("  · ", 4, note);
        }
    }
    if !plan.others.is_empty() {
        const SHOWN: usize = 8;
        let more = if plan.others.len() > SHOWN { ", …" } else { "" };
        let shown = plan.others[..plan.others.len().min(SHOWN)].join(", ");
        let _ = writeln!(out, "\n{}", style.dim("Others on offer"));
        out += &style.wrap("  · ", 4, &format!("{shown}{more}"));
    }
    out
}

/// What an installation did.
pub fn installed(style: Style, installed: &Installed, next: &str) -> String {
    let mark = style.verdict(Verdict::Ok, "✓ ");
    let text = format!(
        "Linux {} is installed, and Linux {} stays the default. {next} boots it once, and keeps it only if all is as before.",
        installed.release, installed.default
    );
    style.wrap(&mark, 2, &text)
}

/// What was built.
pub fn built(style: Style, built: &Built, next: &str) -> String {
    let mark = style.verdict(Verdict::Ok, "✓ ");
    let minutes = built.seconds.div_ceil(60);
    let text = format!("Linux {} is built, in {minutes} min: {}", built.release, built.package.display());
    let mut out = style.wrap(&mark, 2, &text);
    for other in &built.others {
        out += &style.wrap("  · ", 4, &format!("with it {}", other.display()));
    }
    let options: Vec<String> = built.options.iter().map(|(name, value)| format!("{name}={value}")).collect();
    out += &style.wrap("  ", 2, &options.join("  "));
    out + &style.wrap(
        "",
        0,
        &format!("{next} installs it beside the kernel that runs, which stays the default."),
    )
}

/// What a trial would do before the restart.
pub fn trial_boot(style: Style, plan: &trial_boot::Plan) -> String {
    let title = format!(
        "To boot Linux {} once, and go back to Linux {} unless all is as before:",
        plan.release, plan.before
    );
    let mut out = style.wrap("", 0, &style.bold(&title));
    steps(style, &mut out, &plan.steps);
    out
}

/// Why a kernel is not kept, a line each.
pub fn reasons(style: Style, reasons: &[Reason]) -> String {
    reasons.iter().map(|reason| style.wrap("  · ", 4, &format!("{}: {}", reason.what, reason.why))).collect()
}
