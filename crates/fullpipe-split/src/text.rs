//! A report for a terminal.

use crate::{Effect, JoinedFigure, Report, Statistic};
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
    let _ = writeln!(
        out,
        "\n{:<16} {:>11} {:>9} {:>10} {:>11} {:>11} {:>13} {:>10} {:>10}",
        "arm",
        "connections",
        "units",
        "transfers",
        "delivered",
        "sent again",
        "goodput p50",
        "RTT p50",
        "RTT p95"
    );
    for arm in &report.arms {
        let again = 100.0 * arm.resent_bytes as f64 / arm.sent_bytes.max(1) as f64;
        let ms = |x: Option<f64>| x.map_or("-".to_owned(), |x| format!("{x:.2} ms"));
        let goodput = arm.goodput_p50_bps.map_or("-".to_owned(), |x| format!("{:.2} Mbit/s", x / 1e6));
        let _ = writeln!(
            out,
            "{:<16} {:>11} {:>9} {:>10} {:>11} {:>9.2} % {:>13} {:>10} {:>10}",
            format!("{}{}", arm.label, if arm.is_control { " (control)" } else { "" }),
            arm.connections,
            arm.units,
            arm.transfers,
            bytes(arm.delivered_bytes),
            again,
            goodput,
            ms(arm.rtt_p50_ms),
            ms(arm.rtt_p95_ms)
        );
    }
    if !report.effects.is_empty() {
        let _ = writeln!(out, "\nagainst {} (95 % at all looks together)", plan.control);
        table(&mut out, &report.effects);
    }
    for group in &report.groups {
        let _ = writeln!(
            out,
            "\n{}: {} connections (95 % for all groups together)",
            group.name, group.connections
        );
        table(&mut out, &group.effects);
    }
    if let Some(joined) = &report.joined {
        let _ = writeln!(
            out,
            "\nfrom the joined log: {} lines, {} connections of the split (95 % at all looks together)",
            joined.rows, joined.connections
        );
        for figure in &joined.figures {
            joined_table(&mut out, figure);
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

fn table(out: &mut String, effects: &[Effect]) {
    if effects.is_empty() {
        out.push_str("  too little to say\n");
    }
    for effect in effects {
        let name = match effect.statistic {
            Statistic::Mean => effect.metric.name().to_owned(),
            quantile => format!("{} {}", effect.metric.name(), quantile.name()),
        };
        let end = |x: Option<f64>, none: &str| x.map_or(none.to_owned(), |x| effect.metric.difference(x));
        let _ = writeln!(
            out,
            "  {:<12} {:<18} {:>14} against {:>14} {:>13}   {:>13} … {:<13} {}",
            effect.arm,
            name,
            effect.level,
            effect.control_level,
            effect.metric.difference(effect.difference),
            end(effect.low, "any less"),
            end(effect.high, "any more"),
            if effect.verdict == "unclear" { "" } else { effect.verdict }
        );
    }
}

fn joined_table(out: &mut String, figure: &JoinedFigure) {
    if figure.effects.is_empty() {
        let _ = writeln!(out, "  {}: {} values are too little to say", figure.name, figure.values);
    }
    let compared = figure.comparison;
    for effect in &figure.effects {
        let name = match effect.statistic {
            Statistic::Mean => figure.name.clone(),
            quantile => format!("{} {}", figure.name, quantile.name()),
        };
        let end = |x: Option<f64>, none: &str| x.map_or(none.to_owned(), |x| compared.difference(x));
        let _ = writeln!(
            out,
            "  {:<12} {:<18} {:>14} against {:>14} {:>13}   {:>13} … {:<13} {}",
            effect.arm,
            name,
            effect.level,
            effect.control_level,
            compared.difference(effect.difference),
            end(effect.low, "any less"),
            end(effect.high, "any more"),
            if effect.verdict == "unclear" { "" } else { effect.verdict }
        );
    }
}

pub(crate) fn bytes(n: u64) -> String {
    let n = n as f64;
    let (size, unit) = match n {
        n if n >= 1e12 => (1e12, "TB"),
        n if n >= 1e9 => (1e9, "GB"),
        n if n >= 1e6 => (1e6, "MB"),
        _ => (1e3, "kB"),
    };
    format!("{:.2} {unit}", n / size)
}
