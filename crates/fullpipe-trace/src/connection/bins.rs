//! What happened in each stretch of time: series whose memory does not grow with the capture.

use fullpipe_units::{Span, Time};

/// What happened in one stretch of time of one direction.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
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

/// Bins of a width that doubles when there are too many.
#[derive(Clone, Debug)]
pub(crate) struct Bins {
    start: Time,
    width: Span,
    most: usize,
    bins: Vec<Bin>,
}

impl Bins {
    /// Bins from `start`, at most `most` of them, which begin at a millisecond.
    pub(crate) fn new(start: Time, most: usize) -> Self {
        Bins { start, width: Span::from_millis(1), most: most.max(2), bins: Vec::new() }
    }

    /// The bin of `at`.
    #[inline]
    pub(crate) fn at(&mut self, at: Time) -> &mut Bin {
        let mut index = self.index(at);
        while index >= self.most {
            self.halve();
            index = self.index(at);
        }
        if index >= self.bins.len() {
            let empty = Bin { rtt_min: Span::MAX, ..Bin::default() };
            self.bins.resize(index + 1, empty);
        }
        &mut self.bins[index]
    }

    #[inline]
    fn index(&self, at: Time) -> usize {
        usize::try_from(at.since(self.start).as_nanos() / self.width.as_nanos()).unwrap_or(usize::MAX)
    }

    fn halve(&mut self) {
        self.width = self.width * 2;
        let pairs = self.bins.chunks(2).map(|pair| pair.iter().skip(1).fold(pair[0], Bin::and)).collect();
        self.bins = pairs;
    }

    /// Spreads the time from `from` to `to` over the bins it lies in.
    #[inline]
    pub(crate) fn spend(&mut self, from: Time, to: Time, mut on: impl FnMut(&mut Bin, Span)) {
        if to <= from {
            return;
        }
        // Makes room first, so that the width stands while it is walked.
        self.at(to);
        let mut now = from.max(self.start);
        while now < to {
            let index = self.index(now);
            let end = self.start + self.width * (index as u64 + 1);
            let until = end.min(to);
            on(&mut self.bins[index], until.since(now));
            now = until;
        }
    }

    /// Beginning of the first bin.
    pub(crate) fn start(&self) -> Time {
        self.start
    }

    /// Width of each.
    pub(crate) fn width(&self) -> Span {
        self.width
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[Bin] {
        &self.bins
    }
}

impl Bin {
    /// Both as one stretch.
    pub(crate) fn and(self, later: &Bin) -> Bin {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_double_their_width_and_lose_nothing() {
        let mut bins = Bins::new(Time::ZERO, 4);
        for ms in 0..37 {
            bins.at(Time::ZERO + Span::from_millis(ms)).sent += 1;
        }
        assert!(bins.all().len() <= 4);
        assert_eq!(bins.width(), Span::from_millis(16));
        assert_eq!(bins.all().iter().map(|b| b.sent).sum::<u64>(), 37);
    }

    #[test]
    fn time_is_spread_over_the_bins_it_lies_in() {
        let mut bins = Bins::new(Time::ZERO, 8);
        let at = |us| Time::ZERO + Span::from_micros(us);
        bins.spend(at(500), at(2_250), |b, t| b.idle += t);
        let idle: Vec<u64> = bins.all().iter().map(|b| b.idle.as_micros()).collect();
        assert_eq!(idle, [500, 1000, 250]);
    }
}
