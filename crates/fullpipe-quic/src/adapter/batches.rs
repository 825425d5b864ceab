//! What is in flight, for a stack that reports transmits instead of packets.

use super::InFlight;
use fullpipe_cc::{Stamp, Time};
use std::collections::VecDeque;

/// A host that only receives sends nothing but ACKs, which quinn reports as sent and which are
/// never acknowledged: so many transmits are remembered at most.
const MAX_BATCHES: usize = 1 << 16;

/// Packets sent together.
#[derive(Clone, Copy, Debug)]
struct Batch {
    /// Bytes neither acknowledged nor lost.
    bytes: u64,
    stamp: Stamp,
}

/// Transmits of one or more packets, in the order in which they were sent.
#[derive(Clone, Default, Debug)]
pub(crate) struct Batches {
    list: VecDeque<Batch>,
}

impl Batches {
    /// `bytes` were sent with `stamp`.
    pub fn push(&mut self, bytes: u64, stamp: Stamp) {
        if self.list.len() == MAX_BATCHES {
            self.list.pop_front();
        }
        self.list.push_back(Batch { bytes, stamp });
    }

    /// Takes a packet of `bytes` sent at `sent` off.
    pub fn remove(&mut self, sent: Time, bytes: u64) -> Option<Stamp> {
        let first = self.list.partition_point(|batch| batch.stamp.sent_at < sent);
        let same = self.list.range_mut(first..).take_while(|batch| batch.stamp.sent_at == sent);
        let mut same = same.filter(|batch| batch.bytes > 0);
        let batch = same.next()?;
        batch.bytes = batch.bytes.saturating_sub(bytes);
        let stamp = batch.stamp;
        self.drop_empty();
        Some(stamp)
    }

    /// Takes `bytes` off that are lost, the newest sent at `sent`. Everything older that is still in
    /// flight is lost, too (RFC 9002 §6.1.1), so the oldest come first. Calls `each` with the bytes
    /// of each transmit.
    pub fn lose(&mut self, sent: Time, bytes: u64, mut each: impl FnMut(u64, Stamp)) {
        let mut left = bytes;
        for batch in self.list.iter_mut().take_while(|batch| batch.stamp.sent_at <= sent) {
            let lost = batch.bytes.min(left);
            if lost > 0 {
                batch.bytes -= lost;
                left -= lost;
                each(lost, batch.stamp);
            }
            if left == 0 {
                break;
            }
        }
        self.drop_empty();
    }

    fn drop_empty(&mut self) {
        while self.list.front().is_some_and(|batch| batch.bytes == 0) {
            self.list.pop_front();
        }
    }
}

impl InFlight for Batches {
    fn oldest(&self) -> Option<u64> {
        self.list.front().map(|batch| batch.stamp.id)
    }

    fn discard_sent_before(&mut self, at: Time) -> u64 {
        let mut discarded = 0u64;
        while let Some(batch) = self.list.pop_front_if(|batch| batch.stamp.sent_at < at || batch.bytes == 0) {
            discarded = discarded.saturating_add(batch.bytes);
        }
        discarded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_cc::Span;

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    fn batches() -> Batches {
        let mut batches = Batches::default();
        for (id, ms, bytes) in [(0, 1, 30), (1, 2, 3000), (2, 2, 2000), (3, 5, 1000)] {
            batches.push(bytes, Stamp { id, sent_at: at(ms), ..Stamp::default() });
        }
        batches
    }

    #[test]
    fn packets_are_taken_off_the_transmits_of_their_time() {
        let mut batches = batches();
        let ids: Vec<_> = (0..6).map(|_| batches.remove(at(2), 1000).map(|stamp| stamp.id)).collect();
        assert_eq!(ids, [Some(1), Some(1), Some(1), Some(2), Some(2), None]);
        assert_eq!(batches.remove(at(3), 1000), None);
        assert_eq!(batches.oldest(), Some(0));
        assert_eq!(batches.discard_sent_before(at(5)), 30, "an ACK, which is not acknowledged");
        assert_eq!(batches.oldest(), Some(3));
    }

    #[test]
    fn losses_are_the_oldest_up_to_the_newest_lost() {
        let mut batches = batches();
        let mut lost = Vec::new();
        batches.lose(at(2), 4030, |bytes, stamp| lost.push((stamp.id, bytes)));
        assert_eq!(lost, [(0, 30), (1, 3000), (2, 1000)]);
        lost.clear();
        batches.lose(at(2), u64::MAX, |bytes, stamp| lost.push((stamp.id, bytes)));
        assert_eq!(lost, [(2, 1000)], "what was sent later is still in flight");
    }

    #[test]
    fn memory_is_bounded_without_acknowledgements() {
        let mut batches = Batches::default();
        for id in 0..MAX_BATCHES as u64 + 10 {
            batches.push(30, Stamp { id, sent_at: at(id), ..Stamp::default() });
        }
        assert_eq!((batches.list.len(), batches.oldest()), (MAX_BATCHES, Some(10)));
    }
}
