//! Operators' measurement: two virtual machines.

use super::{chapter, n, scenario};
use crate::view::{MBIT, Quantity, published, published_line};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_experiment::recording::column;
use fullpipe_report::picture::{Curve, Picture};

pub(super) const FIGURE: Figure = Figure {
    id: "vm-pair",
    title: "Two virtual machines",
    source: "operators' measurement (iperf3 10 s between two VMs)",
    about: "The published hosts are not described beyond that: here the virtual switch has a buffer of 0.7 \
            BDP and 0.003 % of random loss. The claim is the order, and the cost in retransmissions.",
    published: "on the new kernel CUBIC 2.07 Gbit/s and 3970 retransmissions, BBR 2.65 Gbit/s and 120610, \
                over the whole 10 s. Of BBR v3 nothing.",
    file: "scenarios/figures/vm-pair.toml",
    text: scenario!("vm-pair"),
    chapter: chapter!("vm-pair"),
    revise: None,
    judge,
    in_lab: true,
    short: None,
};

/// Published ratio of BBR's retransmissions to CUBIC's.
const PUBLISHED_RETRANSMITS: f64 = 120_610.0 / 3970.0;

fn judge(runs: &Runs) -> Outcome {
    let figures =
        |cc: &str| runs.first(cc).map(|r| (r.summary.goodput_bps, r.summary.packets_retransmitted as f64));
    let (bbr, cubic) =
        (figures("bbr").unwrap_or((f64::NAN, f64::NAN)), figures("cubic").unwrap_or((f64::NAN, f64::NAN)));
    let findings = vec![
        Finding::new(
            "BBR carries more than CUBIC",
            "2.65 against 2.07 (1.84 on the old kernel) Gbit/s: 1.28×",
            format!("{} against {} Mbit/s: {}×", n(bbr.0 * MBIT), n(cubic.0 * MBIT), n(bbr.0 / cubic.0)),
            "1.1× to 2.5×",
            (1.1..=2.5).contains(&(bbr.0 / cubic.0)),
        ),
        Finding::new(
            "and pays with retransmissions",
            "120610 against 3970: 30×",
            format!("{} against {}: {}×", n(bbr.1), n(cubic.1), n(bbr.1 / cubic.1)),
            "≥ 5×",
            bbr.1 >= 5.0 * cubic.1,
        )
        .differing(
            !(PUBLISHED_RETRANSMITS / 3.0..=PUBLISHED_RETRANSMITS * 3.0).contains(&(bbr.1 / cubic.1)),
            "more than three times off the published ratio: buffer and loss of the published path are not \
             known, and the simulator's CUBIC sends a packet or two for each ACK, where the kernel's bursts \
             overflow a shallow buffer",
        ),
    ];
    let panel = |title: &str, shown: Quantity, reference: [Curve; 2]| {
        let during = (0.0, 10.0);
        shown.panel(title, during, reference.into_iter().chain(shown.curves(runs, during)))
    };
    let mean = |(cc, rate)| published_line(cc, [(0.0, rate), (10.0, rate)]);
    let retransmits = [("cubic", 3.970), ("bbr", 120.610)].map(|(cc, n)| published(cc, [(10.0, n)]));
    let goodput = Quantity::new(column::GOODPUT_BPS, "Gbit/s", 1e-9);
    let retransmitted = Quantity::new(column::RETRANSMITTED_PACKETS, "thousand packets", 1e-3);
    let picture = Picture {
        title: "iperf3 between two virtual machines".into(),
        subtitle: "A shallow buffer drops BBR v1's probes again and again; v3 remembers what was too much."
            .into(),
        panels: vec![
            panel("Goodput", goodput, [("cubic", 2.07), ("bbr", 2.65)].map(mean)),
            panel("Retransmissions so far", retransmitted, retransmits),
        ],
        columns: 2,
        panel_height: 340,
        ..Picture::default()
    };
    Outcome { findings, picture, notes: Vec::new() }
}
