//! Counters of one direction.

use fullpipe_experiment::connection as record;
use fullpipe_units::Span;

/// Counters of one direction's data.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) packets: u64,
    pub(super) data_packets: u64,
    /// Payload bytes captured for the first time.
    pub(super) new_bytes: u64,
    pub(super) bytes_sent: u64,
    pub(super) segments: u64,
    pub(super) retransmissions: record::Retransmissions,
    /// Segments that filled a hole late, as retransmissions.
    pub(super) filled_late: u64,
    pub(super) filled_late_bytes: u64,
    /// Retransmissions that were lost as well, in segments.
    pub(super) lost_retransmissions: u64,
    pub(super) reordering: record::Reordering,
    /// Spurious retransmissions by DSACK and by Eifel detection, in segments.
    pub(super) dsack: u64,
    pub(super) eifel: u64,
    /// Bytes that were acknowledged and never captured.
    pub(super) missed_bytes: u64,
    /// Packets that were captured twice.
    pub(super) duplicates: u64,
    pub(super) keep_alives: u64,
    /// Packets that the capture wrote out of order.
    pub(super) misordered: u64,
    pub(super) idle: record::Idle,
    pub(super) window: record::Window,
    pub(super) ecn: record::Ecn,
    pub(super) acks: u64,
}

/// Round trips between the place of capture and the receiver.
#[derive(Clone, Debug, Default)]
pub(super) struct Leg {
    pub(super) min: Option<Span>,
    pub(super) samples: u64,
    /// Whether a sample is of a handshake or of an ACK without data. Data and the echo of a timestamp
    /// may wait for the application.
    pub(super) has_answers: bool,
}

impl Leg {
    pub(super) fn add_answer(&mut self, sample: Span) {
        self.add(sample);
        self.has_answers = true;
    }

    pub(super) fn add(&mut self, sample: Span) {
        self.min = Some(self.min.map_or(sample, |m| m.min(sample)));
        self.samples += 1;
    }
}
