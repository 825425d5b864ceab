//! Flows on a path that does not change.

use super::{Measured, ramp};
use crate::experiment::Experiment;
use crate::observed::{Failures, Observed};
use crate::{Case, TestPath};
use fullpipe_experiment::recording::{column, jain};

/// Time in seconds after which a flow has reached the link's rate: the handshake and slow start in
/// two, and one packet per round trip from there.
fn settled(path: &TestPath) -> f64 {
    2.0 + ramp(path)
}

pub(super) const FILLS_THE_LINK_BOUND: &str = "\
    At least 92 % of the link's payload rate, once growth by one packet per round trip (RFC 5681 \
    §3.1) has reached its BDP: a buffer of one BDP keeps the link busy even if the window is halved. \
    BBR v3 leaves 3 % by design (pacing at 99 %, ProbeRTT), QUIC's framing 1 %, and as much again is \
    tolerance.";

pub(super) const FILLS_THE_LINK: Case = Case {
    name: "fills-the-link",
    heading: "Fills the Link",
    path_texts: &[("10mbit", "40ms"), ("100mbit", "40ms"), ("1gbit", "5ms")],
    experiments: |s| vec![Experiment::new(s, settled(s) + 10.0, 0.01, "1bdp", fills)],
};

fn fills(o: &Observed<'_>, c: &mut Failures) {
    o.receives(c, "the link", o.link_limit(), 0.92, o.end - 10.0, o.end);
}

pub(super) const DRAINS_ITS_QUEUE_BOUND: &str = "\
    The queue is below 60 % of a buffer of one BDP for a tenth of the time: the mildest standard \
    response to loss, a factor of 0.7 (RFC 9438 §4.6), leaves 40 %.";

pub(super) const DRAINS_ITS_QUEUE: Case = Case {
    name: "drains-its-queue",
    heading: "Drains Its Queue",
    path_texts: &[("10mbit", "40ms"), ("100mbit", "10ms")],
    experiments: |s| vec![Experiment::new(s, settled(s) + 20.0, 0.01, "1bdp", drains)],
};

fn drains(o: &Observed<'_>, c: &mut Failures) {
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
        format!(
            "the queue is above {percent:.0} % of the buffer for nine tenths of the time (at most 60 %), \
             above {median:.0} % for half of it"
        ),
    );
}

pub(super) const BOUNDS_ITS_LOSSES_BOUND: &str = "\
    At most 2 % of the packets lost, alone or with three others of its kind: the most that BBR v3 \
    accepts by design (draft-ietf-ccwg-bbr, BBR.LossThresh), and above what a halved window of a few \
    packets needs; RFC 9743 §5.1.3.";

pub(super) const BOUNDS_ITS_LOSSES: Case = Case {
    name: "bounds-its-losses",
    heading: "Bounds Its Losses",
    path_texts: &[("20mbit", "40ms"), ("100mbit", "20ms")],
    experiments: |s| {
        let run = |flow: &str| Experiment {
            flow: flow.to_owned(),
            ..Experiment::new(s, settled(s) + 20.0, 0.01, "1bdp", loses_little)
        };
        vec![run(""), run("count = 4")]
    },
};

fn loses_little(o: &Observed<'_>, c: &mut Failures) {
    o.loses_at_most(c, 0.02, o.end - 20.0, o.end);
}

pub(super) const FAIR_WITH_ITSELF_BOUND: &str = "\
    Two flows, the second 5 s later: Jain's index of at least 0.8 over 40 s (RFC 5166 §2.3; neither \
    has more than three times the other), and 80 % of the link together.";

pub(super) const FAIR_WITH_ITSELF: Case = Case {
    name: "is-fair-with-itself",
    heading: "Is Fair With Itself",
    path_texts: &[("20mbit", "40ms"), ("50mbit", "20ms")],
    experiments: |s| {
        let flow = "count = 2\nstagger = \"5s\"".to_owned();
        vec![Experiment { flow, ..Experiment::new(s, 60.0, 0.1, "1bdp", fair) }]
    },
};

fn fair(o: &Observed<'_>, c: &mut Failures) {
    let from = o.end - 40.0;
    let shares = o.received_by_flow(from, o.end);
    let index = jain(&shares);
    let shares: Vec<String> =
        shares.iter().map(|bps| format!("{:.0} %", 100.0 * bps / o.link_limit())).collect();
    let shares = shares.join(" and ");
    c.bounded(index >= 0.8, format!("Jain's index {index:.2} (at least 0.8): {shares} of the link"));
    o.receives(c, "the link", o.link_limit(), 0.8, from, o.end);
}
