//! The two examples of the commit that added BBR to Linux.

use super::{chapter, n, scenario};
use crate::view::{MBIT, RTT, published};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_experiment::Case;
use fullpipe_experiment::recording::{Recording, column};
use fullpipe_report::controller_colour;
use fullpipe_report::picture::{Axis, Curve, Panel, Picture};
use fullpipe_units::Span;

pub(super) const FIGURE: Figure = Figure {
    id: "tcp-bbr",
    title: "The two examples of the tcp_bbr commit",
    source: "Cardwell et al., tcp_bbr: add BBR congestion control, Linux commit 0f8782ea1497, 2016",
    about: "One flow alone: 10 Gbit/s, 100 ms, 1 % loss for 30 s, and 10 Mbit/s, 40 ms, 1000 packets of \
            buffer for 120 s.",
    published: "with 1 % loss CUBIC 3.27 and BBR 9150 Mbit/s, means of 30 s. Of the last-mile link, in \
                words only, that loss-based control delays packets by seconds.",
    file: "scenarios/figures/tcp-bbr.toml",
    text: scenario!("tcp-bbr"),
    chapter: chapter!("tcp-bbr"),
    revise: Some(durations),
    judge,
    in_lab: false,
    short: None,
};

/// The last-mile link needs more time than a sweep gives both: CUBIC takes tens of seconds to fill
/// the buffer for the second time.
fn durations(mut cases: Vec<Case>) -> Vec<Case> {
    for case in cases.iter_mut().filter(|case| is_last_mile(case)) {
        case.scenario.duration = Span::from_secs(120);
    }
    cases
}

fn is_last_mile(case: &Case) -> bool {
    case.value("path").is_some_and(|path| path.contains("10mbit"))
}

fn run<'a>(runs: &'a Runs, cc: &'a str, last_mile: bool) -> Option<&'a Recording> {
    runs.for_controller(cc).find(|(case, _)| is_last_mile(case) == last_mile).map(|(_, run)| run)
}

fn judge(runs: &Runs) -> Outcome {
    let goodput = |cc, last_mile| run(runs, cc, last_mile).map_or(f64::NAN, |r| r.summary.goodput_bps);
    let rtt = |cc| run(runs, cc, true).and_then(|r| r.summary.rtt_ms.p50).unwrap_or(f64::NAN);
    let [bbr, cubic, v3] = ["bbr", "cubic", "bbr3"].map(|cc| goodput(cc, false));
    let limit = run(runs, "bbr", true).and_then(|r| r.path.goodput_limit_bps).unwrap_or(f64::NAN);
    let [bbr_slow, cubic_slow] = ["bbr", "cubic"].map(|cc| goodput(cc, true));
    let findings = vec![
        Finding::new(
            "BBR carries most of 10 Gbit/s with 1 % loss",
            "9150 Mbit/s",
            format!("{} Mbit/s", n(bbr * MBIT)),
            "≥ 8000 Mbit/s",
            bbr >= 8e9,
        ),
        Finding::new(
            "CUBIC carries a few Mbit/s",
            "3.27 Mbit/s",
            format!("{} Mbit/s", n(cubic * MBIT)),
            "1.1 to 9.8 Mbit/s, a third to three times",
            (1.1e6..=9.8e6).contains(&cubic),
        )
        .differing(
            cubic < 2.6e6,
            "half of what was published: 1 % loss of single packets allows a window of 12, which is \
             1.4 Mbit/s; how the published path lost packets is not described",
        ),
        Finding::new(
            "BBR carries thousands of times as much as CUBIC",
            "9150 / 3.27 = 2800×",
            format!("{}×", n(bbr / cubic)),
            "≥ 1000×",
            bbr / cubic >= 1000.0,
        ),
        Finding::new(
            "on the last-mile link CUBIC keeps the buffer nearly full",
            "(words only) delays of seconds",
            format!("median RTT {} ms", n(rtt("cubic"))),
            "≥ 800 ms: two thirds of the 1200 ms of 1000 packets",
            rtt("cubic") >= 800.0,
        ),
        Finding::new(
            "on the last-mile link BBR keeps the queue short",
            "(words only) much less delay",
            format!("median RTT {} ms, {}× lower", n(rtt("bbr")), n(rtt("cubic") / rtt("bbr"))),
            "≤ 60 ms, 1.5 times the path's",
            rtt("bbr") <= 60.0,
        ),
        Finding::new(
            "both use the last-mile link fully",
            "(no number)",
            format!("BBR {}, CUBIC {} Mbit/s", n(bbr_slow * MBIT), n(cubic_slow * MBIT)),
            "both ≥ 95 % of the link",
            bbr_slow.min(cubic_slow) >= 0.95 * limit,
        ),
    ];
    let means = [("bbr", 9150.0), ("cubic", 3.27)].map(|(cc, rate)| published(cc, [(30.0, rate)]));
    // The published values are means of the whole time, so plot the mean so far.
    let so_far = ["bbr", "cubic", "bbr3"].iter().filter_map(|cc| {
        let delivered = run(runs, cc, false)?.flows[0].series.points(column::DELIVERED_BYTES, 0.0, 30.0);
        let points =
            delivered.into_iter().filter(|p| p.0 > 0.0).map(|(t, bytes)| (t, bytes * 8.0 * MBIT / t));
        Some(Curve::line(*cc, controller_colour(cc).light, points))
    });
    let rtts = ["bbr", "cubic", "bbr3"]
        .iter()
        .filter_map(|cc| Some(RTT.curve(&run(runs, cc, true)?.flows[0], (0.0, 120.0))));
    let picture = Picture {
        title: "The two examples of the tcp_bbr commit".into(),
        subtitle: "Loss is not congestion, and a queue does not have to be full before a sender reacts."
            .into(),
        panels: vec![
            Panel {
                title: "10 Gbit/s, 100 ms, 1 % loss: mean goodput so far".into(),
                x: Axis::linear("seconds").with_range(0.0, 30.0),
                y: Axis::log("Mbit/s").with_range(0.1, 20_000.0),
                curves: so_far.chain(means).collect(),
                marks: vec![],
            },
            Panel {
                y: Axis::log("ms").with_range(30.0, 2000.0),
                ..RTT.panel("10 Mbit/s, 40 ms, 1000 packets: round-trip time", (0.0, 120.0), rtts)
            },
        ],
        columns: 2,
        panel_height: 380,
        ..Picture::default()
    };
    let note = format!(
        "BBR v3, of which the commit says nothing: {} Mbit/s with 1 % loss, median RTT {} ms on the \
         last-mile link.",
        n(v3 * MBIT),
        n(rtt("bbr3"))
    );
    Outcome { findings, picture, notes: vec![note] }
}
