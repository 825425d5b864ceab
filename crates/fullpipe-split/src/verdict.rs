//! The verdict: what was found, how sure it is, and what cannot be concluded.

use crate::rows::Row;
use crate::{Counts, Effect, Joined, Report, Statistic};

/// Below it, what should not be is: a mismatch of the sample ratio, halves of one arm that differ.
const BROKEN: f64 = 0.001;
/// A share of connections that meet another arm's from which on the bias is told.
pub(crate) const SHARED: f64 = 0.05;

/// An arm's differences in the mean.
fn means<'a>(report: &'a Report, arm: &str) -> Vec<&'a Effect> {
    let is_it = |e: &&Effect| e.estimate.arm == arm && e.estimate.statistic == Statistic::Mean;
    report.effects.iter().filter(is_it).collect()
}

/// What is sure of each arm, or between what its main figures lie.
pub(crate) fn found(report: &Report) -> Vec<String> {
    let plan = &report.plan;
    let mut told = Vec::new();
    for arm in plan.arms.all().iter().filter(|arm| arm.label != plan.control) {
        let of = means(report, &arm.label);
        if of.is_empty() {
            told.push(format!(
                "{} against {}: too little has closed to say anything",
                arm.label, plan.control
            ));
        }
        for effect in of {
            let row = Row::of(effect);
            let between = row.interval().join(" … ");
            let said = match row.verdict() {
                "" => format!("no difference is sure ({between})"),
                verdict => format!("{} ({between}): {verdict}", row.difference()),
            };
            told.push(format!("{} against {}, {}: {said}", arm.label, plan.control, effect.metric));
        }
    }
    told
}

/// All of it in a sentence or two: of each arm what is better and what is worse, and whether that may be believed.
pub(crate) fn verdict(report: &Report) -> String {
    let plan = &report.plan;
    if report.sample_ratio_p < BROKEN {
        return "The arms did not get the shares that they were to get: until that is explained nothing here can be \
                believed."
            .to_owned();
    }
    let mut told = Vec::new();
    for arm in plan.arms.all().iter().filter(|arm| arm.label != plan.control) {
        let of = means(report, &arm.label);
        let words = |verdict: &str| -> Vec<String> {
            let all = of.iter().filter(|effect| effect.estimate.verdict == verdict);
            all.map(|effect| format!("{} ({})", effect.metric, Row::of(effect).difference())).collect()
        };
        let (better, worse) = (words("better"), words("worse"));
        let (label, control) = (&arm.label, &plan.control);
        told.push(match (of.is_empty(), better.is_empty(), worse.is_empty()) {
            (true, ..) => format!("{label} against {control}: too little has closed to say anything."),
            (_, true, true) => format!("No difference between {label} and {control} is sure."),
            (_, false, true) => format!("{label} is better than {control} in {}.", better.join(", ")),
            (_, true, false) => format!("{label} is worse than {control} in {}.", worse.join(", ")),
            (_, false, false) => format!(
                "{label} is better than {control} in {}, and worse in {}.",
                better.join(", "),
                worse.join(", ")
            ),
        });
    }
    if report.is_shared() {
        told.push("Arms met at clients: a roll-out may bring something else.".to_owned());
    }
    told.join(" ")
}

/// A file may say anything.
fn sum(all: &[u64]) -> u64 {
    all.iter().fold(0, |sum, n| sum.saturating_add(*n))
}

/// What a reader must know before believing the rest.
pub(crate) fn cautions(report: &Report, ended: bool) -> Vec<String> {
    let mut told = of_the_assignment(report);
    told.extend(report.counts.iter().flat_map(of_the_kernel));
    if !ended {
        told.push("the file has no end: the split still runs, or its owner was killed".to_owned());
    }
    told.extend(report.joined.iter().flat_map(of_the_log));
    told.extend(of_meetings(report));
    told
}

/// Whether chance did what it should.
fn of_the_assignment(report: &Report) -> Vec<String> {
    let mut told = Vec::new();
    if report.sample_ratio_p < BROKEN {
        told.push(format!(
            "the arms did not get what they were to get (p = {:.1e}): believe no effect until that is explained; arms whose \
             connections do not close, or are not transfers, are counted less",
            report.sample_ratio_p
        ));
    }
    if report.same_arm_p.is_some_and(|p| p < BROKEN) {
        told.push(
            "the control differs from itself in two halves made by chance: connections of what is assigned as one are not \
             alike; assign larger units (--by client-prefix/16,/48)"
                .to_owned(),
        );
    }
    told
}

/// What the program in the kernel counted of connections that are in no figure.
fn of_the_kernel(counts: &Counts) -> Vec<String> {
    let refused = sum(&counts.refused);
    let left = counts.program_chose.saturating_add(counts.route_chose);
    let opened = sum(&counts.opened);
    let open = opened.saturating_sub(sum(&counts.closed));
    let all = [
        (counts.lost > 0).then(|| {
            format!("{} connections closed unrecorded, because nobody emptied the ring in time", counts.lost)
        }),
        (refused > 0).then(|| {
            format!("the kernel refused the arm's controller to {refused} connections; they are in no arm")
        }),
        (counts.lapsed > 0).then(|| {
            format!(
                "{} connections opened while the owner did not renew its lease; they are in no arm",
                counts.lapsed
            )
        }),
        (left > 0).then(|| {
            format!(
                "{left} connections were left alone: of {} the program chose the controller, of {} the route",
                counts.program_chose, counts.route_chose
            )
        }),
        (open > opened / 20).then(|| {
            format!(
                "{open} of {opened} connections have not closed and are in no figure; a slow arm's close later"
            )
        }),
    ];
    all.into_iter().flatten().collect()
}

/// What could not be taken from the log that was joined.
fn of_the_log(joined: &Joined) -> Vec<String> {
    let mut told = Vec::new();
    if joined.bad > 0 {
        told.push(format!(
            "{} line{} of the joined log could not be read: {}{}",
            joined.bad,
            if joined.bad == 1 { "" } else { "s" },
            joined.troubles.join("; "),
            if joined.bad > joined.troubles.len() as u64 { "; …" } else { "" }
        ));
    }
    if joined.others > joined.connections {
        told.push(format!(
            "{} of {} connections in the joined log are not in the split: is it of the same time and host, and the \
             cookie that of the accepted socket (SO_COOKIE)?",
            joined.others,
            joined.others.saturating_add(joined.connections)
        ));
    }
    told.extend(joined.left_out.iter().map(|left| format!("not compared: {left}")));
    told
}

/// Where an arm did not have its connections for itself.
fn of_meetings(report: &Report) -> Vec<String> {
    let mut told = Vec::new();
    if let Some(met) = report.met_share.filter(|met| *met > SHARED) {
        told.push(format!(
            "{:.0} % of connections were open together with one of another arm from the same client: where they meet at a \
             bottleneck one takes from the other, and the difference is not that of a whole roll-out; --by client-prefix or \
             --by time has less of that",
            met * 100.0
        ));
    }
    let chose: u64 = report.arms.iter().map(|arm| arm.chose_later).sum();
    if chose > 0 {
        told.push(format!(
            "{chose} connections got another controller after they opened; they count for the arm they opened in"
        ));
    }
    told
}
