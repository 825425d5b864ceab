//! Section 6.3: a token-bucket policer.

use super::{PAPER, chapter, n, scenario};
use crate::view::{MBIT, Quantity};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_experiment::recording::column;
use fullpipe_report::picture::{Axis, Mark, Panel, Picture};

pub(super) const FIGURE: Figure = Figure {
    id: "policer",
    title: "A token-bucket policer (§6.3)",
    source: PAPER,
    about: "100 Mbit/s, 40 ms, policed to 10 Mbit/s with a bucket of 150 kB.",
    published: "no number. The text (§6.3) says that BBR learns the policed rate, and that a model of \
                policers was added against the moderate losses of its probes.",
    file: "scenarios/figures/policer.toml",
    text: scenario!("policer"),
    chapter: chapter!("policer"),
    revise: None,
    judge,
    in_lab: true,
    short: None,
};

fn judge(runs: &Runs) -> Outcome {
    let mut findings = Vec::new();
    // The policed rate in payload.
    let policed = 10e6 * 1448.0 / 1500.0;
    for (cc, name) in [("bbr", "BBR v1's long-term model"), ("bbr3", "BBR v3's bounds")] {
        let Some(run) = runs.first(cc) else { continue };
        let s = &run.summary;
        let loss = s.packets_lost as f64 / s.packets_sent.max(1) as f64;
        findings.push(Finding::new(
            format!("{name} finds the policed rate; loss stays moderate"),
            "the policed rate, moderate loss",
            format!(
                "{} of {} Mbit/s, {} % lost",
                n(s.goodput_bps * MBIT),
                n(policed * MBIT),
                n(loss * 100.0)
            ),
            "≥ 75 % of the rate, ≤ 10 % lost",
            s.goodput_bps >= 0.75 * policed && loss <= 0.10,
        ));
    }
    let panel = |title: &str, shown: Quantity| {
        let during = (0.0, 40.0);
        shown.panel(title, during, shown.curves(runs, during))
    };
    let pacing = Panel {
        y: Axis::log("Mbit/s").with_range(5.0, 110.0),
        marks: vec![Mark::Horizontal { y: 10.0, label: "policed".into() }],
        ..panel("Pacing rate", Quantity::new(column::PACING_BPS, "Mbit/s", MBIT))
    };
    let lost = panel("Packets lost so far", Quantity::new(column::LOST_PACKETS, "packets", 1.0));
    let picture = Picture {
        title: "§6.3: policed to 10 Mbit/s on a 100 Mbit/s path".into(),
        subtitle: "The bucket's burst makes the path look ten times faster than it is; the losses after it \
                   show the policer."
            .into(),
        panels: vec![pacing, lost],
        ..Picture::default()
    };
    Outcome { findings, picture, notes: Vec::new() }
}
