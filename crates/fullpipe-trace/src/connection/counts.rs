//! What is counted of one direction's data.

use fullpipe_experiment::connection as record;
use fullpipe_units::Span;

/// What was counted of one direction's data.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) packets: u64,
    pub(super) data_packets: u64,
    /// Bytes that passed for the first time.
    pub(super) fresh: u64,
    pub(super) bytes_sent: u64,
    pub(super) segments: u64,
    pub(super) again: record::Retransmissions,
    /// Segments that filled a hole after a retransmission's time.
    pub(super) filled_late: u64,
    pub(super) filled_late_bytes: u64,
    /// Retransmissions that did not arrive either, in segments: what left after them did before.
    pub(super) lost_again: u64,
    pub(super) reordering: record::Reordering,
    /// Spurious by DSACK and by Eifel, in segments.
    pub(super) dsack: u64,
    pub(super) eifel: u64,
    /// Bytes that were acknowledged and never seen.
    pub(super) unseen: u64,
    /// Packets that were captured twice.
    pub(super) doubled: u64,
    pub(super) idle: record::Idle,
    pub(super) window: record::Window,
    pub(super) ecn: record::Ecn,
    pub(super) acks: u64,
}

/// The time from the place of capture to the data's receiver and back.
#[derive(Clone, Debug, Default)]
pub(super) struct Leg {
    pub(super) min: Option<Span>,
    pub(super) samples: u64,
}

impl Leg {
    pub(super) fn add(&mut self, sample: Span) {
        self.min = Some(self.min.map_or(sample, |m| m.min(sample)));
        self.samples += 1;
    }
}
