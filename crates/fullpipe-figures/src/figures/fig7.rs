//! Figure 7: BBR against CUBIC on a wide-area network.

use super::{PAPER, chapter, n, scenario};
use crate::view::{median, published};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_experiment::Case;
use fullpipe_experiment::recording::Variation;
use fullpipe_experiment::scenario::App;
use fullpipe_report::controller_colour;
use fullpipe_report::picture::{Axis, Curve, Panel, Picture};
use fullpipe_units::{Bytes, Fraction, Rate, Span};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg32;

pub(super) const FIGURE: Figure = Figure {
    id: "fig7",
    title: "BBR against CUBIC on a wide-area network",
    source: PAPER,
    about: "24 seeded paths of 0.1 to 2.5 Gbit/s, 20 to 250 ms, buffers of 2 to 30 % of a BDP and bursts of \
            loss of 0.002 to 0.5 %; 8 MB transfers one after the other on a persistent connection. The \
            second curve has the receive buffer raised and no end of data, as in the paper's B4 lesson. \
            Google's paths are not public: what can agree is the range of the gain, not its distribution.",
    published: "2 to 25 times as much; 133 times with a raised receive buffer on one path (Figure 7 and its \
                text). The distribution between has no numbers in the text.",
    file: "scenarios/figures/fig7.toml",
    text: scenario!("fig7"),
    chapter: chapter!("fig7"),
    revise: Some(paths),
    judge,
    in_lab: false,
    short: None,
};

const PATHS: u32 = 24;

/// A log-uniform number between `low` and `high`.
fn log_uniform(rng: &mut Pcg32, low: f64, high: f64) -> f64 {
    let u = f64::from(rng.next_u32()) / 4_294_967_296.0;
    low * (high / low).powf(u)
}

/// Each case on each path; the key `buffers` is the receive buffer.
fn paths(cases: Vec<Case>) -> Vec<Case> {
    let mut rng = Pcg32::seed_from_u64(7);
    let mut all = Vec::new();
    for i in 0..PATHS {
        let rate = log_uniform(&mut rng, 0.1e9, 2.5e9);
        let rtt = log_uniform(&mut rng, 0.02, 0.25);
        let buffer = log_uniform(&mut rng, 0.02, 0.3);
        let loss = log_uniform(&mut rng, 2e-5, 5e-3);
        for case in &cases {
            for (buffers, limit) in [("8 MB", 8_000_000), ("512 MB", 512_000_000)] {
                // The raised buffer is shown for BBR on the fatter paths, where it matters.
                if limit > 8_000_000 && case.scenario.cc() == "bbr3" {
                    continue;
                }
                let mut case = case.clone();
                let s = &mut case.scenario;
                s.seed = u64::from(i) + 1;
                let link = &mut s.path.forward[0];
                link.rate = Some(Rate::from_bits_per_sec(rate as u64));
                link.delay = Span::from_secs_f64(rtt / 2.0);
                link.queue = format!("{buffer:.3}bdp").parse().ok().map(|l: fullpipe_path::Limit| l.into());
                if let Some(fullpipe_path::LossSpec::GilbertElliott(spec)) = &mut link.loss {
                    spec.share = Some(Fraction::from_billionths((loss * 1e9) as u32));
                }
                s.path.reverse[0].delay = Span::from_secs_f64(rtt / 2.0);
                s.flows[0].receive_buffer = Some(Bytes(limit));
                if limit > 8_000_000 {
                    // A buffer beyond the size of a transfer shows only when there is more to send.
                    s.flows[0].app = App::Bulk;
                }
                case.varied.push(Variation::new("path", (i + 1).to_string()));
                case.varied.push(Variation::new("buffers", buffers));
                all.push(case);
            }
        }
    }
    all
}

/// Ratios of goodput to CUBIC's on the same path with the same buffer.
fn gains(runs: &Runs, cc: &str, buffers: &str) -> Vec<f64> {
    let goodput = |cc: &str, path: &str| {
        runs.with_value("path", path)
            .filter(|(case, _)| case.scenario.cc() == cc)
            .find(|(case, _)| case.value("buffers") == Some(buffers))
            .map(|(_, r)| r.summary.goodput_bps)
    };
    (1..=PATHS)
        .filter_map(|i| {
            let path = i.to_string();
            Some(goodput(cc, &path)? / goodput("cubic", &path)?.max(1.0))
        })
        .collect()
}

fn judge(runs: &Runs) -> Outcome {
    let small = gains(runs, "bbr", "8 MB");
    let raised = gains(runs, "bbr", "512 MB");
    let v3 = gains(runs, "bbr3", "8 MB");
    let (top, top_raised) = (crate::view::max(&small), crate::view::max(&raised));
    let not_worse = small.iter().filter(|g| **g >= 0.9).count();
    let findings = vec![
        Finding::new(
            "BBR carries several times what CUBIC does on lossy or shallow-buffered paths",
            "2 to 25 times",
            format!("median {}×, most {}×", n(median(&small)), n(top)),
            "median ≥ 2×, most ≥ 15×",
            median(&small) >= 2.0 && top >= 15.0,
        ),
        Finding::new(
            "and is nowhere worse",
            "gain above 1 throughout",
            format!("{not_worse} of {} paths at 0.9× or more", small.len()),
            "all",
            not_worse == small.len(),
        ),
        Finding::new(
            "with a raised receive buffer the gain is larger still",
            "up to 133× (2 Gbit/s against 15 Mbit/s)",
            format!("most {}× (with 8 MB {}×)", n(top_raised), n(top)),
            "more than with 8 MB, and at least 25×",
            top_raised > top && top_raised >= 25.0,
        ),
    ];
    let line = |label: &str, cc: &str, dash: usize, gains: &[f64]| Curve {
        dash,
        ..Curve::distribution(label, controller_colour(cc).light, gains)
    };
    let curves = vec![
        line("BBR v1, receive buffer 8 MB", "bbr", 0, &small),
        line("BBR v1, receive buffer 512 MB", "bbr", 1, &raised),
        line("BBR v3, receive buffer 8 MB", "bbr3", 0, &v3),
        published("bbr", [(2.0, 0.0), (25.0, 100.0), (133.0, 100.0)]),
    ];
    let picture = Picture {
        title: "Figure 7: throughput of BBR as a multiple of CUBIC's on the same path".into(),
        subtitle: "Distribution over the paths. Loss that is not congestion, and buffers smaller than a \
                   BDP, hold a loss-based sender far below the path's rate."
            .into(),
        panels: vec![Panel {
            title: String::new(),
            x: Axis::log_around("throughput gain over CUBIC, times", &curves),
            y: Axis::percent_of("paths"),
            curves,
            marks: vec![],
        }],
        panel_height: 420,
        ..Picture::default()
    };
    Outcome { findings, picture, notes: Vec::new() }
}
