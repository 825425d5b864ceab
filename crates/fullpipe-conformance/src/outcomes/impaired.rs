//! Paths that lose packets at random, deliver them unevenly, or hold back their ACKs.

use super::ramp;
use crate::experiment::Experiment;
use crate::observed::Observed;
use crate::{Case, Judgement};

pub(super) const RANDOM_LOSS: Case = Case {
    name: "carries-data-despite-random-loss",
    heading: "Carries Data Despite Random Loss",
    bound: Some(
        "At least half the rate of TCP's throughput equation at 1 % loss with one ACK per two \
         packets (RFC 5348 §3.1; §1 calls a factor of two reasonably fair), and at most 3 % of \
         the packets lost, including the random 1 %.",
    ),
    path_texts: &[("10mbit", "40ms"), ("50mbit", "20ms")],
    experiments: |s| {
        let link = "loss = \"1%\"".to_owned();
        vec![Experiment { link, ..Experiment::new(s, 45.0, 0.01, "1bdp", random_loss) }]
    },
};

fn random_loss(o: &Observed<'_>, c: &mut Judgement) {
    let equation = tcp_rate(o.smss, o.rtt, 0.01).min(o.link_limit());
    o.receives(c, "TCP's throughput equation", equation, 0.5, o.end - 40.0, o.end);
    o.loses_at_most(c, 0.03, o.end - 40.0, o.end);
}

/// Packets acknowledged together: a window that grows by the number of ACKs, as RFC 5681 §3.1 allows,
/// grows half as fast if every second packet is acknowledged.
const PACKETS_PER_ACK: f64 = 2.0;

/// The sending rate of a TCP in bit/s with packets of `size` bytes, a round-trip time of `rtt`
/// seconds and a share `p` of loss events (RFC 5348 §3.1, with its timeout of four round trips).
fn tcp_rate(size: f64, rtt: f64, p: f64) -> f64 {
    let timeouts = 4.0 * rtt * (3.0 * (3.0 * PACKETS_PER_ACK * p / 8.0).sqrt()) * p * (1.0 + 32.0 * p * p);
    8.0 * size / (rtt * (2.0 * PACKETS_PER_ACK * p / 3.0).sqrt() + timeouts)
}

pub(super) const JITTER: Case = Case {
    name: "carries-data-despite-jitter",
    heading: "Carries Data Despite Jitter",
    bound: Some(
        "At least 80 % of the link's rate and at most 2 % of the packets lost, with jitter of ±1 \
         ms and of ± an eighth of the round-trip time, without reordering: a buffer of two BDPs \
         absorbs it, whatever the response to loss; RFC 9743 §7.3.",
    ),
    path_texts: &[("20mbit", "40ms"), ("100mbit", "20ms")],
    experiments: |s| {
        let run = |spread: f64| Experiment {
            link: format!("jitter = \"{spread:.6}s\""),
            ..Experiment::new(s, 2.0 + ramp(s) + 10.0, 0.01, "2bdp", nearly_fills)
        };
        vec![run(0.001), run(s.rtt.as_secs_f64() / 8.0)]
    },
};

pub(super) const AGGREGATION: Case = Case {
    name: "carries-data-despite-ack-aggregation",
    heading: "Carries Data Despite ACK Aggregation",
    bound: Some(
        "At least 80 % of the link's rate and at most 2 % of the packets lost, with ACKs delayed \
         by up to 5 ms and by up to half the round-trip time and delivered together: a buffer of \
         one BDP absorbs the burst of data that follows; RFC 9743 §6.4.",
    ),
    path_texts: &[("20mbit", "40ms"), ("100mbit", "20ms")],
    experiments: |s| {
        let run = |hold: f64| Experiment {
            reverse: format!("aggregate = {{ hold = \"{hold:.6}s\" }}"),
            ..Experiment::new(s, 2.0 + ramp(s) + 10.0, 0.01, "1bdp", nearly_fills)
        };
        vec![run(0.005), run(s.rtt.as_secs_f64() / 2.0)]
    },
};

fn nearly_fills(o: &Observed<'_>, c: &mut Judgement) {
    o.receives(c, "the link's rate", o.link_limit(), 0.8, o.end - 10.0, o.end);
    o.loses_at_most(c, 0.02, o.end - 10.0, o.end);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without timeouts the equation is that of Mathis and others: the root of 3/(2bp) packets per
    /// round trip.
    #[test]
    fn little_loss_gives_what_mathis_gives_and_much_loss_less() {
        let mathis = |p: f64| 8.0 * 1448.0 / 0.04 * (1.5 / (PACKETS_PER_ACK * p)).sqrt();
        assert!((tcp_rate(1448.0, 0.04, 1e-6) / mathis(1e-6) - 1.0).abs() < 0.01);
        let share = tcp_rate(1448.0, 0.04, 0.01) / mathis(0.01);
        assert!((0.9..0.95).contains(&share), "{share}");
    }
}
