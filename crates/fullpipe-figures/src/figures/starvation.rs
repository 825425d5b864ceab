//! Arun et al. 2022: a BBR flow of 40 ms starves beside one of 80 ms.

use super::{VERSIONS, chapter, n, scenario};
use crate::view::{MBIT, PUBLISHED, mean};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_experiment::recording::column;
use fullpipe_report::picture::{Axis, Curve, Panel, Picture, Stroke};

pub(super) const FIGURE: Figure = Figure {
    id: "starvation",
    title: "Two BBR flows of 40 and 80 ms: starvation",
    source: "Arun, Alizadeh, Balakrishnan: Starvation in End-to-End Congestion Control, SIGCOMM 2022",
    about: "Two flows share 120 Mbit/s for a minute, from the first packet, in drop-tail buffers of 1 to 10 \
            BDP of the short flow. The published run has kernel TCP over a link emulator, whose buffer is \
            not known here; the values are drawn at the deepest one.",
    published: "two flows of BBR v1 on 120 Mbit/s after 60 s: 8.3 Mbit/s with 40 ms, 107 Mbit/s with 80 ms. \
                BBR v3 is not covered.",
    file: "scenarios/figures/starvation.toml",
    text: scenario!("starvation"),
    chapter: chapter!("starvation"),
    revise: None,
    judge,
    in_lab: false,
    short: None,
};

/// Buffers in BDP of the short flow.
const BUFFERS: [f64; 4] = [1.0, 2.0, 4.0, 10.0];
/// Goodput of the flows of 40 and of 80 ms that was published, in Mbit/s.
const GOODPUT: [f64; 2] = [8.3, 107.0];
/// Label and colour of each flow.
const FLOWS: [(&str, [u8; 3]); 2] = [("40 ms", [0, 114, 178]), ("80 ms", [213, 94, 0])];
/// Start of the part of a run that is shown besides its mean, in seconds.
const SETTLED_S: f64 = 40.0;

/// Goodput of each flow in Mbit/s by buffer: mean of the run, and mean after [`SETTLED_S`].
fn goodputs(runs: &Runs, cc: &str) -> [[[f64; 2]; 2]; 4] {
    BUFFERS.map(|buffer| {
        let key = format!("{buffer}bdp");
        let run = runs.with_value("path.buffer", &key).find(|(case, _)| case.scenario.cc() == cc);
        let of = |flow: usize| {
            run.map_or([f64::NAN; 2], |(_, run)| {
                let flow = &run.flows[flow];
                let late = mean(&flow.series.values(column::GOODPUT_BPS, SETTLED_S, f64::INFINITY));
                [flow.summary.goodput_bps * MBIT, late * MBIT]
            })
        };
        let ([a, a_late], [b, b_late]) = (of(0), of(1));
        [[a, b], [a_late, b_late]]
    })
}

fn judge(runs: &Runs) -> Outcome {
    let [v1, v3] = VERSIONS.map(|(cc, _)| goodputs(runs, cc));
    let rates = |of: [f64; 2]| format!("40 ms {}, 80 ms {} Mbit/s", n(of[0]), n(of[1]));
    let [shallow, .., [whole, late]] = v1;
    let [v3_shallow, .., v3_deep] = v3;
    let findings = vec![
        Finding::new(
            "in a deep buffer the long flow starves the short one",
            rates(GOODPUT),
            format!("{} in 10 BDP; after {SETTLED_S} s {}", rates(whole), rates(late)),
            "the long flow has at least 4 times as much",
            whole[1] >= 4.0 * whole[0],
        )
        .differing(
            late[1] < 10.0 * late[0],
            "the factor is 13 in the published run, and less here; the cause is not measured",
        ),
        Finding::new(
            "in 1 BDP neither flow of BBR v1 starves",
            "not published",
            rates(shallow[0]),
            "35 to 65 % for each",
            (35.0..=65.0).contains(&share(shallow[0])),
        ),
        Finding::new(
            "in a deep buffer neither flow of BBR v3 starves",
            "not published",
            format!("{} in 10 BDP", rates(v3_deep[0])),
            "35 to 65 % for each",
            (35.0..=65.0).contains(&share(v3_deep[0])),
        ),
        Finding::new(
            "in 1 BDP the long flow of BBR v3 has less than half of the short one",
            "not published",
            rates(v3_shallow[0]),
            "40 ms at least twice as much",
            v3_shallow[0][0] >= 2.0 * v3_shallow[0][1],
        ),
    ];
    let panel = |title: &str, goodputs: &[[[f64; 2]; 2]; 4], published: bool| {
        let curves = FLOWS.iter().enumerate().flat_map(|(flow, (label, colour))| {
            let points = BUFFERS.iter().zip(goodputs).map(|(b, [whole, _])| (*b, whole[flow]));
            let line = Curve { stroke: Stroke::DottedLine, ..Curve::line(*label, *colour, points) };
            let there = published.then(|| Curve {
                stroke: Stroke::Hollow,
                ..Curve::line(PUBLISHED, *colour, [(10.0, GOODPUT[flow])])
            });
            [Some(line), there]
        });
        Panel {
            title: title.into(),
            x: Axis {
                ticks: BUFFERS.map(|b| (b, b.to_string())).to_vec(),
                ..Axis::log("buffer, BDP of 40 ms").with_range(0.8, 12.5)
            },
            y: Axis::linear("Mbit/s").with_range(0.0, 120.0),
            curves: curves.flatten().collect(),
            marks: vec![],
        }
    };
    let picture = Picture {
        title: "BBR of 40 and 80 ms on 120 Mbit/s".into(),
        subtitle: "In a deep buffer only its window of two BDP bounds a flow of BBR v1, and that of the \
                   longer path is larger."
            .into(),
        panels: vec![panel("BBR v1", &v1, true), panel("BBR v3", &v3, false)],
        columns: 2,
        panel_height: 380,
        ..Picture::default()
    };
    Outcome { findings, picture, notes: Vec::new() }
}

/// Share of the short flow in percent.
fn share([short, long]: [f64; 2]) -> f64 {
    100.0 * short / (short + long)
}
