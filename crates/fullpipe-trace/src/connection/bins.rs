//! Time series of one direction.

use super::timeline::{Interval, Timeline};
use fullpipe_units::Span;

/// One interval of the time series of a direction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Bin {
    /// Payload bytes captured, retransmissions included.
    pub(crate) sent: u64,
    /// Payload bytes captured for the first time.
    pub(crate) new_bytes: u64,
    /// Payload bytes newly acknowledged or SACKed.
    pub(crate) acked: u64,
    /// Retransmitted segments.
    pub(crate) retransmitted: u64,
    /// Segments missing in the sequence.
    pub(crate) missing: u64,
    /// Minimum RTT; [`Span::MAX`] without samples.
    pub(crate) rtt_min: Span,
    /// Sum of the RTT samples.
    pub(crate) rtt_sum: Span,
    /// Number of RTT samples.
    pub(crate) rtt_count: u32,
    /// Maximum of the payload bytes in flight.
    pub(crate) inflight: u64,
    /// Last receive window, in bytes.
    pub(crate) window: u64,
    /// Time without data in flight.
    pub(crate) idle: Span,
    /// Time with a full receive window.
    pub(crate) closed: Span,
    /// Long pauses after a short, pushed segment.
    pub(crate) short: Span,
    /// Time in loss recovery.
    pub(crate) recovery: Span,
}

/// The bins of a time series, initially a millisecond wide.
pub(crate) type Bins = Timeline<Bin>;

impl Interval for Bin {
    const EMPTY: Bin = Bin {
        sent: 0,
        new_bytes: 0,
        acked: 0,
        retransmitted: 0,
        missing: 0,
        rtt_min: Span::MAX,
        rtt_sum: Span::ZERO,
        rtt_count: 0,
        inflight: 0,
        window: 0,
        idle: Span::ZERO,
        closed: Span::ZERO,
        short: Span::ZERO,
        recovery: Span::ZERO,
    };

    fn merge(self, later: &Bin) -> Bin {
        Bin {
            sent: self.sent + later.sent,
            new_bytes: self.new_bytes + later.new_bytes,
            acked: self.acked + later.acked,
            retransmitted: self.retransmitted + later.retransmitted,
            missing: self.missing + later.missing,
            rtt_min: self.rtt_min.min(later.rtt_min),
            rtt_sum: self.rtt_sum + later.rtt_sum,
            rtt_count: self.rtt_count.saturating_add(later.rtt_count),
            inflight: self.inflight.max(later.inflight),
            window: if later.window > 0 { later.window } else { self.window },
            idle: self.idle + later.idle,
            closed: self.closed + later.closed,
            short: self.short + later.short,
            recovery: self.recovery + later.recovery,
        }
    }
}

impl Bin {
    /// Mean RTT.
    pub(crate) fn rtt_mean(&self) -> Option<Span> {
        (self.rtt_count > 0).then(|| self.rtt_sum / u64::from(self.rtt_count))
    }

    #[inline]
    pub(super) fn add_rtt(&mut self, sample: Span) {
        self.rtt_min = self.rtt_min.min(sample);
        self.rtt_sum += sample;
        self.rtt_count = self.rtt_count.saturating_add(1);
    }
}
