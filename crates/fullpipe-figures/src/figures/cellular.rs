//! Section 6.1: a cellular link whose rate follows the backlog.

use super::{PAPER, chapter, n, scenario};
use crate::view::{MBIT, curve};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_experiment::recording::column;
use fullpipe_report::picture::{Axis, Panel, Picture};

pub(super) const FIGURE: Figure = Figure {
    id: "cellular",
    title: "A cellular link whose rate follows the backlog (§6.1)",
    source: PAPER,
    about: "Every 100 ms the link grants what was asked for in the last interval, between 1 and 20 Mbit/s.",
    published: "no number. The text (§6.1) says that early versions, tuned for very small queues, got stuck at low rates, and that with the gain of 1.25 \
                nothing is worse than with CUBIC.",
    file: "scenarios/figures/cellular.toml",
    text: scenario!("cellular"),
    chapter: chapter!("cellular"),
    revise: None,
    judge,
    in_lab: true,
    short: None,
};

fn judge(runs: &Runs) -> Outcome {
    let goodput = |cc: &str| runs.first(cc).map_or(f64::NAN, |r| r.summary.goodput_bps);
    let cubic = goodput("cubic");
    let findings = [("bbr", "BBR v1"), ("bbr3", "BBR v3")]
        .into_iter()
        .filter(|(cc, _)| runs.first(cc).is_some())
        .map(|(cc, name)| {
            Finding::new(
                format!("{name} is not stuck at the low rate"),
                "keeps sending enough to be granted more; never below CUBIC",
                format!("{} Mbit/s, CUBIC {}", n(goodput(cc) * MBIT), n(cubic * MBIT)),
                "≥ 10 Mbit/s and ≥ 0.95 × CUBIC",
                goodput(cc) >= 10e6 && goodput(cc) >= 0.95 * cubic,
            )
        })
        .collect();
    let panel = |title: &str, name: &str, unit: &str, scale: f64| Panel {
        title: title.into(),
        x: Axis::linear("seconds").from_to(0.0, 30.0),
        y: Axis::linear(unit),
        curves: runs.runs.iter().map(|(_, r)| curve(&r.flows[0], name, scale, 0.0, 30.0)).collect(),
        marks: vec![],
    };
    let picture = Picture {
        title: "§6.1: a link that grants what is asked for".into(),
        subtitle: "A sender that never queues is never granted more than it sends; BBR's probes ask.".into(),
        panels: vec![
            panel("Bandwidth delivered", column::DELIVERY_RATE_BPS, "Mbit/s", MBIT),
            panel("Round-trip time", column::RTT_MS, "ms", 1.0),
        ],
        ..Picture::default()
    };
    Outcome { findings, picture, notes: Vec::new() }
}
