//! Operators' measurements: hosts switched from CUBIC to BBR.

use super::{chapter, n, scenario};
use crate::view::{MBIT, published};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_report::controller_colour;
use fullpipe_report::picture::{Axis, Curve, Panel, Picture, Stroke};

pub(super) const FIGURE: Figure = Figure {
    id: "wan-host",
    title: "iperf between two clouds, before and after",
    source: "operators' measurements",
    about: "Three paths with light random loss; the published paths are not described.",
    published: "from CUBIC to BBR 7.15 to 35.0, 250 to 800, and 30 to 40 to about 100 Mbit/s (drawn at 35), \
                each on a path that is not described. Of BBR v3 nothing.",
    file: "scenarios/figures/wan-host.toml",
    text: scenario!("wan-host"),
    chapter: chapter!("wan-host"),
    revise: None,
    judge,
    in_lab: true,
    short: None,
};

fn judge(runs: &Runs) -> Outcome {
    let goodputs =
        |cc: &str| runs.for_controller(cc).map(|(_, r)| r.summary.goodput_bps).collect::<Vec<f64>>();
    let (cubic, bbr, v3) = (goodputs("cubic"), goodputs("bbr"), goodputs("bbr3"));
    let reference = [
        ("between two clouds", "7.15 → 35.0 Mbit/s: 4.9×", 2.5),
        ("hosts on 1 Gbit/s", "250 → 800 Mbit/s: 3.2×", 1.8),
        ("a VPN", "30–40 → about 100 Mbit/s: 2.9×", 1.8),
    ];
    let findings = reference
        .iter()
        .zip(cubic.iter().zip(&bbr))
        .map(|((name, published, min_ratio), (before, after))| {
            Finding::new(
                format!("{name}: BBR is several times faster"),
                *published,
                format!("{} → {} Mbit/s: {}×", n(before * MBIT), n(after * MBIT), n(after / before)),
                format!("≥ {min_ratio}×"),
                after / before >= *min_ratio,
            )
        })
        .collect();
    // Paths have no order: dots side by side without a connecting line.
    let beside = |aside: f64, values: &[f64]| -> Vec<(f64, f64)> {
        values.iter().enumerate().map(|(i, v)| (i as f64 + aside, *v)).collect()
    };
    let measured = |cc: &str, aside: f64, bps: &[f64]| {
        let rates: Vec<f64> = bps.iter().map(|v| v * MBIT).collect();
        let points = beside(aside, &rates);
        Curve {
            stroke: Stroke::DottedLine,
            ..Curve::line(
                cc,
                controller_colour(cc).light,
                points.into_iter().flat_map(|p| [p, (f64::NAN, f64::NAN)]),
            )
        }
    };
    let names = [
        "between two clouds: 40 Mbit/s, 180 ms",
        "hosts on 1 Gbit/s: 900 Mbit/s, 30 ms",
        "a VPN: 105 Mbit/s, 60 ms",
    ];
    let curves = vec![
        measured("cubic", -0.2, &cubic),
        measured("bbr", 0.0, &bbr),
        measured("bbr3", 0.2, &v3),
        published("cubic", beside(-0.14, &[7.15, 250.0, 35.0])),
        published("bbr", beside(0.06, &[35.0, 800.0, 100.0])),
    ];
    let picture = Picture {
        title: "Before and after, on three paths".into(),
        subtitle: "What a server sends with CUBIC, and with BBR; the published value lies beside each."
            .into(),
        panels: vec![Panel {
            title: String::new(),
            x: Axis::named("", names.map(str::to_owned).to_vec()),
            y: Axis::log("Mbit/s").with_range(5.0, 1200.0),
            curves,
            marks: vec![],
        }],
        panel_height: 360,
        ..Picture::default()
    };
    Outcome { findings, picture, notes: Vec::new() }
}
