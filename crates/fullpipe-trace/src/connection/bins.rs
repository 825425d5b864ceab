//! What happened in each stretch of time of one direction.

use super::timeline::{Stretch, Timeline};
use fullpipe_units::Span;

/// What happened in one stretch of time of one direction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Bin {
    /// Payload bytes seen, retransmissions included.
    pub(crate) sent: u64,
    /// Payload bytes seen for the first time.
    pub(crate) fresh: u64,
    /// Payload bytes newly acknowledged, selectively or not.
    pub(crate) acked: u64,
    /// Segments seen again.
    pub(crate) retransmitted: u64,
    /// Segments missing where they should have passed.
    pub(crate) missing: u64,
    /// Least round-trip time; [`Span::MAX`] without a sample.
    pub(crate) rtt_min: Span,
    /// Sum of the samples.
    pub(crate) rtt_sum: Span,
    /// Round-trip samples.
    pub(crate) rtt_count: u32,
    /// Most payload bytes in flight.
    pub(crate) inflight: u64,
    /// Bytes that the receiver would take beyond what it has acknowledged, the last said.
    pub(crate) window: u64,
    /// Time without data in flight.
    pub(crate) idle: Span,
    /// Time in which the receiver's window was full.
    pub(crate) closed: Span,
    /// Time between a short segment, pushed, and the next, where that was long.
    pub(crate) short: Span,
    /// Time after a loss and before its repair.
    pub(crate) recovery: Span,
}

/// Bins, which begin a millisecond wide.
pub(crate) type Bins = Timeline<Bin>;

impl Stretch for Bin {
    const EMPTY: Bin = Bin {
        sent: 0,
        fresh: 0,
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

    fn and(self, later: &Bin) -> Bin {
        Bin {
            sent: self.sent + later.sent,
            fresh: self.fresh + later.fresh,
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
    /// Mean round-trip time.
    pub(crate) fn rtt_mean(&self) -> Option<Span> {
        (self.rtt_count > 0).then(|| self.rtt_sum / u64::from(self.rtt_count))
    }

    #[inline]
    pub(super) fn rtt(&mut self, sample: Span) {
        self.rtt_min = self.rtt_min.min(sample);
        self.rtt_sum += sample;
        self.rtt_count = self.rtt_count.saturating_add(1);
    }
}
