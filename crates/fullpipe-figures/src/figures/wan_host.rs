//! Operators' measurements: hosts switched from CUBIC to BBR.

use super::{chapter, n, scenario};
use crate::view::{MBIT, dotted};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_report::picture::{Axis, Panel, Picture};

pub(super) const FIGURE: Figure = Figure {
    id: "wan-host",
    title: "iperf between two clouds, before and after",
    source: "operators' measurements",
    about: "Three paths with light random loss; none of the published ones is described beyond its figures.",
    file: "scenarios/figures/wan-host.toml",
    text: scenario!("wan-host"),
    chapter: chapter!("wan-host"),
    revise: None,
    judge,
    in_lab: true,
    short: None,
};

fn judge(runs: &Runs) -> Outcome {
    let goodputs = |cc: &str| runs.of(cc).map(|(_, r)| r.summary.goodput_bps).collect::<Vec<f64>>();
    let (cubic, bbr, v3) = (goodputs("cubic"), goodputs("bbr"), goodputs("bbr3"));
    let published = [
        ("between two clouds", "7.15 → 35.0 Mbit/s: 4.9×", 2.5),
        ("hosts on 1 Gbit/s", "250 → 800 Mbit/s: 3.2×", 1.8),
        ("a VPN", "30–40 → about 100 Mbit/s: 2.9×", 1.8),
    ];
    let findings = published
        .iter()
        .zip(cubic.iter().zip(&bbr))
        .map(|((name, published, least), (before, after))| {
            Finding::new(
                format!("{name}: BBR is several times faster"),
                *published,
                format!("{} → {} Mbit/s: {}×", n(before * MBIT), n(after * MBIT), n(after / before)),
                format!("≥ {least}×"),
                after / before >= *least,
            )
        })
        .collect();
    let numbered =
        |values: &[f64]| values.iter().enumerate().map(|(i, v)| ((i + 1) as f64, v * MBIT)).collect();
    let picture = Picture {
        title: "Before and after, on three paths".into(),
        subtitle: "1: between two clouds (40 Mbit/s, 180 ms). 2: hosts on 1 Gbit/s (30 ms). 3: a VPN (105 Mbit/s, 60 ms)."
            .into(),
        panels: vec![Panel {
            title: String::new(),
            x: Axis::linear("path").from_to(0.5, 3.5),
            y: Axis::log("Mbit/s"),
            curves: vec![dotted("cubic", numbered(&cubic)), dotted("bbr", numbered(&bbr)), dotted("bbr3", numbered(&v3))],
            marks: vec![],
        }],
        panel_height: 360,
        ..Picture::default()
    };
    Outcome { findings, picture, notes: Vec::new() }
}
