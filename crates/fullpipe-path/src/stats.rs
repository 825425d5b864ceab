//! Statistics of a link.

use fullpipe_units::{Rate, Span};

use crate::DropCause;

/// Counters of one link since its start, and its state at the latest `push` or `advance`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LinkStats {
    /// The rate now; [`Rate::MAX`] for a link without one. A trace has its mean rate here.
    pub rate: Rate,
    /// The one-way propagation delay now, without jitter.
    pub delay: Span,
    /// Bytes in the queue now, without the packet in service.
    pub queue_bytes: u64,
    /// Packets in the queue now, without the one in service.
    pub queue_packets: u64,
    /// Largest queue in bytes.
    pub max_queue_bytes: u64,
    /// Largest queue in packets.
    pub max_queue_packets: u64,
    /// Packets that entered.
    pub arrived_packets: u64,
    /// Bytes that entered.
    pub arrived_bytes: u64,
    /// Packets that left the far end.
    pub delivered_packets: u64,
    /// Bytes that left the far end.
    pub delivered_bytes: u64,
    /// Dropped bytes, whatever the cause.
    pub dropped_bytes: u64,
    /// Packets that a queue marked [`Ce`](crate::Ecn::Ce) instead of dropping them.
    pub marked_packets: u64,
    pub(crate) dropped: [u64; DropCause::ALL.len()],
}

impl LinkStats {
    /// Packets dropped for this reason.
    pub fn dropped_by(&self, cause: DropCause) -> u64 {
        self.dropped[cause as usize]
    }

    /// Packets dropped, whatever the cause.
    pub fn dropped_packets(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// Packets on the link now: queued, in service or propagating.
    pub fn inside_packets(&self) -> u64 {
        self.arrived_packets - self.delivered_packets - self.dropped_packets()
    }

    /// How long the queue takes to drain at the current rate; [`Span::MAX`] at rate 0.
    pub fn queue_delay(&self) -> Span {
        if self.rate == Rate::MAX { Span::ZERO } else { self.rate.time_to_send(self.queue_bytes) }
    }

    pub(crate) fn count_drop(&mut self, bytes: u32, cause: DropCause) {
        self.dropped[cause as usize] += 1;
        self.dropped_bytes += u64::from(bytes);
    }
}
