//! Figure 3: the bandwidth doubles and halves.

use super::{PAPER, chapter, n, scenario};
use crate::view::{INFLIGHT, Quantity, RTT, bottleneck, median, published};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_experiment::recording::{Recording, column};
use fullpipe_report::picture::{Panel, Picture};

pub(super) const FIGURE: Figure = Figure {
    id: "fig3",
    title: "The bandwidth doubles and halves",
    source: PAPER,
    about: "10 Mbit/s, 20 Mbit/s from 20 s, 10 Mbit/s again from 40 s.",
    published: "three cycles of 1.25 to twice the rate, each of eight round trips of 40 ms; the queue of \
                the halved rate gone after about 2 s (Figure 3). Of BBR v3 there is no such figure.",
    file: "scenarios/figures/fig3.toml",
    text: scenario!("fig3"),
    chapter: chapter!("fig3"),
    revise: None,
    judge,
    in_lab: true,
    short: None,
};

/// The expectations for one BBR version after a rate step: published value, maximum seconds, and
/// reason.
struct Expected {
    cc: &'static str,
    name: &'static str,
    found: (&'static str, f64, &'static str),
    lowered: (&'static str, f64, &'static str),
    drained: f64,
}

const EXPECTED: [Expected; 2] = [
    Expected {
        cc: "bbr",
        name: "BBR v1",
        // Three cycles of eight round trips, the RTT a little above 40 ms, and the wait for the next probe.
        found: ("three cycles of 1.25", 4.0 * 8.0 * 0.045, "≤ 1.44 s: four cycles of 8 RTT"),
        lowered: ("about 2 s in the figure", 3.0, "ten rounds of a filled queue"),
        // Above a BDP the phases of 1.25 and 0.75 cancel out. The queue drains by the pacing margin of 1 %,
        // as far as the error of the filter leaves it, and at the latest by ProbeRTT ten seconds
        // after the last one.
        drained: 10.5,
    },
    Expected {
        cc: "bbr3",
        name: "BBR v3",
        found: ("(not published)", 6.5, "≤ 6.5 s: two waits of up to 3 s and a probe"),
        lowered: (
            "(not published)",
            12.0,
            "the filter spans two probing cycles, each put off by a ProbeRTT every 5 s, and no loss tells \
             sooner",
        ),
        drained: 13.0,
    },
];

/// Seconds from a rate step to each reaction; NaN if it did not occur.
struct Reaction {
    /// To an estimate of nearly twice the rate.
    found: f64,
    /// To an estimate of the old rate again.
    lowered: f64,
    /// To the end of the first half second from which the queue's median is below 0.3 BDP.
    drained: f64,
}

impl Reaction {
    fn new(run: &Recording) -> Self {
        let limit = run.path.goodput_limit_bps.unwrap_or(f64::NAN);
        let bdp = run.path.bdp_bytes.unwrap_or(1) as f64;
        let first = |from: f64, to: f64, is: &dyn Fn(f64) -> bool| {
            let estimates = run.flows[0].series.points(column::BW_BPS, from, to);
            estimates.into_iter().find(|(_, bw)| is(*bw)).map_or(f64::NAN, |(t, _)| t - from)
        };
        let queued = |t: f64| {
            let queue = bottleneck(run).map(|q| q.values(column::QUEUE_BYTES, t - 0.5, t));
            median(&queue.unwrap_or_default())
        };
        Reaction {
            found: first(20.0, 40.0, &|bw| bw >= 1.9 * limit),
            lowered: first(40.0, 54.0, &|bw| bw <= 1.1 * limit),
            drained: (82..108)
                .map(|i| f64::from(i) / 2.0)
                .find(|t| queued(*t) <= 0.3 * bdp)
                .map_or(f64::NAN, |t| t - 40.0),
        }
    }
}

fn findings(expected: &Expected, reaction: &Reaction) -> [Finding; 3] {
    let Expected { name, found, lowered, drained, .. } = expected;
    [
        Finding::new(
            format!("{name} finds twice the rate"),
            found.0,
            format!("95 % of 20 Mbit/s after {} s", n(reaction.found)),
            found.2,
            reaction.found <= found.1,
        ),
        Finding::new(
            format!("{name} lowers its estimate when the rate halves"),
            lowered.0,
            format!("within 10 % of the rate after {} s", n(reaction.lowered)),
            format!("≤ {} s: {}", lowered.1, lowered.2),
            reaction.lowered <= lowered.1,
        ),
        Finding::new(
            format!("{name} drains the queue that the step made"),
            "drained",
            format!("below 0.3 BDP after {} s", n(reaction.drained)),
            format!("≤ {drained} s: by the next ProbeRTT at the latest"),
            reaction.drained <= *drained,
        ),
    ]
}

/// Inflight and RTT around both steps, with the published values of BBR v1.
fn panels(expected: &Expected, run: &Recording) -> Vec<Panel> {
    // Three increases by a quarter are about twice the rate.
    let bdp = run.path.bdp_bytes.unwrap_or(1) as f64;
    let cycles = (0..=3).map(|n| (20.0 + 0.32 * f64::from(n), bdp * 1e-3 * 1.25f64.powi(n)));
    let inflight: Vec<(f64, f64)> = cycles.chain([(42.0, bdp * 1e-3)]).collect();
    let panel = |title: &str, shown: Quantity, (from, to): (f64, f64), reference: &[(f64, f64)]| {
        let reference: Vec<(f64, f64)> =
            reference.iter().copied().filter(|p| (from..=to).contains(&p.0)).collect();
        let reference = (expected.cc == "bbr" && !reference.is_empty()).then(|| published("bbr", reference));
        let measured = shown.curve(&run.flows[0], (from, to));
        shown.panel(
            format!("{title} ({})", expected.name),
            (from, to),
            [measured].into_iter().chain(reference),
        )
    };
    let (up, down) = ((19.5, 22.0), (39.5, 50.0));
    vec![
        panel("Inflight as the bandwidth doubles", INFLIGHT, up, &inflight),
        panel("Inflight as it halves", INFLIGHT, down, &inflight),
        panel("RTT as the bandwidth doubles", RTT, up, &[(42.0, 40.0)]),
        panel("RTT as it halves", RTT, down, &[(42.0, 40.0)]),
    ]
}

fn judge(runs: &Runs) -> Outcome {
    let expected = EXPECTED.iter().filter_map(|expected| Some((expected, runs.first(expected.cc)?)));
    let findings =
        expected.clone().flat_map(|(expected, run)| findings(expected, &Reaction::new(run))).collect();
    let panels = expected.flat_map(|(expected, run)| panels(expected, run)).collect();
    let picture = Picture {
        title: "Figure 3: the bandwidth doubles at 20 s and halves at 40 s".into(),
        subtitle: "Up: each probe raises inflight by a quarter and finds it delivered. Down: more is in \
                   flight than fits, until the old maximum leaves the filter."
            .into(),
        panels,
        columns: 2,
        panel_height: 220,
        ..Picture::default()
    };
    Outcome { findings, picture, notes: Vec::new() }
}
