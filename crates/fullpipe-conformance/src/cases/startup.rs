//! Startup ends at a plateau of bandwidth, or at loss.

use super::app_at;
use crate::experiment::{Experiment, Judge};
use crate::observed::Observed;
use crate::{Case, Judgement};
use fullpipe_experiment::recording::column;

pub(super) const PLATEAU: Case = Case {
    name: "exiting-startup-on-bandwidth-plateau",
    heading: "Exiting STARTUP on Bandwidth Plateau",
    bound: None,
    path_texts: &[
        ("1mbit", "100ms"),
        ("10mbit", "40ms"),
        ("100mbit", "200ms"),
        ("1gbit", "20ms"),
        ("10gbit", "2ms"),
    ],
    experiments: |s| {
        let rtt = s.rtt.as_secs_f64();
        vec![Experiment::new(s, 60.0 * rtt, rtt / 40.0, "8bdp", plateau)]
    },
};

fn plateau(o: &Observed<'_>, c: &mut Judgement) {
    o.always(c);
    let Some(drain) = o.must_enter(c, "Drain") else { return };
    c.expect(o.sequence().starts_with("Startup → Drain"), || format!("states {}", o.sequence()));
    o.bw_matches_the_rate(c, drain, 0.02);
    c.expect(o.within(column::LOST_PACKETS, 0.0, drain).last() == Some(&0.0), || "lost packets".into());
    // The estimator again, from the rates that were measured: a round that does not raise the rate by a
    // quarter counts, and the third in a row ends Startup.
    let rounds = o.points(column::ROUNDS, 0.0, drain);
    let starts: Vec<f64> = rounds.windows(2).filter(|w| w[1].1 > w[0].1).map(|w| w[1].0).collect();
    let (mut baseline, mut flat) = (0.0, 0);
    for t in &starts {
        let rate = o.at(column::DELIVERY_RATE_BPS, *t);
        if rate >= baseline * 1.25 {
            (baseline, flat) = (rate, 0);
        } else {
            flat += 1;
        }
    }
    // The row that shows Drain comes after the round that ended Startup.
    c.expect((2..=3).contains(&flat), || format!("left Startup after {flat} rounds without growth, not 3"));
}

pub(super) const LOSS_WHEN_APP_LIMITED: Case = Case {
    name: "exiting-startup-on-loss-when-application-limited",
    heading: "Exiting STARTUP on Loss When Application-Limited",
    bound: None,
    path_texts: &[("100mbit", "50ms"), ("50mbit", "60ms"), ("1gbit", "10ms")],
    experiments: |s| {
        let rtt = s.rtt.as_secs_f64();
        // The application sends half of what the link carries; losses are spread evenly.
        let per_round = s.rate.bytes_in(s.rtt) as f64 / 1500.0 / 2.0;
        let run = |app_share: f64, loss: String, judge: Judge| Experiment {
            link: loss,
            flow: format!("app = {}", app_at(s, app_share)),
            ..Experiment::new(s, (80.0 * rtt).min(4.8), rtt / 20.0, "8bdp", judge)
        };
        // Starts after the backlog of the first rounds has drained.
        let from = |packets_a_round: f64, each: f64| {
            let lost: Vec<String> = (0..300)
                .map(|i| (30.0 * packets_a_round + f64::from(i) * each).round().to_string())
                .collect();
            format!("loss = {{ kind = \"list\", packets = [{}] }}", lost.join(", "))
        };
        // Hundreds of packets a round: 7.5 ranges and more than 2 %.
        let lossy = from(per_round, (per_round / 7.5).min(45.0));
        let below = from(per_round, 60.0);
        // 120 packets a round, so that three or four ranges are more than 2 %, but fewer than 6.
        let few = 0.5 * 120.0 / per_round;
        let few_ranges = from(120.0, 36.0);
        vec![
            run(0.5, lossy, exits_on_loss),
            run(0.5, below, stays_below_the_threshold),
            run(few, few_ranges, stays_with_few_ranges),
        ]
    },
};

fn exits_on_loss(o: &Observed<'_>, c: &mut Judgement) {
    o.always(c);
    // With as little in flight as the application allows, Drain may be over on the ACK that began it.
    let left = o.sequence().starts_with("Startup → Drain") || o.sequence().starts_with("Startup → ProbeBW");
    c.expect(left, || format!("loss above 2 % in more than 6 ranges did not end Startup: {}", o.sequence()));
    c.expect(o.at(column::INFLIGHT_LONGTERM_BYTES, o.end).is_finite(), || {
        "inflight_longterm was not set".into()
    });
}

fn stays_below_the_threshold(o: &Observed<'_>, c: &mut Judgement) {
    c.expect(o.flow.states.len() == 1, || "loss of 1.7 % ended Startup; the threshold is 2 %".into());
}

fn stays_with_few_ranges(o: &Observed<'_>, c: &mut Judgement) {
    c.expect(o.flow.states.len() == 1, || {
        "three or four lost ranges a round ended Startup; it takes 6".into()
    });
}
