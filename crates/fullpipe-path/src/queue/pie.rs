//! PIE (RFC 8033): drops at the tail with a probability that a controller adjusts every 15 ms to
//! hold the delay at a target. The delay is taken from timestamps, as in Linux `sch_pie`.

use fullpipe_units::{Span, Time};
use serde::{Deserialize, Serialize};

use super::fifo::Fifo;
use super::{Backlog, Discipline, QueueContext, QueueKind, Verdicts};
use crate::build::LinkError;
use crate::limit::{Capacity, Limit};
use crate::random::Stream;
use crate::{DropCause, Packet};

/// Proportional integral controller, RFC 8033.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PieSpec {
    /// Largest queue.
    pub limit: Limit,
    /// Target delay.
    pub target: Span,
    /// How often the probability is adjusted, at least 100 µs.
    pub tupdate: Span,
    /// Weight of the deviation from the target, per second.
    pub alpha: f64,
    /// Weight of the change of the delay, per second.
    pub beta: f64,
    /// Mark ECN-capable packets instead of dropping them, while the probability is below 10 %.
    pub ecn: bool,
    /// Drop small packets less often, in proportion to their length.
    pub bytemode: bool,
}

impl Default for PieSpec {
    /// As in RFC 8033 §4.2 and Linux `sch_pie`.
    fn default() -> Self {
        PieSpec {
            limit: Limit::Packets(1000),
            target: Span::from_millis(15),
            tupdate: Span::from_millis(15),
            alpha: 0.125,
            beta: 1.25,
            ecn: false,
            bytemode: false,
        }
    }
}

impl PieSpec {
    /// Returns the parameters of the controller, or the invalid key.
    pub(super) fn law(&self, mtu: u32) -> Result<Law, LinkError> {
        let PieSpec { target, tupdate, alpha, beta, ecn, bytemode, .. } = *self;
        if tupdate < Span::from_micros(100) {
            return Err(LinkError::new("tupdate", format!("{tupdate} is too short: write at least 100us")));
        }
        for (key, value) in [("alpha", alpha), ("beta", beta)] {
            // RFC 8033 §4.2 and Linux allow 0 to 2.
            if !(0.0..=2.0).contains(&value) {
                return Err(LinkError::new(
                    key,
                    format!("{value} is out of range: write 0 to 2 (RFC 8033 §4.2)"),
                ));
            }
        }
        Ok(Law { target, tupdate, alpha, beta, ecn, bytemode, mtu })
    }
}

impl QueueKind for PieSpec {
    const ABOUT: &'static str = "PIE (RFC 8033): drops at the tail to keep the delay at a target";
    type Queue<T> = Pie<T>;

    fn build<T>(&self, ctx: QueueContext) -> Result<Pie<T>, LinkError> {
        let law = self.law(ctx.mtu)?;
        Ok(Pie {
            fifo: Fifo::default(),
            capacity: ctx.capacity(self.limit),
            control: Control::new(&law),
            law,
            random: ctx.random,
        })
    }
}

/// A FIFO controlled by PIE.
pub(crate) struct Pie<T> {
    fifo: Fifo<T>,
    capacity: Capacity,
    control: Control,
    law: Law,
    random: Stream,
}

impl<T> Discipline<T> for Pie<T> {
    fn enqueue(&mut self, at: Time, packet: Packet<T>, verdicts: &mut Verdicts<T>) {
        let has_room = self.capacity.has_room_or_empty(self.fifo.backlog(), packet.bytes);
        let Pie { fifo, control, law, random, .. } = self;
        control.enqueue(at, law, random, has_room, fifo, packet, verdicts);
    }

    fn dequeue(&mut self, at: Time, _: &mut Verdicts<T>) -> Option<Packet<T>> {
        self.control.dequeue(at, &self.law, &mut self.fifo)
    }

    fn backlog(&self) -> Backlog {
        self.fifo.backlog()
    }
}

/// The parameters of the controller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Law {
    target: Span,
    tupdate: Span,
    alpha: f64,
    beta: f64,
    ecn: bool,
    bytemode: bool,
    mtu: u32,
}

/// A burst of this length passes without drops after a quiet time (RFC 8033 §4.4).
const MAX_BURST: Span = Span::from_millis(150);
/// Up to this probability a packet is marked rather than dropped (RFC 8033 §5.1).
const MARK_BELOW: f64 = 0.1;

/// The state of the controller.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Control {
    probability: f64,
    /// Sum of the probabilities since the last drop (RFC 8033 §5.4).
    accumulated: f64,
    delay: Span,
    delay_old: Span,
    burst_left: Span,
    last_dequeue: Option<Time>,
    next_update: Time,
}

impl Control {
    pub fn new(law: &Law) -> Self {
        Control {
            probability: 0.0,
            accumulated: 0.0,
            delay: Span::ZERO,
            delay_old: Span::ZERO,
            burst_left: MAX_BURST,
            last_dequeue: None,
            next_update: Time::ZERO + law.tupdate,
        }
    }

    /// Adds a packet to `fifo`, or marks or drops it.
    #[expect(clippy::too_many_arguments, reason = "the parts of a queue, apart because flows share some")]
    pub fn enqueue<T>(
        &mut self,
        at: Time,
        law: &Law,
        random: &mut Stream,
        has_room: bool,
        fifo: &mut Fifo<T>,
        mut packet: Packet<T>,
        verdicts: &mut Verdicts<T>,
    ) {
        self.catch_up(at, law, fifo.bytes());
        let mut cause = (!has_room).then_some(DropCause::QueueFull);
        if has_room && self.drops_early(law, random, fifo.bytes(), packet.bytes) {
            if law.ecn && self.probability <= MARK_BELOW && packet.mark() {
                verdicts.marked += 1;
            } else {
                cause = Some(DropCause::Aqm);
            }
        }
        match cause {
            None => fifo.push(at, packet),
            Some(cause) => {
                self.accumulated = 0.0;
                verdicts.drop(packet, cause);
            }
        }
    }

    /// Removes the oldest packet of `fifo`, whose delay the controller uses.
    pub fn dequeue<T>(&mut self, at: Time, law: &Law, fifo: &mut Fifo<T>) -> Option<Packet<T>> {
        self.catch_up(at, law, fifo.bytes());
        let (arrived, packet) = fifo.pop()?;
        self.delay = if fifo.bytes() == 0 { Span::ZERO } else { at.since(arrived) };
        if let Some(last) = self.last_dequeue.replace(at) {
            self.burst_left -= at.since(last);
        }
        Some(packet)
    }

    /// RFC 8033 §4.1 and §5.4.
    fn drops_early(&mut self, law: &Law, random: &mut Stream, backlog: u64, bytes: u32) -> bool {
        let calm = self.delay < law.target / 2 && self.probability < 0.2;
        if !self.burst_left.is_zero() || calm || backlog < 2 * u64::from(law.mtu) {
            return false;
        }
        let mut probability = self.probability;
        if law.bytemode && bytes <= law.mtu {
            probability *= f64::from(bytes) / f64::from(law.mtu);
        }
        self.accumulated = if probability == 0.0 { 0.0 } else { self.accumulated + probability };
        // Neither two drops in quick succession nor long periods without one.
        if self.accumulated < 0.85 {
            return false;
        }
        let drop = self.accumulated >= 8.5 || random.unit() < probability;
        if drop {
            self.accumulated = 0.0;
        }
        drop
    }

    /// Catches up on the adjustments since the last packet, during which the backlog did not
    /// change.
    fn catch_up(&mut self, now: Time, law: &Law, backlog: u64) {
        while self.next_update <= now {
            let before = *self;
            self.adjust(law, backlog);
            self.next_update += law.tupdate;
            if (Control { next_update: before.next_update, ..*self }) == before {
                // Further repetitions change nothing.
                let missed = now.since(self.next_update).as_nanos() / law.tupdate.as_nanos();
                self.next_update += law.tupdate * missed;
                if self.next_update <= now {
                    self.next_update += law.tupdate;
                }
                return;
            }
        }
    }

    /// RFC 8033 §4.2.
    fn adjust(&mut self, law: &Law, backlog: u64) {
        let (delay, old) = (self.delay, self.delay_old);
        let scale = scale(self.probability);
        let deviation = delay.as_secs_f64() - law.target.as_secs_f64();
        let change = delay.as_secs_f64() - old.as_secs_f64();
        let mut delta = scale * (law.alpha * deviation + law.beta * change);
        if self.probability >= 0.1 {
            delta = delta.min(0.02);
        }
        // A far too long queue needs larger steps (RFC 8033 §5.5 and Linux).
        if delay > Span::from_millis(250) {
            delta += 0.02;
        }
        self.probability = (self.probability + delta).clamp(0.0, 1.0);
        if delay.is_zero() && old.is_zero() && backlog == 0 {
            self.probability *= 1.0 - 1.0 / 64.0;
        }
        self.delay_old = delay;
        if self.probability == 0.0 && delay < law.target / 2 && old < law.target / 2 {
            // Quiet for two periods: the next burst passes again.
            self.burst_left = MAX_BURST;
            self.accumulated = 0.0;
            self.last_dequeue = None;
        }
    }
}

/// The smaller the probability, the smaller the steps (RFC 8033 §4.2, the table of auto-tuning).
fn scale(probability: f64) -> f64 {
    match probability {
        p if p < 0.000_001 => 1.0 / 2048.0,
        p if p < 0.000_01 => 1.0 / 512.0,
        p if p < 0.000_1 => 1.0 / 128.0,
        p if p < 0.001 => 1.0 / 32.0,
        p if p < 0.01 => 1.0 / 8.0,
        p if p < 0.1 => 1.0 / 2.0,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ecn;
    use crate::testing::{Run, queue_alone, stream};

    fn law() -> Law {
        PieSpec::default().law(1500).unwrap()
    }

    /// A controller with probability `p` that has just measured these delays.
    fn after_delays(p: f64, delay_ms: u64, old_ms: u64) -> Control {
        Control {
            probability: p,
            delay: Span::from_millis(delay_ms),
            delay_old: Span::from_millis(old_ms),
            burst_left: Span::ZERO,
            ..Control::new(&law())
        }
    }

    fn adjusted(mut control: Control) -> f64 {
        control.adjust(&law(), 100_000);
        control.probability
    }

    #[test]
    fn the_probability_follows_the_formula() {
        // p += alpha·(delay − target) + beta·(delay − old), scaled by the table.
        let cases = [
            (0.2, 25, 20, 1.0),
            (0.05, 25, 20, 0.5),
            (0.005, 25, 20, 1.0 / 8.0),
            (0.000_5, 25, 20, 1.0 / 32.0),
            (0.000_05, 25, 20, 1.0 / 128.0),
            (0.000_005, 25, 20, 1.0 / 512.0),
            (0.000_000_5, 25, 20, 1.0 / 2048.0),
        ];
        for (p, delay, old, scale) in cases {
            let expected = p + scale * (0.125 * 0.010 + 1.25 * 0.005);
            assert!((adjusted(after_delays(p, delay, old)) - expected).abs() < 1e-12, "{p}");
        }
        assert_eq!(adjusted(after_delays(0.2, 15, 15)), 0.2, "on target nothing changes");
        assert!(adjusted(after_delays(0.2, 10, 12)) < 0.2);
        assert_eq!(adjusted(after_delays(0.000_001, 0, 15)), 0.0, "never below zero");
    }

    #[test]
    fn steps_are_at_most_two_percent_and_two_more_beyond_250_ms() {
        assert!((adjusted(after_delays(0.3, 200, 0)) - 0.32).abs() < 1e-12);
        assert!((adjusted(after_delays(0.3, 251, 0)) - 0.34).abs() < 1e-12);
        assert_eq!(adjusted(after_delays(1.0, 251, 0)), 1.0);
    }

    #[test]
    fn an_empty_queue_decays_quickly_and_allows_a_burst_again() {
        let mut control = after_delays(0.01, 0, 0);
        control.adjust(&law(), 0);
        let expected = (0.01 - 0.5 * 0.125 * 0.015) * 63.0 / 64.0;
        assert!((control.probability - expected).abs() < 1e-12, "{}", control.probability);
        control.catch_up(Time::from_nanos(10_000_000_000), &law(), 0);
        assert_eq!((control.probability, control.burst_left), (0.0, MAX_BURST));
    }

    #[test]
    fn catching_up_on_many_periods_equals_one_by_one() {
        for backlog in [0, 100_000] {
            let (mut at_once, mut stepwise) = (after_delays(0.3, 40, 30), after_delays(0.3, 40, 30));
            let end = Time::ZERO + Span::from_secs(100);
            at_once.catch_up(end, &law(), backlog);
            for ms in (0..=100_000).step_by(7) {
                stepwise.catch_up(Time::ZERO + Span::from_millis(ms), &law(), backlog);
            }
            stepwise.catch_up(end, &law(), backlog);
            assert_eq!(at_once, stepwise);
            // A clock that jumps by years takes no longer.
            at_once.catch_up(Time::from_nanos(u64::MAX / 2), &law(), backlog);
        }
    }

    #[test]
    fn packets_are_dropped_with_the_probability_but_not_close_together() {
        for p in [0.01, 0.1, 0.3] {
            let (mut control, mut random) = (after_delays(p, 30, 30), stream(1));
            let n = 1_000_000;
            let drops: Vec<usize> =
                (0..n).filter(|_| control.drops_early(&law(), &mut random, 100_000, 1500)).collect();
            // Between two drops at least 0.85/p packets pass, after which each is dropped with
            // probability p: on average ceil(0.85/p) − 1 + 1/p packets.
            let mean = (0.85 / p).ceil() - 1.0 + 1.0 / p;
            let expected = n as f64 / mean;
            // The distances deviate by less than 1/p from their mean.
            let bound = 4.0 / (p * mean * expected.sqrt());
            assert!((drops.len() as f64 / expected - 1.0).abs() < bound, "{p}: {} {expected}", drops.len());
            let nearest = drops.windows(2).map(|w| w[1] - w[0]).min().unwrap();
            assert!(nearest as f64 >= 0.85 / p - 1e-9, "{p}: {nearest}");
        }
    }

    #[test]
    fn nothing_is_dropped_during_a_burst_nor_from_a_calm_or_short_queue() {
        let mut random = stream(2);
        let mut drops = |mut control: Control, backlog: u64| {
            (0..1000).any(|_| control.drops_early(&law(), &mut random, backlog, 1500))
        };
        assert!(drops(after_delays(0.19, 30, 30), 100_000));
        assert!(!drops(after_delays(0.19, 7, 7), 100_000), "half the target");
        assert!(drops(after_delays(0.21, 7, 7), 100_000));
        assert!(!drops(after_delays(0.19, 30, 30), 2999), "two packets");
        assert!(!drops(Control { burst_left: Span::from_nanos(1), ..after_delays(0.19, 30, 30) }, 100_000));
    }

    /// 12 Mbit/s out, `rate` packets per millisecond in, for so many milliseconds. The longest
    /// queue of the last third in packets, which are milliseconds.
    fn standing(run: &mut Run, per_ms: u64, ms: u64, ecn: Ecn) -> usize {
        let mut longest = 0;
        for now in 0..ms {
            for i in 0..per_ms {
                run.enqueue_ecn(now * 1000 + i, 0, 1500, ecn);
            }
            run.dequeue(now * 1000 + 900);
            if now > ms * 2 / 3 {
                longest = longest.max(run.packets());
            }
        }
        longest
    }

    #[test]
    fn the_delay_of_an_unresponsive_flow_stays_near_the_target() {
        let mut run = queue_alone(&PieSpec::default());
        let longest = standing(&mut run, 2, 30_000, Ecn::NotEct);
        assert!((5..80).contains(&longest), "{longest} ms against a target of 15 ms");
        assert!(run.dropped().iter().filter(|(_, cause)| *cause == DropCause::Aqm).count() > 10_000);
    }

    #[test]
    fn marks_replace_drops_while_the_probability_is_small() {
        let mut run = queue_alone(&PieSpec { ecn: true, ..PieSpec::default() });
        // 1 % too much.
        for now in 0..20_000u64 {
            run.enqueue_ecn(now * 1000, 0, 1500, Ecn::Ect0);
            if now % 100 == 0 {
                run.enqueue_ecn(now * 1000, 0, 1500, Ecn::Ect0);
            }
            run.dequeue(now * 1000 + 900);
            if run.marked() > 10 {
                break;
            }
        }
        assert!(run.marked() > 10);
        assert_eq!(run.dropped(), []);
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let wrong = |spec: PieSpec| spec.law(1500).unwrap_err().key;
        assert_eq!(wrong(PieSpec { tupdate: Span::ZERO, ..PieSpec::default() }), "tupdate");
        assert_eq!(wrong(PieSpec { alpha: f64::NAN, ..PieSpec::default() }), "alpha");
        assert_eq!(wrong(PieSpec { beta: 2.5, ..PieSpec::default() }), "beta");
    }
}
