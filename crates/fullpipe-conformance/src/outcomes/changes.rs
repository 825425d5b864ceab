//! Rates that change, applications that pause, and a path that goes away.

use super::ramp;
use crate::experiment::Experiment;
use crate::observed::Observed;
use crate::{Case, Judgement, TestPath};
use fullpipe_experiment::recording::column;
use fullpipe_units::Rate;

pub(super) const TENFOLD_UP: Case = Case {
    name: "finds-ten-times-the-bandwidth",
    heading: "Finds Ten Times the Bandwidth",
    bound: Some(
        "At least 70 % of the new rate, ten times the old, once a window that grows by one packet \
         per round trip (RFC 5681 §3.1) has reached the new BDP and BBR's longest wait between \
         probes (3 s) has passed: a halved window with a buffer of a fifth of the BDP carries 87 \
         %; RFC 9743 §7.9.",
    ),
    path_texts: &[("2mbit", "40ms"), ("10mbit", "20ms")],
    experiments: |s| {
        let faster = TestPath { rate: tenfold(s.rate), ..*s };
        let link = format!("schedule = [{{ at = \"5s\", rate = \"{}\" }}]", faster.rate);
        let seconds = 5.0 + 3.0 + ramp(&faster) + 10.0;
        vec![Experiment { link, ..Experiment::new(s, seconds, 0.01, "2bdp", tenfold_up) }]
    },
};

fn tenfold(rate: Rate) -> Rate {
    Rate::from_bits_per_sec(rate.as_bits_per_sec() * 10)
}

fn tenfold_up(o: &Observed<'_>, c: &mut Judgement) {
    o.receives(c, "ten times the rate", 10.0 * o.link_limit(), 0.7, o.end - 10.0, o.end);
}

pub(super) const TENFOLD_DOWN: Case = Case {
    name: "gives-up-nine-tenths-of-the-bandwidth",
    heading: "Gives Up Nine Tenths of the Bandwidth",
    bound: Some(
        "From 150 round trips after the change: at least 80 % of the new rate and at most 2 % of \
         the packets lost. BBR keeps the old estimate for ten round trips; each lasts eleven \
         times as long while the buffer is full at the new rate, 110 in total; RFC 9743 §7.9.",
    ),
    path_texts: &[("20mbit", "40ms"), ("100mbit", "20ms")],
    experiments: |s| {
        let rate = Rate::from_bits_per_sec(s.rate.as_bits_per_sec() / 10);
        let at = 2.0 + ramp(s);
        let link = format!("schedule = [{{ at = \"{at:.6}s\", rate = \"{rate}\" }}]");
        let seconds = at + 150.0 * s.rtt.as_secs_f64() + 15.0;
        vec![Experiment { link, ..Experiment::new(s, seconds, 0.01, "1bdp", tenfold_down) }]
    },
};

fn tenfold_down(o: &Observed<'_>, c: &mut Judgement) {
    o.receives(c, "a tenth of the rate", o.link_limit() / 10.0, 0.8, o.end - 15.0, o.end);
    o.loses_at_most(c, 0.02, o.end - 15.0, o.end);
}

pub(super) const APP_LIMITED: Case = Case {
    name: "paces-an-application-that-pauses",
    heading: "Paces an Application That Pauses",
    bound: Some(
        "The application writes 16 ms of the link's rate every 64 ms. At least 95 % of it \
         arrives, at most 2 % of the packets are lost in a buffer of 15 ms, and the pacing rate, \
         if the controller has one, is at most three times the link's rate (RFC 9002 §7.7 and \
         §7.8; BBR v1's Startup gain is 2.89).",
    ),
    path_texts: &[("20mbit", "40ms"), ("100mbit", "40ms")],
    experiments: |s| {
        // As in noq's issue 800: 40 kB each 64 ms on 20 Mbit/s, with a queue of 25 packets.
        let quarter = Rate::from_bits_per_sec(s.rate.as_bits_per_sec() / 4);
        let burst = s.rate.as_bytes_per_sec() * 16 / 1000;
        let flow = format!("app = {{ kind = \"rate\", rate = \"{quarter}\", chunk = \"{burst}\" }}");
        vec![Experiment { flow, ..Experiment::new(s, 20.0, 0.01, "15ms", app_limited) }]
    },
};

fn app_limited(o: &Observed<'_>, c: &mut Judgement) {
    let rate = o.run.path.rate_bps.unwrap_or(f64::NAN);
    o.receives(c, "what the application writes", rate / 4.0, 0.95, o.end - 15.0, o.end);
    o.loses_at_most(c, 0.02, o.end - 15.0, o.end);
    // A controller without a pacing rate is judged by what its bursts lose.
    let pacing = o.flow.series.values(column::PACING_BPS, o.end - 15.0, o.end);
    if let Some(fastest) = pacing.into_iter().max_by(f64::total_cmp) {
        let times = fastest / rate;
        c.bounded(times <= 3.0, format!("paced at {times:.1} times the link's rate (at most 3)"));
    }
}

pub(super) const BLACKOUT: Case = Case {
    name: "returns-after-a-blackout",
    heading: "Returns After a Blackout",
    bound: Some(
        "At least 80 % of the link's rate after an outage of 5 s, once the longest backed-off \
         timeout has expired (another 5 s; RFC 6298 §5.5, RFC 9002 §6.2.1) and the window has \
         grown to the BDP by one packet per round trip.",
    ),
    path_texts: &[("20mbit", "40ms"), ("100mbit", "20ms")],
    experiments: |s| {
        let at = 2.0 + ramp(s);
        let blackout = format!("blackouts = [{{ at = \"{at:.6}s\", for = \"5s\" }}]");
        let seconds = at + 5.0 + 5.0 + 2.0 + ramp(s) + 8.0;
        let run = Experiment::new(s, seconds, 0.01, "1bdp", blackout_ends);
        vec![Experiment { link: blackout.clone(), reverse: blackout, ..run }]
    },
};

fn blackout_ends(o: &Observed<'_>, c: &mut Judgement) {
    o.receives(c, "the link's rate", o.link_limit(), 0.8, o.end - 8.0, o.end);
}
