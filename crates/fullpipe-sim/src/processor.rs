//! The processors of a connection's ends, for flows whose packet processing takes time.

use crate::segment::Segment;
use fullpipe_cc::Time;
use fullpipe_experiment::scenario::CpuSpec;
use fullpipe_path::{Ecn, Packet};
use std::collections::VecDeque;

/// Most bytes that are processed as one packet (`GRO_LEGACY_MAX_SIZE`).
const MAX_GRO_BYTES: u64 = 65_536;

/// A processor that handles one packet after another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Processor {
    costs: CpuSpec,
    free: Time,
}

impl Processor {
    pub fn new(costs: CpuSpec) -> Self {
        Processor { costs, free: Time::ZERO }
    }

    /// When it finishes its current work.
    #[inline]
    pub fn free(&self) -> Time {
        self.free
    }

    /// Handles `segments` with `bytes` in all, from `now` on or as soon as it is free.
    #[inline]
    pub fn handle(&mut self, now: Time, segments: u64, bytes: u64) {
        self.free = self.free.max(now) + self.costs.processing_time(segments, bytes);
    }
}

/// Packets that have arrived and wait for the processor.
#[derive(Debug)]
pub(crate) struct Incoming {
    processor: Processor,
    packets: VecDeque<Packet<Segment>>,
    /// Number of packets being handled.
    in_progress: usize,
}

impl Incoming {
    pub fn new(costs: CpuSpec) -> Self {
        Incoming { processor: Processor::new(costs), packets: VecDeque::new(), in_progress: 0 }
    }

    /// Queues a data packet.
    pub fn arrives(&mut self, now: Time, packet: Packet<Segment>) {
        self.packets.push_back(packet);
        if self.in_progress == 0 {
            self.begin(now);
        }
    }

    /// When the packets being handled are done.
    pub fn due(&self) -> Time {
        if self.in_progress == 0 { Time::NEVER } else { self.processor.free() }
    }

    /// Returns the packets that are done at `now`, and starts with the next ones.
    pub fn done(&mut self, now: Time) -> Vec<Packet<Segment>> {
        let done = self.packets.drain(..std::mem::take(&mut self.in_progress)).collect();
        self.begin(now);
        done
    }

    /// Starts handling the waiting packets that are in order and have the same ECN mark (GRO).
    fn begin(&mut self, now: Time) {
        let mut bytes = 0;
        let mut before: Option<(u64, Ecn)> = None;
        for packet in &self.packets {
            let follows =
                before.is_none_or(|(seq, ecn)| (packet.data.seq, packet.ecn) == (seq.wrapping_add(1), ecn));
            if !follows || self.in_progress > 0 && bytes + u64::from(packet.bytes) > MAX_GRO_BYTES {
                break;
            }
            bytes += u64::from(packet.bytes);
            before = Some((packet.data.seq, packet.ecn));
            self.in_progress += 1;
        }
        if self.in_progress > 0 {
            self.processor.handle(now, 1, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::{Kind, NO_SACK};
    use fullpipe_cc::Span;

    fn packet(seq: u64) -> Packet<Segment> {
        let data = Segment {
            seq,
            stamp: Time::ZERO,
            edge: 0,
            detail: NO_SACK,
            ce: 0,
            kind: Kind::Data,
            push: false,
        };
        Packet::new(0, 1500, data)
    }

    fn at(us: u64) -> Time {
        Time::ZERO + Span::from_micros(us)
    }

    #[test]
    fn packets_that_wait_in_order_are_processed_together() {
        let costs = CpuSpec { per_segment: Span::from_micros(30), rate: None };
        let mut incoming = Incoming::new(costs);
        for (us, seq) in [(0, 1), (10, 2), (20, 3), (25, 7)] {
            incoming.arrives(at(us), packet(seq));
        }
        let mut taken = Vec::new();
        while incoming.due() != Time::NEVER {
            let due = incoming.due();
            let seqs: Vec<u64> = incoming.done(due).iter().map(|p| p.data.seq).collect();
            taken.push((due, seqs));
        }
        assert_eq!(taken, [(at(30), vec![1]), (at(60), vec![2, 3]), (at(90), vec![7])]);
        (0..100).for_each(|seq| incoming.arrives(at(100), packet(seq)));
        incoming.done(at(130));
        assert_eq!(incoming.done(at(160)).len(), 43, "64 kB");
    }

    #[test]
    fn packets_are_processed_one_after_another() {
        let costs = CpuSpec { per_segment: Span::from_micros(1), rate: Some("8gbit".parse().unwrap()) };
        let mut processor = Processor::new(costs);
        let mut done = |now, segments, bytes| {
            processor.handle(now, segments, bytes);
            processor.free()
        };
        assert_eq!(done(at(10), 1, 1000), at(12));
        assert_eq!(done(at(11), 1, 0), at(13));
        assert_eq!(done(at(20), 3, 9000), at(32));
    }
}
