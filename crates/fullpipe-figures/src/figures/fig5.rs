//! Figure 5: the first eight seconds of BBR and CUBIC.

use super::{PAPER, VERSIONS, chapter, lab_tolerance_packets, n, queue_after_probe, scenario};
use crate::view::{INFLIGHT, RTT, bottleneck, max, median, min, published_line, quantile};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_experiment::Case;
use fullpipe_experiment::recording::column;
use fullpipe_experiment::scenario::Setting;
use fullpipe_report::picture::{Mark, Panel, Picture};

pub(super) const FIGURE: Figure = Figure {
    id: "fig5",
    title: "The first eight seconds of BBR and CUBIC",
    source: PAPER,
    about: "CUBIC with classic slow start, as in fig4. The plot shows eight seconds, the check uses twelve, \
            so that CUBIC completes more than one of its cycles.",
    published: "CUBIC's queue between 70 and 100 % of the buffer, BBR's round-trip time at 40 ms (Figure 5 \
                and its text), here with the buffer of this path. Of BBR v3 there is no such figure.",
    file: "scenarios/figures/fig5.toml",
    text: scenario!("fig5"),
    chapter: chapter!("fig5"),
    revise: Some(without_hystart),
    judge,
    in_lab: true,
    short: None,
};

/// Gives CUBIC the slow start without HyStart.
pub(super) fn without_hystart(mut cases: Vec<Case>) -> Vec<Case> {
    for flow in cases.iter_mut().flat_map(|c| &mut c.scenario.flows).filter(|f| f.cc == "cubic") {
        flow.settings.insert("hystart".into(), Setting::Text("off".into()));
    }
    cases
}

/// Filled share of the buffer during the run of `cc`.
fn buffer_fill(runs: &Runs, cc: &str, from: f64, to: f64) -> Option<Vec<f64>> {
    let run = runs.first(cc)?;
    let buffer = run.path.buffer_bytes? as f64;
    let values = bottleneck(run)?.values(column::QUEUE_BYTES, from, to);
    Some(values.into_iter().map(|v| v / buffer).collect())
}

fn judge(runs: &Runs) -> Outcome {
    let mut findings = vec![full_buffer_finding(&buffer_fill(runs, "cubic", 3.0, 12.0).unwrap_or_default())];
    findings.extend(VERSIONS.iter().filter_map(|version| small_queue_finding(runs, *version)));
    Outcome { findings, picture: picture(runs), notes: Vec::new() }
}

/// Checks CUBIC's queue, in shares of the buffer.
fn full_buffer_finding(cubic: &[f64]) -> Finding {
    Finding::new(
        "CUBIC cycles between about 70 % of the pipe and a full buffer",
        "70 % to 100 %",
        format!(
            "queue from {} % to {} % of the buffer, median {} %",
            n(min(cubic) * 100.0),
            n(max(cubic) * 100.0),
            n(median(cubic) * 100.0)
        ),
        "full at the top (≥ 95 %); never below 10 %; median ≥ 50 %",
        max(cubic) >= 0.95 && min(cubic) >= 0.1 && median(cubic) >= 0.5,
    )
}

/// Checks the queue of one BBR version, if it was run.
fn small_queue_finding(runs: &Runs, (cc, name): (&str, &str)) -> Option<Finding> {
    let bdp = runs.runs.first().and_then(|(_, r)| r.path.bdp_bytes).unwrap_or(1) as f64;
    let spare = lab_tolerance_packets(runs.source) * 1500.0 / bdp;
    // In BDPs: the buffer is two.
    let q: Vec<f64> = buffer_fill(runs, cc, 2.0, 12.0)?.into_iter().map(|v| 2.0 * v).collect();
    // v3's probe ends when the bandwidth has not grown for three rounds. Four or five of them in ten
    // seconds take a fifth to a quarter of the time, so the 90th percentile lies among their own
    // queues.
    let (settled, probing, why) = if cc == "bbr" {
        let left = queue_after_probe(runs.source).map_or(0.2, |packets| packets * 1500.0 / bdp);
        (left, 0.6 + spare, "a probe of 1.25")
    } else {
        (0.2 + spare, 1.0, "a probe holds up to a BDP for half a second, once in two to three seconds")
    };
    Some(Finding::new(
        format!("{name} runs with essentially no queue"),
        "RTT stays near 40 ms",
        format!("median {} BDP, 90th percentile {} BDP", n(median(&q)), n(quantile(&q, 0.9))),
        format!(
            "median ≤ {settled:.2} BDP (what the send quanta of a probe leave), 90th percentile ≤ \
             {probing:.2} ({why})"
        ),
        median(&q) <= settled && quantile(&q, 0.9) <= probing,
    ))
}

fn picture(runs: &Runs) -> Picture {
    let during = (0.0, 8.0);
    let full_ms =
        runs.runs.first().and_then(|(_, r)| Some(r.path.buffer_bytes? as f64 * 8e3 / r.path.rate_bps?));
    let level = |cc: &str, y: f64| published_line(cc, [(1.0, y), (8.0, y)]);
    let mut reference = vec![level("bbr", 40.0)];
    reference.extend(
        full_ms.into_iter().flat_map(|full| [0.7, 1.0].map(|part| level("cubic", 40.0 + part * full))),
    );
    let rtt = Panel {
        marks: vec![Mark::Horizontal { y: 40.0, label: "RTprop".into() }],
        ..RTT.panel("Round-trip time", during, reference.into_iter().chain(RTT.curves(runs, during)))
    };
    let inflight = INFLIGHT.panel("Inflight", during, INFLIGHT.curves(runs, during));
    Picture {
        title: "Figure 5: the first eight seconds on 10 Mbit/s, 40 ms".into(),
        subtitle: "CUBIC's losses cut its window, but the queue never empties: every packet waits. BBR \
                   holds inflight near the BDP and the round-trip time near that of the empty path."
            .into(),
        panels: vec![rtt, inflight],
        ..Picture::default()
    }
}
