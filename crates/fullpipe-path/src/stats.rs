//! What a link can say about itself at any time.

use fullpipe_units::{Rate, Span};

use crate::DropCause;

/// Counters of one link since its start, and its state now (the time of the latest `push` or
/// `advance`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LinkStats {
    /// The rate now; [`Rate::MAX`] for a link without one. A trace has its mean rate here.
    pub rate: Rate,
    /// The one-way propagation delay now, without jitter.
    pub delay: Span,
    /// Bytes that wait now, without the packet being sent.
    pub queue_bytes: u64,
    /// Packets that wait now, without the one being sent.
    pub queue_packets: u64,
    /// The most bytes that ever waited.
    pub max_queue_bytes: u64,
    /// The most packets that ever waited.
    pub max_queue_packets: u64,
    /// Packets that came in.
    pub arrived_packets: u64,
    /// Bytes that came in.
    pub arrived_bytes: u64,
    /// Packets that came out at the far end.
    pub delivered_packets: u64,
    /// Bytes that came out at the far end.
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

    /// Packets between the two ends now: waiting, being sent, propagating.
    pub fn inside_packets(&self) -> u64 {
        self.arrived_packets - self.delivered_packets - self.dropped_packets()
    }

    /// How long the waiting bytes take at the present rate; [`Span::MAX`] if they wait at rate 0.
    pub fn queue_delay(&self) -> Span {
        if self.rate == Rate::MAX { Span::ZERO } else { self.rate.time_to_send(self.queue_bytes) }
    }

    pub(crate) fn count_drop(&mut self, bytes: u32, cause: DropCause) {
        self.dropped[cause as usize] += 1;
        self.dropped_bytes += u64::from(bytes);
    }
}
