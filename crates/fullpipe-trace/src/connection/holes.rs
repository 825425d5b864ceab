//! Data that later data has passed: overtaken on the way, or lost, and how often.

use fullpipe_units::{Span, Time};
use std::collections::VecDeque;

/// Holes that are remembered at a time; more only where most packets are missing from the capture.
const MOST: usize = 1 << 12;
/// So many later segments that have arrived tell a sender of a loss at once (RFC 5681 §3.2),
const LATER: u64 = 3;
/// and fewer do after a quarter of a round trip (RFC 8985 §6.2) and two ticks of a slow kernel's clock.
const TICKS: Span = Span::from_millis(20);

/// Data that was passed by later data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hole {
    pub(super) seq: u64,
    pub(super) end: u64,
    /// When it was noticed.
    pub(super) at: Time,
    /// Timestamp of what passed it.
    pub(super) value: Option<u32>,
    /// Segments that had passed by then.
    segments: u64,
    /// From when on answers tell the sender of its loss, or of that of the last repair.
    told: Option<Time>,
    /// Repairs that did not arrive, and when the last was missed.
    again: u32,
    missed: Time,
}

/// What the holes of one direction say of data that fills one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filled {
    pub(super) hole: Hole,
    /// Repairs of each of its segments that did not arrive before.
    pub(super) again: u32,
}

/// The holes of one direction, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Holes {
    all: VecDeque<Hole>,
}

impl Holes {
    /// Data from `end` on passes at `at`, where `seq` was next, as `segments` have passed.
    pub(super) fn notice(&mut self, seq: u64, end: u64, at: Time, value: Option<u32>, segments: u64) {
        if self.all.len() == MOST {
            self.all.pop_front();
        }
        self.all.push_back(Hole { seq, end, at, value, segments, told: None, again: 0, missed: at });
    }

    /// Data from `seq` on passes at `at`, which left after its sender had the answers of `answered`. A sender repairs the first hole
    /// that it knows of first, and all of them before it sends new data: what it knew of and has not come was lost again.
    pub(super) fn pass(&mut self, seq: u64, at: Time, answered: Time, rtt: Span, segments: u64) {
        for hole in self.all.iter_mut().take_while(|h| h.end <= seq) {
            let told = hole.told.unwrap_or(hole.at + rtt / 4 + TICKS);
            if answered >= told {
                // What comes after it tells the sender of that.
                (hole.again, hole.missed, hole.told) = (hole.again + 1, at, Some(at));
            }
        }
        let unknown = self.all.iter_mut().rev().take_while(|h| h.told.is_none());
        unknown.filter(|h| segments >= h.segments + LATER).for_each(|h| h.told = Some(at));
    }

    /// `from..to` passes at `at`: the hole that it is in, which it no longer is.
    pub(super) fn fill(&mut self, from: u64, to: u64, at: Time, rtt: Span) -> Option<Filled> {
        let i = self.all.iter().position(|h| h.seq < to && from < h.end)?;
        let hole = self.all[i];
        // What is left of it before and after.
        let rest = [(hole.seq, from), (to, hole.end)];
        let mut kept = rest.into_iter().filter(|(a, b)| a < b).map(|(seq, end)| Hole { seq, end, ..hole });
        match (kept.next(), kept.next()) {
            (Some(one), two) => {
                self.all[i] = one;
                if let Some(two) = two {
                    self.all.insert(i + 1, two);
                }
            }
            _ => drop(self.all.remove(i)),
        }
        // The answer to a repair that was missed takes a round trip to have an effect: earlier, the repair was only overtaken.
        let overtaken = at.since(hole.missed) * 10 < rtt * 9;
        Some(Filled { hole, again: hole.again.saturating_sub(u32::from(overtaken)) })
    }

    /// Everything below `ack` arrived: gives what the capture missed of it.
    pub(super) fn acknowledge(&mut self, ack: u64) -> u64 {
        let mut unseen = 0;
        while let Some(hole) = self.all.pop_front_if(|h| h.end <= ack) {
            unseen += hole.end - hole.seq;
        }
        unseen
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Those that nothing has filled.
    pub(super) fn open(&self) -> impl Iterator<Item = (u64, u32)> {
        self.all.iter().map(|h| (h.end - h.seq, h.again))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Span = Span::from_millis(40);

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    /// A segment of 1000 bytes is missing at 10 ms, and three later ones tell of it at 13 ms.
    fn one() -> Holes {
        let mut holes = Holes::default();
        holes.notice(1000, 2000, at(10), Some(1), 1);
        for (n, seq) in [(2, 3000), (3, 4000), (4, 5000)] {
            holes.pass(seq, at(9 + n), at(0), RTT, n);
        }
        holes
    }

    #[test]
    fn a_repair_that_comes_in_its_turn_was_sent_once() {
        let mut holes = one();
        // Its sender did not know yet.
        holes.pass(6000, at(50), at(12), RTT, 5);
        assert_eq!(holes.fill(1000, 2000, at(53), RTT).unwrap().again, 0);
    }

    #[test]
    fn what_left_after_the_repair_and_came_before_it_tells_that_it_was_lost() {
        let mut holes = one();
        holes.pass(6000, at(54), at(13), RTT, 5);
        // What left before the sender heard of that says nothing more.
        holes.pass(7000, at(55), at(14), RTT, 6);
        holes.pass(8000, at(96), at(55), RTT, 7);
        assert_eq!(holes.fill(1000, 2000, at(137), RTT).unwrap().again, 2);
    }

    #[test]
    fn a_repair_that_was_overtaken_on_the_way_was_not_lost() {
        let mut holes = one();
        holes.pass(6000, at(54), at(13), RTT, 5);
        assert_eq!(holes.fill(1000, 2000, at(55), RTT).unwrap().again, 0);
    }

    #[test]
    fn the_repair_of_a_later_hole_says_it_only_of_those_before() {
        let mut holes = one();
        holes.notice(6000, 9000, at(14), Some(1), 5);
        holes.pass(7000, at(70), at(60), RTT, 6);
        assert_eq!(holes.fill(7000, 8000, at(70), RTT).unwrap().again, 0);
        assert_eq!(holes.open().collect::<Vec<_>>(), [(1000, 1), (1000, 0), (1000, 0)]);
        assert_eq!(holes.acknowledge(7000), 2000);
        assert_eq!(holes.fill(8000, 9000, at(71), RTT).unwrap().again, 0);
        assert!(holes.fill(8000, 9000, at(72), RTT).is_none());
    }
}
