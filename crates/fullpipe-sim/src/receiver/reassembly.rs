//! The receive queue: the first missing segment, and the runs of segments beyond it.

use crate::segment::SackInfo;
use std::collections::VecDeque;

/// A run of consecutive segments beyond a hole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    start: u64,
    end: u64,
    /// Stream position of its end, in bytes.
    end_bytes: u64,
}

/// How an arrival changed the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// The next segment in order; `filled` if it closed the last hole.
    InOrder { filled: bool },
    /// A segment beyond a hole.
    Beyond,
    /// A segment that was received before.
    Duplicate,
}

/// The receive queue in segments. New arrivals at its end and filled holes at its start are O(1).
#[derive(Clone, Debug, Default)]
pub(crate) struct Reassembly {
    next: u64,
    next_bytes: u64,
    runs: VecDeque<Run>,
    /// One segment of each of the runs that changed last, the latest first.
    recent: [u64; 4],
    recent_len: usize,
    /// How many of these have changed since they were last reported.
    unreported: usize,
}

/// Most runs that may change before they are reported. An ACK with timestamps has room for one
/// more, so that each change is usually reported twice (`TCP_SACK_BLOCKS_EXPECTED`).
const MAX_UNREPORTED: usize = 2;

impl Reassembly {
    /// The first segment that has not been received.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Bytes received in order.
    pub fn next_bytes(&self) -> u64 {
        self.next_bytes
    }

    /// Whether there are segments beyond a hole.
    pub fn has_hole(&self) -> bool {
        !self.runs.is_empty()
    }

    /// Bytes from the first missing one to the last received.
    pub fn beyond_bytes(&self) -> u64 {
        self.runs.back().map_or(0, |run| run.end_bytes - self.next_bytes)
    }

    /// The largest segment received.
    pub fn largest(&self) -> Option<u64> {
        self.runs.back().map_or(self.next, |run| run.end).checked_sub(1)
    }

    /// The first segment at or after `from` that has not been received although a later one has.
    pub fn first_missing(&self, from: u64) -> Option<u64> {
        let from = from.max(self.next);
        let at = self.runs.partition_point(|run| run.end <= from);
        let run = self.runs.get(at)?;
        if from < run.start {
            return Some(from);
        }
        // Runs do not touch.
        self.runs.get(at + 1).map(|_| run.end)
    }

    /// Whether segment `seq` changes a run other than the [`MAX_UNREPORTED`] that changed last, so
    /// that an ACK which is held back must be sent before it (`tcp_sack_new_ofo_skb`).
    pub fn must_report_before(&self, seq: u64) -> bool {
        if seq <= self.next {
            return false;
        }
        let touches = |&of: &u64| {
            self.run_of(of).is_some_and(|(start, end)| (start.saturating_sub(1)..=end).contains(&seq))
        };
        let recent = &self.recent[..self.recent_len];
        recent.iter().position(touches).unwrap_or(self.recent_len) >= MAX_UNREPORTED
    }

    /// How many runs have changed since they were last reported, if not more than
    /// [`report`](Self::report) has room for.
    pub fn unreported(&self) -> usize {
        self.unreported
    }

    /// Adds segment `seq`, which ends at byte `end_bytes`.
    #[inline]
    pub fn insert(&mut self, seq: u64, end_bytes: u64) -> Arrival {
        if seq < self.next {
            return Arrival::Duplicate;
        }
        if seq == self.next {
            self.next += 1;
            self.next_bytes = end_bytes;
            let had_hole = self.has_hole();
            if self.runs.front().is_some_and(|run| run.start == self.next)
                && let Some(run) = self.runs.pop_front()
            {
                self.next = run.end;
                self.next_bytes = run.end_bytes;
            }
            if had_hole {
                self.forget_delivered();
            }
            return Arrival::InOrder { filled: had_hole && !self.has_hole() };
        }
        self.insert_beyond(seq, end_bytes)
    }

    /// Adds a segment above a hole.
    fn insert_beyond(&mut self, seq: u64, end_bytes: u64) -> Arrival {
        let fresh = Run { start: seq, end: seq + 1, end_bytes };
        // Almost always the newest data extends or follows the last run.
        let is_new = match self.runs.back_mut() {
            Some(last) if seq == last.end => {
                last.end += 1;
                last.end_bytes = end_bytes;
                true
            }
            Some(last) if seq < last.end => self.insert_among(fresh),
            _ => {
                self.runs.push_back(fresh);
                true
            }
        };
        // The run of a duplicate is reported first, too (RFC 2883 §4).
        self.remember(seq);
        if is_new { Arrival::Beyond } else { Arrival::Duplicate }
    }

    /// Inserts a segment below the end of the last run. Returns whether it was not received before.
    fn insert_among(&mut self, fresh: Run) -> bool {
        // The first run that ends at or after the segment: it may contain it, or follow it.
        let at = self.runs.partition_point(|run| run.end < fresh.start);
        let run = &mut self.runs[at];
        if run.start <= fresh.start && fresh.start < run.end {
            return false;
        }
        if run.end == fresh.start {
            run.end += 1;
            run.end_bytes = fresh.end_bytes;
            let end = run.end;
            if self.runs.get(at + 1).is_some_and(|after| after.start == end)
                && let Some(after) = self.runs.remove(at + 1)
            {
                self.runs[at].end = after.end;
                self.runs[at].end_bytes = after.end_bytes;
            }
        } else if run.start == fresh.end {
            run.start = fresh.start;
        } else {
            self.runs.insert(at, fresh);
        }
        true
    }

    fn remember(&mut self, seq: u64) {
        let run = self.run_of(seq);
        let (mut kept, mut unreported) = (1, 1);
        let mut recent = [seq; 4];
        for (i, &old) in self.recent[..self.recent_len].iter().enumerate() {
            let same_run = run.is_some_and(|r| (r.0..r.1).contains(&old));
            if kept < recent.len() && !same_run {
                recent[kept] = old;
                kept += 1;
                unreported += usize::from(i < self.unreported);
            }
        }
        self.recent = recent;
        self.recent_len = kept;
        self.unreported = unreported;
    }

    fn forget_delivered(&mut self) {
        let (mut kept, mut unreported) = (0, 0);
        for i in 0..self.recent_len {
            if self.recent[i] >= self.next {
                self.recent[kept] = self.recent[i];
                kept += 1;
                unreported += usize::from(i < self.unreported);
            }
        }
        self.recent_len = kept;
        self.unreported = unreported;
    }

    fn run_of(&self, seq: u64) -> Option<(u64, u64)> {
        // The run that just changed is mostly the last.
        if let Some(last) = self.runs.back()
            && last.start <= seq
        {
            return (seq < last.end).then_some((last.start, last.end));
        }
        let at = self.runs.partition_point(|run| run.end <= seq);
        self.runs.get(at).filter(|run| run.start <= seq).map(|run| (run.start, run.end))
    }

    /// Adds the runs that changed last to `info`, the latest first (RFC 2018 §4).
    pub fn report(&mut self, info: &mut SackInfo) {
        for &seq in &self.recent[..self.recent_len] {
            if let Some(run) = self.run_of(seq) {
                info.push(run);
            }
        }
        self.unreported = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn blocks(r: &Reassembly) -> Vec<(u64, u64)> {
        let mut info = SackInfo::default();
        r.clone().report(&mut info);
        info.blocks().to_vec()
    }

    #[test]
    fn the_run_that_changed_last_is_reported_first() {
        let mut r = Reassembly::default();
        assert_eq!(r.insert(0, 1), Arrival::InOrder { filled: false });
        for seq in [2, 4, 6, 8, 10] {
            assert_eq!(r.insert(seq, seq + 1), Arrival::Beyond);
        }
        assert_eq!(blocks(&r), [(10, 11), (8, 9), (6, 7)]);
        assert_eq!(r.insert(5, 6), Arrival::Beyond);
        assert_eq!(blocks(&r), [(4, 7), (10, 11), (8, 9)]);
        assert_eq!(r.insert(8, 9), Arrival::Duplicate);
        assert_eq!(blocks(&r), [(8, 9), (4, 7), (10, 11)], "the run of a duplicate is first, too");
        assert_eq!(r.insert(5, 6), Arrival::Duplicate);
        r.insert(1, 2);
        assert_eq!((r.next(), r.next_bytes()), (3, 3));
        assert_eq!(r.insert(3, 4), Arrival::InOrder { filled: false });
        assert_eq!(blocks(&r), [(8, 9), (10, 11)]);
        r.insert(7, 8);
        assert_eq!(r.insert(9, 10), Arrival::InOrder { filled: true });
        assert_eq!((r.next(), r.has_hole()), (11, false));
    }

    #[test]
    fn a_third_run_must_be_reported_before_it_changes_whether_it_is_new_or_not() {
        let mut r = Reassembly::default();
        for seq in [2, 6, 10, 14] {
            r.insert(seq, seq + 1);
        }
        assert_eq!(r.unreported(), 4);
        r.report(&mut SackInfo::default());
        assert_eq!(r.unreported(), 0);
        // 14 and 10 changed last: what extends them, or fills the hole between them and an older run, may
        // wait.
        for (seq, must) in [(15, false), (13, false), (9, false), (7, true), (5, true), (3, true), (20, true)]
        {
            assert_eq!(r.must_report_before(seq), must, "{seq}");
        }
        assert!(!r.must_report_before(0), "the cumulative acknowledgment reports it");
        assert!(r.must_report_before(6), "and a duplicate is no different");
        r.insert(7, 8);
        r.insert(15, 16);
        r.insert(8, 9);
        assert_eq!(r.unreported(), 2);
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_set_of_numbers(order in prop::collection::vec(0u64..60, 1..300)) {
            let mut r = Reassembly::default();
            let mut set = BTreeSet::new();
            for seq in order {
                let new = set.insert(seq);
                let arrival = r.insert(seq, (seq + 1) * 10);
                prop_assert_eq!(arrival == Arrival::Duplicate, !new);
                let next = (0..).find(|s| !set.contains(s)).unwrap();
                prop_assert_eq!((r.next(), r.next_bytes()), (next, next * 10));
                prop_assert_eq!(r.largest(), set.last().copied());
                for from in [0, seq, seq + 3] {
                    let last = set.last().copied().unwrap();
                    prop_assert_eq!(r.first_missing(from), (from..last).find(|s| !set.contains(s)));
                }
                let beyond = set.range(next..).count() as u64;
                prop_assert_eq!(r.runs.iter().map(|run| run.end - run.start).sum::<u64>(), beyond);
                for (start, end) in blocks(&r) {
                    prop_assert!((start..end).all(|s| set.contains(&s)));
                    prop_assert!(!set.contains(&(start - 1)) && !set.contains(&end));
                }
                prop_assert_eq!(blocks(&r).len(), r.runs.len().min(3).min(r.recent_len));
                if arrival == Arrival::Beyond {
                    prop_assert!((blocks(&r)[0].0..blocks(&r)[0].1).contains(&seq));
                }
            }
        }
    }
}
