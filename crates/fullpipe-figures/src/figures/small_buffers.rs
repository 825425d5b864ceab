//! Appenzeller et al. 2004: many flows fill a link with a small buffer.

use super::{chapter, listed, n, scenario};
use crate::view::{dotted, max, max_deviation_percent, min, published};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_experiment::Case;
use fullpipe_experiment::recording::Variation;
use fullpipe_experiment::scenario::Start;
use fullpipe_path::Limit;
use fullpipe_report::picture::{Axis, Curve, Panel, Picture};
use fullpipe_units::Span;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg32;

pub(super) const FIGURE: Figure = Figure {
    id: "small-buffers",
    title: "Many flows fill a link with a small buffer",
    source: "Appenzeller, Keslassy, McKeown: Sizing Router Buffers, SIGCOMM 2004",
    about: "100, 200 and 400 flows on 155 Mbit/s, with round-trip times of 60 to 140 ms (mean 100 ms), in \
            buffers of 0.5, 1 and 2 times RTT · C / √n, n being the number of flows. The paper has Reno, \
            here NewReno; BBR is run beside it. The short form, which is also that of `all`, has 100 and \
            400 flows, and half of the time.",
    published: "diamonds: utilization that was measured with Reno on a router's 155 Mbit/s interface \
                (SIGCOMM 2004, table of the router experiment). BBR is not covered.",
    file: "scenarios/figures/small-buffers.toml",
    text: scenario!("small-buffers"),
    chapter: chapter!("small-buffers"),
    revise: Some(populations),
    judge,
    in_lab: false,
    short: Some(shorter),
};

/// Numbers of flows.
const COUNTS: [u32; 3] = [100, 200, 400];
/// Buffers in multiples of RTT · C / √n.
const BUFFERS: [f64; 3] = [0.5, 1.0, 2.0];
/// Published utilization in percent by number of flows and buffer.
const UTILIZATION: [[f64; 3]; 3] = [[94.9, 98.1, 99.8], [98.6, 99.7, 99.8], [99.5, 100.0, 100.0]];
/// RTT · C in packets of 1500 bytes, of the mean RTT: 100 ms at 155 Mbit/s.
const BDP_PACKETS: f64 = 155e6 * 0.1 / 8.0 / 1500.0;
/// The longest round-trip time is that of the file and this; the mean is in the middle.
const RTT_RANGE: Span = Span::from_millis(80);
/// Flows start within this time.
const STARTS: Span = Span::from_secs(5);

/// Parameter of a run: the buffer in multiples of RTT · C / √n.
const BUFFER: &str = "buffer";

/// All buffers for each case, whose flows get round-trip times and starts of their own.
fn populations(cases: Vec<Case>) -> Vec<Case> {
    let mut all = Vec::new();
    for case in cases {
        let count = case.scenario.flows[0].count;
        let mut rng = Pcg32::seed_from_u64(u64::from(count));
        let flows: Vec<_> = (0..count)
            .map(|i| {
                let mut flow = case.scenario.flows[0].clone();
                flow.count = 1;
                flow.extra_rtt = RTT_RANGE * u64::from(2 * i + 1) / u64::from(2 * count);
                flow.start = Start::At(STARTS * u64::from(rng.next_u32() >> 16) / (1 << 16));
                flow
            })
            .collect();
        for buffer in BUFFERS {
            let mut case = case.clone();
            case.scenario.flows.clone_from(&flows);
            let packets = buffer * BDP_PACKETS / f64::from(count).sqrt();
            case.scenario.path.forward[0].queue = Some(Limit::Packets(packets.round() as u64).into());
            case.varied.push(Variation::new(BUFFER, buffer.to_string()));
            all.push(case);
        }
    }
    all
}

/// 100 and 400 flows, half of the time.
fn shorter(mut cases: Vec<Case>) -> Vec<Case> {
    cases.retain(|case| case.value("flow.count") != Some("200"));
    for case in &mut cases {
        case.scenario.duration = case.scenario.duration / 2;
        case.scenario.warmup = case.scenario.warmup / 2;
    }
    cases
}

/// Utilization in percent by buffer, for each number of flows that was run.
fn utilizations(runs: &Runs, cc: &str) -> Vec<(u32, [f64; 3])> {
    let of = |count: u32| {
        let key = count.to_string();
        let those: Vec<_> =
            runs.for_controller(cc).filter(|(case, _)| case.value("flow.count") == Some(&key)).collect();
        let at = |buffer: f64| {
            let key = buffer.to_string();
            let run = those.iter().find(|(case, _)| case.value(BUFFER) == Some(&key));
            run.and_then(|(_, run)| run.summary.utilization).map_or(f64::NAN, |u| 100.0 * u)
        };
        (!those.is_empty()).then(|| (count, BUFFERS.map(at)))
    };
    COUNTS.into_iter().filter_map(of).collect()
}

fn published_for(count: u32) -> [f64; 3] {
    COUNTS.iter().position(|c| *c == count).map_or([f64::NAN; 3], |i| UTILIZATION[i])
}

fn judge(runs: &Runs) -> Outcome {
    let [reno, v1, v3] = ["reno", "bbr", "bbr3"].map(|cc| utilizations(runs, cc));
    let column = |i: usize| -> (Vec<f64>, Vec<f64>) {
        reno.iter().map(|(count, here)| (here[i], published_for(*count)[i])).unzip()
    };
    let with = |i: usize, claim: &str, within: f64| {
        let (here, there) = column(i);
        Finding::new(
            claim,
            format!("{} %", UTILIZATION.map(|row| n(row[i])).join(", ")),
            format!("{} %", listed(&here)),
            format!("each within {within} %"),
            max_deviation_percent(&here, &there) <= within,
        )
    };
    let worst = |of: &[(u32, [f64; 3])]| min(of.iter().map(|(_, u)| *u).collect::<Vec<_>>().as_flattened());
    let complete = |of: &[(u32, [f64; 3])]| of.iter().all(|(_, u)| u.iter().all(|v| v.is_finite()));
    let (worst_v1, worst_v3) = (worst(&v1), worst(&v3));
    let half = |count: u32| reno.iter().find(|(c, _)| *c == count).map_or(f64::NAN, |(_, u)| u[0]);
    let (few, many) = (half(100), half(400));
    let findings = vec![
        with(1, "a buffer of RTT · C / √n nearly fills the link", 2.0),
        with(0, "half of it costs a few percent with 100 flows", 2.0),
        Finding::new(
            "with more flows half of it costs less",
            "94.9 % with 100 flows, 99.5 % with 400",
            format!("{} % and {} %", n(few), n(many)),
            "at least 2 points more with 400 flows",
            many >= few + 2.0,
        ),
        with(2, "twice as much fills it", 1.0),
        Finding::new(
            "BBR loses at most 2.5 % in any of these buffers",
            "not published",
            format!("v1 at least {} %, v3 {} %", n(worst_v1), n(worst_v3)),
            "≥ 97.5 % each",
            complete(&v1) && complete(&v3) && worst_v1 >= 97.5 && worst_v3 >= 97.5,
        ),
    ];
    let shares: Vec<String> = ["reno", "bbr", "bbr3"]
        .map(|cc| {
            let runs: Vec<f64> = runs
                .for_controller(cc)
                .filter(|(case, _)| case.value("flow.count") == Some("400"))
                .filter_map(|(_, run)| run.fairness)
                .collect();
            format!("{cc} {} to {}", n(min(&runs)), n(max(&runs)))
        })
        .to_vec();
    let panel = |count: u32| {
        let line = |cc: &str, of: &[(u32, [f64; 3])]| -> Option<Curve> {
            let (_, values) = of.iter().find(|(c, _)| *c == count)?;
            Some(dotted(cc, BUFFERS.into_iter().zip(*values).collect()))
        };
        let there = published("reno", BUFFERS.into_iter().zip(published_for(count)));
        let curves = [line("reno", &reno), line("bbr", &v1), line("bbr3", &v3), Some(there)];
        Panel {
            title: format!("{count} flows"),
            x: Axis {
                ticks: BUFFERS.map(|b| (b, b.to_string())).to_vec(),
                ..Axis::log("buffer in RTT · C / sqrt(n)").with_range(0.42, 2.4)
            },
            y: Axis::linear("utilization, %").with_range(90.0, 100.5),
            curves: curves.into_iter().flatten().collect(),
            marks: vec![],
        }
    };
    let picture = Picture {
        title: "Utilization of 155 Mbit/s by many flows in small buffers".into(),
        subtitle:
            "The windows of many flows do not fall together, so that their sum varies less than that of \
                   one: the more flows, the less buffer is needed to fill the link."
                .into(),
        panels: reno.iter().map(|(count, _)| panel(*count)).collect(),
        columns: 3,
        panel_height: 340,
        ..Picture::default()
    };
    Outcome {
        findings,
        picture,
        notes: vec![format!("Jain's index of the 400 flows: {}.", shares.join(", "))],
    }
}
