//! Terminal output about kernels.

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
        return "configuration not found".into();
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

/// Installed kernels and advice.
pub fn status(style: Style, status: &Status) -> String {
    let mut out = style.wrap(&style.bold("→ "), 2, &status.summary);
    if !status.kernels.is_empty() {
        out.push('\n');
    }
    for kernel in &status.kernels {
        let default = status.boots.as_ref().and_then(|boots| boots.default.as_ref()) == Some(&kernel.release);
        let mut words = Vec::new();
        words.extend(kernel.running.then_some("running"));
        words.extend(default.then_some("default"));
        words.extend(
            (status.installed.as_ref() == Some(&kernel.release))
                .then_some("installed by fullpipe, not kept yet"),
        );
        words.extend(kernel.image.is_none().then_some("no kernel image"));
        let words = if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) };
        let _ = writeln!(out, "  {}{words}", style.bold(&format!("Linux {}", kernel.release)));
        out += &style.wrap("      ", 6, &options(kernel));
        for module in &kernel.missing {
            out += &style.wrap(
                "      ",
                6,
                &format!("its configuration has {module} as a module, which is missing"),
            );
        }
        if !kernel.out_of_tree.is_empty() {
            out +=
                &style.wrap("      ", 6, &format!("out-of-tree modules: {}", kernel.out_of_tree.join(", ")));
        }
    }
    let _ = writeln!(out);
    if let Some(boots) = &status.boots {
        row(style, &mut out, "boot loader", &format!("{} ({})", boots.loader, boots.menu));
        if let Some(next) = &boots.next {
            row(style, &mut out, "next boot", next);
        }
        if !boots.without_entry.is_empty() {
            row(style, &mut out, "no entry for", &boots.without_entry.join(", "));
        }
    }
    if let Some(free) = status.boot_free {
        row(style, &mut out, "/boot", &format!("{} MB free", free >> 20));
    }
    row(
        style,
        &mut out,
        "Secure Boot",
        if status.secure_boot { "on: only signed kernels boot" } else { "off" },
    );
    if !status.dkms.is_empty() {
        row(style, &mut out, "DKMS", &status.dkms.join(", "));
    }
    row(style, &mut out, "packages", status.manager.unwrap_or("no supported package manager"));
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

/// Plan of an installation.
pub fn plan(style: Style, plan: &Plan) -> String {
    let kernel = &plan.kernel;
    let title = format!("Steps to install Linux {} ({}), in order:", kernel.release, kernel.version);
    let mut out = style.wrap("", 0, &style.bold(&title));
    out += &style.wrap("", 0, &format!("from {}", kernel.source));
    steps(style, &mut out, &plan.steps);
    let _ = writeln!(out, "\n{}", style.dim("Packages"));
    for package in &plan.packages.installed {
        let instead = package.instead_of.as_ref().map(|old| format!(", replaces {old}")).unwrap_or_default();
        out += &style.wrap("  · ", 4, &format!("{} {}{instead}", package.name, package.version));
    }
    if !plan.notes.is_empty() {
        let _ = writeln!(out, "\n{}", style.dim("Notes"));
        for note in &plan.notes {
            out += &style.wrap("  · ", 4, note);
        }
    }
    if !plan.others.is_empty() {
        const SHOWN: usize = 8;
        let more = if plan.others.len() > SHOWN { ", …" } else { "" };
        let shown = plan.others[..plan.others.len().min(SHOWN)].join(", ");
        let _ = writeln!(out, "\n{}", style.dim("Other available kernels"));
        out += &style.wrap("  · ", 4, &format!("{shown}{more}"));
    }
    out
}

/// Result of an installation.
pub fn installed(style: Style, installed: &Installed, next: &str) -> String {
    let mark = style.verdict(Verdict::Ok, "✓ ");
    let text = format!(
        "Linux {} is installed, and Linux {} stays the default. {next} boots it once and keeps it only if \
         all checks pass.",
        installed.release, installed.default
    );
    style.wrap(&mark, 2, &text)
}

/// Result of a build.
pub fn built(style: Style, built: &Built, next: &str) -> String {
    let mark = style.verdict(Verdict::Ok, "✓ ");
    let minutes = built.seconds.div_ceil(60);
    let text = format!("Linux {} was built in {minutes} min: {}", built.release, built.package.display());
    let mut out = style.wrap(&mark, 2, &text);
    for other in &built.others {
        out += &style.wrap("  · ", 4, &format!("also {}", other.display()));
    }
    let options: Vec<String> = built.options.iter().map(|(name, value)| format!("{name}={value}")).collect();
    out += &style.wrap("  ", 2, &options.join("  "));
    out + &style.wrap(
        "",
        0,
        &format!("{next} installs it beside the running kernel, which stays the default."),
    )
}

/// Changes of a trial before the restart.
pub fn trial_boot(style: Style, plan: &trial_boot::Plan) -> String {
    let title = format!(
        "Steps to boot Linux {} once, and return to Linux {} unless all checks pass:",
        plan.release, plan.before
    );
    let mut out = style.wrap("", 0, &style.bold(&title));
    steps(style, &mut out, &plan.steps);
    out
}

/// Reasons why a kernel is not kept, one per line.
pub fn reasons(style: Style, reasons: &[Reason]) -> String {
    reasons.iter().map(|reason| style.wrap("  · ", 4, &format!("{}: {}", reason.what, reason.why))).collect()
}
