//! Turns steps into observations: dimensionless numbers near one.

use crate::totals::Step;

/// The values of an observation, in this order, each clamped to [-10, 10].
pub const OBSERVATIONS: [&str; 8] = [
    "delivery rate of the step / greatest of the episode",
    "sending rate of the step / greatest delivery rate of the episode",
    "mean RTT of the step / least of the episode, less 1",
    "change of the mean RTT since the step before / least RTT",
    "bytes lost in the step / bytes sent in it",
    "bytes in flight / window",
    "log2 of window / (greatest delivery rate x least RTT)",
    "share of ACKs with a Congestion Experienced mark",
];

/// Values are clamped to this magnitude.
const MAX_MAGNITUDE: f64 = 10.0;

/// What an agent knows of a connection's path.
#[derive(Clone, Copy, Debug)]
pub struct Observer {
    max_bps: f64,
    min_rtt: f64,
    last_rtt: f64,
}

impl Default for Observer {
    fn default() -> Self {
        Observer { max_bps: 0.0, min_rtt: f64::INFINITY, last_rtt: f64::NAN }
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

impl Observer {
    /// The highest delivery rate of a step so far, in bit/s; zero before the first.
    pub fn max_bps(&self) -> f64 {
        self.max_bps
    }

    /// The minimum round-trip time so far, in seconds; infinite before the first.
    pub fn min_rtt(&self) -> f64 {
        self.min_rtt
    }

    /// Records a step.
    pub fn record(&mut self, step: &Step) {
        let bps = share(step.acked as f64 * 8.0, step.duration.as_secs_f64());
        self.max_bps = self.max_bps.max(bps);
        if let Some(rtt) = step.min_rtt.filter(|rtt| !rtt.is_zero()) {
            self.min_rtt = self.min_rtt.min(rtt.as_secs_f64());
        }
    }

    /// The observation of the last recorded step, in the order of [`OBSERVATIONS`].
    pub fn observe(&mut self, step: &Step) -> [f64; OBSERVATIONS.len()] {
        let (rate, least) = (self.max_bps, self.min_rtt);
        let duration = step.duration.as_secs_f64();
        let rtt = step.rtt.map_or(f64::NAN, |rtt| rtt.as_secs_f64());
        let known = rtt > 0.0 && least.is_finite();
        let change = if known && self.last_rtt > 0.0 { (rtt - self.last_rtt) / least } else { 0.0 };
        if rtt > 0.0 {
            self.last_rtt = rtt;
        }
        let bdp = if least.is_finite() { rate / 8.0 * least } else { 0.0 };
        let cwnd = step.cwnd as f64;
        let values = [
            share(share(step.acked as f64 * 8.0, duration), rate),
            share(share(step.sent as f64 * 8.0, duration), rate),
            if known { rtt / least - 1.0 } else { 0.0 },
            change,
            share(step.lost as f64, step.sent as f64),
            share(step.inflight as f64, cwnd),
            if bdp > 0.0 && cwnd > 0.0 { libm::log2(cwnd / bdp) } else { 0.0 },
            share(step.marks as f64, step.acks as f64),
        ];
        values.map(|value| value.clamp(-MAX_MAGNITUDE, MAX_MAGNITUDE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::Span;

    #[test]
    fn observation_is_dimensionless() {
        let mut observer = Observer::default();
        let ms = Span::from_millis;
        let step = Step {
            duration: ms(40),
            sent: 100_000,
            acked: 50_000,
            lost: 1000,
            acks: 20,
            marks: 5,
            rtt: Some(ms(60)),
            min_rtt: Some(ms(40)),
            inflight: 50_000,
            cwnd: 100_000,
        };
        observer.record(&step);
        assert_eq!((observer.max_bps(), observer.min_rtt()), (10e6, 0.04));
        let seen = observer.observe(&step);
        let close = |a: f64, b: f64| (a - b).abs() < 1e-12;
        // A window of twice the bandwidth-delay product of 50 kB; no step before this one.
        let wanted = [1.0, 2.0, 0.5, 0.0, 0.01, 0.5, 1.0, 0.25];
        assert!(seen.iter().zip(wanted).all(|(a, b)| close(*a, b)), "{seen:?}");
        let next = Step { rtt: Some(ms(80)), acked: 25_000, ..step };
        observer.record(&next);
        let seen = observer.observe(&next);
        assert!(close(seen[0], 0.5) && close(seen[3], 0.5), "{seen:?}");
    }

    #[test]
    fn empty_step_gives_a_zero_observation() {
        let mut observer = Observer::default();
        observer.record(&Step::default());
        assert_eq!(observer.observe(&Step::default()), [0.0; 8]);
        let flood = Step {
            duration: Span::from_nanos(1),
            sent: u64::MAX,
            acked: 1,
            cwnd: u64::MAX,
            ..Step::default()
        };
        observer.record(&flood);
        assert!(observer.observe(&flood).iter().all(|v| v.abs() <= 10.0));
    }
}
