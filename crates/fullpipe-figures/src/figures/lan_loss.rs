//! Operators' measurement: a 10-gigabit LAN with 1 % loss.

use super::{n, scenario};
use crate::view::{MBIT, curve};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_experiment::recording::{Engine, Recording, column};
use fullpipe_report::picture::{Axis, Panel, Picture};

pub(super) const FIGURE: Figure = Figure {
    id: "lan-loss",
    title: "A 10-gigabit LAN with 1 % loss",
    source: "operators' measurement (wget of an ISO over 10 GbE, netem)",
    about: "The published figures end at 7.3 Gbit/s, which is what those hosts could do: ratios count.",
    file: "scenarios/figures/lan-loss.toml",
    text: scenario!("lan-loss"),
    expand: None,
    judge,
    in_lab: true,
    short: None,
};

/// The run of `cc` with this share of loss.
fn run<'a>(runs: &'a Runs, cc: &'a str, loss: &'a str) -> Option<&'a Recording> {
    runs.with("path.loss", loss).find(|(case, _)| case.scenario.cc() == cc).map(|(_, run)| run)
}

fn judge(runs: &Runs) -> Outcome {
    let goodput = |cc: &str, loss: &str| run(runs, cc, loss).map_or(f64::NAN, |r| r.summary.goodput_bps);
    let clean = goodput("bbr", "0%") / goodput("cubic", "0%");
    let lossy = goodput("bbr", "1%") / goodput("cubic", "1%");
    // CUBIC's share hangs on the kernel's tick (its setting `hz`): with 250 a second, as the kernels of many
    // distributions have, it gets about three times what it gets with 1000.
    let (least, why) = if runs.engine == Engine::Lab {
        (3.0, ": a kernel of 250 ticks a second lets CUBIC have three times what one of 1000 does")
    } else {
        (5.0, " (CUBIC with 1000 ticks a second)")
    };
    let findings = vec![
        Finding::new(
            "without loss there is nothing to choose",
            "CUBIC 909 MB/s, BBR 913 MB/s",
            format!(
                "CUBIC {}, BBR {} Mbit/s",
                n(goodput("cubic", "0%") * MBIT),
                n(goodput("bbr", "0%") * MBIT)
            ),
            "within 10 % of each other",
            (clean - 1.0).abs() <= 0.1,
        ),
        Finding::new(
            "with 1 % loss BBR carries several times what CUBIC does",
            "CUBIC 142 MB/s, BBR 896 MB/s: 6.3×",
            format!(
                "CUBIC {}, BBR {} Mbit/s: {}×",
                n(goodput("cubic", "1%") * MBIT),
                n(goodput("bbr", "1%") * MBIT),
                n(lossy)
            ),
            format!("≥ {least}×{why}"),
            lossy >= least,
        ),
    ];
    let panel = |loss: &str| Panel {
        title: format!("Goodput with {loss} loss"),
        x: Axis::linear("seconds").from_to(0.0, 5.0),
        y: Axis::linear("Gbit/s").from_to(0.0, 10.0),
        curves: ["bbr", "cubic", "bbr3"]
            .iter()
            .filter_map(|cc| Some(curve(&run(runs, cc, loss)?.flows[0], column::GOODPUT_BPS, 1e-9, 0.0, 5.0)))
            .collect(),
        marks: vec![],
    };
    let picture = Picture {
        title: "10 Gbit/s, 0.2 ms, without and with 1 % loss".into(),
        subtitle: "On a LAN a loss is repaired within a fraction of a millisecond; what costs is that CUBIC's window \
                   never grows between two of them."
            .into(),
        panels: vec![panel("0%"), panel("1%")],
        columns: 2,
        panel_height: 340,
        ..Picture::default()
    };
    Outcome { findings, picture, notes: Vec::new() }
}
