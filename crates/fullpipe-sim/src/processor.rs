//! The processors of a connection's ends, where what they do takes time.

use crate::segment::Segment;
use fullpipe_cc::Time;
use fullpipe_experiment::scenario::CpuSpec;
use fullpipe_path::{Ecn, Packet};
use std::collections::VecDeque;

/// Most bytes that are taken together (`GRO_LEGACY_MAX_SIZE`).
const TOGETHER: u64 = 65_536;

/// One that does one thing after another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Processor {
    costs: CpuSpec,
    free: Time,
}

impl Processor {
    pub fn new(costs: CpuSpec) -> Self {
        Processor { costs, free: Time::ZERO }
    }

    /// When it is done with all that it has begun.
    #[inline]
    pub fn free(&self) -> Time {
        self.free
    }

    /// Handles so many segments, of `bytes` together, from `now` on, or as soon as it can.
    #[inline]
    pub fn handle(&mut self, now: Time, segments: u64, bytes: u64) {
        self.free = self.free.max(now) + self.costs.processing_time(segments, bytes);
    }
}

/// What has come to an end and waits for its processor.
#[derive(Debug)]
pub(crate) struct Incoming {
    processor: Processor,
    packets: VecDeque<Packet<Segment>>,
    /// How many of them are being handled.
    together: usize,
}

impl Incoming {
    pub fn new(costs: CpuSpec) -> Self {
        Incoming { processor: Processor::new(costs), packets: VecDeque::new(), together: 0 }
    }

    /// A packet of data arrives.
    pub fn arrives(&mut self, now: Time, packet: Packet<Segment>) {
        self.packets.push_back(packet);
        if self.together == 0 {
            self.begin(now);
        }
    }

    /// When those that are being handled are done.
    pub fn due(&self) -> Time {
        if self.together == 0 { Time::NEVER } else { self.processor.free() }
    }

    /// Those that are done at `now`; the next are begun with.
    pub fn done(&mut self, now: Time) -> Vec<Packet<Segment>> {
        let done = self.packets.drain(..std::mem::take(&mut self.together)).collect();
        self.begin(now);
        done
    }

    /// Takes what waits in order and is marked alike.
    fn begin(&mut self, now: Time) {
        let mut bytes = 0;
        let mut before: Option<(u64, Ecn)> = None;
        for packet in &self.packets {
            let follows =
                before.is_none_or(|(seq, ecn)| (packet.data.seq, packet.ecn) == (seq.wrapping_add(1), ecn));
            if !follows || self.together > 0 && bytes + u64::from(packet.bytes) > TOGETHER {
                break;
            }
            bytes += u64::from(packet.bytes);
            before = Some((packet.data.seq, packet.ecn));
            self.together += 1;
        }
        if self.together > 0 {
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
    fn what_waits_in_order_is_taken_together() {
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
    fn one_thing_comes_after_another() {
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
