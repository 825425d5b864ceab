//! The behaviour of a receiver: its window, and how often it acknowledges.

use fullpipe_sim::ReceiverBehaviour;

/// ACKs over which their frequency is measured.
const SAMPLE_ACKS: u32 = 16;
/// A window change of more than one part in this starts a phase.
const WINDOW_CHANGE_PART: u64 = 8;
/// Maximum number of phases; 12 kB.
const MAX_PHASES: usize = 512;

/// Phases in which a receiver behaved alike.
#[derive(Clone, Debug, Default)]
pub(super) struct Receiver {
    phases: Vec<ReceiverBehaviour>,
    /// In-order ACKs of the current sample, the bytes that they acknowledge, and the bytes that
    /// arrived before them.
    acks: u32,
    bytes: u64,
    from: u64,
    /// Whether the previous ACK reported a hole: the next one covers the data behind it as well.
    hole: bool,
}

/// An acknowledgment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acknowledgment {
    /// Bytes that arrived before, and bytes that it newly acknowledges in order.
    pub(super) arrived: u64,
    pub(super) moves: u64,
    /// Receive window.
    pub(super) window: u64,
    /// Whether it reports a hole.
    pub(super) hole: bool,
}

impl Receiver {
    /// Adds an acknowledgment of segments of `mss` bytes.
    #[inline]
    pub(super) fn add_ack(&mut self, a: Acknowledgment, mss: u32) {
        let after = std::mem::replace(&mut self.hole, a.hole);
        let Some(last) = self.phases.last().copied() else {
            self.phases.push(ReceiverBehaviour { from: 0, window: a.window, segments_per_ack: 1 });
            return;
        };
        if a.window.abs_diff(last.window) > last.window / WINDOW_CHANGE_PART {
            self.phases.push(ReceiverBehaviour {
                from: a.arrived,
                window: a.window,
                segments_per_ack: last.segments_per_ack,
            });
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
        if self.acks == SAMPLE_ACKS {
            self.acks = 0;
            // More than two segments at once were merged by receive offload.
            let single = self.bytes * 2 < u64::from(SAMPLE_ACKS) * 3 * u64::from(mss);
            self.set_segments_per_ack(if single { 1 } else { 2 });
        }
    }

    /// Sets the number of segments per ACK since `self.from`.
    fn set_segments_per_ack(&mut self, each: u32) {
        let from = self.from;
        let before = self.phases.partition_point(|s| s.from < from);
        let Some(last) =
            before.checked_sub(1).map(|i| self.phases[i]).filter(|last| last.segments_per_ack != each)
        else {
            return;
        };
        self.phases[before..].iter_mut().for_each(|s| s.segments_per_ack = each);
        if self.phases.get(before).is_none_or(|s| s.from > from) {
            self.phases.insert(before, ReceiverBehaviour { from, segments_per_ack: each, ..last });
            self.thin();
        }
    }

    /// Drops every other phase if there are too many.
    fn thin(&mut self) {
        if self.phases.len() >= MAX_PHASES {
            let mut keep = false;
            self.phases.retain(|_| {
                keep = !keep;
                keep
            });
        }
    }

    /// Bytes of memory, approximately.
    pub(super) fn memory(&self) -> usize {
        self.phases.capacity() * size_of::<ReceiverBehaviour>()
    }

    /// All phases; the first starts at byte 0.
    pub(super) fn phases(&self) -> &[ReceiverBehaviour] {
        &self.phases
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds `n` ACKs of `segments` segments each with a window.
    fn acks(r: &mut Receiver, arrived: &mut u64, n: u32, segments: u64, window: u64) {
        for _ in 0..n {
            let moves = segments * 1000;
            r.add_ack(Acknowledgment { arrived: *arrived, moves, window, hole: false }, 1000);
            *arrived += moves;
        }
    }

    #[test]
    fn phases_show_window_growth_and_fewer_acks() {
        let (mut r, mut arrived) = (Receiver::default(), 0);
        acks(&mut r, &mut arrived, 33, 1, 64_000);
        acks(&mut r, &mut arrived, 16, 1, 128_000);
        acks(&mut r, &mut arrived, 64, 2, 130_000);
        assert_eq!(
            r.phases(),
            [
                ReceiverBehaviour { from: 0, window: 64_000, segments_per_ack: 1 },
                ReceiverBehaviour { from: 33_000, window: 128_000, segments_per_ack: 1 },
                ReceiverBehaviour { from: 49_000, window: 128_000, segments_per_ack: 2 },
            ]
        );
    }

    #[test]
    fn ack_after_a_hole_is_not_sampled() {
        let (mut r, mut arrived) = (Receiver::default(), 0);
        acks(&mut r, &mut arrived, 9, 1, 64_000);
        r.add_ack(Acknowledgment { arrived, moves: 0, window: 90_000, hole: true }, 1000);
        r.add_ack(Acknowledgment { arrived, moves: 90_000, window: 90_000, hole: false }, 1000);
        acks(&mut r, &mut arrived, 8, 1, 90_000);
        assert_eq!(
            r.phases(),
            [
                ReceiverBehaviour { from: 0, window: 64_000, segments_per_ack: 1 },
                ReceiverBehaviour { from: 9000, window: 90_000, segments_per_ack: 1 }
            ]
        );
    }

    #[test]
    fn ack_frequency_applies_from_its_start() {
        let (mut r, mut arrived) = (Receiver::default(), 0);
        acks(&mut r, &mut arrived, 1, 2, 64_000);
        acks(&mut r, &mut arrived, 8, 2, 64_000);
        acks(&mut r, &mut arrived, 8, 2, 90_000);
        assert_eq!(
            r.phases(),
            [
                ReceiverBehaviour { from: 0, window: 64_000, segments_per_ack: 1 },
                ReceiverBehaviour { from: 2000, window: 64_000, segments_per_ack: 2 },
                ReceiverBehaviour { from: 18_000, window: 90_000, segments_per_ack: 2 },
            ]
        );
    }

    #[test]
    fn number_of_phases_is_bounded() {
        let (mut r, mut arrived) = (Receiver::default(), 0);
        for n in 0..5000 {
            acks(&mut r, &mut arrived, 16, 1 + n % 2, 64_000);
        }
        assert!(r.phases().len() <= MAX_PHASES);
        assert!(r.phases().is_sorted_by_key(|s| s.from) && r.phases()[0].from == 0);
    }
}
