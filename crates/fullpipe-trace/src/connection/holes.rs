//! Holes in the sequence space: data that later data overtook, because it was reordered or lost.

use fullpipe_units::{Span, Time};
use std::collections::VecDeque;

/// Maximum number of holes; more occur only if most packets are missing from the capture. Each
/// packet compares its times with those of all holes.
const MAX_HOLES: usize = 1 << 10;
/// Later segments after which a sender detects a loss at once (RFC 5681 §3.2),
const DUP_THRESH: u64 = 3;
/// otherwise after a quarter of an RTT (RFC 8985 §6.2) and two ticks of a 100 Hz clock.
const TICKS: Span = Span::from_millis(20);

/// A hole in the sequence space.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hole {
    pub(super) seq: u64,
    pub(super) end: u64,
    /// When it was detected.
    pub(super) at: Time,
    /// Timestamp of the data that overtook it.
    pub(super) value: Option<u32>,
    /// Segments captured before it.
    segments: u64,
    /// From when on acknowledgments inform the sender of the loss, or of the loss of the last
    /// repair.
    detectable: Option<Time>,
    /// Lost repairs, and when the last was missed.
    lost_repairs: u32,
    missed: Time,
}

/// A hole that was filled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filled {
    pub(super) hole: Hole,
    /// Lost repairs of each of its segments.
    pub(super) lost_repairs: u32,
}

/// The holes of one direction, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Holes {
    all: VecDeque<Hole>,
    /// Holes that are no longer followed, as there were too many.
    dropped: u64,
}

impl Holes {
    /// Adds the hole `seq..end`, detected at `at` after `segments` segments.
    pub(super) fn add(&mut self, seq: u64, end: u64, at: Time, value: Option<u32>, segments: u64) {
        self.make_room();
        self.all.push_back(Hole {
            seq,
            end,
            at,
            value,
            segments,
            detectable: None,
            lost_repairs: 0,
            missed: at,
        });
    }

    /// Drops the oldest hole if there are too many.
    fn make_room(&mut self) {
        if self.all.len() >= MAX_HOLES {
            self.all.pop_front();
            self.dropped += 1;
        }
    }

    /// Holes that are no longer followed, as there were too many.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Bytes of memory, approximately.
    pub(super) fn memory(&self) -> usize {
        self.all.capacity() * size_of::<Hole>()
    }

    /// Records data from `seq` on at `at`, sent after the acknowledgments of `answered`. A sender
    /// repairs known holes in order and before it sends new data: the repair of a known hole
    /// that did not arrive was lost.
    pub(super) fn data_passes(&mut self, seq: u64, at: Time, answered: Time, rtt: Span, segments: u64) {
        for hole in self.all.iter_mut().take_while(|h| h.end <= seq) {
            let detectable = hole.detectable.unwrap_or(hole.at + rtt / 4 + TICKS);
            if answered >= detectable {
                // Later data informs the sender of that.
                hole.lost_repairs = hole.lost_repairs.saturating_add(1);
                (hole.missed, hole.detectable) = (at, Some(at));
            }
        }
        let unknown = self.all.iter_mut().rev().take_while(|h| h.detectable.is_none());
        unknown.filter(|h| segments >= h.segments + DUP_THRESH).for_each(|h| h.detectable = Some(at));
    }

    /// Fills `from..to` at `at`. Returns the hole that contained it.
    pub(super) fn fill(&mut self, from: u64, to: u64, at: Time, rtt: Span) -> Option<Filled> {
        let mut i = self.all.partition_point(|h| h.end <= from);
        let hole = *self.all.get(i).filter(|h| h.seq < to)?;
        // The rest of the hole before and after.
        let rest = [(hole.seq, from), (to, hole.end)];
        let mut kept = rest.into_iter().filter(|(a, b)| a < b).map(|(seq, end)| Hole { seq, end, ..hole });
        match (kept.next(), kept.next()) {
            (Some(one), two) => {
                self.all[i] = one;
                if let Some(two) = two {
                    let before = self.dropped;
                    self.make_room();
                    i = (i + 1).saturating_sub((self.dropped - before) as usize);
                    self.all.insert(i, two);
                }
            }
            _ => drop(self.all.remove(i)),
        }
        // A further repair takes a round trip: if it is earlier, the repair was only reordered.
        let reordered = at.since(hole.missed) * 10 < rtt * 9;
        Some(Filled { hole, lost_repairs: hole.lost_repairs.saturating_sub(u32::from(reordered)) })
    }

    /// Removes holes below `ack` and calls `missed` for each: the capture missed their data.
    pub(super) fn acknowledge(&mut self, ack: u64, mut missed: impl FnMut(&Hole)) {
        while let Some(hole) = self.all.pop_front_if(|h| h.end <= ack) {
            missed(&hole);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Unfilled holes: length and lost repairs.
    pub(super) fn open(&self) -> impl Iterator<Item = (u64, u32)> {
        self.all.iter().map(|h| (h.end - h.seq, h.lost_repairs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Span = Span::from_millis(40);

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    /// A segment of 1000 bytes is missing at 10 ms; three later ones make it detectable at 13 ms.
    fn one() -> Holes {
        let mut holes = Holes::default();
        holes.add(1000, 2000, at(10), Some(1), 1);
        for (n, seq) in [(2, 3000), (3, 4000), (4, 5000)] {
            holes.data_passes(seq, at(9 + n), at(0), RTT, n);
        }
        holes
    }

    #[test]
    fn timely_repair_was_sent_once() {
        let mut holes = one();
        // The sender could not know yet.
        holes.data_passes(6000, at(50), at(12), RTT, 5);
        assert_eq!(holes.fill(1000, 2000, at(53), RTT).unwrap().lost_repairs, 0);
    }

    #[test]
    fn later_data_before_the_repair_shows_that_the_repair_was_lost() {
        let mut holes = one();
        holes.data_passes(6000, at(54), at(13), RTT, 5);
        // Data sent before the sender knew gives no further information.
        holes.data_passes(7000, at(55), at(14), RTT, 6);
        holes.data_passes(8000, at(96), at(55), RTT, 7);
        assert_eq!(holes.fill(1000, 2000, at(137), RTT).unwrap().lost_repairs, 2);
    }

    #[test]
    fn splitting_a_hole_keeps_their_number_bounded() {
        let mut holes = Holes::default();
        holes.add(0, 1 << 20, at(10), None, 1);
        for n in 0..MAX_HOLES as u64 + 500 {
            assert_eq!(holes.fill(10 * n + 1, 10 * n + 2, at(11), RTT).unwrap().hole.at, at(10));
        }
        assert_eq!((holes.all.len(), holes.dropped()), (MAX_HOLES, 501));
        assert!(holes.all.iter().zip(holes.all.iter().skip(1)).all(|(a, b)| a.end < b.seq));
    }

    #[test]
    fn reordered_repair_was_not_lost() {
        let mut holes = one();
        holes.data_passes(6000, at(54), at(13), RTT, 5);
        assert_eq!(holes.fill(1000, 2000, at(55), RTT).unwrap().lost_repairs, 0);
    }

    #[test]
    fn repair_of_a_later_hole_affects_earlier_holes_only() {
        let mut holes = one();
        holes.add(6000, 9000, at(14), Some(1), 5);
        holes.data_passes(7000, at(70), at(60), RTT, 6);
        assert_eq!(holes.fill(7000, 8000, at(70), RTT).unwrap().lost_repairs, 0);
        assert_eq!(holes.open().collect::<Vec<_>>(), [(1000, 1), (1000, 0), (1000, 0)]);
        let mut missed = 0;
        holes.acknowledge(7000, |h| missed += h.end - h.seq);
        assert_eq!(missed, 2000);
        assert_eq!(holes.fill(8000, 9000, at(71), RTT).unwrap().lost_repairs, 0);
        assert!(holes.fill(8000, 9000, at(72), RTT).is_none());
    }
}
