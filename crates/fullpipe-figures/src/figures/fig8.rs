//! Figure 8: throughput against random loss.

use super::{PAPER, n, scenario};
use crate::view::{MBIT, dotted};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_report::picture::{Axis, Curve, Panel, Picture};

pub(super) const FIGURE: Figure = Figure {
    id: "fig8",
    title: "Throughput against random loss",
    source: PAPER,
    about: "60-second flows on 100 Mbit/s, 100 ms.",
    file: "scenarios/figures/fig8.toml",
    text: scenario!("fig8"),
    expand: None,
    judge,
    in_lab: true,
};

/// Loss rate and goodput in bit/s of each run of `cc`.
fn curve_of(runs: &Runs, cc: &str) -> Vec<(f64, f64)> {
    runs.of(cc)
        .filter_map(|(case, run)| {
            let (_, loss) = case.varied.iter().find(|(k, _)| k == "path.loss")?;
            let loss: fullpipe_units::Fraction = loss.parse().ok()?;
            Some((loss.as_f64(), run.summary.goodput_bps))
        })
        .collect()
}

fn judge(runs: &Runs) -> Outcome {
    let limit = runs.runs.first().and_then(|(_, r)| r.path.goodput_limit_bps).unwrap_or(f64::NAN);
    let at =
        |points: &[(f64, f64)], p: f64| points.iter().find(|(x, _)| *x == p).map_or(f64::NAN, |(_, y)| *y);
    let (bbr, cubic, v3) = (curve_of(runs, "bbr"), curve_of(runs, "cubic"), curve_of(runs, "bbr3"));
    // What can arrive, less the part that BBR gives up by design: 2 % of the time in ProbeRTT and the startup.
    let shortfall = |points: &[(f64, f64)], to: f64| {
        points
            .iter()
            .filter(|(p, _)| *p <= to)
            .map(|(p, y)| 1.0 - y / (limit * (1.0 - p)))
            .fold(f64::NAN, f64::max)
    };
    let lossless = at(&cubic, 0.0);
    let mut findings = vec![
        Finding::new(
            "BBR carries rate × (1 − loss) up to 5 % loss",
            "the bandwidth less the loss rate, up to 5 %",
            format!("at most {} % below", n(shortfall(&bbr, 0.05) * 100.0)),
            "within 5 %",
            shortfall(&bbr, 0.05) <= 0.05,
        ),
        Finding::new(
            "and comes close up to 15 %",
            "close up to 15 %",
            format!("at most {} % below", n(shortfall(&bbr, 0.15) * 100.0)),
            "within 15 %",
            shortfall(&bbr, 0.15) <= 0.15,
        ),
        Finding::new(
            "then falls, as its maximum filter no longer reaches above the loss",
            "falls steeply after 20 %",
            format!("{} Mbit/s at 30 %, {} at 50 %", n(at(&bbr, 0.3) * MBIT), n(at(&bbr, 0.5) * MBIT)),
            "at 50 % less than a quarter of the rate",
            at(&bbr, 0.5) < 0.25 * limit,
        ),
        Finding::new(
            "CUBIC falls tenfold at 0.1 %",
            "tenfold at 0.1 %",
            format!("{} of {} Mbit/s", n(at(&cubic, 0.001) * MBIT), n(lossless * MBIT)),
            "≤ 1/8 of its lossless rate",
            at(&cubic, 0.001) <= lossless / 8.0,
        ),
        Finding::new(
            "and stalls at 1 %",
            "stalls at 1 %",
            format!("{} Mbit/s", n(at(&cubic, 0.01) * MBIT)),
            "≤ 3 % of its lossless rate",
            at(&cubic, 0.01) <= 0.03 * lossless,
        ),
    ];
    if !v3.is_empty() {
        findings.push(Finding::new(
            "BBR v3 tolerates loss to its threshold of 2 % by design, and gives way above it",
            "(draft: LossThresh 2 %)",
            format!("{} Mbit/s at 1 %, {} at 5 %", n(at(&v3, 0.01) * MBIT), n(at(&v3, 0.05) * MBIT)),
            "at 1 % at least half the rate; at 5 % less than at 1 %",
            at(&v3, 0.01) >= 0.5 * limit && at(&v3, 0.05) < at(&v3, 0.01),
        ));
    }
    let percent = |points: &[(f64, f64)]| {
        points.iter().filter(|(p, _)| *p > 0.0).map(|(p, y)| (p * 100.0, y * MBIT)).collect::<Vec<_>>()
    };
    let ideal = Curve {
        dash: 1,
        ..Curve::line(
            "rate × (1 − loss)",
            [120, 120, 120],
            percent(&bbr).iter().map(|(p, _)| (*p, limit * MBIT * (1.0 - p / 100.0))),
        )
    };
    let picture = Picture {
        title: "Figure 8: throughput against random loss, 100 Mbit/s, 100 ms".into(),
        subtitle: "CUBIC takes every loss for congestion. BBR v1 asks how much is delivered; BBR v3 also asks whether \
                   more than 2 % is lost."
            .into(),
        panels: vec![Panel {
            title: String::new(),
            x: Axis::log("loss rate, %").from_to(0.001, 50.0),
            y: Axis::linear("Mbit/s").from_to(0.0, 100.0),
            curves: vec![ideal, dotted("bbr", percent(&bbr)), dotted("cubic", percent(&cubic)), dotted("bbr3", percent(&v3))],
            marks: vec![],
        }],
        panel_height: 460,
        ..Picture::default()
    };
    Outcome { findings, picture, notes: Vec::new() }
}
