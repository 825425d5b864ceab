//! Figure 9: round-trip time of video-like flows over deep buffers.

use super::{PAPER, chapter, n, scenario};
use crate::view::{mean, median, published, quantile};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_experiment::Case;
use fullpipe_experiment::recording::Variation;
use fullpipe_experiment::scenario::App;
use fullpipe_report::controller_colour;
use fullpipe_report::picture::{Axis, Curve, Panel, Picture};
use fullpipe_units::{Bytes, Rate, Span};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg32;

pub(super) const FIGURE: Figure = Figure {
    id: "fig9",
    title: "Round-trip time of video-like flows over deep buffers",
    source: PAPER,
    about: "40 seeded access paths from 2.5G (0.1 to 0.3 Mbit/s) to fibre (50 Mbit/s), 20 to 150 ms, \
            buffers of 30 kB to 1 MB (2.5G: 0.2 to 4 MB); segments of 4 s at 70 to 90 % of the link's rate. \
            YouTube's population is not public, so the averages can agree in kind, not in the digit.",
    published: "the round-trip time 53 % lower on average, more than 80 % on 2.5G (the text on Figure 9): \
                drawn at the median of all paths and of the 2.5G ones, less than CUBIC's here by so much. \
                The figure's own axis is of countries.",
    file: "scenarios/figures/fig9.toml",
    text: scenario!("fig9"),
    chapter: chapter!("fig9"),
    revise: Some(paths),
    judge,
    in_lab: false,
    short: None,
};

const PATHS: u32 = 40;
/// Number of 2.5G paths; these come first.
const CELLULAR: u32 = 8;

fn paths(cases: Vec<Case>) -> Vec<Case> {
    let mut rng = Pcg32::seed_from_u64(9);
    let mut between = |low: f64, high: f64| {
        let u = f64::from(rng.next_u32()) / 4_294_967_296.0;
        low * (high / low).powf(u)
    };
    let mut all = Vec::new();
    for i in 0..PATHS {
        let rate = if i < CELLULAR { between(0.1e6, 0.3e6) } else { between(1e6, 50e6) };
        let rtt = between(0.02, 0.15);
        let buffer = if i < CELLULAR { between(0.2e6, 4e6) } else { between(30e3, 1e6) };
        let load = between(0.7, 0.9);
        for case in &cases {
            let mut case = case.clone();
            let s = &mut case.scenario;
            s.seed = u64::from(i) + 1;
            let link = &mut s.path.forward[0];
            link.rate = Some(Rate::from_bits_per_sec(rate as u64));
            link.delay = Span::from_secs_f64(rtt / 2.0);
            link.queue = Some(fullpipe_path::Limit::Bytes(buffer as u64).into());
            s.path.reverse[0].delay = Span::from_secs_f64(rtt / 2.0);
            s.flows[0].app =
                App::Bursts { size: Bytes((rate / 8.0 * 4.0 * load) as u64), every: Span::from_secs(4) };
            case.varied.push(Variation::new("path", (i + 1).to_string()));
            all.push(case);
        }
    }
    all
}

/// Reduction of the median RTT compared with CUBIC, per path.
fn reductions(runs: &Runs, cc: &str, ids: impl Iterator<Item = u32>) -> Vec<f64> {
    ids.filter_map(|i| {
        let path = i.to_string();
        let rtt = |cc: &str| {
            runs.with_value("path", &path)
                .find(|(c, _)| c.scenario.cc() == cc)
                .and_then(|(_, r)| r.summary.rtt_ms.p50)
        };
        Some(1.0 - rtt(cc)? / rtt("cubic")?)
    })
    .collect()
}

fn judge(runs: &Runs) -> Outcome {
    let all = reductions(runs, "bbr", 1..=PATHS);
    let slow = reductions(runs, "bbr", 1..=CELLULAR);
    let findings = vec![
        Finding::new(
            "BBR's median round-trip time is lower than CUBIC's",
            "53 % lower on average globally",
            format!(
                "{} % lower on average, {} % in the median path",
                n(mean(&all) * 100.0),
                n(median(&all) * 100.0)
            ),
            "30 to 80 % lower on average",
            (0.3..=0.8).contains(&mean(&all)),
        ),
        Finding::new(
            "most on the slowest paths",
            "more than 80 % lower on 2.5G",
            format!("{} % lower on average of the 2.5G paths", n(mean(&slow) * 100.0)),
            "more on 2.5G than overall, and ≥ 60 %",
            mean(&slow) > mean(&all) && mean(&slow) >= 0.6,
        ),
    ];
    let rtts =
        |cc: &str| runs.for_controller(cc).filter_map(|(_, r)| r.summary.rtt_ms.p50).collect::<Vec<f64>>();
    let mut curves: Vec<Curve> = ["bbr", "cubic", "bbr3"]
        .into_iter()
        .map(|cc| Curve::distribution(cc, controller_colour(cc).light, &rtts(cc)))
        .collect();
    // The 2.5G paths are the slowest: their median as a quantile of all paths.
    let middle = 1.0 - f64::from(CELLULAR) / f64::from(PATHS) / 2.0;
    let reduced = |share: f64, by: f64| (quantile(&rtts("cubic"), share) * (1.0 - by), share * 100.0);
    curves.push(published("bbr", [reduced(0.5, 0.53), reduced(middle, 0.8)]));
    let picture = Picture {
        title: "Figure 9: median round-trip time of video-like flows, path by path".into(),
        subtitle: "Distribution over the paths. With megabytes of buffer in front of a slow link, a flow \
                   that fills the buffer waits for seconds."
            .into(),
        panels: vec![Panel {
            title: String::new(),
            x: Axis::log_around("median round-trip time, ms", &curves),
            y: Axis::percent_of("paths"),
            curves,
            marks: vec![],
        }],
        panel_height: 420,
        ..Picture::default()
    };
    Outcome { findings, picture, notes: Vec::new() }
}
