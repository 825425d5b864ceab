//! Verdict, findings and limitations as text.

use crate::rows::Row;
use crate::{Counts, Effect, Joined, Report, Statistic};

/// p-value below which the sample-ratio test or A/A test fails.
const FAILED: f64 = 0.001;
/// Share of overlapping connections above which bias is reported.
pub(crate) const MAX_OVERLAP: f64 = 0.05;

/// Effects of an arm on means.
fn means<'a>(report: &'a Report, arm: &str) -> Vec<&'a Effect> {
    let matches = |e: &&Effect| e.estimate.arm == arm && e.estimate.statistic == Statistic::Mean;
    report.effects.iter().filter(matches).collect()
}

/// Effects of each arm on means, with intervals.
pub(crate) fn findings(report: &Report) -> Vec<String> {
    let plan = &report.plan;
    let mut lines = Vec::new();
    for arm in plan.arms.all().iter().filter(|arm| arm.label != plan.control) {
        let effects = means(report, &arm.label);
        if effects.is_empty() {
            lines.push(format!(
                "{} vs {}: not enough data, too few connections have closed",
                arm.label, plan.control
            ));
        }
        for effect in effects {
            let row = Row::from_effect(effect);
            let interval = row.interval().join(" … ");
            let result = match row.verdict() {
                "" => format!("no significant difference ({interval})"),
                verdict => format!("{} ({interval}): {verdict}", row.difference()),
            };
            lines.push(format!("{} vs {}, {}: {result}", arm.label, plan.control, effect.metric));
        }
    }
    lines
}

/// One or two sentences: what is better and worse in each arm, and whether the result is valid.
pub(crate) fn verdict(report: &Report) -> String {
    let plan = &report.plan;
    if report.sample_ratio_p < FAILED {
        return "Sample ratio mismatch: the arms did not receive their shares, so the results are \
                invalid until the cause is known."
            .to_owned();
    }
    let mut lines = Vec::new();
    for arm in plan.arms.all().iter().filter(|arm| arm.label != plan.control) {
        let effects = means(report, &arm.label);
        let metrics = |verdict: &str| -> Vec<String> {
            let all = effects.iter().filter(|effect| effect.estimate.verdict == verdict);
            all.map(|effect| format!("{} ({})", effect.metric, Row::from_effect(effect).difference()))
                .collect()
        };
        let (better, worse) = (metrics("better"), metrics("worse"));
        let (label, control) = (&arm.label, &plan.control);
        lines.push(match (effects.is_empty(), better.is_empty(), worse.is_empty()) {
            (true, ..) => format!("{label} vs {control}: not enough data, too few connections have closed."),
            (_, true, true) => format!("No significant difference between {label} and {control}."),
            (_, false, true) => format!("{label} is better than {control} in {}.", better.join(", ")),
            (_, true, false) => format!("{label} is worse than {control} in {}.", worse.join(", ")),
            (_, false, false) => format!(
                "{label} is better than {control} in {}, and worse in {}.",
                better.join(", "),
                worse.join(", ")
            ),
        });
    }
    if report.has_overlap() {
        lines.push("Arms overlapped at clients: a full roll-out may differ.".to_owned());
    }
    lines.join(" ")
}

/// Saturating, since files may contain any numbers.
fn sum(all: &[u64]) -> u64 {
    all.iter().fold(0, |sum, n| sum.saturating_add(*n))
}

/// Limitations of the results.
pub(crate) fn warnings(report: &Report, ended: bool) -> Vec<String> {
    let mut lines = assignment_warnings(report);
    lines.extend(report.counts.iter().flat_map(kernel_warnings));
    if !ended {
        lines.push(
            "the file has no end: the experiment is still running, or its process was killed".to_owned(),
        );
    }
    lines.extend(report.joined.iter().flat_map(log_warnings));
    lines.extend(overlap_warnings(report));
    lines
}

/// Failed tests of the assignment.
fn assignment_warnings(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    if report.sample_ratio_p < FAILED {
        lines.push(format!(
            "sample ratio mismatch (p = {:.1e}): effects are invalid until the cause is known; \
             connections that do not close, or are not transfers, are undercounted",
            report.sample_ratio_p
        ));
    }
    if report.aa_p.is_some_and(|p| p < FAILED) {
        lines.push(
            "the A/A test of the control failed: connections within a unit are correlated; assign \
             larger units (--by client-prefix/16,/48)"
                .to_owned(),
        );
    }
    lines
}

/// Connections counted by the eBPF program that are not in the results.
fn kernel_warnings(counts: &Counts) -> Vec<String> {
    let refused = sum(&counts.refused);
    let left = counts.program_chose.saturating_add(counts.route_chose);
    let opened = sum(&counts.opened);
    let open = opened.saturating_sub(sum(&counts.closed));
    let all = [
        (counts.lost > 0).then(|| {
            format!("{} closed connections were not recorded: the ring buffer was full", counts.lost)
        }),
        (counts.unwritten > 0).then(|| {
            format!(
                "{} closed connections are not in the results: the file reached its maximum size (half \
                 of the disk space that was free at the start, at most 100 GB); use a shorter split \
                 (--for) or a disk with more free space (--out)",
                counts.unwritten
            )
        }),
        (refused > 0).then(|| {
            format!("the kernel refused the arm's controller for {refused} connections; they are in no arm")
        }),
        (counts.lapsed > 0).then(|| {
            format!("{} connections opened while the lease had expired; they are in no arm", counts.lapsed)
        }),
        (left > 0).then(|| {
            format!(
                "{left} connections were left alone: the controller was set by the program for {}, by \
                 the route for {}",
                counts.program_chose, counts.route_chose
            )
        }),
        (open > opened / 20).then(|| {
            format!(
                "{open} of {opened} connections have not closed and are not in the results; those of a \
                 slow arm close later"
            )
        }),
    ];
    all.into_iter().flatten().collect()
}

/// Problems of the joined log.
fn log_warnings(joined: &Joined) -> Vec<String> {
    let mut lines = Vec::new();
    if joined.invalid > 0 {
        lines.push(format!(
            "{} invalid line{} in the joined log: {}{}",
            joined.invalid,
            if joined.invalid == 1 { "" } else { "s" },
            joined.errors.join("; "),
            if joined.invalid > joined.errors.len() as u64 { "; …" } else { "" }
        ));
    }
    if joined.others > joined.connections {
        lines.push(format!(
            "{} of {} connections in the joined log are not in the experiment: check that it is from \
             the same time and host, and that the cookie is that of the accepted socket (SO_COOKIE)",
            joined.others,
            joined.others.saturating_add(joined.connections)
        ));
    }
    lines.extend(joined.not_compared.iter().map(|column| format!("not compared: {column}")));
    lines
}

/// Interference between arms.
fn overlap_warnings(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(share) = report.overlap_share.filter(|share| *share > MAX_OVERLAP) {
        lines.push(format!(
            "{:.0} % of connections were open at the same time as one of another arm from the same \
             client: at a shared bottleneck one arm takes bandwidth from the other, so a full roll-out \
             may differ; --by client-prefix or --by time reduces this",
            share * 100.0
        ));
    }
    let changed: u64 = report.arms.iter().map(|arm| arm.changed_controller).sum();
    if changed > 0 {
        lines.push(format!(
            "{changed} connections changed their controller after opening; they count for their original arm"
        ));
    }
    lines
}
