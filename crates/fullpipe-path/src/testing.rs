//! Helpers for the unit tests of several elements.

use fullpipe_units::{Rate, Span, Time};

use crate::build::{BuildContext, Direction};
use crate::queue::{Discipline, QueueContext, QueueKind, Verdicts};
use crate::random::Stream;
use crate::{DropCause, Ecn, Packet};

/// A context of a 100 Mbit/s, 100 ms path.
pub(crate) fn context(seed: u64) -> BuildContext {
    BuildContext {
        base_rtt: Span::from_millis(100),
        bottleneck: Rate::from_bits_per_sec(100_000_000),
        mtu: 1500,
        seed,
        direction: Direction::Forward,
    }
}

/// A random stream for one element.
pub(crate) fn stream(seed: u64) -> Stream {
    Stream::new(&context(seed), 0, "test")
}

/// A queue driven by hand, without a link around it. Packets are numbered in order of arrival.
pub(crate) struct Run {
    queue: Box<dyn Discipline<u32>>,
    next: u32,
    verdicts: Verdicts<u32>,
}

/// The queue of this spec on a 100 Mbit/s link.
pub(crate) fn queue_alone<S: QueueKind>(spec: &S) -> Run
where
    S::Queue<u32>: 'static,
{
    let ctx = QueueContext {
        rate: Rate::from_bits_per_sec(100_000_000),
        bdp: 1_250_000,
        mtu: 1500,
        random: stream(1),
    };
    let queue = Box::new(spec.build::<u32>(ctx).unwrap());
    Run { queue, next: 0, verdicts: Verdicts { dropped: Vec::new(), marked: 0 } }
}

impl Run {
    /// Adds a packet of `flow` at `us`; returns its number.
    pub fn enqueue(&mut self, us: u64, flow: u32, bytes: u32) -> u32 {
        self.enqueue_ecn(us, flow, bytes, Ecn::NotEct)
    }

    /// The same with ECN bits.
    pub fn enqueue_ecn(&mut self, us: u64, flow: u32, bytes: u32, ecn: Ecn) -> u32 {
        let number = self.next;
        self.next += 1;
        let packet = Packet { ecn, ..Packet::new(flow, bytes, number) };
        self.queue.enqueue(Time::ZERO + Span::from_micros(us), packet, &mut self.verdicts);
        number
    }

    /// The number of the packet that leaves at `us`.
    pub fn dequeue(&mut self, us: u64) -> Option<u32> {
        self.dequeue_packet(us).map(|p| p.data)
    }

    /// The packet that leaves at `us`.
    pub fn dequeue_packet(&mut self, us: u64) -> Option<Packet<u32>> {
        self.queue.dequeue(Time::ZERO + Span::from_micros(us), &mut self.verdicts)
    }

    /// Numbers of the packets dropped so far.
    pub fn dropped(&self) -> Vec<(u32, DropCause)> {
        self.verdicts.dropped.iter().map(|(p, cause)| (p.data, *cause)).collect()
    }

    /// How many packets of `flow` were dropped so far.
    pub fn dropped_of_flow(&self, flow: u32) -> usize {
        self.verdicts.dropped.iter().filter(|(p, _)| p.flow == flow).count()
    }

    /// How many packets were marked so far.
    pub fn marked(&self) -> u64 {
        self.verdicts.marked
    }

    pub fn bytes(&self) -> u64 {
        self.queue.backlog().bytes
    }

    pub fn packets(&self) -> usize {
        self.queue.backlog().packets
    }
}
