//! Figure 3: the bandwidth doubles and halves.

use super::{PAPER, chapter, n, scenario};
use crate::view::{bottleneck, curve, median, published};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_experiment::recording::column;
use fullpipe_report::picture::{Axis, Curve, Panel, Picture};

pub(super) const FIGURE: Figure = Figure {
    id: "fig3",
    title: "The bandwidth doubles and halves",
    source: PAPER,
    about: "10 Mbit/s, 20 Mbit/s from 20 s, 10 Mbit/s again from 40 s.",
    published: "three cycles of 1.25 to twice the rate, each of eight round trips of 40 ms; the queue of the halved rate gone \
                after about 2 s (Figure 3). Of BBR v3 there is no such figure.",
    file: "scenarios/figures/fig3.toml",
    text: scenario!("fig3"),
    chapter: chapter!("fig3"),
    revise: None,
    judge,
    in_lab: true,
    short: None,
};

/// Of what was published of BBR v1 that which lies between two times.
fn told_of_v1(cc: &str, told: &[(f64, f64)], from: f64, to: f64) -> Option<Curve> {
    let within: Vec<(f64, f64)> = told.iter().copied().filter(|p| (from..=to).contains(&p.0)).collect();
    (cc == "bbr" && !within.is_empty()).then(|| published("bbr", within))
}

fn judge(runs: &Runs) -> Outcome {
    let mut findings = Vec::new();
    let mut panels = Vec::new();
    for (cc, name) in [("bbr", "BBR v1"), ("bbr3", "BBR v3")] {
        let Some(run) = runs.first(cc) else { continue };
        let flow = &run.flows[0];
        let limit = run.path.goodput_limit_bps.unwrap_or(f64::NAN);
        let found = flow
            .series
            .points(column::BW_BPS, 20.0, 40.0)
            .into_iter()
            .find(|(_, bw)| *bw >= 1.9 * limit)
            .map_or(f64::NAN, |(t, _)| t - 20.0);
        let lowered = flow
            .series
            .points(column::BW_BPS, 40.0, 54.0)
            .into_iter()
            .find(|(_, bw)| *bw <= 1.1 * limit)
            .map_or(f64::NAN, |(t, _)| t - 40.0);
        let bdp = run.path.bdp_bytes.unwrap_or(1) as f64;
        // The end of the first half second from which the queue's median is below 0.3 BDP.
        let drained = (82..108)
            .map(|i| f64::from(i) / 2.0)
            .find(|t| {
                let queue =
                    bottleneck(run).map(|q| q.values(column::QUEUE_BYTES, t - 0.5, *t)).unwrap_or_default();
                median(&queue) <= 0.3 * bdp
            })
            .map_or(f64::NAN, |t| t - 40.0);
        // v1: three cycles of eight round trips, the RTT a little above 40 ms, and the wait for the next probe.
        let (bound, words) = if cc == "bbr" {
            (4.0 * 8.0 * 0.045, "≤ 1.44 s: four cycles of 8 RTT")
        } else {
            (6.5, "≤ 6.5 s: two waits of up to 3 s and a probe")
        };
        findings.push(Finding::new(
            format!("{name} finds twice the rate"),
            if cc == "bbr" { "three cycles of 1.25" } else { "(not published)" },
            format!("95 % of 20 Mbit/s after {} s", n(found)),
            words,
            found <= bound,
        ));
        let (lower_bound, drain_bound, why) = if cc == "bbr" {
            // Above a BDP the phases of 1.25 and 0.75 cancel out: what drains is the pacing margin of 1 %, as far
            // as the filter's error leaves it, and at the latest ProbeRTT, ten seconds after the last.
            (3.0, 10.5, "ten rounds of a filled queue")
        } else {
            (
                12.0,
                13.0,
                "the filter spans two probing cycles, each put off by a ProbeRTT every 5 s, and no loss tells sooner",
            )
        };
        findings.push(Finding::new(
            format!("{name} lowers its estimate when the rate halves"),
            if cc == "bbr" { "about 2 s in the figure" } else { "(not published)" },
            format!("within 10 % of the rate after {} s", n(lowered)),
            format!("≤ {lower_bound} s: {why}"),
            lowered <= lower_bound,
        ));
        findings.push(Finding::new(
            format!("{name} drains the queue that the step made"),
            "drained",
            format!("below 0.3 BDP after {} s", n(drained)),
            format!("≤ {drain_bound} s: by the next ProbeRTT at the latest"),
            drained <= drain_bound,
        ));
        for (title, from, to) in
            [("Inflight as the bandwidth doubles", 19.5, 22.0), ("Inflight as it halves", 39.5, 50.0)]
        {
            // Three times a quarter more are twice as much, but for a fiftieth.
            let cycles = (0..=3).map(|n| (20.0 + 0.32 * f64::from(n), bdp * 1e-3 * 1.25f64.powi(n)));
            let told: Vec<(f64, f64)> = cycles.chain([(42.0, bdp * 1e-3)]).collect();
            let mut curves = vec![curve(flow, column::INFLIGHT_BYTES, 1e-3, from, to)];
            curves.extend(told_of_v1(cc, &told, from, to));
            panels.push(Panel {
                title: format!("{title} ({name})"),
                x: Axis::linear("seconds").from_to(from, to),
                y: Axis::linear("kB"),
                curves,
                marks: vec![],
            });
        }
        for (title, from, to) in
            [("RTT as the bandwidth doubles", 19.5, 22.0), ("RTT as it halves", 39.5, 50.0)]
        {
            let mut curves = vec![curve(flow, column::RTT_MS, 1.0, from, to)];
            curves.extend(told_of_v1(cc, &[(42.0, 40.0)], from, to));
            panels.push(Panel {
                title: format!("{title} ({name})"),
                x: Axis::linear("seconds").from_to(from, to),
                y: Axis::linear("ms"),
                curves,
                marks: vec![],
            });
        }
    }
    let picture = Picture {
        title: "Figure 3: the bandwidth doubles at 20 s and halves at 40 s".into(),
        subtitle: "Up: each probe raises inflight by a quarter and finds it delivered. Down: more is in flight than \
                   fits, until the old maximum leaves the filter."
            .into(),
        panels,
        columns: 2,
        panel_height: 220,
        ..Picture::default()
    };
    Outcome { findings, picture, notes: Vec::new() }
}
