//! Section 6.4: BBR against CUBIC in buffers of 0.1 to 16 BDP.

use super::{PAPER, chapter, n, scenario};
use crate::view::{dotted, published_line, value_at};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_report::picture::{Axis, Mark, Panel, Picture};

pub(super) const FIGURE: Figure = Figure {
    id: "coexistence",
    title: "BBR against CUBIC in buffers of 0.1 to 16 BDP (§6.4)",
    source: PAPER,
    about: "One flow of each on 50 Mbit/s, 40 ms, for two minutes. The paper reports BBR's share in shallow \
            buffers, fairness at one to two BDP, and CUBIC ahead in deep ones.",
    published: "fair at one to two BDP, CUBIC ahead in deeper buffers (§6.4); of other buffers the paper \
                gives no shares.",
    file: "scenarios/figures/coexistence.toml",
    text: scenario!("coexistence"),
    chapter: chapter!("coexistence"),
    revise: None,
    judge,
    in_lab: false,
    short: None,
};

/// Buffer in BDP against BBR's share of both goodputs in percent.
fn shares(runs: &Runs, cc: &str) -> Vec<(f64, f64)> {
    runs.with_value("flow.0.cc", cc)
        .filter_map(|(case, run)| {
            let buffer: f64 = case.value("path.buffer")?.strip_suffix("bdp")?.parse().ok()?;
            let [bbr, cubic] = [&run.flows[0], &run.flows[1]].map(|f| f.summary.goodput_bps);
            Some((buffer, 100.0 * bbr / (bbr + cubic)))
        })
        .collect()
}

fn judge(runs: &Runs) -> Outcome {
    let (v1, v3) = (shares(runs, "bbr"), shares(runs, "bbr3"));
    let unfair = |points: &[(f64, f64)], shallow: bool| {
        let part: Vec<f64> =
            points.iter().filter(|p| (p.0 < 1.0) == shallow).map(|p| (p.1 - 50.0).abs()).collect();
        crate::view::mean(&part)
    };
    let deep = v1.iter().filter(|p| p.0 >= 8.0).map(|p| p.1).fold(f64::NAN, f64::max);
    let findings = vec![
        Finding::new(
            "BBR v1 takes most of a shallow buffer",
            "BBR ahead below one BDP",
            format!("{} % at 0.1 BDP, {} % at 0.5", n(value_at(&v1, 0.1)), n(value_at(&v1, 0.5))),
            "≥ 60 % at 0.1 and at 0.5 BDP",
            value_at(&v1, 0.1) >= 60.0 && value_at(&v1, 0.5) >= 60.0,
        ),
        Finding::new(
            "in deep buffers CUBIC is ahead",
            "CUBIC ahead in deep buffers",
            format!("v1 has at most {} % from 8 BDP on", n(deep)),
            "≤ 45 % at 8 and 16 BDP",
            deep <= 45.0,
        ),
        Finding::new(
            "in between v1's share falls from the one to the other",
            "fair at 1 to 2 BDP",
            format!(
                "{} % at 1 BDP, {} % at 2, {} % at 4",
                n(value_at(&v1, 1.0)),
                n(value_at(&v1, 2.0)),
                n(value_at(&v1, 4.0))
            ),
            "crosses 50 % between 0.5 and 8 BDP",
            value_at(&v1, 0.5) > 50.0 && value_at(&v1, 8.0) < 50.0,
        ),
        Finding::new(
            "v3 is nearer to a fair share than v1 in shallow buffers",
            "v3 coexists better with CUBIC (Google, IETF 117)",
            format!(
                "mean distance from 50 %: v3 {} points, v1 {}",
                n(unfair(&v3, true)),
                n(unfair(&v1, true))
            ),
            "v3 nearer below one BDP",
            unfair(&v3, true) < unfair(&v1, true),
        ),
    ];
    let table = v1
        .iter()
        .map(|(buffer, share)| {
            format!("{buffer} BDP: v1 {} %, v3 {} %", n(*share), n(value_at(&v3, *buffer)))
        })
        .collect::<Vec<_>>()
        .join("; ");
    let ticks = v1.iter().map(|(buffer, _)| (*buffer, buffer.to_string())).collect();
    let picture = Picture {
        title: "§6.4: BBR's share of 50 Mbit/s against one CUBIC flow".into(),
        subtitle: "50 % is fair. In a shallow buffer CUBIC's losses leave room that BBR v1 takes; in a deep \
                   one CUBIC queues more than BBR's bound of two BDP lets it answer."
            .into(),
        panels: vec![Panel {
            title: String::new(),
            x: Axis { ticks, ..Axis::log("buffer, BDP").with_range(0.09, 18.0) },
            y: Axis::linear("BBR's share, %").with_range(0.0, 100.0),
            curves: vec![
                published_line("bbr", [(1.0, 50.0), (2.0, 50.0)]),
                dotted("bbr", v1),
                dotted("bbr3", v3),
            ],
            marks: vec![Mark::Horizontal { y: 50.0, label: "fair".into() }],
        }],
        panel_height: 420,
        ..Picture::default()
    };
    Outcome { findings, picture, notes: vec![format!("BBR's share by buffer: {table}.")] }
}
