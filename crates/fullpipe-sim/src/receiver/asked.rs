//! When a receiver acknowledges that is asked for how often (draft-ietf-quic-ack-frequency § 6). Segments stand for packets: what
//! is sent again has the number that it had.

use super::reassembly::{Arrival, Reassembly};
use crate::segment::MAX_SACK_BLOCKS;
use fullpipe_cc::Time;
use fullpipe_experiment::scenario::AckFrequency;

/// The state of acknowledging.
#[derive(Debug)]
pub(crate) struct AskedPolicy {
    asked: AckFrequency,
    /// Data packets since the last ACK.
    received: u32,
    /// New runs beyond holes since then: a SACK option can report only so many.
    apart: usize,
    due: Time,
    marked: bool,
    /// The largest number that an ACK has reported.
    largest_acked: Option<u64>,
}

impl AskedPolicy {
    pub fn new(asked: AckFrequency) -> Self {
        AskedPolicy { asked, received: 0, apart: 0, due: Time::NEVER, marked: false, largest_acked: None }
    }

    /// When an ACK is due at the latest.
    pub fn due(&self) -> Time {
        self.due
    }

    /// The segment `seq` arrived, `marked` if with Congestion Experienced, and is in the queue; whether to acknowledge at once.
    pub fn on_data(
        &mut self,
        now: Time,
        seq: u64,
        arrival: Arrival,
        marked: bool,
        queue: &Reassembly,
    ) -> bool {
        self.received += 1;
        self.apart += usize::from(arrival == Arrival::Beyond { apart: true });
        if self.due == Time::NEVER {
            self.due = now + self.asked.max_ack_delay;
        }
        let every_mark = self.asked.ack_eliciting_threshold <= 1;
        let by_mark = marked && (every_mark || !self.marked);
        self.marked = marked;
        by_mark
            || arrival == Arrival::Duplicate
            || self.received > self.asked.ack_eliciting_threshold
            || self.apart >= MAX_SACK_BLOCKS
            || self.is_reordered(seq, queue)
    }

    /// Whether a gap has become wide enough, or what came late had been given up (§ 6.2).
    fn is_reordered(&self, seq: u64, queue: &Reassembly) -> bool {
        let threshold = u64::from(self.asked.reordering_threshold);
        if threshold == 0 {
            return false;
        }
        // The first that has not been reported missing.
        let reported = self.largest_acked.and_then(|largest| largest.checked_sub(threshold));
        let late = reported.is_some_and(|reported| seq <= reported);
        let missing = queue.first_missing(reported.map_or(0, |reported| reported + 1));
        late || missing
            .is_some_and(|missing| queue.largest().is_some_and(|largest| largest - missing >= threshold))
    }

    /// An ACK leaves that covers all that is in the queue.
    pub fn on_sent(&mut self, queue: &Reassembly) {
        self.received = 0;
        self.apart = 0;
        self.due = Time::NEVER;
        self.largest_acked = queue.largest();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_cc::Span;

    struct Test {
        policy: AskedPolicy,
        queue: Reassembly,
    }

    impl Test {
        fn new(packets: u32, reordering: u32) -> Self {
            let asked = AckFrequency {
                ack_eliciting_threshold: packets,
                max_ack_delay: Span::from_millis(25),
                reordering_threshold: reordering,
            };
            Test { policy: AskedPolicy::new(asked), queue: Reassembly::default() }
        }

        /// The packets at whose arrival an ACK leaves.
        fn acked_at(&mut self, packets: impl IntoIterator<Item = u64>) -> Vec<u64> {
            packets.into_iter().filter(|&seq| self.acks(seq, false)).collect()
        }

        fn acks(&mut self, seq: u64, marked: bool) -> bool {
            let arrival = self.queue.insert(seq, (seq + 1) * 1000);
            let acks = self.policy.on_data(Time::ZERO, seq, arrival, marked, &self.queue);
            if acks {
                self.policy.on_sent(&self.queue);
            }
            acks
        }
    }

    #[test]
    fn more_than_the_threshold_are_acknowledged_or_fewer_once_the_delay_is_over() {
        let mut t = Test::new(9, 1);
        assert_eq!(t.acked_at(0..35), [9, 19, 29]);
        assert_eq!(t.policy.due(), Time::ZERO + Span::from_millis(25));
        assert_eq!(Test::new(0, 1).acked_at(0..4), [0, 1, 2, 3]);
        assert_eq!(Test::new(1, 1).acked_at(0..6), [1, 3, 5], "every other, as QUIC does unasked");
    }

    /// Tables 1 and 2 of the draft.
    #[test]
    fn a_gap_is_reported_when_it_is_as_wide_as_the_reordering_threshold() {
        assert_eq!(Test::new(1000, 3).acked_at([0, 1, 3, 4, 5, 8, 9, 10]), [5, 9, 10]);
        assert_eq!(Test::new(1000, 5).acked_at([0, 1, 3, 5, 6, 7, 8, 9]), [7, 9]);
        assert!(Test::new(1000, 0).acked_at([0, 1, 3, 4, 5, 6, 7, 8]).is_empty());
        assert_eq!(Test::new(1000, 1).acked_at([0, 1, 3, 4, 5]), [3]);
    }

    #[test]
    fn what_was_given_up_and_comes_after_all_is_told_at_once() {
        let mut t = Test::new(1000, 3);
        assert_eq!(t.acked_at([0, 2, 3, 4]), [4]);
        assert_eq!(t.acked_at([1]), [1]);
        let mut t = Test::new(1000, 3);
        assert!(t.acked_at([0, 2, 3, 1]).is_empty(), "in time");
    }

    #[test]
    fn the_first_mark_is_told_at_once() {
        let mut t = Test::new(1000, 1);
        let marks = [false, true, true, false, true];
        let told: Vec<bool> = (0..).zip(marks).map(|(seq, marked)| t.acks(seq, marked)).collect();
        assert_eq!(told, [false, true, false, false, true]);
        let mut t = Test::new(1, 1);
        assert!(t.acks(0, true) && t.acks(1, true), "without a wish every one is");
    }

    #[test]
    fn no_run_goes_unreported() {
        assert_eq!(Test::new(1000, 0).acked_at([0, 2, 4, 6, 8, 10]), [6]);
    }
}
