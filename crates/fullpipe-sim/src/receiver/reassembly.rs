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
    /// A segment beyond a hole; `apart` if it starts a new run.
    Beyond { apart: bool },
    /// A segment that was received before.
    Duplicate,
}

/// The receive queue in segments. New arrivals at its end and filled holes at its start are O(1).
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    next: u64,
    next_bytes: u64,
    runs: VecDeque<Run>,
    /// One segment of each of the runs that changed last, the latest first.
    recent: [u64; 4],
    recent_len: usize,
}

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

    /// Adds segment `seq`, which ends at byte `end_bytes`.
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
        let fresh = Run { start: seq, end: seq + 1, end_bytes };
        // Almost always the newest data extends or follows the last run.
        let apart = match self.runs.back_mut() {
            Some(last) if seq == last.end => {
                last.end += 1;
                last.end_bytes = end_bytes;
                false
            }
            Some(last) if seq < last.end => match self.insert_among(fresh) {
                Some(apart) => apart,
                None => return Arrival::Duplicate,
            },
            _ => {
                self.runs.push_back(fresh);
                true
            }
        };
        self.remember(seq);
        Arrival::Beyond { apart }
    }

    /// Inserts a segment below the end of the last run. Returns whether it starts a new run; `None` if it
    /// was received before.
    fn insert_among(&mut self, fresh: Run) -> Option<bool> {
        // The first run that ends at or after the segment: it may contain it, or follow it.
        let at = self.runs.partition_point(|run| run.end < fresh.start);
        let run = &mut self.runs[at];
        if run.start <= fresh.start && fresh.start < run.end {
            return None;
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
            return Some(true);
        }
        Some(false)
    }

    fn remember(&mut self, seq: u64) {
        let run = self.run_of(seq);
        let mut kept = 1;
        let mut recent = [seq; 4];
        for &old in &self.recent[..self.recent_len] {
            let same_run = run.is_some_and(|r| (r.0..r.1).contains(&old));
            if kept < recent.len() && !same_run {
                recent[kept] = old;
                kept += 1;
            }
        }
        self.recent = recent;
        self.recent_len = kept;
    }

    fn forget_delivered(&mut self) {
        let mut kept = 0;
        for i in 0..self.recent_len {
            if self.recent[i] >= self.next {
                self.recent[kept] = self.recent[i];
                kept += 1;
            }
        }
        self.recent_len = kept;
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
    pub fn report(&self, info: &mut SackInfo) {
        for &seq in &self.recent[..self.recent_len] {
            if let Some(run) = self.run_of(seq) {
                info.push(run);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn blocks(r: &Reassembly) -> Vec<(u64, u64)> {
        let mut info = SackInfo::default();
        r.report(&mut info);
        info.blocks().to_vec()
    }

    #[test]
    fn the_run_that_changed_last_is_reported_first() {
        let mut r = Reassembly::default();
        assert_eq!(r.insert(0, 1), Arrival::InOrder { filled: false });
        for seq in [2, 4, 6, 8, 10] {
            assert_eq!(r.insert(seq, seq + 1), Arrival::Beyond { apart: true });
        }
        assert_eq!(blocks(&r), [(10, 11), (8, 9), (6, 7)]);
        assert_eq!(r.insert(5, 6), Arrival::Beyond { apart: false });
        assert_eq!(blocks(&r), [(4, 7), (10, 11), (8, 9)]);
        assert_eq!(r.insert(5, 6), Arrival::Duplicate);
        r.insert(1, 2);
        assert_eq!((r.next(), r.next_bytes()), (3, 3));
        assert_eq!(r.insert(3, 4), Arrival::InOrder { filled: false });
        assert_eq!(blocks(&r), [(10, 11), (8, 9)]);
        r.insert(7, 8);
        assert_eq!(r.insert(9, 10), Arrival::InOrder { filled: true });
        assert_eq!((r.next(), r.has_hole()), (11, false));
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
                if matches!(arrival, Arrival::Beyond { .. }) {
                    prop_assert!((blocks(&r)[0].0..blocks(&r)[0].1).contains(&seq));
                }
            }
        }
    }
}
