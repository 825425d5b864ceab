//! Paths that are hard on a model: aggregation, tiny BDPs, changes tenfold, policers.

use super::percent;
use crate::experiment::{Experiment, Judge, trigger};
use crate::observed::Observed;
use crate::{Case, Judgement, TestPath};
use fullpipe_experiment::recording::column;

pub(super) const STARTUP_WITH_AGGREGATION: Case = Case {
    name: "achieving-expected-startup-bandwidth-on-a-link-with-aggregation",
    heading: "Achieving Expected STARTUP Bandwidth on a Link With Aggregation",
    bound: None,
    path_texts: &[("20mbit", "40ms"), ("100mbit", "60ms"), ("500mbit", "20ms")],
    experiments: |s| vec![aggregated(s, startup_with_aggregation)],
};

pub(super) const CRUISE_WITH_AGGREGATION: Case = Case {
    name: "achieving-expected-cruise-bandwidth-on-a-link-with-aggregation",
    heading: "Achieving Expected Cruise Bandwidth on a Link With Aggregation",
    bound: None,
    path_texts: &[("20mbit", "40ms"), ("100mbit", "60ms"), ("500mbit", "20ms")],
    experiments: |s| {
        // In the second experiment ACKs are held back in one round of five: what is added must outlast the
        // other four.
        let rtt = s.rtt.as_secs_f64();
        let reverse = format!(
            "rate = \"{}\"\nqueue = \"100000p\"\nblackouts = [{{ at = \"1s\", for = \"{:.6}s\", every = \
             \"{:.6}s\", hold = true }}]",
            s.rate,
            0.6 * rtt,
            5.0 * rtt
        );
        vec![
            aggregated(s, cruise_with_aggregation),
            Experiment { reverse, ..Experiment::new(s, 12.0, rtt / 10.0, "8bdp", aggregation_is_remembered) },
        ]
    },
};

/// ACKs are held back for half a round trip and come together.
fn aggregated(s: &TestPath, judge: Judge) -> Experiment {
    let rtt = s.rtt.as_secs_f64();
    let reverse = format!("aggregate = {{ hold = \"{:.6}s\" }}", rtt / 2.0);
    Experiment { reverse, ..Experiment::new(s, 12.0, rtt / 20.0, "8bdp", judge) }
}

fn startup_with_aggregation(o: &Observed<'_>, c: &mut Judgement) {
    o.always(c);
    let Some(drain) = o.must_enter(c, "Drain") else { return };
    let bw = o.at(column::BW_BPS, drain + o.step());
    c.expect((0.9..=1.25).contains(&(bw / o.limit)), || {
        format!("max_bw {:.2} of the link's rate after Startup", bw / o.limit)
    });
    let most = o.max(column::CWND_BYTES, 0.0, drain + 2.0 * o.rtt);
    c.expect(most > 2.0 * o.bdp, || {
        format!("cwnd rose to {:.2} BDP only: nothing added for aggregation", most / o.bdp)
    });
}

fn cruise_with_aggregation(o: &Observed<'_>, c: &mut Judgement) {
    let mut seen = 0;
    for (from, to) in
        o.visits("ProbeBW_CRUISE").into_iter().filter(|(from, to)| *from > 1.0 && to - from > 10.0 * o.rtt)
    {
        seen += 1;
        o.link_is_filled(c, 0.93, from + 2.0 * o.rtt, to);
        let (model, cwnd) = (o.estimated_bdp(to), o.at(column::CWND_BYTES, to - o.step()));
        c.expect(cwnd >= 2.1 * model, || {
            format!("cwnd is {:.2} of the estimated BDP: nothing added for aggregation", cwnd / model)
        });
        // What is added is remembered for ten rounds and no longer: it does not exceed what a hold adds.
        c.expect(cwnd <= 4.0 * model + 8.0 * o.smss, || {
            format!("cwnd is {:.2} of the estimated BDP", cwnd / model)
        });
    }
    c.expect(seen > 0, || format!("never long in CRUISE: {}", o.sequence()));
}

fn aggregation_is_remembered(o: &Observed<'_>, c: &mut Judgement) {
    let mut seen = 0;
    for (from, to) in
        o.visits("ProbeBW_CRUISE").into_iter().filter(|(from, to)| *from > 2.0 && to - from > 15.0 * o.rtt)
    {
        seen += 1;
        let least = o
            .points(column::CWND_BYTES, from + 7.0 * o.rtt, to)
            .into_iter()
            .map(|(t, cwnd)| cwnd / o.estimated_bdp(t))
            .fold(f64::INFINITY, f64::min);
        c.expect(least >= 2.2, || {
            format!("cwnd falls to {least:.2} of the estimated BDP between bursts of ACKs")
        });
    }
    c.expect(seen > 0, || format!("never long in CRUISE: {}", o.sequence()));
}

pub(super) const SUB_PACKET_BDP: Case = Case {
    name: "correctly-managing-sub-packet-bdps",
    heading: "Correctly Managing Sub-Packet BDPs",
    bound: None,
    path_texts: &[("64kbit", "10ms"), ("128kbit", "1ms"), ("1mbit", "1ms")],
    experiments: |s| vec![Experiment::new(s, 120.0, 0.05, "100p", sub_packet)],
};

fn sub_packet(o: &Observed<'_>, c: &mut Judgement) {
    o.always(c);
    c.expect(o.first("ProbeBW_DOWN").is_some() || o.first("ProbeBW_CRUISE").is_some(), || {
        format!("never in ProbeBW: {}", o.sequence())
    });
    o.link_is_filled(c, 0.9, 60.0, o.end);
    o.bw_matches_the_rate(c, o.end, 0.05);
    let floor = o.min(column::CWND_BYTES, 60.0, o.end);
    c.expect(floor == 4.0 * o.smss || o.visits("ProbeRTT").is_empty(), || {
        format!("ProbeRTT's window is {floor:.0}, not four packets")
    });
    c.expect(floor >= 4.0 * o.smss, || format!("cwnd fell to {floor:.0}"));
}

pub(super) const TENFOLD_UP: Case = Case {
    name: "increasing-bandwidth-10x-and-ensuring-full-bandwidth-is-reached",
    heading: "Increasing Bandwidth 10x and Ensuring Full Bandwidth is Reached",
    bound: None,
    path_texts: &[("10mbit", "40ms"), ("20mbit", "100ms"), ("100mbit", "20ms")],
    experiments: |s| {
        let rtt = s.rtt.as_secs_f64();
        // A shallow buffer sets inflight_longterm before the change; then it must grow.
        let run = |seconds: f64, buffer, judge: Judge| Experiment {
            triggers: changed_to(s, 1000),
            ..Experiment::new(s, seconds, rtt / 20.0, buffer, judge)
        };
        vec![run(20.0, "2bdp", tenfold_up), run(30.0, "0.25bdp", growth_doubles)]
    },
};

/// So many hundredths of the rate from the first entry into CRUISE after 5 s on.
fn changed_to(s: &TestPath, share: u64) -> String {
    trigger("state = 'ProbeBW_CRUISE', not_before = '5s'", &format!("rate = '{}'", percent(s, share)))
}

/// When the rate changed, which it must have.
fn changed_at(o: &Observed<'_>, c: &mut Judgement) -> Option<f64> {
    let cruise = o.flow.states.iter().find(|s| s.state == "ProbeBW_CRUISE" && s.at_s >= 5.0);
    c.expect(cruise.is_some(), || format!("not in CRUISE after 5 s: {}", o.sequence()));
    cruise.map(|s| s.at_s)
}

fn tenfold_up(o: &Observed<'_>, c: &mut Judgement) {
    let Some(at) = changed_at(o, c) else { return };
    match o.when(column::BW_BPS, at, |bw| bw >= 9.0 * o.limit) {
        Some(t) => {
            let up = o.visits("ProbeBW_UP").into_iter().map(|u| u.0).find(|u| *u > at).unwrap_or(at);
            let rounds = (t - up) / o.rtt;
            // 1.25 a round: 10 is reached in 10.3 rounds; with a ProbeRTT in between twice as many.
            c.expect(rounds <= 40.0 || t - up <= 6.0, || {
                format!("90 % of ten times the rate after {rounds:.0} rounds of probing")
            });
        }
        None => c.fail(format!(
            "found {:.1} of ten times the rate in {:.0} s",
            o.at(column::BW_BPS, o.end) / o.limit,
            o.end - at
        )),
    }
}

fn growth_doubles(o: &Observed<'_>, c: &mut Judgement) {
    let Some(at) = changed_at(o, c) else { return };
    c.expect(o.at(column::INFLIGHT_LONGTERM_BYTES, at).is_finite(), || {
        "inflight_longterm was not set before the change".into()
    });
    let best = o.max(column::BW_BPS, at, o.end);
    c.expect(best >= 5.0 * o.limit, || format!("found {:.1} times the old rate of ten", best / o.limit));
    // The step added to inflight_longterm doubles each round of a probe.
    let doubled = o.visits("ProbeBW_UP").into_iter().filter(|(from, _)| *from > at).any(|(from, to)| {
        let samples: Vec<f64> = (0..)
            .map(|i| from + f64::from(i) * o.rtt)
            .take_while(|t| *t <= to)
            .map(|t| o.at(column::INFLIGHT_LONGTERM_BYTES, t))
            .collect();
        let steps: Vec<f64> = samples.windows(2).map(|w| w[1] - w[0]).collect();
        steps.windows(2).filter(|w| w[0] > 0.0 && w[1] >= 1.4 * w[0]).count() >= 2
    });
    c.expect(doubled, || "the growth of inflight_longterm does not double from round to round".into());
}

pub(super) const TENFOLD_DOWN: Case = Case {
    name: "decreasing-bandwidth-10x-and-ensuring-max-bandwidth-adapts-down",
    heading: "Decreasing Bandwidth 10x and Ensuring Max Bandwidth Adapts Down",
    bound: None,
    path_texts: &[("100mbit", "40ms"), ("50mbit", "100ms"), ("1gbit", "20ms")],
    experiments: |s| {
        let rtt = s.rtt.as_secs_f64();
        let triggers = changed_to(s, 10);
        vec![Experiment { triggers, ..Experiment::new(s, 40.0, rtt / 20.0, "0.5bdp", tenfold_down) }]
    },
};

fn tenfold_down(o: &Observed<'_>, c: &mut Judgement) {
    let Some(at) = changed_at(o, c) else { return };
    let new = o.limit / 10.0;
    // bw_shortterm takes 0.7 a lossy round, and a round takes up to fifteen old round trips while what
    // is in flight drains at a tenth of the rate; a probe, two to three seconds later, starts from
    // max_bw again.
    let below = |bound: f64| o.when(column::BW_BPS, at, |bw| bw <= bound).map(|t| t - at);
    let halved = below(0.5 * o.limit);
    c.expect(halved.is_some_and(|t| t <= 3.0 * 15.0 * o.rtt + 1.0), || {
        format!("bw at half the old rate after {halved:?} s")
    });
    let lowered = below(1.5 * new);
    c.expect(lowered.is_some_and(|t| t <= 12.0), || {
        format!("bw within half of the new rate after {lowered:?} s")
    });
    // Beta: no round takes more than 30 % off.
    let values: Vec<f64> =
        o.within(column::BW_BPS, at, at + 3.0).into_iter().fold(Vec::new(), |mut all, v| {
            if all.last() != Some(&v) {
                all.push(v);
            }
            all
        });
    let steepest = values.windows(2).map(|w| w[1] / w[0]).fold(1.0, f64::min);
    c.expect(steepest >= 0.69, || {
        format!("bw fell to {steepest:.2} of its previous value in one round, below 0.7 (Beta)")
    });
    c.expect(steepest <= 0.72, || {
        format!("bw never fell to 0.7 (Beta) of its previous value in one round, only to {steepest:.2}")
    });
    // The maximum filter: two cycles later the old rate is forgotten, and no probe brings it back.
    let late = o.max(column::BW_BPS, o.end - 8.0, o.end);
    c.expect((late / new - 1.0).abs() <= 0.1, || {
        format!("max_bw is {:.2} of the new rate at the end", late / new)
    });
    let goodput = o.goodput(o.end - 8.0, o.end);
    c.expect(goodput >= 0.8 * new, || format!("{:.0} % of the new rate at the end", 100.0 * goodput / new));
}

pub(super) const POLICER: Case = Case {
    name: "handling-token-bucket-policers",
    heading: "Handling Token Bucket Policers",
    bound: None,
    path_texts: &[("100mbit", "40ms"), ("50mbit", "100ms"), ("1gbit", "20ms")],
    experiments: |s| {
        let rtt = s.rtt.as_secs_f64();
        let burst = s.rate.bytes_in(s.rtt).max(30_000);
        let link = format!("policer = {{ rate = \"{}\", burst = \"{burst}\" }}", percent(s, 10));
        vec![Experiment { link, ..Experiment::new(s, 30.0, rtt / 10.0, "2bdp", policer) }]
    },
};

fn policer(o: &Observed<'_>, c: &mut Judgement) {
    let tokens = o.limit / 10.0;
    c.expect(o.first("ProbeBW_DOWN").is_some(), || format!("never in ProbeBW: {}", o.sequence()));
    let bounded = !o.within(column::INFLIGHT_SHORTTERM_BYTES, 0.0, o.end).is_empty();
    c.expect(bounded, || "losses never set inflight_shortterm".into());
    let goodput = o.goodput(12.0, o.end);
    c.expect(goodput >= 0.7 * tokens, || format!("{:.0} % of the policed rate", 100.0 * goodput / tokens));
    o.loss_is_at_most(c, 0.10, 12.0);
}
