//! Gomez et al. 2024: two BBR v3 flows of different round-trip times.

use super::{chapter, n, scenario};
use crate::view::{MBIT, PUBLISHED, max_deviation_percent, mean};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_experiment::recording::{FlowRecording, column};
use fullpipe_report::picture::{Axis, Curve, Panel, Picture, Stroke};

pub(super) const FIGURE: Figure = Figure {
    id: "two-rtt",
    title: "Two BBR v3 flows of 20 and 100 ms",
    source: "Gomez, Kfoury, Crichigno, Srivastava: Evaluating TCP BBRv3 performance in wired broadband \
             networks, Computer Communications, 2024; their data (RTT_Unfairness_1G_20_100)",
    about: "Both share 1 Gbit/s for a minute, from the first packet. The published numbers are of one run \
            of the kernel; here each is the mean of three seeds.",
    published: "goodput and mean RTT of one run each, from the authors' iperf3 files: with 0.2 BDP 492 and \
                433 Mbit/s, with 1 BDP 511 and 431, with 10 BDP 301 and 657.",
    file: "scenarios/figures/two-rtt.toml",
    text: scenario!("two-rtt"),
    chapter: chapter!("two-rtt"),
    revise: None,
    judge,
    in_lab: false,
    short: None,
};

/// Buffers in BDP of the short flow.
const BUFFERS: [f64; 3] = [0.2, 1.0, 10.0];
/// Published goodput in Mbit/s and mean RTT in ms of the flow of 20 ms and of that of 100 ms, by
/// buffer: `sum_received` and `mean_rtt` of `h1_bbr_…BDP_out.json` and `h2_bbr_…BDP_out.json`.
const GOODPUT: [[f64; 2]; 3] = [[491.5, 432.6], [511.1, 430.7], [301.1, 656.6]];
const MEAN_RTT: [[f64; 2]; 3] = [[20.7, 100.9], [30.9, 111.1], [120.9, 199.1]];
/// Label and colour of each flow.
const FLOWS: [(&str, [u8; 3]); 2] = [("20 ms", [0, 114, 178]), ("100 ms", [213, 94, 0])];

/// The mean over the seeds of a value of each flow, by buffer.
fn by_buffer(runs: &Runs, value: impl Fn(&FlowRecording) -> f64) -> [[f64; 2]; 3] {
    BUFFERS.map(|buffer| {
        let key = format!("{buffer}bdp");
        let with = |flow: usize| -> Vec<f64> {
            runs.with_value("path.buffer", &key).map(|(_, run)| value(&run.flows[flow])).collect()
        };
        [mean(&with(0)), mean(&with(1))]
    })
}

fn mean_rtt(flow: &FlowRecording) -> f64 {
    mean(&flow.series.values(column::RTT_MS, 0.0, f64::INFINITY))
}

/// Share of the short flow in percent.
fn share([short, long]: [f64; 2]) -> f64 {
    100.0 * short / (short + long)
}

fn judge(runs: &Runs) -> Outcome {
    let goodput = by_buffer(runs, |f| f.summary.goodput_bps * MBIT);
    let rtt = by_buffer(runs, mean_rtt);
    let [shallow, one, deep] = goodput;
    let rates = |of: [f64; 2]| format!("20 ms {}, 100 ms {} Mbit/s", n(of[0]), n(of[1]));
    let worst_rtt = max_deviation_percent(rtt.as_flattened(), MEAN_RTT.as_flattened());
    let pairs = |of: [[f64; 2]; 3]| of.map(|[a, b]| format!("{} and {}", n(a), n(b))).join(", ");
    let findings = vec![
        Finding::new(
            "in 10 BDP the long flow has about twice as much",
            "20 ms 301, 100 ms 657 Mbit/s",
            rates(deep),
            "1.7 to 2.7 times as much (published 2.2)",
            (1.7..=2.7).contains(&(deep[1] / deep[0])),
        ),
        Finding::new(
            "in 1 BDP the short flow is slightly ahead",
            "20 ms 511, 100 ms 431 Mbit/s",
            rates(one),
            "50 to 65 % of both (published 54 %)",
            (50.0..=65.0).contains(&share(one)),
        ),
        Finding::new(
            "in 0.2 BDP the short flow is ahead, too",
            "20 ms 492, 100 ms 433 Mbit/s",
            rates(shallow),
            "50 % of both or more (published 53 %)",
            share(shallow) >= 50.0,
        )
        .differing(
            share(shallow) > 58.0,
            "the short flow is further ahead: here the long one needs minutes to take its share",
        ),
        Finding::new(
            "the queue is what the buffer allows, and 100 ms where the buffer does not limit it",
            "mean RTT 20.7 and 101, 30.9 and 111, 121 and 199 ms",
            format!("{} ms", pairs(rtt)),
            "each within 15 %",
            worst_rtt <= 15.0,
        ),
    ];
    let panel = |title: &str, y: Axis, here: &[[f64; 2]; 3], there: &[[f64; 2]; 3]| {
        let points = |of: &[[f64; 2]; 3], flow: usize| -> Vec<(f64, f64)> {
            BUFFERS.iter().zip(of).map(|(b, v)| (*b, v[flow])).collect()
        };
        let curves = FLOWS.iter().enumerate().flat_map(|(flow, (label, colour))| {
            let line =
                |label: &str, stroke, of| Curve { stroke, ..Curve::line(label, *colour, points(of, flow)) };
            [line(label, Stroke::DottedLine, here), line(PUBLISHED, Stroke::Hollow, there)]
        });
        let ticks = BUFFERS.map(|b| (b, b.to_string())).to_vec();
        Panel {
            title: title.into(),
            x: Axis { ticks, ..Axis::log("buffer, BDP of 20 ms").with_range(0.15, 13.0) },
            y,
            curves: curves.collect(),
            marks: vec![],
        }
    };
    let picture = Picture {
        title: "BBR v3 of 20 and 100 ms on 1 Gbit/s".into(),
        subtitle:
            "In a small buffer losses bound both flows. In a deep one only their windows do, which grow \
                   with the round-trip time."
                .into(),
        panels: vec![
            panel("Goodput", Axis::linear("Mbit/s").with_range(0.0, 1000.0), &goodput, &GOODPUT),
            panel("Mean round-trip time", Axis::linear("ms").with_range(0.0, 250.0), &rtt, &MEAN_RTT),
        ],
        columns: 2,
        panel_height: 380,
        ..Picture::default()
    };
    Outcome { findings, picture, notes: Vec::new() }
}
