//! Data that was acknowledged before it was captured. A capture from several receive queues writes
//! some packets behind their own ACKs; otherwise it missed them.

use crate::sequence::later;
use fullpipe_units::{Span, Time};
use std::collections::VecDeque;

/// Maximum number of ranges: the data of a few milliseconds.
const MAX_RANGES: usize = 256;
/// A queue is emptied within that time,
const MIN_DISORDER: Span = Span::from_millis(10);
/// and certainly within this.
const MAX_DISORDER: Span = Span::from_millis(100);

/// The longest time that a capture writes data behind its ACK. A retransmission whose original was
/// missed takes an RTT.
pub(super) fn max_disorder(rtt: Option<Span>) -> Span {
    rtt.map_or(MIN_DISORDER, |rtt| rtt / 2).clamp(MIN_DISORDER, MAX_DISORDER)
}

/// A range of data that was acknowledged and not captured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missed {
    pub(super) seq: u64,
    pub(super) end: u64,
    /// When its ACK was captured, and the timestamp that it echoed.
    at: Time,
    echo: Option<u32>,
    /// When later data showed that it was missing.
    pub(super) hole_at: Option<Time>,
}

/// Ranges that were acknowledged shortly before and not captured, in the order of their ACKs.
#[derive(Clone, Debug, Default)]
pub(super) struct MissedData {
    ranges: VecDeque<Missed>,
}

impl MissedData {
    /// Bytes of memory, approximately.
    pub(super) fn memory(&self) -> usize {
        self.ranges.capacity() * size_of::<Missed>()
    }

    /// Adds `seq..end`, acknowledged at `at` with the echo of a timestamp.
    pub(super) fn add(&mut self, seq: u64, end: u64, (at, echo): (Time, Option<u32>), hole_at: Option<Time>) {
        let is_old = |m: &Missed| at.since(m.at) > MAX_DISORDER;
        while self.ranges.pop_front_if(|m| is_old(m)).is_some() {}
        if self.ranges.len() == MAX_RANGES {
            self.ranges.pop_front();
        }
        self.ranges.push_back(Missed { seq, end, at, echo, hole_at });
    }

    /// Removes the first part of `from..to` that was missed at most `disorder` before `at`. Data with
    /// a timestamp `value` later than the ACK's echo was sent after that: it is a retransmission.
    pub(super) fn remove(
        &mut self,
        (from, to): (u64, u64),
        (at, value): (Time, Option<u32>),
        disorder: Span,
    ) -> Option<Missed> {
        let is_late = |m: &Missed| {
            let sent_later = value.zip(m.echo).map(|(value, echo)| later(value, echo));
            // Timestamps decide; without them the time.
            let most = if sent_later.is_some() { MAX_DISORDER } else { disorder };
            m.seq < to && m.end > from && at.since(m.at) <= most && sent_later != Some(true)
        };
        let late = self.ranges.iter().enumerate().filter(|(_, m)| is_late(m));
        let (i, _) = late.min_by_key(|(_, m)| m.seq)?;
        let missed = self.ranges[i];
        let part = Missed { seq: missed.seq.max(from), end: missed.end.min(to), ..missed };
        let rest = [(missed.seq, part.seq), (part.end, missed.end)];
        let mut rest = rest.into_iter().filter(|(a, b)| a < b);
        match rest.next() {
            Some((seq, end)) => self.ranges[i] = Missed { seq, end, ..missed },
            None => drop(self.ranges.remove(i)),
        }
        if let Some((seq, end)) = rest.next()
            && self.ranges.len() < MAX_RANGES
        {
            self.ranges.insert(i + 1, Missed { seq, end, ..missed });
        }
        Some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    #[test]
    fn parts_of_a_range_are_removed_once_and_in_time() {
        let mut missed = MissedData::default();
        missed.add(1000, 4000, (at(10), Some(7)), None);
        let disorder = max_disorder(None);
        let mut part =
            |from, to, ms| missed.remove((from, to), (at(ms), None), disorder).map(|m| (m.seq, m.end));
        assert_eq!(part(2000, 3000, 12), Some((2000, 3000)));
        assert_eq!(part(2000, 3000, 12), None);
        assert_eq!(part(500, 2500, 12), Some((1000, 2000)));
        assert_eq!(part(3000, 4000, 21), None);
        assert!(missed.remove((3000, 4000), (at(12), Some(8)), disorder).is_none());
        assert!(missed.remove((3000, 4000), (at(90), Some(7)), disorder).is_some());
    }

    #[test]
    fn number_of_ranges_is_bounded() {
        let mut missed = MissedData::default();
        for n in 0..10_000 {
            missed.add(n * 10, n * 10 + 9, (at(1), None), None);
            missed.remove((n * 10 + 3, n * 10 + 4), (at(1), None), max_disorder(None));
        }
        assert_eq!(missed.ranges.len(), MAX_RANGES);
    }
}
