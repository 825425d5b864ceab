//! Section 6.2: ACKs delayed and aggregated by up to a round trip.

use super::{PAPER, VERSIONS, chapter, n, scenario};
use crate::view::{dotted, published_line};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_report::picture::{Axis, Panel, Picture};
use fullpipe_units::Span;

pub(super) const FIGURE: Figure = Figure {
    id: "aggregation",
    title: "ACKs delayed and aggregated by up to a round trip (§6.2)",
    source: PAPER,
    about: "The reverse path of a 50 Mbit/s, 40 ms path delays ACKs by 5 to 40 ms and releases them \
            together.",
    published: "full throughput with cwnd_gain 2 (§6.2).",
    file: "scenarios/figures/aggregation.toml",
    text: scenario!("aggregation"),
    chapter: chapter!("aggregation"),
    revise: None,
    judge,
    in_lab: true,
    short: None,
};

fn judge(runs: &Runs) -> Outcome {
    let mut findings = Vec::new();
    let mut curves = vec![published_line("bbr", [(0.0, 100.0), (40.0, 100.0)])];
    for (cc, name) in VERSIONS {
        let points: Vec<(f64, f64)> = runs
            .for_controller(cc)
            .filter_map(|(case, run)| {
                let hold: Span = case.value("path.reverse.0.aggregate.hold")?.parse().ok()?;
                Some((hold.as_millis_f64(), run.summary.utilization? * 100.0))
            })
            .collect();
        let least = points.iter().map(|p| p.1).fold(f64::NAN, f64::min);
        findings.push(Finding::new(
            format!("{name} keeps full throughput"),
            "full throughput with cwnd_gain 2",
            format!("at least {} % of the link", n(least)),
            "≥ 90 %",
            least >= 90.0,
        ));
        curves.push(dotted(cc, points));
    }
    let picture = Picture {
        title: "§6.2: utilisation while ACKs are held back".into(),
        subtitle: "A window of one BDP would stall between bursts of ACKs.".into(),
        panels: vec![Panel {
            title: String::new(),
            x: Axis::linear("ACKs held for, ms").with_range(0.0, 41.0),
            y: Axis::linear("% of the link").with_range(0.0, 100.0),
            curves,
            marks: vec![],
        }],
        panel_height: 320,
        ..Picture::default()
    };
    Outcome { findings, picture, notes: Vec::new() }
}
