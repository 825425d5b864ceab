//! Acknowledgment at the frequency that the sender requests (draft-ietf-quic-ack-frequency §6).
//! Segments stand in for packets, except that a retransmission keeps its number.

use super::reassembly::{Arrival, Reassembly};
use crate::segment::MAX_SACK_BLOCKS;
use fullpipe_cc::Time;
use fullpipe_experiment::scenario::AckFrequency;

/// The state of acknowledging.
#[derive(Debug)]
pub(crate) struct RequestedPolicy {
    requested: AckFrequency,
    /// Data packets since the last ACK.
    received: u32,

    due: Time,
    marked: bool,
    /// The largest segment that an ACK has reported.
    largest_acked: Option<u64>,
}

impl RequestedPolicy {
    pub fn new(requested: AckFrequency) -> Self {
        RequestedPolicy { requested, received: 0, due: Time::NEVER, marked: false, largest_acked: None }
    }

    /// When an ACK is due at the latest.
    pub fn due(&self) -> Time {
        self.due
    }

    /// Segment `seq` arrived, `marked` if it has the CE codepoint, and is in `queue`. Returns
    /// whether to acknowledge at once.
    pub fn on_data(
        &mut self,
        now: Time,
        seq: u64,
        arrival: Arrival,
        marked: bool,
        queue: &Reassembly,
    ) -> bool {
        self.received += 1;

        if self.due == Time::NEVER {
            self.due = now + self.requested.max_ack_delay;
        }
        let every_mark = self.requested.ack_eliciting_threshold <= 1;
        let by_mark = marked && (every_mark || !self.marked);
        self.marked = marked;
        by_mark
            || arrival == Arrival::Duplicate
            || self.received > self.requested.ack_eliciting_threshold
            || queue.unreported() >= MAX_SACK_BLOCKS
            || self.is_reordered(seq, queue)
    }

    /// Whether a gap has reached the reordering threshold, or a segment arrived that was reported
    /// missing (§6.2).
    fn is_reordered(&self, seq: u64, queue: &Reassembly) -> bool {
        let threshold = u64::from(self.requested.reordering_threshold);
        if threshold == 0 {
            return false;
        }
        // The last segment that has been reported missing.
        let reported = self.largest_acked.and_then(|largest| largest.checked_sub(threshold));
        let late = reported.is_some_and(|reported| seq <= reported);
        let missing = queue.first_missing(reported.map_or(0, |reported| reported + 1));
        late || missing
            .is_some_and(|missing| queue.largest().is_some_and(|largest| largest - missing >= threshold))
    }

    /// An ACK is sent that covers everything in the queue.
    pub fn on_sent(&mut self, queue: &Reassembly) {
        self.received = 0;

        self.due = Time::NEVER;
        self.largest_acked = queue.largest();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::SackInfo;
    use fullpipe_cc::Span;

    struct Test {
        policy: RequestedPolicy,
        queue: Reassembly,
    }

    impl Test {
        fn new(packets: u32, reordering: u32) -> Self {
            let requested = AckFrequency {
                ack_eliciting_threshold: packets,
                max_ack_delay: Span::from_millis(25),
                reordering_threshold: reordering,
            };
            Test { policy: RequestedPolicy::new(requested), queue: Reassembly::default() }
        }

        /// The packets on whose arrival an ACK is sent.
        fn acked_at(&mut self, packets: impl IntoIterator<Item = u64>) -> Vec<u64> {
            packets.into_iter().filter(|&seq| self.acks(seq, false)).collect()
        }

        fn acks(&mut self, seq: u64, marked: bool) -> bool {
            let arrival = self.queue.insert(seq, (seq + 1) * 1000);
            let acks = self.policy.on_data(Time::ZERO, seq, arrival, marked, &self.queue);
            if acks {
                self.policy.on_sent(&self.queue);
                self.queue.report(&mut SackInfo::default());
            }
            acks
        }
    }

    #[test]
    fn an_ack_is_sent_beyond_the_threshold_or_after_the_delay() {
        let mut t = Test::new(9, 1);
        assert_eq!(t.acked_at(0..35), [9, 19, 29]);
        assert_eq!(t.policy.due(), Time::ZERO + Span::from_millis(25));
        assert_eq!(Test::new(0, 1).acked_at(0..4), [0, 1, 2, 3]);
        assert_eq!(Test::new(1, 1).acked_at(0..6), [1, 3, 5], "every other packet, the default of QUIC");
    }

    /// Tables 1 and 2 of the draft.
    #[test]
    fn a_gap_is_reported_when_it_reaches_the_reordering_threshold() {
        assert_eq!(Test::new(1000, 3).acked_at([0, 1, 3, 4, 5, 8, 9, 10]), [5, 9, 10]);
        assert_eq!(Test::new(1000, 5).acked_at([0, 1, 3, 5, 6, 7, 8, 9]), [7, 9]);
        assert!(Test::new(1000, 0).acked_at([0, 1, 3, 4, 5, 6, 7, 8]).is_empty());
        assert_eq!(Test::new(1000, 1).acked_at([0, 1, 3, 4, 5]), [3]);
    }

    #[test]
    fn a_late_packet_that_was_reported_missing_is_acknowledged_at_once() {
        let mut t = Test::new(1000, 3);
        assert_eq!(t.acked_at([0, 2, 3, 4]), [4]);
        assert_eq!(t.acked_at([1]), [1]);
        let mut t = Test::new(1000, 3);
        assert!(t.acked_at([0, 2, 3, 1]).is_empty(), "in time");
    }

    #[test]
    fn the_first_ce_mark_is_acknowledged_at_once() {
        let mut t = Test::new(1000, 1);
        let marks = [false, true, true, false, true];
        let acked: Vec<bool> = (0..).zip(marks).map(|(seq, marked)| t.acks(seq, marked)).collect();
        assert_eq!(acked, [false, true, false, false, true]);
        let mut t = Test::new(1, 1);
        assert!(t.acks(0, true) && t.acks(1, true), "by default every mark is");
    }

    #[test]
    fn every_run_is_reported() {
        assert_eq!(Test::new(1000, 0).acked_at([0, 2, 4, 6, 8, 10]), [6]);
    }
}
