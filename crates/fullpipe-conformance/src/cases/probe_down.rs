//! ProbeBW_DOWN ends when the queue is empty, or when it is time to probe.

use super::percent;
use crate::experiment::{Experiment, trigger};
use crate::observed::Observed;
use crate::{Case, Judgement};
use fullpipe_experiment::recording::column;

pub(super) const INFLIGHT: Case = Case {
    name: "exiting-probe-down-on-inflight",
    heading: "Exiting PROBE_DOWN on Inflight",
    bound: None,
    path_texts: &[("10mbit", "40ms"), ("100mbit", "100ms"), ("1gbit", "20ms")],
    experiments: |s| {
        let rtt = s.rtt.as_secs_f64();
        // The second has losses, so that there is a long-term bound to leave headroom below.
        vec![
            Experiment::new(s, 12.0, rtt / 40.0, "8bdp", inflight),
            Experiment::new(s, 12.0, rtt / 40.0, "0.2bdp", headroom),
        ]
    },
};

fn inflight(o: &Observed<'_>, c: &mut Judgement) {
    o.always(c);
    let exits: Vec<_> = o
        .exits("ProbeBW_DOWN")
        .into_iter()
        .filter(|e| e.2 == "ProbeBW_CRUISE" && e.1 > e.0 + 2.0 * o.step())
        .collect();
    c.expect(!exits.is_empty(), || format!("never from DOWN to CRUISE: {}", o.sequence()));
    for (from, to, _) in exits {
        o.pacing_is_below_bw(c, from, to);
        o.ends_when_drained(c, "DOWN", to);
    }
}

fn headroom(o: &Observed<'_>, c: &mut Judgement) {
    o.always(c);
    let mut seen = 0;
    for (from, to) in o.visits("ProbeBW_CRUISE") {
        for (t, cwnd) in o.points(column::CWND_BYTES, from + 1e-9, to - 1e-9) {
            let longterm = o.at(column::INFLIGHT_LONGTERM_BYTES, t);
            if longterm.is_finite() {
                seen += 1;
                let cap = (0.85 * longterm).ceil().max(4.0 * o.smss) + 1.0;
                c.expect(cwnd <= cap || seen > 1000, || {
                    format!("cwnd {cwnd:.0} in CRUISE leaves no headroom of 15 % below {longterm:.0}")
                });
            }
        }
    }
    c.expect(seen > 0, || "a buffer of 0.2 BDP never set inflight_longterm".into());
    // The window uses what the headroom leaves, not less.
    let used = o.visits("ProbeBW_CRUISE").iter().any(|(from, to)| {
        o.points(column::CWND_BYTES, *from, *to).iter().any(|(t, cwnd)| {
            let longterm = o.at(column::INFLIGHT_LONGTERM_BYTES, *t);
            longterm.is_finite() && *cwnd >= 0.80 * longterm
        })
    });
    c.expect(used, || "cwnd in CRUISE never comes near 85 % of inflight_longterm".into());
}

pub(super) const MAX_TIME: Case = Case {
    name: "exiting-probe-down-after-max-time",
    heading: "Exiting PROBE_DOWN After Max Time",
    bound: None,
    path_texts: &[("10mbit", "100ms"), ("100mbit", "60ms"), ("50mbit", "80ms"), ("1gbit", "10ms")],
    experiments: |s| {
        let rtt = s.rtt.as_secs_f64();
        // DOWN paces at 0.99 · 0.9 of the estimate: a link of 0.85 keeps the queue.
        let triggers = trigger(
            &format!("state = 'ProbeBW_DOWN', not_before = '{:.3}s'", 30.0 * rtt),
            &format!("rate = '{}'", percent(s, 85)),
        );
        // A shorter path from 3 s on gives a new minimum: ProbeRTT does not interfere.
        let link = format!("schedule = [{{ at = \"3s\", delay = \"{:.6}s\" }}]", 0.4 * rtt);
        vec![Experiment { link, triggers, ..Experiment::new(s, 12.0, rtt / 20.0, "16bdp", max_time) }]
    },
};

fn max_time(o: &Observed<'_>, c: &mut Judgement) {
    let exits = o.exits("ProbeBW_DOWN");
    let direct = exits.iter().find(|e| e.2 == "ProbeBW_REFILL" && e.1 - e.0 > 5.0 * o.rtt);
    let Some((from, to, _)) = direct else {
        c.expect(exits.iter().any(|e| e.2 == "ProbeRTT"), || {
            format!("DOWN never led to REFILL: {}", o.sequence())
        });
        c.fail(format!("DOWN never lasted until it was time to probe: {}", o.sequence()));
        return;
    };
    let (waited, rounds) = (to - from, o.at(column::ROUNDS, *to) - o.at(column::ROUNDS, from + o.step()));
    let by_time = (2.0..=3.0 + 2.0 * o.rtt + 2.0 * o.step()).contains(&waited);
    let by_rounds = (61.0..=64.0).contains(&rounds);
    c.expect(by_time || by_rounds, || {
        format!("left DOWN after {waited:.2} s and {rounds} rounds: neither 2 to 3 s nor 62 to 63 rounds")
    });
    // On short round trips the rounds come first, on long ones the clock.
    let rounds_first = 62.0 * o.rtt * 1.3 < 2.0 && o.bdp / o.smss > 63.0;
    c.expect(!rounds_first || by_rounds, || format!("{rounds} rounds in DOWN, not 62 to 63"));
}
