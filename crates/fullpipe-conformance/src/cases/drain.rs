//! Drain ends when the queue is empty, or after three rounds.

use super::percent;
use crate::experiment::{Experiment, trigger};
use crate::observed::Observed;
use crate::{Case, Judgement};
use fullpipe_experiment::recording::column;

pub(super) const INFLIGHT: Case = Case {
    name: "exiting-drain-based-on-inflight",
    heading: "Exiting DRAIN Based on Inflight",
    bound: None,
    path_texts: &[("10mbit", "40ms"), ("100mbit", "200ms"), ("1gbit", "10ms"), ("10gbit", "5ms")],
    experiments: |s| {
        let rtt = s.rtt.as_secs_f64();
        vec![Experiment::new(s, 60.0 * rtt, rtt / 100.0, "8bdp", inflight)]
    },
};

fn inflight(o: &Observed<'_>, c: &mut Judgement) {
    o.always(c);
    let Some((from, to, next)) = o.must_leave(c, "Drain") else { return };
    c.expect(next.starts_with("ProbeBW"), || format!("Drain led to {next}"));
    o.pacing_is_below_bw(c, from, to);
    o.ends_when_drained(c, "Drain", to);
}

pub(super) const TIME: Case = Case {
    name: "exiting-drain-based-on-time",
    heading: "Exiting DRAIN Based on Time",
    bound: None,
    path_texts: &[("10mbit", "40ms"), ("100mbit", "100ms"), ("1gbit", "10ms")],
    experiments: |s| {
        let rtt = s.rtt.as_secs_f64();
        // Drain paces at half the estimate: only a link of less than half the rate keeps inflight up. (The
        // draft's decrease by 10 % does not.)
        let triggers = trigger("state = 'Drain'", &format!("rate = '{}'", percent(s, 40)));
        vec![Experiment { triggers, ..Experiment::new(s, 90.0 * rtt, rtt / 50.0, "16bdp", time) }]
    },
};

fn time(o: &Observed<'_>, c: &mut Judgement) {
    let Some((from, to, next)) = o.must_leave(c, "Drain") else { return };
    c.expect(next == "ProbeBW_DOWN", || format!("Drain led to {next}"));
    let (bdp, left) = (o.estimated_bdp(to), o.at(column::INFLIGHT_BYTES, to));
    c.expect(left > bdp, || {
        format!("{left:.0} bytes in flight are no more than the BDP of {bdp:.0}: nothing shown")
    });
    // round_count must exceed its value at the start by more than three.
    let rounds = o.after(column::ROUNDS, to) - o.at(column::ROUNDS, from + o.step());
    c.expect((rounds - 4.0).abs() < 0.5, || format!("left Drain after {rounds} rounds, not in the fourth"));
}
