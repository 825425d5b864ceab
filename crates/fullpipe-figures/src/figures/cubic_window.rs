//! RFC 9438, tables 1 and 2: CUBIC's mean window by loss rate and round-trip time.

use super::{chapter, listed, n, scenario};
use crate::view::{PUBLISHED, max_deviation_percent, mean};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_experiment::recording::column;
use fullpipe_report::picture::{Axis, Curve, Panel, Picture, Stroke};

pub(super) const FIGURE: Figure = Figure {
    id: "cubic-window",
    title: "CUBIC's mean window by loss rate",
    source: "RFC 9438 (Xu, Ha, Rhee, Goel, Eggert: CUBIC for Fast and Long-Distance Networks), 2023, §5.1",
    about: "One flow on 10 Gbit/s that loses every N-th packet, as the RFC assumes. Its tables are computed, \
            not measured.",
    published: "mean windows of CUBIC with C = 0.4 at 100 and 10 ms (RFC 9438, tables 1 and 2).",
    file: "scenarios/figures/cubic-window.toml",
    text: scenario!("cubic-window"),
    chapter: chapter!("cubic-window"),
    revise: None,
    judge,
    in_lab: false,
    short: None,
};

/// Loss rates in percent, in the order of the scenario.
const LOSSES: [f64; 5] = [1.0, 0.1, 0.01, 0.001, 0.0001];
/// Mean window in segments at 100 ms (table 1) and at 10 ms (table 2), C = 0.4.
const TABLES: [[f64; 5]; 2] = [[12.0, 38.0, 187.0, 1054.0, 5926.0], [12.0, 38.0, 120.0, 379.0, 1200.0]];
/// Round-trip times: scenario's value and colour.
const RTTS: [(&str, [u8; 3]); 2] = [("100 ms", [213, 94, 0]), ("10 ms", [0, 114, 178])];
/// Payload of a segment in bytes.
const SEGMENT: f64 = 1448.0;
/// The `warmup` of the scenario.
const WARMUP_S: f64 = 60.0;

/// Mean congestion window in segments.
fn windows(runs: &Runs) -> [[f64; 5]; 2] {
    RTTS.map(|(name, _)| {
        let rtt = name.replace(' ', "");
        let mut measured = [f64::NAN; LOSSES.len()];
        for (window, (_, run)) in measured.iter_mut().zip(runs.with_value("path.rtt", &rtt)) {
            *window =
                mean(&run.flows[0].series.values(column::CWND_BYTES, WARMUP_S, f64::INFINITY)) / SEGMENT;
        }
        measured
    })
}

fn judge(runs: &Runs) -> Outcome {
    let windows = windows(runs);
    let table = |i: usize, claim: &str| {
        let off = max_deviation_percent(&windows[i], &TABLES[i]);
        Finding::new(
            claim,
            format!("{} segments", TABLES[i].map(|w| w.to_string()).join(", ")),
            format!("{}: at most {} % off", listed(&windows[i]), n(off)),
            "each within 25 %",
            off <= 25.0,
        )
    };
    // A hundredth of the loss rate: p^-½ makes 10, p^-¾ makes 31.6.
    let growth = windows.map(|w| w[4] / w[2]);
    let findings = vec![
        table(0, "at 100 ms the window is that of table 1"),
        table(1, "at 10 ms the window is that of table 2"),
        Finding::new(
            "from 0.01 % to 0.0001 % it grows with p^-¾ at 100 ms, and as Reno's with p^-½ at 10 ms",
            "5926 / 187 = 31.7 and 1200 / 120 = 10",
            format!("{} and {}", n(growth[0]), n(growth[1])),
            "≥ 22 and ≤ 14 (halfway between 10 and 31.6, 18, ± 25 %)",
            growth[0] >= 22.0 && growth[1] <= 14.0,
        ),
    ];
    let curves = RTTS.iter().enumerate().flat_map(|(i, (name, colour))| {
        let line = |label: &str, stroke, of: &[f64; 5]| Curve {
            stroke,
            ..Curve::line(label, *colour, LOSSES.iter().zip(of).map(|(p, w)| (*p, *w)))
        };
        [line(name, Stroke::DottedLine, &windows[i]), line(PUBLISHED, Stroke::Hollow, &TABLES[i])]
    });
    let ticks = LOSSES.map(|p| (p, p.to_string())).to_vec();
    let picture = Picture {
        title: "RFC 9438: CUBIC's mean window by loss rate".into(),
        subtitle:
            "At 10 ms CUBIC grows as Reno does. At 100 ms and little loss its cubic function is faster."
                .into(),
        panels: vec![Panel {
            title: String::new(),
            x: Axis { ticks, ..Axis::log("loss rate, %").with_range(5e-5, 2.0) },
            y: Axis::log("segments").with_range(5.0, 20_000.0),
            curves: curves.collect(),
            marks: vec![],
        }],
        panel_height: 420,
        ..Picture::default()
    };
    Outcome { findings, picture, notes: Vec::new() }
}
