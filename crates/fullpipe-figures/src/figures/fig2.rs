//! Figure 2: gain cycling in steady state.

use super::{PAPER, PROBE_ADDS, chapter, left_by_a_probe, n, scenario, spare_packets};
use crate::view::{MBIT, bottleneck, curve, most, published_line};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_experiment::recording::{Source, column};
use fullpipe_report::colour_of;
use fullpipe_report::picture::{Axis, Curve, Mark, Panel, Picture};

pub(super) const FIGURE: Figure = Figure {
    id: "fig2",
    title: "Gain cycling of BBR in steady state",
    source: PAPER,
    about: "700 ms of a flow that has been running for some seconds. BBR v3 probes every two to three seconds \
            instead of every eight round trips: its panel shows one probe.",
    published: "link of 10 Mbit/s and 40 ms, gains of 1.25, 0.75 and 1 (Figure 2 and the text on gain cycling). Of BBR v3 there is \
                no such figure.",
    file: "scenarios/figures/fig2.toml",
    text: scenario!("fig2"),
    chapter: chapter!("fig2"),
    revise: None,
    judge,
    in_lab: true,
    short: None,
};

const BBR: &str = "BBR v1";
const BBR3: &str = "BBR v3";

fn judge(runs: &Runs) -> Outcome {
    let mut findings = Vec::new();
    let mut panels = Vec::new();
    let (from, to) = (6.0, 6.7);
    let level = |y: f64| published_line("bbr", [(from, y), (to, y)]);
    let named = |label: &str, curve: Curve| Curve { label: label.to_owned(), ..curve };
    if let Some(run) = runs.first("bbr") {
        let flow = &run.flows[0];
        let bdp = run.path.bdp_bytes.unwrap_or(1) as f64;
        let limit = run.path.goodput_limit_bps.unwrap_or(f64::NAN);
        // Phases of gain above one, from the gain's own column.
        let gains = flow.series.points(column::PACING_GAIN, 4.0, 9.0);
        let mut probes: Vec<(f64, f64)> = Vec::new();
        for (t, gain) in &gains {
            match probes.last_mut() {
                Some(last) if *gain > 1.1 && t - last.1 < 0.03 => last.1 = *t,
                _ if *gain > 1.1 => probes.push((*t, *t)),
                _ => {}
            }
        }
        let queue = bottleneck(run);
        let bumps: Vec<f64> = probes
            .iter()
            .filter_map(|(a, b)| queue.map(|q| most(&q.values(column::QUEUE_BYTES, *a, b + 0.06)) / bdp))
            .collect();
        let after: Vec<f64> = probes
            .iter()
            .filter(|(_, b)| b + 0.2 < 9.0)
            .filter_map(|(_, b)| {
                queue.map(|q| crate::view::median(&q.values(column::QUEUE_BYTES, b + 0.1, b + 0.2)) / bdp)
            })
            .collect();
        // Of fifteen probes the highest, which the kernel ends at the first ACK that shows enough in flight: the quantum of
        // two packets that left since is on top.
        let quantum = if runs.source == Source::Lab { 2.0 } else { 0.0 };
        let above = PROBE_ADDS + spare_packets(runs.source) + quantum;
        let left = left_by_a_probe(runs.source).unwrap_or(7.0);
        let bw = crate::view::mean(&flow.series.values(column::BW_BPS, 4.0, 9.0));
        findings.push(Finding::new(
            "BBR probes with gain 1.25 once in eight round trips",
            "cycle of 8 RTprop",
            format!("{} probes in 5 s", probes.len()),
            "12 to 17 (eight phases of one RTT, up to a sample each longer)",
            (12..=17).contains(&probes.len()),
        ));
        findings.push(Finding::new(
            "a probe adds at most a quarter BDP of queue",
            "0.25 BDP",
            format!("at most {} BDP", n(most(&bumps))),
            format!(
                "≤ 0.25 BDP and {above} packets: Linux adds three quanta, two packets and rounds up \
                 (bbr_quantization_budget)"
            ),
            most(&bumps) <= 0.25 + above * 1500.0 / bdp,
        ));
        findings.push(Finding::new(
            "and the next phase drains it",
            "drained in one RTprop",
            format!("median queue two phases later at most {} BDP", n(most(&after))),
            format!("≤ {left} packets: the phase ends at a BDP and three quanta of two packets, rounded up, or after RTprop"),
            most(&after) <= left * 1500.0 / bdp,
        ));
        findings.push(Finding::new(
            "the bandwidth filter holds the bottleneck's rate",
            "10 Mbit/s",
            format!("{} of {} Mbit/s", n(bw * MBIT), n(limit * MBIT)),
            "within 3 %",
            (bw / limit - 1.0).abs() <= 0.03,
        ));
        let x = || Axis::linear("seconds").from_to(from, to);
        panels.push(Panel {
            title: "Round-trip time (BBR v1)".into(),
            x: x(),
            y: Axis::linear("ms").from_to(30.0, 60.0),
            curves: vec![level(40.0), named(BBR, curve(flow, column::RTT_MS, 1.0, from, to))],
            marks: vec![Mark::Across { y: 40.0, label: "RTprop".into() }],
        });
        panels.push(Panel {
            title: "Inflight (BBR v1)".into(),
            x: x(),
            y: Axis::linear("kB"),
            curves: vec![named(BBR, curve(flow, column::INFLIGHT_BYTES, 1e-3, from, to))],
            marks: vec![Mark::Across { y: bdp * 1e-3, label: "BDP".into() }],
        });
        let delivery = named(BBR, curve(flow, column::DELIVERY_RATE_BPS, MBIT, from, to));
        let filter = curve(flow, column::BW_BPS, MBIT, from, to);
        let filter = Curve {
            dash: 1,
            colour: colour_of("cubic").light,
            ..named("its maximum of ten rounds, BtlBw", filter)
        };
        panels.push(Panel {
            title: "Delivery rate and its maximum (BBR v1)".into(),
            x: x(),
            y: Axis::linear("Mbit/s").from_to(7.0, 11.0),
            curves: vec![level(10.0), delivery, filter],
            marks: vec![],
        });
        panels.push(Panel {
            title: "Pacing gain (BBR v1)".into(),
            x: x(),
            y: Axis::linear("").from_to(0.5, 1.5),
            curves: vec![
                level(1.25),
                level(1.0),
                level(0.75),
                named(BBR, curve(flow, column::PACING_GAIN, 1.0, from, to)),
            ],
            marks: vec![],
        });
    }
    if let Some(run) = runs.first("bbr3") {
        let flow = &run.flows[0];
        let ups = flow.stays(9.0, |s| s == "ProbeBW_UP");
        let probe = ups.iter().find(|(a, _)| *a > 2.0).copied().unwrap_or((4.0, 4.2));
        let (from, to) = (probe.0 - 0.15, probe.0 + 0.55);
        panels.push(Panel {
            title: "Round-trip time (BBR v3, around a probe)".into(),
            x: Axis::linear("seconds").from_to(from, to),
            y: Axis::linear("ms"),
            curves: vec![named(BBR3, curve(flow, column::RTT_MS, 1.0, from, to))],
            marks: vec![Mark::Upright { x: probe.0, label: "ProbeBW_UP".into() }],
        });
        panels.push(Panel {
            title: "Inflight (BBR v3, around a probe)".into(),
            x: Axis::linear("seconds").from_to(from, to),
            y: Axis::linear("kB"),
            curves: vec![named(BBR3, curve(flow, column::INFLIGHT_BYTES, 1e-3, from, to))],
            marks: vec![Mark::Across {
                y: run.path.bdp_bytes.unwrap_or(0) as f64 * 1e-3,
                label: "BDP".into(),
            }],
        });
        findings.push(Finding::new(
            "BBR v3 probes every two to three seconds, or every 62 to 63 rounds",
            "(draft: § Time Scale for Bandwidth Probing)",
            format!("{} probes in 9 s", ups.len()),
            "2 to 5",
            (2..=5).contains(&ups.len()),
        ));
    }
    let picture = Picture {
        title: "Figure 2: one BBR flow, 10 Mbit/s, 40 ms".into(),
        subtitle:
            "Each cycle sends 1.25 times the estimated bandwidth for a round trip: inflight and RTT rise, \
                   the delivery rate does not, and the next round trip takes the queue away."
                .into(),
        panels,
        columns: 2,
        panel_height: 220,
        ..Picture::default()
    };
    Outcome { findings, picture, notes: Vec::new() }
}
