//! ProbeBW_UP ends at a plateau or at loss, not for lack of data; also REFILL before it.

use super::app_at;
use crate::experiment::{Experiment, trigger};
use crate::observed::Observed;
use crate::{Case, Judgement};
use fullpipe_experiment::recording::column;

pub(super) const PLATEAU: Case = Case {
    name: "exiting-probe-up-on-bandwidth-plateau",
    heading: "Exiting PROBE_UP on Bandwidth Plateau",
    bound: None,
    path_texts: &[("10mbit", "40ms"), ("100mbit", "100ms"), ("1gbit", "20ms"), ("5mbit", "200ms")],
    experiments: |s| {
        let rtt = s.rtt.as_secs_f64();
        vec![Experiment::new(s, 14.0, rtt / 20.0, "8bdp", plateau)]
    },
};

fn plateau(o: &Observed<'_>, c: &mut Judgement) {
    o.always(c);
    let exits: Vec<_> = o.exits("ProbeBW_UP").into_iter().filter(|e| e.2 != "ProbeRTT").collect();
    c.expect(!exits.is_empty(), || format!("never left UP: {}", o.sequence()));
    for (from, to, next) in exits {
        c.expect(next == "ProbeBW_DOWN", || format!("UP led to {next}"));
        o.pacing_is_below_bw(c, from, to);
        let rounds = o.after(column::ROUNDS, to) - o.at(column::ROUNDS, from + o.step());
        c.expect((rounds - 3.0).abs() <= 1.0, || format!("{rounds} rounds in UP, not three without growth"));
        let long = (to - from) / o.rtt;
        c.expect((2.5..=6.0).contains(&long), || format!("UP lasted {long:.1} round trips"));
        let most = o.max(column::INFLIGHT_BYTES, from, to);
        let floor = 8.0 * o.smss;
        c.expect(most >= 1.2 * o.bdp - floor, || format!("inflight rose only to {:.2} BDP", most / o.bdp));
        c.expect(most <= 2.35 * 1.25 * o.bdp + 10.0 * floor, || {
            format!("inflight rose to {:.2} BDP", most / o.bdp)
        });
    }
    // REFILL lasts one round.
    for (from, to, next) in o.exits("ProbeBW_REFILL").into_iter().filter(|e| e.2 != "ProbeRTT") {
        c.expect(next == "ProbeBW_UP", || format!("REFILL led to {next}"));
        let rounds = (to - from) / o.rtt;
        c.expect((0.5..=2.6).contains(&rounds), || {
            format!("REFILL lasted {rounds:.1} round trips, not one round")
        });
    }
    // The wait from one probe's end to the next: 2 to 3 s, or 62 to 63 rounds.
    for w in o.visits("ProbeBW_DOWN").windows(2) {
        let (from, to) = (w[0].0, w[1].0);
        let refill = o.visits("ProbeBW_REFILL").into_iter().map(|r| r.0).find(|t| *t > from && *t < to);
        let interrupted = o.visits("ProbeRTT").iter().any(|p| p.0 >= from && p.0 <= to);
        if let (Some(refill), false) = (refill, interrupted) {
            let waited = refill - from;
            let rounds = o.at(column::ROUNDS, refill) - o.at(column::ROUNDS, from + o.step());
            let by_time = (2.0..=3.0 + 2.0 * o.rtt + o.step()).contains(&waited);
            let bound = (o.bdp / o.smss).min(63.0);
            let by_rounds =
                rounds >= 0.8 * bound - 3.0 && rounds <= bound + 2.0 && waited <= 3.0 + 2.0 * o.rtt;
            c.expect(by_time || by_rounds, || {
                format!("probed again after {waited:.2} s and {rounds} rounds")
            });
        }
    }
}

pub(super) const LOSS_WHEN_APP_LIMITED: Case = Case {
    name: "exiting-probe-up-on-loss-when-application-limited",
    heading: "Exiting PROBE_UP on Loss When Application-Limited",
    bound: None,
    path_texts: &[("20mbit", "80ms"), ("100mbit", "40ms"), ("1gbit", "20ms")],
    experiments: |s| {
        let rtt = s.rtt.as_secs_f64();
        // The application sends 60 % of the rate once UP begins; losses follow some rounds later.
        let triggers = trigger("state = 'ProbeBW_UP'", &format!("app = {}", app_at(s, 0.6)))
            + &trigger(&format!("state = 'ProbeBW_UP', delay = '{:.4}s'", 6.0 * rtt), "loss = '6%'");
        let link = "loss = '0%'".into();
        vec![Experiment { link, triggers, ..Experiment::new(s, 4.9, rtt / 20.0, "8bdp", lossy) }]
    },
};

fn lossy(o: &Observed<'_>, c: &mut Judgement) {
    let Some(from) = o.must_enter(c, "ProbeBW_UP") else { return };
    match o.exits("ProbeBW_UP").first().copied() {
        Some((_, to, next)) => {
            // With little in flight DOWN may give way to CRUISE at the same moment.
            c.expect(next == "ProbeBW_DOWN" || next == "ProbeBW_CRUISE", || format!("UP led to {next}"));
            let lost_from = from + 6.0 * o.rtt;
            c.expect(to >= lost_from, || "left UP before there was loss".into());
            c.expect(to <= lost_from + 4.5 * o.rtt, || {
                format!("left UP {:.1} round trips after loss began", (to - lost_from) / o.rtt)
            });
        }
        None => c.fail("loss of 6 % did not end UP"),
    }
}

pub(super) const NEVER_WHEN_APP_LIMITED: Case = Case {
    name: "never-exiting-probe-up-or-startup-when-application-limited-with-no-loss",
    heading: "Never Exiting PROBE_UP (or STARTUP) When Application-Limited With No Loss",
    bound: None,
    path_texts: &[("10mbit", "40ms"), ("100mbit", "100ms"), ("1gbit", "20ms")],
    experiments: |s| {
        let rtt = s.rtt.as_secs_f64();
        let flow = format!("app = {}", app_at(s, 0.4));
        let triggers = trigger("state = 'ProbeBW_UP'", &flow);
        vec![
            Experiment { flow, ..Experiment::new(s, 12.0, rtt / 4.0, "8bdp", stays_in_startup) },
            Experiment { triggers, ..Experiment::new(s, 12.0, rtt / 4.0, "8bdp", stays_in_up) },
        ]
    },
};

fn stays_in_startup(o: &Observed<'_>, c: &mut Judgement) {
    let other = o.flow.states.iter().find(|s| s.state != "Startup" && s.state != "ProbeRTT");
    c.expect(other.is_none(), || format!("an application-limited flow left Startup: {}", o.sequence()));
}

fn stays_in_up(o: &Observed<'_>, c: &mut Judgement) {
    let Some(up) = o.must_enter(c, "ProbeBW_UP") else { return };
    let after: Vec<&str> = o.flow.states.iter().filter(|s| s.at_s > up).map(|s| s.state.as_str()).collect();
    c.expect(after.first().is_none_or(|s| *s == "ProbeRTT"), || {
        format!("an application-limited flow left UP: {}", o.sequence())
    });
}

pub(super) const LOSS_AFTER_LONGTERM_BOUND: Case = Case {
    name: "handling-loss-during-probe-up-after-inflight-longterm-is-set",
    heading: "Handling Loss During PROBE_UP After inflight_longterm is Set",
    bound: None,
    path_texts: &[("10mbit", "60ms"), ("100mbit", "50ms"), ("1gbit", "20ms")],
    experiments: |s| {
        let rtt = s.rtt.as_secs_f64();
        // Losses in the first probe only: the second stops at the bound that they set, and as it
        // loses nothing, a third follows immediately.
        let triggers = trigger("state = 'ProbeBW_UP'", "loss = '8%'")
            + &trigger(&format!("state = 'ProbeBW_UP', delay = '{:.4}s'", 1.5 * rtt), "loss = '0%'");
        let link = "loss = '0%'".into();
        vec![
            Experiment::new(s, 16.0, rtt / 20.0, "0.25bdp", loss_after_bound),
            Experiment { link, triggers, ..Experiment::new(s, 16.0, rtt / 20.0, "8bdp", precautionary) },
        ]
    },
};

fn loss_after_bound(o: &Observed<'_>, c: &mut Judgement) {
    o.always(c);
    let mut bounded = 0;
    for (from, to, next) in o.exits("ProbeBW_UP") {
        let before = o.at(column::INFLIGHT_LONGTERM_BYTES, from);
        let lost = o.after(column::LOST_PACKETS, to) - o.at(column::LOST_PACKETS, from);
        if !before.is_finite() || lost == 0.0 {
            continue;
        }
        bounded += 1;
        c.expect(next == "ProbeBW_DOWN", || format!("loss in UP led to {next}"));
        let after = o.after(column::INFLIGHT_LONGTERM_BYTES, to);
        // Not below Beta times the target, which the BDP or the window is.
        c.expect(after >= 0.7 * 0.9 * o.bdp - 2.0 * o.smss, || {
            format!("inflight_longterm fell to {:.2} BDP", after / o.bdp)
        });
        c.expect(after <= 1.35 * o.bdp + 6.0 * o.smss, || {
            format!("inflight_longterm {:.2} BDP although 1.25 overflows the buffer", after / o.bdp)
        });
    }
    c.expect(bounded > 0, || format!("no loss in UP with inflight_longterm set: {}", o.sequence()));
    o.link_is_filled(c, 0.75, 4.0, o.end);
    o.loss_is_at_most(c, 0.02, 4.0);
}

fn precautionary(o: &Observed<'_>, c: &mut Judgement) {
    let ups = o.exits("ProbeBW_UP");
    c.expect(ups.len() >= 3, || format!("{} probes in 16 s: {}", ups.len(), o.sequence()));
    let refills = o.visits("ProbeBW_REFILL");
    let again =
        ups.iter().skip(1).any(|(_, to, _)| refills.iter().any(|r| r.0 > *to && r.0 - to < 6.0 * o.rtt));
    c.expect(again, || {
        format!("no precautionary probe was followed immediately by a refill: {}", o.sequence())
    });
    let Some(first) = ups.first() else { return };
    let (bound, end) = (
        o.at(column::INFLIGHT_LONGTERM_BYTES, first.1 + 3.0 * o.rtt),
        o.at(column::INFLIGHT_LONGTERM_BYTES, o.end),
    );
    c.expect(bound.is_finite(), || "losses in UP did not set inflight_longterm".into());
    c.expect(end > bound, || "inflight_longterm did not rise again once nothing was lost".into());
}

pub(super) const APP_LIMITED_REFILL: Case = Case {
    name: "handling-application-limited-sending-during-probe-refill",
    heading: "Handling Application-Limited Sending During PROBE_REFILL",
    bound: None,
    path_texts: &[("10mbit", "40ms"), ("100mbit", "100ms"), ("1gbit", "20ms")],
    experiments: |s| {
        let rtt = s.rtt.as_secs_f64();
        let all_again = format!("state = 'ProbeBW_REFILL', delay = '{:.4}s'", 6.0 * rtt);
        let triggers = trigger("state = 'ProbeBW_REFILL'", &format!("app = {}", app_at(s, 0.2)))
            + &trigger(&all_again, "app = { kind = 'bulk' }");
        vec![Experiment { triggers, ..Experiment::new(s, 12.0, rtt / 20.0, "8bdp", app_limited_refill) }]
    },
};

fn app_limited_refill(o: &Observed<'_>, c: &mut Judgement) {
    let Some((from, to, next)) = o.must_leave(c, "ProbeBW_REFILL") else { return };
    c.expect(next == "ProbeBW_UP", || format!("REFILL led to {next}"));
    let before = o.at(column::BW_BPS, from);
    let least = o.min(column::BW_BPS, from, to + 6.0 * o.rtt);
    c.expect(least >= 0.999 * before, || {
        format!("max_bw fell to {:.2} of what it was on slow samples of the application", least / before)
    });
    let later = o.exits("ProbeBW_UP").into_iter().any(|e| e.2 == "ProbeBW_DOWN");
    c.expect(later, || format!("probing does not continue afterwards: {}", o.sequence()));
    o.link_is_filled(c, 0.8, o.end - 3.0, o.end);
}
