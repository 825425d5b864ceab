//! Section 6.1: a cellular link whose rate follows the backlog.

use super::{PAPER, VERSIONS, chapter, n, scenario};
use crate::view::{MBIT, Quantity, RTT};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_experiment::recording::column;
use fullpipe_report::picture::Picture;

pub(super) const FIGURE: Figure = Figure {
    id: "cellular",
    title: "A cellular link whose rate follows the backlog (§6.1)",
    source: PAPER,
    about: "Every 100 ms the link grants what was asked for in the last interval, between 1 and 20 Mbit/s.",
    published: "no number. The text (§6.1) says that early versions, tuned for very small queues, got stuck \
                at low rates, and that with the gain of 1.25 nothing is worse than with CUBIC.",
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
    let findings = VERSIONS
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
    let during = (0.0, 30.0);
    let panel = |title: &str, shown: Quantity| shown.panel(title, during, shown.curves(runs, during));
    let picture = Picture {
        title: "§6.1: a link that grants what is asked for".into(),
        subtitle: "A sender that never queues is never granted more than it sends; BBR's probes ask.".into(),
        panels: vec![
            panel("Bandwidth delivered", Quantity::new(column::DELIVERY_RATE_BPS, "Mbit/s", MBIT)),
            panel("Round-trip time", RTT),
        ],
        ..Picture::default()
    };
    Outcome { findings, picture, notes: Vec::new() }
}
