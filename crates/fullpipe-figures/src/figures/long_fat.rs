//! Operators' measurement: a 250 ms path, BBR against Hybla.

use super::{chapter, n, scenario};
use crate::view::{MBIT, Quantity, RTT, published};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_experiment::recording::column;
use fullpipe_report::picture::{Curve, Panel, Picture};

pub(super) const FIGURE: Figure = Figure {
    id: "long-fat",
    title: "A 250 ms path: BBR against Hybla",
    source: "operators' measurement (iperf3 -R 20 s, 250 ms, fq_pie)",
    about: "A path of 90 Mbit/s without random loss.",
    published: "means of 20 s, BBR 64.2 and Hybla 78.0 Mbit/s. Of CUBIC and BBR v3 nothing.",
    file: "scenarios/figures/long-fat.toml",
    text: scenario!("long-fat"),
    chapter: chapter!("long-fat"),
    revise: None,
    judge,
    in_lab: true,
    short: None,
};

fn judge(runs: &Runs) -> Outcome {
    let goodput = |cc: &str| runs.first(cc).map_or(f64::NAN, |r| r.summary.goodput_bps);
    let delivered = |cc: &str, by: f64| {
        runs.first(cc)
            .and_then(|r| r.flows[0].series.values(column::DELIVERED_BYTES, 0.0, by).last().copied())
            .unwrap_or(f64::NAN)
    };
    let ramp = delivered("hybla", 2.0) / delivered("bbr", 2.0);
    let (bbr, hybla) = (goodput("bbr"), goodput("hybla"));
    let findings = vec![
        Finding::new(
            "both carry most of the path",
            "BBR 64.2, Hybla 78.0 Mbit/s",
            format!("BBR {}, Hybla {} Mbit/s", n(bbr * MBIT), n(hybla * MBIT)),
            "both ≥ 55 Mbit/s",
            bbr >= 55e6 && hybla >= 55e6,
        )
        .differing(
            bbr > hybla,
            "published, Hybla is ahead and hardly retransmits; here BBR is ahead, because the published \
             bottleneck is not described and the one here punishes Hybla's overshoot harder",
        ),
        Finding::new(
            "Hybla ramps faster in the first seconds",
            "faster in the first seconds",
            format!("{}× what BBR has delivered after 2 s", n(ramp)),
            "≥ 1.2×",
            ramp >= 1.2,
        ),
    ];
    let panel =
        |title: &str, shown: Quantity, to: f64| shown.panel(title, (0.0, to), shown.curves(runs, (0.0, to)));
    let reference = [("bbr", 64.2), ("hybla", 78.0)].map(|(cc, rate)| published(cc, [(20.0, rate)]));
    // The published values are means of the whole time, so plot the mean so far.
    let delivered =
        panel("Mean goodput so far", Quantity::new(column::DELIVERED_BYTES, "Mbit/s", 8.0 * MBIT), 20.0);
    let so_far = delivered.curves.iter().cloned().map(|curve| Curve {
        points: curve
            .points
            .into_iter()
            .filter(|p| p.0 > 0.0)
            .map(|(t, megabits)| (t, megabits / t))
            .collect(),
        ..curve
    });
    let so_far = Panel { curves: so_far.chain(reference).collect(), ..delivered };
    let picture = Picture {
        title: "20 s over 90 Mbit/s, 250 ms".into(),
        subtitle: "Hybla grows as fast as a flow of 25 ms would; the others wait a quarter of a second for \
                   each round."
            .into(),
        panels: vec![
            panel(
                "Delivered in the first five seconds",
                Quantity::new(column::DELIVERED_BYTES, "MB", 1e-6),
                5.0,
            ),
            so_far,
            panel("Round-trip time", RTT, 20.0),
        ],
        columns: 3,
        panel_height: 340,
        ..Picture::default()
    };
    Outcome { findings, picture, notes: Vec::new() }
}
