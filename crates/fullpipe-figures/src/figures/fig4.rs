//! Figure 4: the first second of BBR and CUBIC.

use super::{PAPER, VERSIONS, chapter, n, queue_after_probe, scenario};
use crate::view::{INFLIGHT, Quantity, RTT, max, median, published};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_experiment::recording::column;
use fullpipe_report::picture::{Mark, Panel, Picture};

pub(super) const FIGURE: Figure = Figure {
    id: "fig4",
    title: "The first second of BBR and CUBIC",
    source: PAPER,
    about: "CUBIC with the classic slow start that the figure shows; with HyStart (the kernel's default) it \
            leaves slow start before the buffer is full.",
    published: "BBR's queue is gone within the first second, its round-trip time back at 40 ms and a BDP in \
                flight (Figure 4). Of BBR v3 there is no such figure.",
    file: "scenarios/figures/fig4.toml",
    text: scenario!("fig4"),
    chapter: chapter!("fig4"),
    revise: Some(super::fig5::without_hystart),
    judge,
    in_lab: true,
    short: None,
};

fn judge(runs: &Runs) -> Outcome {
    let mut findings = Vec::new();
    let settled = queue_after_probe(runs.source).map_or(48.0, |packets| 40.0 + 1.2 * packets);
    let rtt = |cc: &str, from: f64, to: f64| {
        runs.first(cc).map(|r| r.flows[0].series.values(column::RTT_MS, from, to)).unwrap_or_default()
    };
    for (cc, name) in VERSIONS {
        if runs.first(cc).is_none() {
            continue;
        }
        let (peak, after) = (max(&rtt(cc, 0.0, 1.0)), median(&rtt(cc, 0.9, 1.2)));
        findings.push(Finding::new(
            format!("{name} fills the pipe, then drains the queue of its startup within the first second"),
            "RTT back at 40 ms before 1 s",
            format!("RTT up to {} ms, {} ms after 0.9 s", n(peak), n(after)),
            format!(
                "peak ≥ 60 ms; ≤ {settled:.1} ms after 0.9 s (RTprop and the packets of three send quanta, \
                 1.2 ms each)"
            ),
            peak >= 60.0 && after <= settled,
        ));
    }
    let cubic = median(&rtt("cubic", 0.9, 1.2));
    findings.push(Finding::new(
        "CUBIC keeps the queue it made",
        "the buffer stays filled",
        format!("RTT {} ms after 0.9 s", n(cubic)),
        "≥ 80 ms",
        cubic >= 80.0,
    ));
    // Growth to double a round: how much is delivered by 0.4 s, against each other.
    let delivered = |cc: &str| {
        runs.first(cc)
            .and_then(|r| r.flows[0].series.values(column::DELIVERED_BYTES, 0.0, 0.4).last().copied())
            .unwrap_or(f64::NAN)
    };
    let ratio = delivered("bbr") / delivered("cubic");
    findings.push(Finding::new(
        "both double each round trip at first",
        "the same exponential",
        format!("BBR has delivered {} of what CUBIC has at 0.4 s", n(ratio)),
        "0.7 to 1.4",
        (0.7..=1.4).contains(&ratio),
    ));
    // The published value after a second is also drawn as a labelled line.
    let panel = |title: &str, shown: Quantity, reference: Option<(f64, &str)>| {
        let during = (0.0, 1.2);
        let published = reference.map(|(y, _)| published("bbr", [(1.0, y)]));
        Panel {
            marks: reference
                .iter()
                .map(|(y, label)| Mark::Horizontal { y: *y, label: (*label).into() })
                .collect(),
            ..shown.panel(title, during, shown.curves(runs, during).chain(published))
        }
    };
    let bdp = runs.runs.first().and_then(|(_, r)| r.path.bdp_bytes).unwrap_or(0) as f64 * 1e-3;
    let picture = Picture {
        title: "Figure 4: the first second on 10 Mbit/s, 40 ms".into(),
        subtitle: "All double their rate each round trip until the pipe is full. BBR notices that the \
                   delivery rate stops rising and drains what it queued; CUBIC goes on until the buffer \
                   overflows."
            .into(),
        panels: vec![
            panel("Delivered", Quantity::new(column::DELIVERED_BYTES, "kB", 1e-3), None),
            panel("Inflight", INFLIGHT, Some((bdp, "BDP"))),
            panel("Round-trip time", RTT, Some((40.0, "RTprop"))),
        ],
        ..Picture::default()
    };
    Outcome { findings, picture, notes: Vec::new() }
}
