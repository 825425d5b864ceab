//! ProbeRTT: when, how long, and where to.

use super::app_at;
use crate::experiment::{Experiment, trigger};
use crate::observed::Observed;
use crate::{Case, Judgement};
use fullpipe_experiment::recording::{EventKind, column};

pub(super) const ENTER_AND_EXIT: Case = Case {
    name: "entering-and-exiting-probe-rtt",
    heading: "Entering and Exiting PROBE_RTT",
    bound: None,
    path_texts: &[("10mbit", "40ms"), ("100mbit", "100ms"), ("1gbit", "10ms"), ("2mbit", "400ms")],
    experiments: |s| {
        let step = (s.rtt.as_secs_f64() / 20.0).min(0.005);
        // After a second the path becomes twice as long: the handshake's minimum is valid for ten seconds.
        let longer = s.rtt.as_secs_f64() * 1.5;
        let link = format!("schedule = [{{ at = \"1s\", delay = \"{longer:.6}s\" }}]");
        vec![
            Experiment::new(s, 17.0, step, "8bdp", enter_and_exit),
            Experiment { link, ..Experiment::new(s, 14.0, 0.02, "8bdp", min_rtt_expires) },
        ]
    },
};

fn enter_and_exit(o: &Observed<'_>, c: &mut Judgement) {
    o.always(c);
    let exits = o.exits("ProbeRTT");
    c.expect(exits.len() >= 2, || format!("{} intervals in ProbeRTT in 17 s: {}", exits.len(), o.sequence()));
    let mut last_end = 0.0;
    for (from, to, next) in &exits {
        c.expect(*next == "ProbeBW_DOWN" || *next == "ProbeBW_CRUISE", || format!("ProbeRTT led to {next}"));
        let since = from - last_end;
        // The interval counts from the last minimum, from the handshake or the last ProbeRTT; a
        // state that only ends with a round may delay it.
        c.expect(since >= 5.0 - 2.5 * o.rtt, || format!("ProbeRTT {since:.2} s after the last: too early"));
        last_end = *to;
        let low = o.points(column::INFLIGHT_BYTES, *from, *to);
        let target = (0.5 * o.estimated_bdp(*from)).max(4.0 * o.smss);
        let slack = (0.04 * target).max(4.0 * o.smss);
        let reached = low.iter().find(|(_, v)| *v <= target + slack).map(|p| p.0);
        c.expect(reached.is_some(), || "inflight did not fall to half the BDP".into());
        if let Some(reached) = reached {
            let stayed = to - reached;
            c.expect(stayed >= 0.2 - 0.2 * o.rtt - 2.0 * o.step(), || {
                format!("only {stayed:.3} s at low inflight, not 200 ms")
            });
            c.expect(stayed <= 0.2 + 2.5 * o.rtt + 4.0 * o.step(), || {
                format!("{stayed:.3} s at low inflight: too long")
            });
            let held = low
                .iter()
                .filter(|(t, _)| *t > reached + o.step() && *t < to - o.step())
                .map(|p| p.1)
                .fold(f64::INFINITY, f64::min);
            c.expect(held >= (target - slack).min(4.0 * o.smss) - 1.0, || {
                format!("inflight fell to {held:.0}, far below half the BDP ({target:.0})")
            });
        }
        // The saved window is restored.
        let before = o.at(column::CWND_BYTES, from - o.step());
        let restored = o.at(column::CWND_BYTES, to + 3.0 * o.rtt);
        c.expect(restored >= 0.8 * before, || {
            format!("cwnd {restored:.0} after ProbeRTT, {before:.0} before")
        });
    }
    let first = exits.first().map_or(f64::NAN, |e| e.0);
    c.expect((5.0..=5.0 + 5.0 * o.rtt + 0.1).contains(&first), || {
        format!("first ProbeRTT at {first:.2} s, not at 5 s")
    });
    o.link_is_filled(c, 0.85, 7.0, o.end);
}

fn min_rtt_expires(o: &Observed<'_>, c: &mut Judgement) {
    let old = o.at(column::MIN_RTT_MS, 0.9);
    match o.when(column::MIN_RTT_MS, 1.0, |v| v > 1.3 * old) {
        Some(t) => c.expect((9.9..=10.6 + 5.0 * o.rtt).contains(&t), || {
            format!("min_rtt showed the longer path at {t:.1} s, not ten seconds after the handshake")
        }),
        None => c.fail("min_rtt never showed the longer path"),
    }
}

pub(super) const SKIP_WHEN_IDLE: Case = Case {
    name: "skipping-probe-rtt-due-to-application-limited-sending",
    heading: "Skipping PROBE_RTT Due to Application-Limited Sending",
    bound: None,
    path_texts: &[("10mbit", "40ms"), ("100mbit", "100ms"), ("1gbit", "10ms")],
    experiments: |s| {
        // A second or so of sending, then idle for more than five.
        let size = s.rate.as_bytes_per_sec();
        let flow = format!("app = {{ kind = \"bursts\", size = \"{size}\", every = \"8s\" }}");
        let step = (s.rtt.as_secs_f64() / 10.0).max(0.002);
        vec![Experiment { flow, ..Experiment::new(s, 30.0, step, "4bdp", skip) }]
    },
};

fn skip(o: &Observed<'_>, c: &mut Judgement) {
    c.expect(o.first("ProbeRTT").is_none(), || {
        format!("ProbeRTT although idle periods drained the queue: {}", o.sequence())
    });
    c.expect(o.first("ProbeBW_CRUISE").is_some() || o.first("ProbeBW_DOWN").is_some(), || {
        format!("never in ProbeBW: {}", o.sequence())
    });
    let restarts = o.events(EventKind::IdleRestart).len();
    c.expect(restarts >= 3, || {
        format!("{restarts} restarts from idle, not one for each of the later bursts")
    });
    // Each later burst is paced at the bandwidth, not above it.
    for t in [8.0, 16.0, 24.0] {
        let pacing = o.within(column::PACING_BPS, t, t + 2.0 * o.rtt);
        let bw = o.at(column::BW_BPS, t);
        c.expect(pacing.iter().all(|p| *p <= 1.26 * bw), || {
            "a restart from idle is paced above the bandwidth".into()
        });
    }
}

pub(super) const DURING_STARTUP: Case = Case {
    name: "entering-and-exiting-probe-rtt-during-startup",
    heading: "Entering and Exiting PROBE_RTT During STARTUP",
    bound: None,
    path_texts: &[("10mbit", "40ms"), ("100mbit", "100ms"), ("1gbit", "10ms")],
    experiments: |s| {
        // An application at a quarter of the rate keeps the flow in Startup beyond five seconds; then it is
        // unlimited.
        let flow = format!("app = {}", app_at(s, 0.25));
        let triggers = trigger("state = 'Startup', not_before = '1s'", "app = { kind = 'bulk' }");
        let step = (s.rtt.as_secs_f64() / 10.0).min(0.01);
        vec![Experiment { flow, triggers, ..Experiment::new(s, 9.0, step, "8bdp", during_startup) }]
    },
};

fn during_startup(o: &Observed<'_>, c: &mut Judgement) {
    c.expect(o.sequence().starts_with("Startup → ProbeRTT → Startup → Drain"), || {
        format!("states {}", o.sequence())
    });
    o.bw_matches_the_rate(c, o.end, 0.03);
}
