//! What a receiver did as its data came in: how much it allowed, and how often it acknowledged.

use fullpipe_sim::Receiving;

/// ACKs that show how often one comes.
const SHOW: u32 = 16;
/// Part of a window by which one is another.
const ALIKE: u64 = 8;
/// Stretches at most; 12 kB.
const MOST: usize = 512;

/// Stretches of an acknowledged direction in which its receiver did about the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Receiver {
    stretches: Vec<Receiving>,
    /// In-order ACKs since it was last looked at how often they come, the bytes that they stand for, and what had arrived before them.
    acks: u32,
    bytes: u64,
    from: u64,
    /// The ACK before told of a hole: the next stands for what waited behind it, too.
    hole: bool,
}

/// An acknowledgment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acknowledgment {
    /// What had arrived before it, and bytes in order that it adds.
    pub(super) arrived: u64,
    pub(super) moves: u64,
    /// How much it allows.
    pub(super) window: u64,
    /// Whether it tells of a hole.
    pub(super) hole: bool,
}

impl Receiver {
    /// It acknowledges data of segments of `mss` bytes.
    #[inline]
    pub(super) fn acknowledges(&mut self, a: Acknowledgment, mss: u32) {
        let after = std::mem::replace(&mut self.hole, a.hole);
        let Some(last) = self.stretches.last().copied() else {
            self.stretches.push(Receiving { from: 0, window: a.window, each: 1 });
            return;
        };
        if a.window.abs_diff(last.window) > last.window / ALIKE {
            self.stretches.push(Receiving { from: a.arrived, window: a.window, each: last.each });
            self.thin();
        }
        if a.hole || after || a.moves == 0 {
            return;
        }
        if self.acks == 0 {
            (self.from, self.bytes) = (a.arrived, 0);
        }
        self.acks += 1;
        self.bytes += a.moves;
        if self.acks == SHOW {
            self.acks = 0;
            // More than two at once were put together by an offload as they came: one by one they would not have waited.
            let single = self.bytes * 2 < u64::from(SHOW) * 3 * u64::from(mss);
            self.each(if single { 1 } else { 2 });
        }
    }

    /// Since `self.from`, an ACK has come for each so many segments.
    fn each(&mut self, each: u32) {
        let from = self.from;
        let before = self.stretches.partition_point(|s| s.from < from);
        let Some(last) = before.checked_sub(1).map(|i| self.stretches[i]).filter(|last| last.each != each)
        else {
            return;
        };
        self.stretches[before..].iter_mut().for_each(|s| s.each = each);
        if self.stretches.get(before).is_none_or(|s| s.from > from) {
            self.stretches.insert(before, Receiving { from, each, ..last });
            self.thin();
        }
    }

    /// Halves them where they are too many.
    fn thin(&mut self) {
        if self.stretches.len() >= MOST {
            let mut keep = false;
            self.stretches.retain(|_| {
                keep = !keep;
                keep
            });
        }
    }

    /// All of them, the first from byte 0 on.
    pub(super) fn stretches(&self) -> &[Receiving] {
        &self.stretches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ACKs of so many segments each, with this window.
    fn acks(r: &mut Receiver, arrived: &mut u64, n: u32, segments: u64, window: u64) {
        for _ in 0..n {
            let moves = segments * 1000;
            r.acknowledges(Acknowledgment { arrived: *arrived, moves, window, hole: false }, 1000);
            *arrived += moves;
        }
    }

    #[test]
    fn stretches_say_where_the_window_grew_and_acks_became_fewer() {
        let (mut r, mut arrived) = (Receiver::default(), 0);
        acks(&mut r, &mut arrived, 33, 1, 64_000);
        acks(&mut r, &mut arrived, 16, 1, 128_000);
        acks(&mut r, &mut arrived, 64, 2, 130_000);
        assert_eq!(
            r.stretches(),
            [
                Receiving { from: 0, window: 64_000, each: 1 },
                Receiving { from: 33_000, window: 128_000, each: 1 },
                Receiving { from: 49_000, window: 128_000, each: 2 },
            ]
        );
    }

    #[test]
    fn what_a_hole_held_back_is_not_one_ack_and_the_window_grows_meanwhile() {
        let (mut r, mut arrived) = (Receiver::default(), 0);
        acks(&mut r, &mut arrived, 9, 1, 64_000);
        r.acknowledges(Acknowledgment { arrived, moves: 0, window: 90_000, hole: true }, 1000);
        r.acknowledges(Acknowledgment { arrived, moves: 90_000, window: 90_000, hole: false }, 1000);
        acks(&mut r, &mut arrived, 8, 1, 90_000);
        assert_eq!(
            r.stretches(),
            [
                Receiving { from: 0, window: 64_000, each: 1 },
                Receiving { from: 9000, window: 90_000, each: 1 }
            ]
        );
    }

    #[test]
    fn how_often_it_acknowledges_holds_since_it_began_to() {
        let (mut r, mut arrived) = (Receiver::default(), 0);
        acks(&mut r, &mut arrived, 1, 2, 64_000);
        acks(&mut r, &mut arrived, 8, 2, 64_000);
        acks(&mut r, &mut arrived, 8, 2, 90_000);
        assert_eq!(
            r.stretches(),
            [
                Receiving { from: 0, window: 64_000, each: 1 },
                Receiving { from: 2000, window: 64_000, each: 2 },
                Receiving { from: 18_000, window: 90_000, each: 2 },
            ]
        );
    }

    #[test]
    fn they_stay_few() {
        let (mut r, mut arrived) = (Receiver::default(), 0);
        for n in 0..5000 {
            acks(&mut r, &mut arrived, 16, 1 + n % 2, 64_000);
        }
        assert!(r.stretches().len() <= MOST);
        assert!(r.stretches().is_sorted_by_key(|s| s.from) && r.stretches()[0].from == 0);
    }
}
