//! Figure 10: latency against buffer size on a slow link.

use super::{PAPER, chapter, n, scenario};
use crate::view::{dotted, fit, median, published_line};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_experiment::Case;
use fullpipe_experiment::recording::column;
use fullpipe_report::picture::{Axis, Mark, Panel, Picture};
use fullpipe_units::{Bytes, Span};

pub(super) const FIGURE: Figure = Figure {
    id: "fig10",
    title: "Latency against buffer size on a slow link",
    source: PAPER,
    about: "128 kbit/s, 40 ms, eight flows, packets of 256 bytes (see the scenario for why).",
    published: "CUBIC's time is that of a full buffer, its size / 128 kbit/s; SYN time-outs of the systems \
                of 2016 (Figure 10). BBR's line has no number in the text.",
    file: "scenarios/figures/fig10.toml",
    text: scenario!("fig10"),
    chapter: chapter!("fig10"),
    revise: None,
    judge,
    in_lab: true,
    short: Some(shorter),
};

/// Small buffers, which fill within a minute.
fn shorter(mut cases: Vec<Case>) -> Vec<Case> {
    cases.retain(|case| matches!(case.value("path.buffer"), Some("50kB" | "100kB" | "200kB")));
    for case in &mut cases {
        case.scenario.duration = Span::from_secs(120);
        case.scenario.warmup = Span::from_secs(60);
        case.scenario.sample = Span::from_millis(500);
    }
    cases
}

/// Buffer in kB against the median RTT of all flows in seconds, after the warm-up.
fn medians(runs: &Runs, cc: &str) -> Vec<(f64, f64)> {
    runs.for_controller(cc)
        .filter_map(|(case, run)| {
            let buffer: Bytes = case.value("path.buffer")?.parse().ok()?;
            let from = case.scenario.warmup.as_secs_f64();
            let rtts: Vec<f64> =
                run.flows.iter().flat_map(|f| f.series.values(column::RTT_MS, from, f64::INFINITY)).collect();
            Some((buffer.0 as f64 / 1e3, median(&rtts) / 1e3))
        })
        .collect()
}

fn judge(runs: &Runs) -> Outcome {
    let mut findings = Vec::new();
    let mut curves = Vec::new();
    let mut notes = Vec::new();
    let v1 = medians(runs, "bbr");
    if let (Some(first), Some(last)) = (v1.first(), v1.last()) {
        findings.push(Finding::new(
            "BBR's median round-trip time hardly depends on the buffer",
            "nearly flat",
            format!("{} s with {} kB, {} s with {} kB", n(first.1), n(first.0), n(last.1), n(last.0)),
            "grows less than twofold",
            last.1 < 2.0 * first.1,
        ));
    }
    let v3 = medians(runs, "bbr3");
    if let (Some(first), Some(last)) = (v3.first(), v3.last()) {
        notes.push(format!(
            "BBR v3 as drafted is not flat here: {} s with {} kB, {} s with {} kB. Eight flows of the least \
             window of four packets already queue for half a second, and once the round-trip time nears the \
             ProbeRTT interval of 5 s no probe of bandwidth is ever finished: the bandwidth that the first \
             flow measured alone is never forgotten (its filter advances after a finished probe only), \
             ProbeRTT halves the window instead of emptying the queue, and window = 2 × that bandwidth × a \
             queue-filled RTT grows until the buffer is full. v1 forgets by rounds and drains to four \
             packets, and stays flat.",
            n(first.1),
            n(first.0),
            n(last.1),
            n(last.0)
        ));
    }
    // On a logarithmic axis many points make a straight line the curve that it is.
    let filled = (1..=20).map(|i| f64::from(i) * 50.0).map(|kb| (kb, kb * 8.0 / 128.0));
    curves.push(published_line("cubic", filled));
    curves.push(dotted("bbr", v1));
    curves.push(dotted("bbr3", v3));
    let cubic = medians(runs, "cubic");
    let (slope, _, r2) = fit(&cubic);
    findings.push(Finding::new(
        "CUBIC's grows linearly with it",
        "linear",
        format!(
            "{} s for each 100 kB (a 100 kB buffer at 128 kbit/s holds 6.25 s), R² {r2:.4}",
            n(slope * 100.0)
        ),
        "R² ≥ 0.98, slope above 3 s for 100 kB",
        r2 >= 0.98 && slope * 100.0 > 3.0,
    ));
    curves.push(dotted("cubic", cubic));
    let timeout = |y: f64, label: &str| Mark::Horizontal { y, label: label.into() };
    let picture = Picture {
        title: "Figure 10: median round-trip time of eight flows on 128 kbit/s, 40 ms".into(),
        subtitle: "Above the lines a new connection cannot be made: its SYN times out before the answer is \
                   back (systems give up after so many seconds of first waiting)."
            .into(),
        panels: vec![Panel {
            title: String::new(),
            x: Axis::linear("buffer, kB").with_range(0.0, 1030.0),
            y: Axis::log("seconds").with_range(0.5, 100.0),
            curves,
            marks: vec![
                timeout(1.0, "SYN time-out of 1 s (Linux, Android)"),
                timeout(3.0, "3 s (older systems)"),
            ],
        }],
        panel_height: 440,
        ..Picture::default()
    };
    Outcome { findings, picture, notes }
}
