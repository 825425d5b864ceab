//! Counts the bytes of a flow that have arrived, each byte once.

use super::rtt::after;

/// The parts of a flow's sequence space that have arrived.
#[derive(Default)]
pub(super) struct Arrivals {
    /// Disjoint and in order. The first is the data received in order, unless the beginning is
    /// missing.
    ranges: Vec<(u32, u32)>,
    bytes: u64,
}

/// The part of the first range that is kept: the largest window (RFC 7323 §2.3), before which
/// nothing can be retransmitted.
const WINDOW: u32 = 1 << 30;

impl Arrivals {
    /// Data `start..end` arrived, for the first time or again.
    pub(super) fn add(&mut self, start: u32, end: u32) {
        // Ranges that end before it are unaffected; in-order data meets the only range.
        let from = self.ranges.iter().rposition(|&(_, to)| after(start, to)).map_or(0, |at| at + 1);
        let mut joined = (start, end);
        let mut known = 0;
        let mut to = from;
        while let Some(&(first, last)) = self.ranges.get(to).filter(|&&(first, _)| !after(first, end)) {
            known += u64::from(last.wrapping_sub(first));
            if after(joined.0, first) {
                joined.0 = first;
            }
            if after(last, joined.1) {
                joined.1 = last;
            }
            to += 1;
        }
        self.bytes += u64::from(joined.1.wrapping_sub(joined.0)) - known;
        if from == 0 && joined.1.wrapping_sub(joined.0) > WINDOW {
            joined.0 = joined.1.wrapping_sub(WINDOW);
        }
        self.ranges.splice(from..to, [joined]);
    }

    /// Bytes that have arrived.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(added: &[(u32, u32)]) -> u64 {
        let mut arrivals = Arrivals::default();
        added.iter().for_each(|&(start, end)| arrivals.add(start, end));
        arrivals.bytes()
    }

    #[test]
    fn data_behind_a_hole_has_arrived_and_the_fill_counts_itself() {
        assert_eq!(bytes(&[(0, 1000), (2000, 3000), (3000, 5000)]), 4000);
        assert_eq!(bytes(&[(0, 1000), (2000, 3000), (3000, 5000), (1000, 2000)]), 5000);
        assert_eq!(bytes(&[(2000, 3000), (0, 1000)]), 2000, "the first may be the one that is lost");
    }

    #[test]
    fn duplicates_count_once() {
        assert_eq!(bytes(&[(0, 3000), (1000, 2000), (0, 3000), (2000, 4000)]), 4000);
        assert_eq!(bytes(&[(0, 1000), (2000, 3000), (500, 4000)]), 4000);
    }

    #[test]
    fn more_than_all_sequence_numbers_is_counted_and_nothing_kept_of_it() {
        let mut arrivals = Arrivals::default();
        let step = 1 << 20;
        for n in 0..10_000_u32 {
            arrivals.add(n.wrapping_mul(step), n.wrapping_add(1).wrapping_mul(step));
            if n > 0 {
                arrivals.add(n.wrapping_sub(1).wrapping_mul(step), n.wrapping_mul(step));
            }
        }
        assert_eq!(arrivals.bytes(), 10_000 << 20);
        assert_eq!(arrivals.ranges.len(), 1);
    }

    proptest! {
        #[test]
        fn it_is_the_number_of_different_bytes(
            from: u32, parts in proptest::collection::vec((0_u32..2000, 1_u32..200), 1..100),
        ) {
            let mut seen = vec![false; 2200];
            let mut arrivals = Arrivals::default();
            for (start, length) in parts {
                arrivals.add(from.wrapping_add(start), from.wrapping_add(start + length));
                seen[start as usize..(start + length) as usize].fill(true);
                prop_assert_eq!(arrivals.bytes(), seen.iter().filter(|&&seen| seen).count() as u64);
                prop_assert!(arrivals.ranges.windows(2).all(|pair| after(pair[1].0, pair[0].1)));
            }
        }
    }
}
