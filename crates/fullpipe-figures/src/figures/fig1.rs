//! Figure 1: delivery rate and round-trip time against inflight.

use super::{PAPER, chapter, n, scenario};
use crate::view::{MBIT, dotted, fit, published_line};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_report::picture::{Axis, Curve, Mark, Panel, Picture};

pub(super) const FIGURE: Figure = Figure {
    id: "fig1",
    title: "Delivery rate and round-trip time against inflight",
    source: PAPER,
    about: "A sender with a constant window instead of a controller; a run for each point.",
    published: "the paper's lines RTprop, BtlBw and their slopes 1 / BtlBw and 1 / RTprop (Figure 1), with the values of this path.",
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
    let facts = runs.runs.first().map(|(_, r)| r.path.clone()).unwrap_or_default();
    let mtu = runs.runs.first().map_or(1500.0, |(c, _)| f64::from(c.scenario.mtu));
    let limit = facts.goodput_limit_bps.unwrap_or(f64::NAN) * MBIT;
    let base = facts.base_rtt_ms.unwrap_or(f64::NAN);
    let bdp = facts.bdp_bytes.unwrap_or(0) as f64 / mtu;
    let full = bdp + facts.buffer_bytes.unwrap_or(0) as f64 / mtu;

    // Below the first kink the rate is proportional to the window, above it the RTT is: the kink is
    // where the two lines meet the flat parts.
    let rising: Vec<(f64, f64)> =
        points.iter().filter(|p| p.window < 0.9 * bdp).map(|p| (p.window, p.goodput)).collect();
    let (rate_slope, rate_start, rate_r2) = fit(&rising);
    let top = points.iter().map(|p| p.goodput).fold(f64::NAN, f64::max);
    let rate_kink = (top - rate_start) / rate_slope;
    let queueing: Vec<(f64, f64)> = points
        .iter()
        .filter(|p| p.window > 1.1 * bdp && p.window < 0.95 * full)
        .map(|p| (p.window, p.rtt))
        .collect();
    let (rtt_slope, rtt_start, rtt_r2) = fit(&queueing);
    let rtt_kink = (base - rtt_start) / rtt_slope;
    let last_clean = points.iter().filter(|p| p.loss == 0.0).map(|p| p.window).fold(f64::NAN, f64::max);
    let first_lossy = points.iter().filter(|p| p.loss > 0.0).map(|p| p.window).fold(f64::NAN, f64::min);
    let loss_kink = (last_clean + first_lossy) / 2.0;
    let flat = points.iter().filter(|p| p.window < 0.9 * bdp).map(|p| p.rtt / base).fold(f64::NAN, f64::max);
    let within = |x: f64, model: f64| (x / model - 1.0).abs() <= 0.05;

    let findings = vec![
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
    ];
    let measured = |points| Curve { label: "constant window".into(), ..dotted("fixed", points) };
    let marks = || {
        vec![
            Mark::Upright { x: bdp, label: "BDP".into() },
            Mark::Upright { x: full, label: "BDP + buffer".into() },
        ]
    };
    let x = || Axis::linear("inflight, packets").from_to(0.0, 800.0);
    let full_rtt = base * full / bdp;
    let rtts = published_line("fixed", [(0.0, base), (bdp, base), (full, full_rtt), (800.0, full_rtt)]);
    let rates = published_line("fixed", [(0.0, 0.0), (bdp, limit), (800.0, limit)]);
    let picture = Picture {
        title: "Figure 1: round-trip time and delivery rate against inflight".into(),
        subtitle:
            "Left of the first kink the application limits, between the kinks the bandwidth, right of the \
                   second the buffer. Loss-based control works at the right kink, BBR at the left one."
                .into(),
        panels: vec![
            Panel {
                title: "Round-trip time".into(),
                x: x(),
                y: Axis::linear("ms"),
                curves: vec![rtts, measured(points.iter().map(|p| (p.window, p.rtt)).collect())],
                marks: marks(),
            },
            Panel {
                title: "Delivery rate".into(),
                x: x(),
                y: Axis::linear("Mbit/s"),
                curves: vec![rates, measured(points.iter().map(|p| (p.window, p.goodput)).collect())],
                marks: marks(),
            },
        ],
        ..Picture::default()
    };
    Outcome { findings, picture, notes: Vec::new() }
}
