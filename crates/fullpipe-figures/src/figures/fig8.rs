//! Figure 8: throughput against random loss.

use super::{PAPER, chapter, n, scenario};
use crate::view::{MBIT, dotted, published, published_line};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_experiment::Case;
use fullpipe_experiment::recording::{Recording, column};
use fullpipe_report::picture::{Axis, Curve, Panel, Picture};
use fullpipe_units::{Fraction, Span};

pub(super) const FIGURE: Figure = Figure {
    id: "fig8",
    title: "Throughput against random loss",
    source: PAPER,
    about: "60-second flows on 100 Mbit/s, 100 ms.",
    published: "BBR at rate × (1 − loss) to 5 % and near it to 15 %; CUBIC at a tenth at 0.1 % and stalled \
                at 1 % (Figure 8 and its text). Of BBR v3 there is no such figure.",
    file: "scenarios/figures/fig8.toml",
    text: scenario!("fig8"),
    chapter: chapter!("fig8"),
    revise: None,
    judge,
    in_lab: true,
    short: Some(shorter),
};

/// The loss rates of the claims, in shorter runs without the start-up phase.
fn shorter(mut cases: Vec<Case>) -> Vec<Case> {
    cases.retain(|case| {
        let loss = case.value("path.loss");
        match case.scenario.cc().as_str() {
            "cubic" => matches!(loss, Some("0%" | "0.1%" | "1%")),
            "bbr" => matches!(loss, Some("0%" | "1%" | "2%" | "5%" | "15%" | "50%")),
            _ => matches!(loss, Some("1%" | "5%")),
        }
    });
    for case in &mut cases {
        case.scenario.duration = Span::from_secs(20);
        case.scenario.warmup = Span::from_secs(4);
    }
    cases
}

/// Loss rate and goodput in bit/s of each run of `cc`.
fn curve_of(runs: &Runs, cc: &str) -> Vec<(f64, f64)> {
    runs.for_controller(cc)
        .filter_map(|(case, run)| {
            let loss: Fraction = case.value("path.loss")?.parse().ok()?;
            Some((loss.as_f64(), run.summary.goodput_bps))
        })
        .collect()
}

/// Like [`curve_of`], over the time in ProbeBW.
fn steady_of(runs: &Runs, cc: &str) -> Vec<(f64, f64)> {
    let rate = |run: &Recording| {
        let flow = &run.flows[0];
        let (mut bytes, mut seconds) = (0.0, 0.0);
        for (from, to) in flow.state_intervals(run.summary.duration_s, |s| s.starts_with("ProbeBW")) {
            let delivered = flow.series.points(column::DELIVERED_BYTES, from, to);
            if let (Some(first), Some(last)) = (delivered.first(), delivered.last()) {
                bytes += last.1 - first.1;
                seconds += last.0 - first.0;
            }
        }
        bytes * 8.0 / seconds
    };
    let losses = curve_of(runs, cc).into_iter().map(|(p, _)| p);
    losses.zip(runs.for_controller(cc)).map(|(p, (_, run))| (p, rate(run))).collect()
}

/// Goodput in bit/s by loss rate.
struct GoodputByLoss {
    bbr: Vec<(f64, f64)>,
    /// BBR in ProbeBW only.
    steady: Vec<(f64, f64)>,
    cubic: Vec<(f64, f64)>,
    v3: Vec<(f64, f64)>,
    /// Goodput limit without loss.
    limit: f64,
}

/// The value at the loss rate `p`; NaN without such a run.
fn at(points: &[(f64, f64)], p: f64) -> f64 {
    points.iter().find(|(x, _)| *x == p).map_or(f64::NAN, |(_, y)| *y)
}

impl GoodputByLoss {
    fn new(runs: &Runs) -> Self {
        GoodputByLoss {
            bbr: curve_of(runs, "bbr"),
            steady: steady_of(runs, "bbr"),
            cubic: curve_of(runs, "cubic"),
            v3: curve_of(runs, "bbr3"),
            limit: runs.runs.first().and_then(|(_, r)| r.path.goodput_limit_bps).unwrap_or(f64::NAN),
        }
    }

    /// Largest shortfall from rate × (1 − loss) up to the loss rate `to`.
    fn shortfall(&self, points: &[(f64, f64)], to: f64) -> f64 {
        let within = points.iter().filter(|(p, _)| *p <= to);
        within.map(|(p, y)| 1.0 - y / (self.limit * (1.0 - p))).fold(f64::NAN, f64::max)
    }

    /// Goodput of BBR at these loss rates, as text.
    fn listed(&self, losses: &[f64]) -> String {
        let known = losses.iter().map(|p| (p, at(&self.bbr, *p))).filter(|(_, y)| y.is_finite());
        known
            .map(|(p, y)| format!("{} Mbit/s at {} %", n(y * MBIT), p * 100.0))
            .collect::<Vec<_>>()
            .join(", ")
    }

    fn bbr_findings(&self) -> Vec<Finding> {
        let (bbr, limit) = (&self.bbr, self.limit);
        let [steady_2, steady_5] = [0.02, 0.05].map(|to| self.shortfall(&self.steady, to));
        let [whole_2, whole_5] = [0.02, 0.05].map(|to| self.shortfall(bbr, to));
        vec![
            Finding::new(
                "BBR carries rate × (1 − loss)",
                "the bandwidth less the loss rate, up to 5 %",
                format!(
                    "in ProbeBW at most {} % below to 2 % loss, {} % to 5 %",
                    n(steady_2 * 100.0),
                    n(steady_5 * 100.0)
                ),
                "≤ 5 % below to 2 % loss, ≤ 7.5 % to 5 % (see the note)",
                steady_2 <= 0.05 && steady_5 <= 0.075,
            ),
            Finding::new(
                "startup and ProbeRTT included",
                "the same",
                format!(
                    "over the whole run at most {} % below to 2 % loss, {} % to 5 %",
                    n(whole_2 * 100.0),
                    n(whole_5 * 100.0)
                ),
                "≤ 10 %, ≤ 15 %",
                whole_2 <= 0.10 && whole_5 <= 0.15,
            ),
            Finding::new(
                "and comes close up to 15 %",
                "close up to 15 %",
                self.listed(&[0.1, 0.15]),
                "more than half of the rate",
                at(bbr, 0.15) > 0.5 * limit,
            ),
            Finding::new(
                "then falls, as its maximum filter no longer reaches above the loss",
                "falls steeply after 20 %",
                self.listed(&[0.3, 0.5]),
                "at 50 % less than a quarter of the rate",
                at(bbr, 0.5) < 0.25 * limit,
            ),
        ]
    }

    fn cubic_findings(&self) -> Vec<Finding> {
        let cubic = &self.cubic;
        let lossless = at(cubic, 0.0);
        vec![
            Finding::new(
                "CUBIC falls tenfold at 0.1 %",
                "tenfold at 0.1 %",
                format!("{} of {} Mbit/s", n(at(cubic, 0.001) * MBIT), n(lossless * MBIT)),
                "≤ 1/8 of its lossless rate",
                at(cubic, 0.001) <= lossless / 8.0,
            ),
            Finding::new(
                "and stalls at 1 %",
                "stalls at 1 %",
                format!("{} Mbit/s", n(at(cubic, 0.01) * MBIT)),
                "≤ 3 % of its lossless rate",
                at(cubic, 0.01) <= 0.03 * lossless,
            ),
        ]
    }

    /// Checks BBR v3, if it was run.
    fn v3_finding(&self) -> Option<Finding> {
        let v3 = &self.v3;
        (!v3.is_empty()).then(|| {
            Finding::new(
                "BBR v3 tolerates loss to its threshold of 2 % by design, and gives way above it",
                "(draft: LossThresh 2 %)",
                format!("{} Mbit/s at 1 %, {} at 5 %", n(at(v3, 0.01) * MBIT), n(at(v3, 0.05) * MBIT)),
                "at 1 % at least half the rate; at 5 % less than at 1 %",
                at(v3, 0.01) >= 0.5 * self.limit && at(v3, 0.05) < at(v3, 0.01),
            )
        })
    }

    fn picture(&self) -> Picture {
        let percent = |points: &[(f64, f64)]| {
            points.iter().filter(|(p, _)| *p > 0.0).map(|(p, y)| (p * 100.0, y * MBIT)).collect::<Vec<_>>()
        };
        let limit = self.limit;
        let ideal = Curve {
            dash: 1,
            ..Curve::line(
                "rate × (1 − loss)",
                [120, 120, 120],
                percent(&self.bbr).iter().map(|(p, _)| (*p, limit * MBIT * (1.0 - p / 100.0))),
            )
        };
        Picture {
            title: "Figure 8: throughput against random loss, 100 Mbit/s, 100 ms".into(),
            subtitle: "CUBIC takes every loss for congestion. BBR v1 asks how much is delivered; BBR v3 \
                       also asks whether more than 2 % is lost."
                .into(),
            panels: vec![Panel {
                title: String::new(),
                x: Axis::log("loss rate, %").with_range(0.001, 50.0),
                y: Axis::linear("Mbit/s").with_range(0.0, 100.0),
                curves: vec![
                    published_line("bbr", ideal.points.iter().copied().filter(|p| p.0 <= 15.0)),
                    ideal,
                    dotted("bbr", percent(&self.bbr)),
                    dotted("cubic", percent(&self.cubic)),
                    dotted("bbr3", percent(&self.v3)),
                    published("cubic", [(0.1, limit * MBIT / 10.0), (1.0, 0.0)]),
                ],
                marks: vec![],
            }],
            panel_height: 460,
            ..Picture::default()
        }
    }
}

const NOTE: &str = "Why not exactly rate × (1 − loss): BBR's bandwidth estimate is what is delivered, and \
                    loss p leaves rate × (1 − p) of it. Six of the eight phases pace at 99 % of that and \
                    lose p of it again; only the probe and the phase after it fill the link. That makes 4.5 \
                    % at p = 5 %, and each entry into recovery costs a round of packet conservation. Over \
                    the whole run ProbeRTT takes another 3 % (0.3 s in 10 s) and startup 2 %.";

fn judge(runs: &Runs) -> Outcome {
    let goodputs = GoodputByLoss::new(runs);
    let mut findings = goodputs.bbr_findings();
    findings.extend(goodputs.cubic_findings());
    findings.extend(goodputs.v3_finding());
    Outcome { findings, picture: goodputs.picture(), notes: vec![NOTE.to_owned()] }
}
