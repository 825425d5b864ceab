//! Figure 1: delivery rate and round-trip time against inflight.

use super::{PAPER, chapter, n, scenario};
use crate::view::{MBIT, dotted, fit, published_line};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_report::picture::{Axis, Curve, Mark, Panel, Picture};

pub(super) const FIGURE: Figure = Figure {
    id: "fig1",
    title: "Delivery rate and round-trip time against inflight",
    source: PAPER,
    about: "A sender with a constant window instead of a controller; one run per point.",
    published: "the paper's lines RTprop, BtlBw and their slopes 1 / BtlBw and 1 / RTprop (Figure 1), with \
                the values of this path.",
    file: "scenarios/figures/fig1.toml",
    text: scenario!("fig1"),
    chapter: chapter!("fig1"),
    revise: None,
    judge,
    in_lab: false,
    short: None,
};

/// Window in packets, goodput in Mbit/s, median RTT in ms, share lost.
struct Point {
    window: f64,
    goodput: f64,
    rtt: f64,
    loss: f64,
}

/// The path model of the paper.
struct Model {
    /// BtlBw in Mbit/s.
    limit: f64,
    /// RTprop in ms.
    base: f64,
    /// BDP in packets, and with the buffer.
    bdp: f64,
    full: f64,
}

impl Model {
    fn new(runs: &Runs) -> Self {
        let facts = runs.runs.first().map(|(_, r)| r.path.clone()).unwrap_or_default();
        let mtu = runs.runs.first().map_or(1500.0, |(c, _)| f64::from(c.scenario.mtu));
        let bdp = facts.bdp_bytes.unwrap_or(0) as f64 / mtu;
        Model {
            limit: facts.goodput_limit_bps.unwrap_or(f64::NAN) * MBIT,
            base: facts.base_rtt_ms.unwrap_or(f64::NAN),
            bdp,
            full: bdp + facts.buffer_bytes.unwrap_or(0) as f64 / mtu,
        }
    }
}

/// Lines fitted to the points, and their intersections (kinks) in packets.
struct Lines {
    /// R² of the rate below the BDP and of the RTT above it.
    rate_r2: f64,
    rtt_r2: f64,
    /// The highest rate.
    top: f64,
    /// The highest RTT below the BDP, relative to RTprop.
    flat: f64,
    rate_kink: f64,
    rtt_kink: f64,
    /// The largest window without loss and the smallest with it.
    last_clean: f64,
    first_lossy: f64,
}

impl Lines {
    /// Below the kink the rate grows with the window, above it the RTT. The kink is where these
    /// lines meet the flat parts.
    fn fit(points: &[Point], model: &Model) -> Self {
        let Model { base, bdp, full, .. } = *model;
        let rising = points.iter().filter(|p| p.window < 0.9 * bdp);
        let (rate_slope, rate_start, rate_r2) =
            fit(&rising.clone().map(|p| (p.window, p.goodput)).collect::<Vec<_>>());
        let queueing = points.iter().filter(|p| p.window > 1.1 * bdp && p.window < 0.95 * full);
        let (rtt_slope, rtt_start, rtt_r2) = fit(&queueing.map(|p| (p.window, p.rtt)).collect::<Vec<_>>());
        let top = points.iter().map(|p| p.goodput).fold(f64::NAN, f64::max);
        let windows = |lossy: bool| points.iter().filter(move |p| (p.loss > 0.0) == lossy).map(|p| p.window);
        Lines {
            rate_r2,
            rtt_r2,
            top,
            flat: rising.map(|p| p.rtt / base).fold(f64::NAN, f64::max),
            rate_kink: (top - rate_start) / rate_slope,
            rtt_kink: (base - rtt_start) / rtt_slope,
            last_clean: windows(false).fold(f64::NAN, f64::max),
            first_lossy: windows(true).fold(f64::NAN, f64::min),
        }
    }

    /// The window at which losses begin.
    fn loss_kink(&self) -> f64 {
        (self.last_clean + self.first_lossy) / 2.0
    }
}

fn findings(model: &Model, lines: &Lines) -> Vec<Finding> {
    let Model { limit, base, bdp, full } = *model;
    let Lines { rate_r2, rtt_r2, top, flat, rate_kink, rtt_kink, last_clean, first_lossy } = *lines;
    let loss_kink = lines.loss_kink();
    let within = |x: f64, model: f64| (x / model - 1.0).abs() <= 0.05;
    vec![
        Finding::new(
            "the delivery rate rises linearly to BtlBw",
            "linear, then flat",
            format!("R² {rate_r2:.4} below, {} of {} Mbit/s above", n(top), n(limit)),
            "R² ≥ 0.99; the top within 2 %",
            rate_r2 >= 0.99 && (top / limit - 1.0).abs() <= 0.02,
        ),
        Finding::new(
            "its kink lies at the BDP",
            "BDP",
            format!("{} packets, BDP {}", n(rate_kink), n(bdp)),
            "within 5 %",
            within(rate_kink, bdp),
        ),
        Finding::new(
            "the round-trip time is flat below the BDP, then rises linearly from it",
            "RTprop, then linear",
            format!(
                "at most {:.3} of {} ms below; R² {rtt_r2:.4}, from {} packets",
                flat,
                n(base),
                n(rtt_kink)
            ),
            "flat within 5 %; R² ≥ 0.99; kink within 5 %",
            flat <= 1.05 && rtt_r2 >= 0.99 && within(rtt_kink, bdp),
        ),
        Finding::new(
            "packets are lost beyond BDP + buffer",
            "BDP + BtlneckBufSize",
            format!("{} packets, BDP + buffer {}", n(loss_kink), n(full)),
            "within 5 %",
            within(loss_kink, full) && first_lossy > last_clean,
        ),
    ]
}

fn picture(points: &[Point], model: &Model) -> Picture {
    let Model { limit, base, bdp, full } = *model;
    let panel = |title: &str, unit: &str, model: &[(f64, f64)], measured: fn(&Point) -> f64| {
        let points = points.iter().map(|p| (p.window, measured(p))).collect();
        let measured = Curve { label: "constant window".into(), ..dotted("fixed", points) };
        Panel {
            title: title.into(),
            x: Axis::linear("inflight, packets").with_range(0.0, 800.0),
            y: Axis::linear(unit),
            curves: vec![published_line("fixed", model.iter().copied()), measured],
            marks: vec![
                Mark::Vertical { x: bdp, label: "BDP".into() },
                Mark::Vertical { x: full, label: "BDP + buffer".into() },
            ],
        }
    };
    let full_rtt = base * full / bdp;
    let rtts = [(0.0, base), (bdp, base), (full, full_rtt), (800.0, full_rtt)];
    let rates = [(0.0, 0.0), (bdp, limit), (800.0, limit)];
    Picture {
        title: "Figure 1: round-trip time and delivery rate against inflight".into(),
        subtitle: "Left of the first kink the application limits, between the kinks the bandwidth, right of \
                   the second the buffer. Loss-based control works at the right kink, BBR at the left one."
            .into(),
        panels: vec![
            panel("Round-trip time", "ms", &rtts, |p| p.rtt),
            panel("Delivery rate", "Mbit/s", &rates, |p| p.goodput),
        ],
        ..Picture::default()
    }
}

fn judge(runs: &Runs) -> Outcome {
    let points: Vec<Point> = runs
        .runs
        .iter()
        .map(|(case, run)| {
            let window = case.value("flow.settings.window").and_then(|v| v.parse().ok());
            let s = &run.summary;
            Point {
                window: window.unwrap_or(f64::NAN),
                goodput: s.goodput_bps * MBIT,
                rtt: s.rtt_ms.p50.unwrap_or(f64::NAN),
                loss: s.packets_lost as f64 / (s.packets_sent.max(1)) as f64,
            }
        })
        .collect();
    let model = Model::new(runs);
    let findings = findings(&model, &Lines::fit(&points, &model));
    Outcome { findings, picture: picture(&points, &model), notes: Vec::new() }
}
