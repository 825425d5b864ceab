//! Figure 2: gain cycling in steady state.

use super::{PAPER, PROBE_PACKETS, chapter, lab_tolerance_packets, n, queue_after_probe, scenario};
use crate::view::{INFLIGHT, MBIT, Quantity, RTT, bottleneck, max, mean, median, published_line};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_experiment::recording::{FlowRecording, Recording, Source, column};
use fullpipe_report::controller_colour;
use fullpipe_report::picture::{Axis, Curve, Mark, Panel, Picture};

pub(super) const FIGURE: Figure = Figure {
    id: "fig2",
    title: "Gain cycling of BBR in steady state",
    source: PAPER,
    about: "700 ms of a flow that has been running for some seconds. BBR v3 probes every two to three \
            seconds instead of every eight round trips: its panel shows one probe.",
    published: "link of 10 Mbit/s and 40 ms, gains of 1.25, 0.75 and 1 (Figure 2 and the text on gain \
                cycling). Of BBR v3 there is no such figure.",
    file: "scenarios/figures/fig2.toml",
    text: scenario!("fig2"),
    chapter: chapter!("fig2"),
    revise: None,
    judge,
    in_lab: true,
    short: None,
};

const PACING_GAIN: Quantity = Quantity::new(column::PACING_GAIN, "", 1.0);

/// Intervals with a gain above one.
fn probes(flow: &FlowRecording) -> Vec<(f64, f64)> {
    let mut probes: Vec<(f64, f64)> = Vec::new();
    for (t, gain) in flow.series.points(column::PACING_GAIN, 4.0, 9.0) {
        match probes.last_mut() {
            Some(last) if gain > 1.1 && t - last.1 < 0.03 => last.1 = t,
            _ if gain > 1.1 => probes.push((t, t)),
            _ => {}
        }
    }
    probes
}

/// What BBR v1's cycles do.
fn cycles(run: &Recording, source: Source) -> [Finding; 4] {
    let flow = &run.flows[0];
    let bdp = run.path.bdp_bytes.unwrap_or(1) as f64;
    let limit = run.path.goodput_limit_bps.unwrap_or(f64::NAN);
    let probes = probes(flow);
    let queued = |from: f64, to: f64| bottleneck(run).map(|q| q.values(column::QUEUE_BYTES, from, to));
    let bumps = probes.iter().filter_map(|(a, b)| Some(max(&queued(*a, b + 0.06)?) / bdp));
    let bump = max(&bumps.collect::<Vec<f64>>());
    let after = probes
        .iter()
        .filter(|(_, b)| b + 0.2 < 9.0)
        .filter_map(|(_, b)| Some(median(&queued(b + 0.1, b + 0.2)?) / bdp));
    let after = max(&after.collect::<Vec<f64>>());
    // The highest of fifteen probes. The kernel ends a probe at the first ACK that shows enough
    // inflight; the quantum of two packets sent since then is added.
    let quantum = if source == Source::Lab { 2.0 } else { 0.0 };
    let above = PROBE_PACKETS + lab_tolerance_packets(source) + quantum;
    let left = queue_after_probe(source).unwrap_or(7.0);
    let bw = mean(&flow.series.values(column::BW_BPS, 4.0, 9.0));
    [
        Finding::new(
            "BBR probes with gain 1.25 once in eight round trips",
            "cycle of 8 RTprop",
            format!("{} probes in 5 s", probes.len()),
            "12 to 17 (eight phases of one RTT, up to a sample each longer)",
            (12..=17).contains(&probes.len()),
        ),
        Finding::new(
            "a probe adds at most a quarter BDP of queue",
            "0.25 BDP",
            format!("at most {} BDP", n(bump)),
            format!(
                "≤ 0.25 BDP and {above} packets: Linux adds three quanta, two packets and rounds up \
                 (bbr_quantization_budget)"
            ),
            bump <= 0.25 + above * 1500.0 / bdp,
        ),
        Finding::new(
            "and the next phase drains it",
            "drained in one RTprop",
            format!("median queue two phases later at most {} BDP", n(after)),
            format!(
                "≤ {left} packets: the phase ends at a BDP and three quanta of two packets, rounded up, or \
                 after RTprop"
            ),
            after <= left * 1500.0 / bdp,
        ),
        Finding::new(
            "the bandwidth filter holds the bottleneck's rate",
            "10 Mbit/s",
            format!("{} of {} Mbit/s", n(bw * MBIT), n(limit * MBIT)),
            "within 3 %",
            (bw / limit - 1.0).abs() <= 0.03,
        ),
    ]
}

/// A horizontal line at the BDP.
fn bdp_across(run: &Recording) -> Mark {
    Mark::Horizontal { y: run.path.bdp_bytes.unwrap_or(0) as f64 * 1e-3, label: "BDP".into() }
}

/// 700 ms of BBR v1 as in the paper, with the published values.
fn cycle_panels(run: &Recording) -> Vec<Panel> {
    let during = (6.0, 6.7);
    let level = |y: f64| published_line("bbr", [(during.0, y), (during.1, y)]);
    let measured =
        |shown: Quantity| Curve { label: "BBR v1".to_owned(), ..shown.curve(&run.flows[0], during) };
    let panel = |title: &str, shown: Quantity, curves: Vec<Curve>| {
        shown.panel(format!("{title} (BBR v1)"), during, curves)
    };
    let delivery = Quantity::new(column::DELIVERY_RATE_BPS, "Mbit/s", MBIT);
    let filter = Curve {
        dash: 1,
        colour: controller_colour("cubic").light,
        label: "its maximum of ten rounds, BtlBw".to_owned(),
        ..Quantity::new(column::BW_BPS, "Mbit/s", MBIT).curve(&run.flows[0], during)
    };
    let gains = [1.25, 1.0, 0.75].map(level).into_iter().chain([measured(PACING_GAIN)]).collect();
    vec![
        Panel {
            y: Axis::linear("ms").with_range(30.0, 60.0),
            marks: vec![Mark::Horizontal { y: 40.0, label: "RTprop".into() }],
            ..panel("Round-trip time", RTT, vec![level(40.0), measured(RTT)])
        },
        Panel { marks: vec![bdp_across(run)], ..panel("Inflight", INFLIGHT, vec![measured(INFLIGHT)]) },
        Panel {
            y: Axis::linear("Mbit/s").with_range(7.0, 11.0),
            ..panel("Delivery rate and its maximum", delivery, vec![level(10.0), measured(delivery), filter])
        },
        Panel { y: Axis::linear("").with_range(0.5, 1.5), ..panel("Pacing gain", PACING_GAIN, gains) },
    ]
}

/// The probing interval of BBR v3.
fn probing_interval(probes: usize) -> Finding {
    Finding::new(
        "BBR v3 probes every two to three seconds, or every 62 to 63 rounds",
        "(draft: § Time Scale for Bandwidth Probing)",
        format!("{probes} probes in 9 s"),
        "2 to 5",
        (2..=5).contains(&probes),
    )
}

/// BBR v3 around the probe that starts at `begun`.
fn probe_panels(run: &Recording, begun: f64) -> [Panel; 2] {
    let during = (begun - 0.15, begun + 0.55);
    let panel = |title: &str, shown: Quantity, mark: Mark| {
        let measured = Curve { label: "BBR v3".to_owned(), ..shown.curve(&run.flows[0], during) };
        let title = format!("{title} (BBR v3, around a probe)");
        Panel { marks: vec![mark], ..shown.panel(title, during, [measured]) }
    };
    [
        panel("Round-trip time", RTT, Mark::Vertical { x: begun, label: "ProbeBW_UP".into() }),
        panel("Inflight", INFLIGHT, bdp_across(run)),
    ]
}

fn judge(runs: &Runs) -> Outcome {
    let mut findings = Vec::new();
    let mut panels = Vec::new();
    if let Some(run) = runs.first("bbr") {
        findings.extend(cycles(run, runs.source));
        panels.extend(cycle_panels(run));
    }
    if let Some(run) = runs.first("bbr3") {
        let probes = run.flows[0].state_intervals(9.0, |s| s == "ProbeBW_UP");
        findings.push(probing_interval(probes.len()));
        panels.extend(probe_panels(run, probes.iter().find(|(a, _)| *a > 2.0).map_or(4.0, |probe| probe.0)));
    }
    let picture = Picture {
        title: "Figure 2: one BBR flow, 10 Mbit/s, 40 ms".into(),
        subtitle: "Each cycle sends 1.25 times the estimated bandwidth for a round trip: inflight and RTT \
                   rise, the delivery rate does not, and the next round trip takes the queue away."
            .into(),
        panels,
        columns: 2,
        panel_height: 220,
        ..Picture::default()
    };
    Outcome { findings, picture, notes: Vec::new() }
}
