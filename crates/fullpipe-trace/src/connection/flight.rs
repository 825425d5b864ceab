//! Unacknowledged data, as in the retransmission queue of a sender.

use super::chunks::{ChunkedQueue, Place};
use fullpipe_cc::Stamp;
use fullpipe_units::Time;
use std::collections::BTreeMap;

/// Maximum number of ranges in flight, for captures without ACKs. More occur only on paths with a
/// bandwidth-delay product beyond 1.5 GB.
const MAX_RANGES: usize = 1 << 20;
/// Maximum number of ranges that one packet retransmits. A segmentation offload merges at most 64
/// kB, which is 45 segments on Ethernet.
const MAX_PARTS: usize = 256;
/// Maximum number of SACKed intervals.
const MAX_SACKED: usize = 1 << 16;

/// A range of data in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) seq: u64,
    pub(super) end: u64,
    /// Time of the last transmission.
    pub(super) at: Time,
    /// State of the connection at the last transmission.
    pub(super) stamp: Stamp,
    /// Number of transmissions.
    pub(super) times: u16,
    /// Timestamp of the last transmission.
    pub(super) value: Option<u32>,
    /// IPv4 identification of the last transmission; 0: none.
    pub(super) id: u16,
    pub(super) sacked: bool,
}

impl Sent {
    pub(super) fn len(&self) -> u64 {
        self.end - self.seq
    }
}

/// Data in flight, in order. Gaps were not captured.
///
/// A packet takes logarithmic time, and constant time for each range that it newly acknowledges.
#[derive(Clone, Debug, Default)]
pub(super) struct Flight {
    sent: ChunkedQueue<Sent>,
    /// Payload bytes neither acknowledged nor SACKed.
    outstanding: u64,
    /// One after the highest SACKed byte.
    highest_sacked: u64,
    /// Blocks of the last SACK option, most of which are repeated in the next.
    known: [(u64, u64); 4],
    sacked: Sacked,
    /// Ranges that are no longer followed, as there were too many.
    dropped: u64,
}

impl Flight {
    pub(super) fn outstanding(&self) -> u64 {
        self.outstanding
    }

    pub(super) fn highest_sacked(&self) -> u64 {
        self.highest_sacked
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Ranges that are no longer followed, as there were too many.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Bytes of memory, approximately.
    pub(super) fn memory(&self) -> usize {
        self.sent.len() * size_of::<Sent>() + self.sacked.0.len() * size_of::<(u64, u64)>() * 2
    }

    /// Place of the range that contains `seq`, or of the next one.
    #[inline]
    fn find(&self, seq: u64) -> Place {
        self.sent.partition_point(|s| s.end <= seq)
    }

    /// Drops the oldest range if there are too many.
    #[inline]
    fn make_room(&mut self) {
        if self.sent.len() >= MAX_RANGES
            && let Some(oldest) = self.sent.pop_front()
        {
            self.dropped += 1;
            if !oldest.sacked {
                self.outstanding -= oldest.len();
            }
        }
    }

    /// Adds data at the end or in a gap.
    #[inline]
    pub(super) fn add(&mut self, sent: Sent) {
        self.make_room();
        self.outstanding += sent.len();
        self.sacked.remove(sent.seq, sent.end);
        if self.sent.back().is_none_or(|last| last.end <= sent.seq) {
            self.sent.push_back(sent);
        } else {
            let place = self.find(sent.seq);
            self.sent.insert(place, sent);
        }
    }

    /// Splits `from..to` into parts that are in flight and parts that are not (`None`). Merges the
    /// ranges if they are more than one packet can contain.
    pub(super) fn parts(&mut self, from: u64, to: u64) -> Vec<(u64, u64, Option<Sent>)> {
        let mut first = self.find(from);
        let count = self.sent.iter_from(first).take_while(|s| s.seq < to).take(MAX_PARTS + 1).count();
        if count > MAX_PARTS {
            self.merge(first, to);
            first = self.find(from);
        }
        let mut parts = Vec::with_capacity(2);
        let mut now = from;
        for s in self.sent.iter_from(first).take_while(|s| s.seq < to) {
            if s.seq > now {
                parts.push((now, s.seq, None));
                now = s.seq;
            }
            let until = s.end.min(to);
            parts.push((now, until, Some(*s)));
            now = until;
        }
        if now < to {
            parts.push((now, to, None));
        }
        parts
    }

    /// Merges the ranges from `first` up to `to` and the gaps between them.
    fn merge(&mut self, first: Place, to: u64) {
        let mut merged: Option<Sent> = None;
        let (mut outstanding, mut count) = (self.outstanding, 0);
        self.sent.remove_while(
            first,
            |s| s.seq < to,
            |s| {
                count += 1;
                outstanding -= if s.sacked { 0 } else { s.len() };
                merged = Some(Sent { seq: merged.map_or(s.seq, |m| m.seq), sacked: false, ..s });
            },
        );
        self.outstanding = outstanding;
        if let Some(merged) = merged {
            self.dropped += count - 1;
            self.add(merged);
        }
    }

    /// Splits the range that contains `seq` at `seq`.
    fn split_at(&mut self, seq: u64) {
        let mut place = self.find(seq);
        if self.sent.get_mut(place).is_none_or(|s| s.seq >= seq) {
            return;
        }
        if self.sent.len() >= MAX_RANGES {
            self.make_room();
            place = self.find(seq);
        }
        if let Some(s) = self.sent.get_mut(place)
            && s.seq < seq
        {
            let rest = Sent { seq, ..*s };
            s.end = seq;
            self.sent.insert_after(place, rest);
        }
    }

    /// Records the retransmission of `from..to`, which is in flight.
    pub(super) fn retransmit(
        &mut self,
        (from, to): (u64, u64),
        at: Time,
        stamp: Stamp,
        value: Option<u32>,
        id: u16,
    ) {
        self.split_at(from);
        self.split_at(to);
        let first = self.find(from);
        for s in self.sent.iter_mut_from(first).take_while(|s| s.seq < to) {
            s.at = at;
            s.stamp = stamp;
            (s.value, s.id) = (value, id);
            s.times = s.times.saturating_add(1);
        }
    }

    /// Removes data below `ack` and calls `arrived` for each range that was not SACKed before.
    #[inline]
    pub(super) fn acknowledge(&mut self, ack: u64, mut arrived: impl FnMut(&Sent)) {
        while let Some(front) = self.sent.front_mut() {
            if front.seq >= ack {
                break;
            }
            let whole = front.end <= ack;
            let part = Sent { end: front.end.min(ack), ..*front };
            if whole {
                self.sent.pop_front();
            } else {
                front.seq = ack;
            }
            if !part.sacked {
                self.outstanding -= part.len();
                arrived(&part);
            }
        }
        self.sacked.remove(0, ack);
    }

    /// Processes SACK blocks and calls `arrived` for each newly SACKed range.
    pub(super) fn apply_sack(&mut self, blocks: &[(u64, u64)], mut arrived: impl FnMut(&Sent)) {
        let mut known = [(0, 0); 4];
        for (place, &(from, to)) in known.iter_mut().zip(blocks) {
            *place = (from, to);
            let (mut from, mut to) = (from, to);
            for &(a, b) in &self.known {
                if a <= from && from < b {
                    from = b;
                }
                if a < to && to <= b {
                    to = a;
                }
            }
            if from >= to {
                continue;
            }
            for (from, to) in self.sacked.add(from, to) {
                self.split_at(from);
                self.split_at(to);
                let first = self.find(from);
                let ranges = self.sent.iter_mut_from(first).take_while(|s| s.seq < to);
                for s in ranges.filter(|s| !s.sacked) {
                    s.sacked = true;
                    self.outstanding -= s.end - s.seq;
                    self.highest_sacked = self.highest_sacked.max(s.end);
                    arrived(s);
                }
            }
        }
        self.known = known;
    }
}

/// SACKed intervals, merged where they touch, so that data is searched once although each ACK
/// repeats its blocks.
#[derive(Clone, Debug, Default)]
struct Sacked(BTreeMap<u64, u64>);

impl Sacked {
    /// Adds `from..to`; returns its parts that were not SACKed before.
    fn add(&mut self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let is_full = self.0.len() >= MAX_SACKED;
        let begin = match self.0.range(..from).next_back() {
            // With too many intervals, the gap before this one is no longer followed.
            Some((&a, &b)) if b >= from || is_full => a,
            None if is_full => return Vec::new(),
            _ => from,
        };
        let (mut end, mut now) = (to, from);
        let mut parts = Vec::with_capacity(1);
        while let Some((&a, &b)) = self.0.range(begin..=to).next() {
            self.0.remove(&a);
            if a > now {
                parts.push((now, a));
            }
            now = now.max(b);
            end = end.max(b);
        }
        if now < to {
            parts.push((now, to));
        }
        self.0.insert(begin, end);
        parts
    }

    /// Removes `from..to`.
    #[inline]
    fn remove(&mut self, from: u64, to: u64) {
        while let Some((&a, &b)) = self.0.range(..to).next_back()
            && b > from
        {
            self.0.remove(&a);
            if b > to {
                self.0.insert(to, b);
            }
            if a < from {
                self.0.insert(a, from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sent(seq: u64, end: u64) -> Sent {
        Sent {
            seq,
            end,
            at: Time::ZERO,
            stamp: Stamp::default(),
            times: 1,
            value: None,
            id: 0,
            sacked: false,
        }
    }

    #[test]
    fn acknowledgments_split_merged_packets() {
        let mut f = Flight::default();
        f.add(sent(0, 10_000));
        f.apply_sack(&[(2_000, 3_000)], |_| {});
        f.apply_sack(&[(2_000, 4_000)], |s| assert_eq!((s.seq, s.end), (3_000, 4_000)));
        assert_eq!((f.outstanding(), f.highest_sacked()), (8_000, 4_000));
        let mut arrived = 0;
        f.acknowledge(5_000, |s| arrived += s.len());
        assert_eq!((arrived, f.outstanding()), (3_000, 5_000));
    }

    #[test]
    fn retransmissions_differ_from_missing_data() {
        let mut f = Flight::default();
        f.add(sent(0, 1_000));
        f.add(sent(2_000, 3_000));
        let parts: Vec<_> = f.parts(500, 3_500).into_iter().map(|(a, b, s)| (a, b, s.is_some())).collect();
        assert_eq!(
            parts,
            [(500, 1_000, true), (1_000, 2_000, false), (2_000, 3_000, true), (3_000, 3_500, false)]
        );
    }

    /// `count` ranges of a byte each, with gaps of a byte.
    fn scattered(count: u64) -> Flight {
        let mut f = Flight::default();
        (0..count).for_each(|n| f.add(sent(2 * n, 2 * n + 1)));
        f
    }

    #[test]
    fn repeated_blocks_do_not_search_their_data_again() {
        let mut f = scattered(10_000);
        let mut arrived = 0;
        // Two blocks in turn, so that neither was in the last option.
        for _ in 0..3 {
            f.apply_sack(&[(0, 20_000)], |_| arrived += 1);
            f.apply_sack(&[(30_000, 30_001)], |_| arrived += 1);
        }
        assert_eq!((arrived, f.outstanding()), (10_000, 0));
        assert_eq!(f.sacked.add(0, 20_000), []);
        // Data that arrives late in a SACKed block is SACKed by the next ACK.
        f.add(sent(7, 8));
        f.apply_sack(&[(0, 20_000)], |s| assert_eq!((s.seq, s.end), (7, 8)));
        assert_eq!(f.outstanding(), 0);
    }

    #[test]
    fn number_of_sacked_intervals_is_bounded() {
        let rising = (0..MAX_SACKED as u64 * 2).map(|n| n * 4);
        let falling = rising.clone().map(|at| (1 << 40) - at);
        for at in [rising.collect::<Vec<_>>(), falling.collect()] {
            let mut sacked = Sacked::default();
            at.into_iter().for_each(|at| drop(sacked.add(at, at + 1)));
            assert!(sacked.0.len() <= MAX_SACKED, "{}", sacked.0.len());
        }
    }

    #[test]
    fn packet_that_retransmits_very_many_ranges_merges_them() {
        let mut f = scattered(30_000);
        assert_eq!(f.parts(0, 60_000).len(), 2);
        f.retransmit((0, 59_999), Time::ZERO, Stamp::default(), None, 0);
        assert_eq!((f.sent.len(), f.outstanding(), f.dropped()), (1, 59_999, 29_999));
        // As many as a packet can contain are kept.
        let mut f = scattered(MAX_PARTS as u64);
        assert_eq!(f.parts(0, 2 * MAX_PARTS as u64).len(), 2 * MAX_PARTS);
        assert_eq!(f.dropped(), 0);
    }

    #[test]
    fn ranges_in_gaps_and_splits_are_bounded() {
        let mut f = scattered(MAX_RANGES as u64);
        f.add(sent(1, 2));
        f.add(sent(1 << 30, (1 << 30) + 1000));
        for n in 0..100 {
            f.apply_sack(&[((1 << 30) + 10 * n, (1 << 30) + 10 * n + 1)], |_| {});
        }
        assert_eq!(f.sent.len(), MAX_RANGES);
        assert_eq!(f.dropped(), 201);
    }

    proptest! {
        #[test]
        fn outstanding_is_sent_minus_acknowledged(
            steps in proptest::collection::vec((0u8..3, 0u64..60, 1u64..20), 1..80)
        ) {
            let mut f = Flight::default();
            let mut model = std::collections::BTreeMap::new();
            for (what, at, len) in steps {
                match what {
                    0 => for (a, b, known) in f.parts(at, at + len) {
                        if known.is_none() {
                            f.add(sent(a, b));
                            (a..b).for_each(|i| { model.insert(i, false); });
                        }
                    },
                    1 => {
                        f.apply_sack(&[(at, at + len)], |_| {});
                        (at..at + len).for_each(|i| { if let Some(s) = model.get_mut(&i) { *s = true; } });
                    }
                    _ => {
                        f.acknowledge(at, |_| {});
                        model.retain(|i, _| *i >= at);
                    }
                }
                // Repeated blocks are skipped, even if data was added in between.
                f.known = Default::default();
                let sacked: Vec<(u64, u64)> = f.sacked.0.iter().map(|(a, b)| (*a, *b)).collect();
                prop_assert!(sacked.windows(2).all(|w| w[0].1 < w[1].0), "{sacked:?}");
                prop_assert_eq!(f.outstanding(), model.values().filter(|s| !**s).count() as u64);
            }
        }
    }
}
