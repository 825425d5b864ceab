//! A report for a terminal.

use crate::Report;
use crate::rows::{ARM, Row, arms};
use std::fmt::Write;

/// The report as text.
pub fn terminal(report: &Report) -> String {
    let mut out = String::new();
    let plan = &report.plan;
    let arms: Vec<String> =
        plan.arms.all().iter().map(|arm| format!("{} {}", arm.label, arm.share)).collect();
    let _ = writeln!(
        out,
        "{}, by {}, seed {}, of {}{}; transfers from {} on; guard {}",
        arms.join(", "),
        plan.by,
        plan.seed,
        plan.cgroup,
        if plan.only.is_empty() { String::new() } else { format!(", where {}", plan.only) },
        plan.least,
        plan.guard
    );
    for event in &report.events {
        let _ = writeln!(out, "  {event}");
    }
    out.push('\n');
    table_of_arms(&mut out, report);
    if !report.effects.is_empty() {
        let _ = writeln!(out, "\nagainst {} (95 % at all looks together)", plan.control);
        table(&mut out, &Row::all(&report.effects), &plan.control);
    }
    for group in &report.groups {
        let _ = writeln!(
            out,
            "\n{}: {} connections (95 % for all groups together)",
            group.name, group.connections
        );
        if group.effects.is_empty() {
            out += "too little to say\n";
        }
        table(&mut out, &Row::all(&group.effects), &plan.control);
    }
    if let Some(joined) = &report.joined {
        let _ = writeln!(
            out,
            "\nfrom the joined log: {} lines, {} connections of the split (95 % at all looks together)",
            joined.rows, joined.connections
        );
        for figure in &joined.figures {
            if figure.effects.is_empty() {
                let _ = writeln!(out, "{}: {} values are too little to say", figure.name, figure.values);
            }
            table(&mut out, &Row::all_of(figure), &plan.control);
        }
    }
    let _ = writeln!(
        out,
        "\nchecks: shares as asked p = {:.2}; the control against itself p = {}",
        report.sample_ratio_p,
        report.same_arm_p.map_or("-".to_owned(), |p| format!("{p:.2}"))
    );
    if !report.verdict.is_empty() {
        let _ = writeln!(out, "\n{}", report.verdict);
    }
    for said in &report.found {
        let _ = writeln!(out, "* {said}");
    }
    for said in &report.cautions {
        let _ = writeln!(out, "! {said}");
    }
    out
}

/// Columns of a terminal.
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
    for of in rows.chunk_by(|a, b| a.estimate.arm == b.estimate.arm) {
        line(["", &of[0].estimate.arm, control, "change", "from", "to", ""]);
        for row in of {
            let (difference, [low, high]) = (row.difference(), row.interval());
            let (arm, control) = (&row.estimate.level, &row.estimate.control_level);
            line([&row.name, arm, control, &difference, &low, &high, row.verdict()]);
        }
    }
}
