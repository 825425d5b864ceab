//! Unacknowledged data, as in the retransmission queue of a sender.

use fullpipe_cc::Stamp;
use fullpipe_units::Time;
use std::collections::VecDeque;

/// Maximum number of packets in flight, for captures without ACKs. More occur only on paths with a
/// bandwidth-delay product beyond 1.5 GB.
const MAX_PACKETS: usize = 1 << 20;

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
    pub(super) sacked: bool,
}

impl Sent {
    pub(super) fn len(&self) -> u64 {
        self.end - self.seq
    }
}

/// Data in flight, in order. Gaps were not captured.
#[derive(Clone, Debug, Default)]
pub(super) struct Flight {
    sent: VecDeque<Sent>,
    /// Payload bytes neither acknowledged nor SACKed.
    outstanding: u64,
    /// One after the highest SACKed byte.
    highest_sacked: u64,
    /// Blocks of the last SACK option, most of which are repeated in the next.
    known: [(u64, u64); 4],
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

    /// Index of the range that contains `seq`, or of the next one.
    fn find(&self, seq: u64) -> usize {
        self.sent.partition_point(|s| s.end <= seq)
    }

    /// Adds data at the end or in a gap.
    #[inline]
    pub(super) fn add(&mut self, sent: Sent) {
        self.outstanding += sent.len();
        if self.sent.back().is_none_or(|last| last.end <= sent.seq) {
            if self.sent.len() == MAX_PACKETS
                && let Some(oldest) = self.sent.pop_front()
                && !oldest.sacked
            {
                self.outstanding -= oldest.len();
            }
            self.sent.push_back(sent);
        } else {
            let place = self.find(sent.seq);
            self.sent.insert(place, sent);
        }
    }

    /// Splits `from..to` into parts that are in flight and parts that are not (`None`).
    pub(super) fn parts(&self, from: u64, to: u64) -> Vec<(u64, u64, Option<Sent>)> {
        let mut parts = Vec::new();
        let mut now = from;
        for s in self.sent.iter().skip(self.find(from)).take_while(|s| s.seq < to) {
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

    /// Splits the range that contains `seq` at `seq`.
    fn split_at(&mut self, seq: u64) {
        let i = self.find(seq);
        if let Some(s) = self.sent.get_mut(i)
            && s.seq < seq
        {
            let rest = Sent { seq, ..*s };
            s.end = seq;
            self.sent.insert(i + 1, rest);
        }
    }

    /// Records the retransmission of `from..to`, which is in flight.
    pub(super) fn retransmit(&mut self, from: u64, to: u64, at: Time, stamp: Stamp, value: Option<u32>) {
        self.split_at(from);
        self.split_at(to);
        let first = self.find(from);
        for s in self.sent.iter_mut().skip(first).take_while(|s| s.seq < to) {
            s.at = at;
            s.stamp = stamp;
            s.value = value;
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
            self.split_at(from);
            self.split_at(to);
            let first = self.find(from);
            for s in self.sent.iter_mut().skip(first).take_while(|s| s.seq < to).filter(|s| !s.sacked) {
                s.sacked = true;
                self.outstanding -= s.end - s.seq;
                self.highest_sacked = self.highest_sacked.max(s.end);
                arrived(s);
            }
        }
        self.known = known;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sent(seq: u64, end: u64) -> Sent {
        Sent { seq, end, at: Time::ZERO, stamp: Stamp::default(), times: 1, value: None, sacked: false }
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
                prop_assert_eq!(f.outstanding(), model.values().filter(|s| !**s).count() as u64);
            }
        }
    }
}
