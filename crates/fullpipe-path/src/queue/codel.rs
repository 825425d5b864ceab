//! CoDel (RFC 8289): drops at the head while packets have waited longer than `target` for at
//! least an `interval`, ever faster with the square root of the number of drops.

use fullpipe_units::{Span, Time};
use serde::{Deserialize, Serialize};

use super::fifo::Fifo;
use super::{Backlog, Discipline, QueueContext, QueueKind, Verdicts};
use crate::build::LinkError;
use crate::limit::{Capacity, Limit};
use crate::{DropCause, Packet};

/// Controlled delay, RFC 8289.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CodelSpec {
    /// Largest queue.
    pub limit: Limit,
    /// Acceptable standing delay.
    pub target: Span,
    /// How long the delay may exceed the target before the first drop: about a worst-case RTT.
    pub interval: Span,
    /// Mark ECN-capable packets instead of dropping them.
    pub ecn: bool,
    /// Mark every ECN-capable packet that has waited longer than this (Linux `ce_threshold`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ce_threshold: Option<Span>,
}

impl Default for CodelSpec {
    /// As in RFC 8289 §4.2 and Linux `sch_codel`: 5 ms, 100 ms, 1000 packets, no ECN.
    fn default() -> Self {
        CodelSpec {
            limit: Limit::Packets(1000),
            target: Span::from_millis(5),
            interval: Span::from_millis(100),
            ecn: false,
            ce_threshold: None,
        }
    }
}

impl QueueKind for CodelSpec {
    const ABOUT: &'static str = "CoDel (RFC 8289): drops at the head when the delay stays above a target";
    type Queue<T> = Codel<T>;

    fn build<T>(&self, ctx: QueueContext) -> Result<Codel<T>, LinkError> {
        let CodelSpec { limit, target, interval, ecn, ce_threshold } = *self;
        let law = Law { target, interval, ecn, ce_threshold, mtu: ctx.mtu };
        Ok(Codel { fifo: Fifo::default(), capacity: ctx.capacity(limit), law, control: Control::default() })
    }
}

/// A FIFO controlled by CoDel.
pub(crate) struct Codel<T> {
    fifo: Fifo<T>,
    capacity: Capacity,
    law: Law,
    control: Control,
}

impl<T> Discipline<T> for Codel<T> {
    fn enqueue(&mut self, at: Time, packet: Packet<T>, verdicts: &mut Verdicts<T>) {
        if self.capacity.has_room_or_empty(self.fifo.backlog(), packet.bytes) {
            self.fifo.push(at, packet);
        } else {
            verdicts.drop(packet, DropCause::QueueFull);
        }
    }

    fn dequeue(&mut self, at: Time, verdicts: &mut Verdicts<T>) -> Option<Packet<T>> {
        self.control.dequeue(at, &self.law, &mut self.fifo, verdicts)
    }

    fn backlog(&self) -> Backlog {
        self.fifo.backlog()
    }
}

/// The parameters of the control law.
#[derive(Clone, Copy, Debug)]
pub(super) struct Law {
    pub target: Span,
    pub interval: Span,
    pub ecn: bool,
    pub ce_threshold: Option<Span>,
    pub mtu: u32,
}

impl Law {
    /// RFC 8289 §3.3: the next drop after `t`.
    fn next_drop(&self, t: Time, count: u32) -> Time {
        t + Span::from_nanos((self.interval.as_nanos() as f64 / f64::from(count.max(1)).sqrt()) as u64)
    }
}

/// The state of the control law, RFC 8289 §5.3.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Control {
    /// When the delay will have been above the target for an interval.
    first_above: Option<Time>,
    dropping: bool,
    drop_next: Time,
    /// Drops since dropping began, and the value with which it began.
    count: u32,
    last_count: u32,
}

impl Control {
    /// Counts `drops` that the caller made: they signalled congestion, so the law continues from
    /// there.
    pub fn also_dropped(&mut self, drops: u32) {
        self.count = self.count.saturating_add(drops);
    }

    /// The next packet of `fifo`, RFC 8289 §5.5.
    pub fn dequeue<T>(
        &mut self,
        now: Time,
        law: &Law,
        fifo: &mut Fifo<T>,
        verdicts: &mut Verdicts<T>,
    ) -> Option<Packet<T>> {
        let (mut head, mut may_drop) = self.pop_head(now, law, fifo);
        if self.dropping {
            self.dropping = may_drop;
            while self.dropping && now >= self.drop_next {
                let Some((_, packet)) = &mut head else {
                    break;
                };
                self.count = self.count.saturating_add(1);
                if law.ecn && packet.mark() {
                    verdicts.marked += 1;
                    self.drop_next = law.next_drop(self.drop_next, self.count);
                    break;
                }
                verdicts.drop(head.take()?.1, DropCause::Aqm);
                (head, may_drop) = self.pop_head(now, law, fifo);
                if may_drop {
                    self.drop_next = law.next_drop(self.drop_next, self.count);
                } else {
                    self.dropping = false;
                }
            }
        } else if may_drop && let Some((_, packet)) = &mut head {
            if law.ecn && packet.mark() {
                verdicts.marked += 1;
            } else {
                verdicts.drop(head.take()?.1, DropCause::Aqm);
                head = self.pop_head(now, law, fifo).0;
            }
            self.dropping = true;
            // The delay exceeded the target again soon after the last time: resume near the drop rate that
            // controlled the queue then.
            let delta = self.count.saturating_sub(self.last_count);
            let recent = now.since(self.drop_next) < law.interval * 16;
            self.count = if delta > 1 && recent { delta } else { 1 };
            self.last_count = self.count;
            self.drop_next = law.next_drop(now, self.count);
        }
        let (arrived, mut packet) = head?;
        if law.ce_threshold.is_some_and(|threshold| now.since(arrived) > threshold) && packet.mark() {
            verdicts.marked += 1;
        }
        Some(packet)
    }

    /// Removes the head and returns whether the law allows dropping it (`dodequeue` of §5.4).
    fn pop_head<T>(&mut self, now: Time, law: &Law, fifo: &mut Fifo<T>) -> (Option<(Time, Packet<T>)>, bool) {
        let Some((arrived, packet)) = fifo.pop() else {
            self.first_above = None;
            return (None, false);
        };
        let mut may_drop = false;
        if now.since(arrived) < law.target || fifo.bytes() <= u64::from(law.mtu) {
            self.first_above = None;
        } else {
            match self.first_above {
                None => self.first_above = Some(now + law.interval),
                Some(then) => may_drop = now >= then,
            }
        }
        (Some((arrived, packet)), may_drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ecn;
    use crate::testing::{Run, queue_alone};

    const LARGE: &str = "limit = '10m'";

    fn codel(text: &str) -> Run {
        queue_alone(&toml::from_str::<CodelSpec>(text).unwrap())
    }

    /// One packet in and one out each millisecond, so that every packet waits `delay_ms`. Returns
    /// the milliseconds at which packets were dropped.
    fn standing_queue(run: &mut Run, delay_ms: u64, ms: u64, ecn: Ecn) -> Vec<u64> {
        let mut drops = Vec::new();
        for now in 0..ms {
            run.enqueue_ecn(now * 1000, 0, 1500, ecn);
            let before = (run.dropped().len(), run.marked());
            if now >= delay_ms {
                run.dequeue(now * 1000);
            }
            if (run.dropped().len(), run.marked()) != before {
                drops.push(now);
            }
            // Dropped packets are replaced, so that the delay persists.
            if run.dropped().len() > before.0 {
                run.enqueue_ecn(now * 1000, 0, 1500, ecn);
            }
        }
        drops
    }

    #[test]
    fn a_delay_below_the_target_is_left_alone() {
        assert!(standing_queue(&mut codel(LARGE), 4, 3000, Ecn::NotEct).is_empty());
    }

    #[test]
    fn the_first_drop_comes_an_interval_after_the_delay_exceeds_the_target() {
        let drops = standing_queue(&mut codel(LARGE), 20, 130, Ecn::NotEct);
        // The first packet that waited 20 ms leaves at 20 ms.
        assert_eq!(drops, [120]);
    }

    #[test]
    fn drops_come_at_the_inverse_square_root_of_their_number() {
        let drops = standing_queue(&mut codel(LARGE), 20, 1000, Ecn::NotEct);
        // RFC 8289 §3.3: the n-th distance is interval/sqrt(n); departures have 1 ms granularity.
        let mut expected = 120.0;
        for (n, &at) in drops.iter().enumerate() {
            assert!((at as f64 - expected).abs() <= 1.0, "drop {n} at {at}, expected {expected}");
            expected += 100.0 / ((n + 1) as f64).sqrt();
        }
        assert!(drops.len() > 15, "{drops:?}");
    }

    #[test]
    fn marks_replace_drops_of_capable_packets() {
        let text = format!("{LARGE}\necn = true");
        let mut run = codel(&text);
        let marks = standing_queue(&mut run, 20, 1000, Ecn::Ect0);
        assert_eq!((run.marked(), run.dropped().len()), (marks.len() as u64, 0));
        assert_eq!(marks, standing_queue(&mut codel(LARGE), 20, 1000, Ecn::NotEct), "at the same times");
        let mut run = codel(&text);
        standing_queue(&mut run, 20, 1000, Ecn::NotEct);
        assert_eq!(run.marked(), 0);
        assert!(!run.dropped().is_empty());
    }

    #[test]
    fn a_threshold_marks_every_packet_that_waited_longer() {
        let mut run = codel("ce_threshold = '1ms'\nlimit = '10m'");
        standing_queue(&mut run, 2, 500, Ecn::Ect0);
        assert_eq!(run.marked(), 498);
    }

    #[test]
    fn dropping_resumes_near_the_rate_at_which_it_ended() {
        let mut run = codel(LARGE);
        let first = standing_queue(&mut run, 20, 1000, Ecn::NotEct);
        // The queue empties and builds up again at once.
        while run.dequeue(1_000_000).is_some() {}
        let mut resumed = Vec::new();
        for now in 1001..1300u64 {
            run.enqueue(now * 1000, 0, 1500);
            let before = run.dropped().len();
            if now >= 1021 {
                run.dequeue(now * 1000);
            }
            if run.dropped().len() > before {
                resumed.push(now);
                run.enqueue(now * 1000, 0, 1500);
            }
        }
        let distance = (resumed[1] - resumed[0]) as f64;
        let last = 100.0 / (first.len() as f64).sqrt();
        assert!((distance - last).abs() <= 5.0, "{distance} after {last}");
    }

    #[test]
    fn the_last_packets_are_never_dropped() {
        let mut run = codel(LARGE);
        for i in 0..1000u64 {
            run.enqueue(i * 1_000_000, 0, 1500);
            assert_eq!(run.dequeue(i * 1_000_000 + 999_000), Some(i as u32));
        }
    }

    #[test]
    fn a_full_queue_drops_at_the_tail() {
        let mut run = codel("limit = '2p'");
        for _ in 0..3 {
            run.enqueue(0, 0, 1500);
        }
        assert_eq!(run.dropped(), [(2, DropCause::QueueFull)]);
        let mut run = codel("limit = '1 bytes'");
        run.enqueue(0, 0, 1500);
        assert_eq!(run.dequeue(0), Some(0), "an empty queue takes any packet");
    }
}
