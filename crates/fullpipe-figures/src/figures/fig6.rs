//! Figure 6: five BBR flows share a link.

use super::{PAPER, VERSIONS, chapter, n, scenario};
use crate::view::{MBIT, max, mean, min, published_line};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_experiment::recording::{Recording, column, jain};
use fullpipe_report::controller_colour;
use fullpipe_report::picture::{Axis, Curve, Panel, Picture};

pub(super) const FIGURE: Figure = Figure {
    id: "fig6",
    title: "Five BBR flows share a link",
    source: PAPER,
    about: "Five flows on 100 Mbit/s, 10 ms, starting two seconds apart.",
    published: "fair shares, a fifth of the link for each, before 30 s are over (Figure 6 and its text). Of \
                BBR v3 there is no such figure.",
    file: "scenarios/figures/fig6.toml",
    text: scenario!("fig6"),
    chapter: chapter!("fig6"),
    revise: None,
    judge,
    in_lab: true,
    short: None,
};

/// Maximum number of flows that are in ProbeRTT at the same time, from `from` on.
fn max_flows_in_probe_rtt(run: &Recording, from: f64) -> usize {
    let dips: Vec<Vec<(f64, f64)>> =
        run.flows.iter().map(|f| f.state_intervals(50.0, |s| s == "ProbeRTT")).collect();
    let starts = dips.iter().flatten().map(|d| d.0).filter(|t| *t > from);
    starts
        .map(|t| dips.iter().filter(|d| d.iter().any(|(a, b)| *a <= t + 0.1 && t <= *b)).count())
        .max()
        .unwrap_or(0)
}

fn judge(runs: &Runs) -> Outcome {
    let mut findings = Vec::new();
    let mut panels = Vec::new();
    for (cc, name) in VERSIONS {
        let Some(run) = runs.first(cc) else { continue };
        findings.push(shares(run, cc));
        let together = max_flows_in_probe_rtt(run, 20.0);
        findings.push(Finding::new(
            format!("{name}: their ProbeRTT dips synchronise"),
            "dips coincide",
            format!("up to {together} of 5 at the same time"),
            "≥ 4",
            together >= 4,
        ));
        // There is no published value for v3.
        let fair = run.path.goodput_limit_bps.filter(|_| cc == "bbr");
        panels.push(throughputs(run, name, fair.map(|limit| limit * MBIT / run.flows.len() as f64)));
    }
    let picture = Picture {
        title: "Figure 6: five flows, 100 Mbit/s, 10 ms, starting 2 s apart".into(),
        subtitle: "A large flow that enters ProbeRTT empties the queue; the others see a new minimum RTT at \
                   that moment, so all minima expire together and the flows take turns from the same start."
            .into(),
        panels,
        panel_height: 320,
        ..Picture::default()
    };
    Outcome { findings, picture, notes: Vec::new() }
}

/// Checks how the flows share the link.
fn shares(run: &Recording, cc: &str) -> Finding {
    let shares: Vec<f64> =
        run.flows.iter().map(|f| mean(&f.series.values(column::GOODPUT_BPS, 30.0, 50.0))).collect();
    let index = jain(&shares);
    let measured = format!(
        "Jain {index:.3} over the last 20 s ({} Mbit/s)",
        shares.iter().map(|s| n(s * MBIT)).collect::<Vec<_>>().join(", ")
    );
    if cc == "bbr" {
        return Finding::new(
            "five BBR v1 flows converge to fair shares",
            "fair shares within 30 s",
            measured,
            "≥ 0.95",
            index >= 0.95,
        );
    }
    // Flows of v3 need minutes to converge; within this time, check that none starves.
    let fair = mean(&shares);
    let (smallest, largest) = (min(&shares) / fair, max(&shares) / fair);
    Finding::new(
        "no BBR v3 flow starves, and none takes all",
        "(not published)",
        format!("{} to {} of a fair share; {measured}", n(smallest), n(largest)),
        "0.4 to 2.6 (0.50 to 2.34 over 400 seeds, 0.54 to 2.31 in 24 runs on kernel TCP)",
        smallest >= 0.4 && largest <= 2.6,
    )
}

/// The throughput of each flow, and the published share.
fn throughputs(run: &Recording, name: &str, fair: Option<f64>) -> Panel {
    let five = ["bbr", "cubic", "reno", "hybla", "fixed"].map(|cc| controller_colour(cc).light);
    let measured = run.flows.iter().zip(five).zip(1..).map(|((f, colour), nth)| {
        // Mean over half a second, as smooth as the published plot.
        let bins = (0..100).map(|i| {
            let t = f64::from(i) * 0.5;
            (t + 0.25, mean(&f.series.values(column::GOODPUT_BPS, t, t + 0.5)) * MBIT)
        });
        Curve::line(format!("flow {nth}"), colour, bins)
    });
    let fair = fair.map(|share| published_line("fixed", [(30.0, share), (50.0, share)]));
    Panel {
        title: format!("Throughput of each flow ({name})"),
        x: Axis::linear("seconds").with_range(0.0, 50.0),
        y: Axis::linear("Mbit/s"),
        curves: measured.chain(fair).collect(),
        marks: vec![],
    }
}
