//! A report as terminal text.

use crate::Report;
use crate::rows::{ARM, Row, arms};
use std::fmt::Write;

/// Renders the report as text.
pub fn terminal(report: &Report) -> String {
    let mut out = String::new();
    let plan = &report.plan;
    let arms: Vec<String> =
        plan.arms.all().iter().map(|arm| format!("{} {}", arm.label, arm.share)).collect();
    let _ = writeln!(
        out,
        "{}, by {}, seed {}, control group {}{}; transfers of at least {}; guard {}",
        arms.join(", "),
        plan.by,
        plan.seed,
        plan.cgroup,
        if plan.condition.is_empty() { String::new() } else { format!(", where {}", plan.condition) },
        plan.min_transfer,
        plan.guard
    );
    for event in &report.events {
        let _ = writeln!(out, "  {event}");
    }
    out.push('\n');
    table_of_arms(&mut out, report);
    if !report.effects.is_empty() {
        let _ = writeln!(out, "\ncompared with {} (always-valid 95 % intervals)", plan.control);
        table(&mut out, &Row::all(&report.effects), &plan.control);
    }
    for group in &report.groups {
        let _ = writeln!(
            out,
            "\n{}: {} connections (simultaneous 95 % intervals for all groups)",
            group.name, group.connections
        );
        if group.effects.is_empty() {
            out += "not enough data\n";
        }
        table(&mut out, &Row::all(&group.effects), &plan.control);
    }
    if let Some(joined) = &report.joined {
        let _ = writeln!(
            out,
            "\nfrom the joined log: {} lines, {} connections of the experiment (always-valid 95 % intervals)",
            joined.rows, joined.connections
        );
        for figure in &joined.figures {
            if figure.effects.is_empty() {
                let _ = writeln!(out, "{}: not enough data ({} values)", figure.name, figure.values);
            }
            table(&mut out, &Row::from_joined(figure), &plan.control);
        }
    }
    let _ = writeln!(
        out,
        "\nchecks: sample ratio p = {:.2}; A/A test of the control p = {}",
        report.sample_ratio_p,
        report.aa_p.map_or("-".to_owned(), |p| format!("{p:.2}"))
    );
    if !report.verdict.is_empty() {
        let _ = writeln!(out, "\n{}", report.verdict);
    }
    for finding in &report.findings {
        let _ = writeln!(out, "* {finding}");
    }
    for warning in &report.warnings {
        let _ = writeln!(out, "! {warning}");
    }
    out
}

/// Width in columns.
const WIDTH: usize = 80;

/// The arms side by side, as many as fit.
fn table_of_arms(out: &mut String, report: &Report) {
    const HEADING: usize = 11;
    let arms = arms(report);
    let width = arms.iter().map(|(name, _)| name.chars().count()).fold(12, usize::max) + 2;
    for some in arms.chunks(((WIDTH - HEADING) / width).max(1)) {
        let line = |heading: &str, cells: &mut dyn Iterator<Item = &String>| {
            cells.fold(format!("{heading:<HEADING$}"), |line, cell| line + &format!("{cell:>width$}")) + "\n"
        };
        *out += &line("", &mut some.iter().map(|(name, _)| name));
        for (place, heading) in ARM.iter().enumerate() {
            *out += &line(heading, &mut some.iter().map(|(_, cells)| &cells[place]));
        }
    }
}

/// A table for each arm, no wider than a terminal.
fn table(out: &mut String, rows: &[Row<'_>], control: &str) {
    let mut line = |[name, arm, control, difference, low, high, verdict]: [&str; 7]| {
        let line =
            format!("{name:<17} {arm:>11} {control:>11} {difference:>9} {low:>9} … {high:<9} {verdict}");
        *out += line.trim_end();
        out.push('\n');
    };
    for arm_rows in rows.chunk_by(|a, b| a.estimate.arm == b.estimate.arm) {
        line(["", &arm_rows[0].estimate.arm, control, "change", "from", "to", ""]);
        for row in arm_rows {
            let (difference, [low, high]) = (row.difference(), row.interval());
            let (arm, control) = (&row.estimate.level, &row.estimate.control_level);
            line([&row.name, arm, control, &difference, &low, &high, row.verdict()]);
        }
    }
}
