//! Flows on a path that does not change.

use super::ramp;
use crate::experiment::Experiment;
use crate::observed::Observed;
use crate::{Case, Judgement, TestPath};
use fullpipe_experiment::recording::{column, jain};

/// Time in seconds after which a flow has reached the link's rate: the handshake and slow start in
/// two, and one packet per round trip from there.
fn settled(path: &TestPath) -> f64 {
    2.0 + ramp(path)
}

pub(super) const FILLS_THE_LINK: Case = Case {
    name: "fills-the-link",
    heading: "Fills the Link",
    bound: Some(
        "At least 92 % of the link's payload rate, once a window that grows by one packet per \
         round trip (RFC 5681 §3.1) has reached the BDP: a buffer of one BDP keeps the link busy \
         when the window is halved. BBR v3 leaves 3 % by design (pacing at 99 %, ProbeRTT), \
         QUIC's framing takes 1 %, and 4 % is tolerance.",
    ),
    path_texts: &[("10mbit", "40ms"), ("100mbit", "40ms"), ("1gbit", "5ms")],
    experiments: |s| vec![Experiment::new(s, settled(s) + 10.0, 0.01, "1bdp", fills)],
};

fn fills(o: &Observed<'_>, c: &mut Judgement) {
    o.receives(c, "the link's rate", o.link_limit(), 0.92, o.end - 10.0, o.end);
}

pub(super) const DRAINS_ITS_QUEUE: Case = Case {
    name: "drains-its-queue",
    heading: "Drains Its Queue",
    bound: Some(
        "The 10th percentile of the queue is at most 60 % of a buffer of one BDP: the smallest \
         standard reduction, to 0.7 of the window (RFC 9438 §4.6), leaves 40 %.",
    ),
    path_texts: &[("10mbit", "40ms"), ("100mbit", "10ms")],
    experiments: |s| vec![Experiment::new(s, settled(s) + 20.0, 0.01, "1bdp", drains)],
};

fn drains(o: &Observed<'_>, c: &mut Judgement) {
    let queue = o.run.links.first().map(|link| link.series.values(column::QUEUE_BYTES, o.end - 20.0, o.end));
    let mut queue = queue.unwrap_or_default();
    queue.sort_by(f64::total_cmp);
    let buffer = o.run.path.buffer_bytes.map_or(f64::NAN, |bytes| bytes as f64);
    let quantile = |nth: usize| queue.get(queue.len() * nth / 10).map_or(f64::NAN, |bytes| bytes / buffer);
    let (low, median) = (quantile(1), quantile(5));
    if low.is_nan() {
        return c.not_judged("the run does not record the queue of the bottleneck");
    }
    let (percent, median) = (100.0 * low, 100.0 * median);
    c.bounded(
        low <= 0.6,
        format!("queue: 10th percentile {percent:.0} % of the buffer (at most 60 %), median {median:.0} %"),
    );
}

pub(super) const BOUNDS_ITS_LOSSES: Case = Case {
    name: "bounds-its-losses",
    heading: "Bounds Its Losses",
    bound: Some(
        "At most 2 % of the packets lost, by one flow and by four of the same controller: the \
         loss rate that BBR v3 accepts (draft-ietf-ccwg-bbr, BBR.LossThresh), and more than \
         window halving causes even at a window of a few packets; RFC 9743 §5.1.3.",
    ),
    path_texts: &[("20mbit", "40ms"), ("100mbit", "20ms")],
    experiments: |s| {
        let run = |flow: &str| Experiment {
            flow: flow.to_owned(),
            ..Experiment::new(s, settled(s) + 20.0, 0.01, "1bdp", loses_little)
        };
        vec![run(""), run("count = 4")]
    },
};

fn loses_little(o: &Observed<'_>, c: &mut Judgement) {
    o.loses_at_most(c, 0.02, o.end - 20.0, o.end);
}

pub(super) const FAIR_WITH_ITSELF: Case = Case {
    name: "is-fair-with-itself",
    heading: "Is Fair With Itself",
    bound: Some(
        "Two flows, the second starting 5 s later: Jain's index of at least 0.8 over 40 s (RFC \
         5166 §2.3; at 0.8 one flow gets three times the rate of the other), and together at \
         least 80 % of the link's rate.",
    ),
    path_texts: &[("20mbit", "40ms"), ("50mbit", "20ms")],
    experiments: |s| {
        let flow = "count = 2\nstagger = \"5s\"".to_owned();
        vec![Experiment { flow, ..Experiment::new(s, 60.0, 0.1, "1bdp", fair) }]
    },
};

fn fair(o: &Observed<'_>, c: &mut Judgement) {
    let from = o.end - 40.0;
    let shares = o.received_by_flow(from, o.end);
    let index = jain(&shares);
    let shares: Vec<String> =
        shares.iter().map(|bps| format!("{:.0} %", 100.0 * bps / o.link_limit())).collect();
    let shares = shares.join(" and ");
    c.bounded(index >= 0.8, format!("Jain's index {index:.2} (at least 0.8): {shares} of the link"));
    o.receives(c, "the link's rate", o.link_limit(), 0.8, from, o.end);
}
