//! Round-trip time as QUIC estimates it (RFC 9002 §5).

use fullpipe_units::Span;

/// The least variation that a timeout allows for (RFC 9002 §6.1.2, `kGranularity`).
const GRANULARITY: Span = Span::from_millis(1);

/// An estimator of the round-trip time of one path (RFC 9002 §5). A new path gets a new one.
///
/// A stack's own estimate may be an ACK old when its callbacks run, and starts with an assumption
/// (333 ms in RFC 9002) that controllers must not take for a measurement.
///
/// ```
/// use fullpipe_cc::{RttEstimator, Span};
///
/// let mut rtt = RttEstimator::new();
/// assert_eq!(rtt.smoothed(), None);
/// rtt.on_sample(Span::from_millis(40), Span::ZERO);
/// rtt.on_sample(Span::from_millis(56), Span::from_millis(8));
/// assert_eq!(rtt.smoothed(), Some(Span::from_millis(41)));
/// assert_eq!(rtt.min(), Some(Span::from_millis(40)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RttEstimator(Option<Estimate>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Estimate {
    latest: Span,
    smoothed: Span,
    variation: Span,
    min: Span,
}

impl RttEstimator {
    /// An estimator without samples.
    pub const fn new() -> Self {
        RttEstimator(None)
    }

    /// The newest packet that an ACK newly acknowledges was sent `latest` ago. `ack_delay` is how
    /// long the peer reports to have delayed the ACK, limited to its `max_ack_delay` once the
    /// handshake is confirmed (RFC 9002 §5.3); zero if unknown.
    pub fn on_sample(&mut self, latest: Span, ack_delay: Span) {
        let Some(e) = &mut self.0 else {
            self.0 = Some(Estimate { latest, smoothed: latest, variation: latest / 2, min: latest });
            return;
        };
        e.latest = latest;
        e.min = e.min.min(latest);
        let adjusted = if latest >= e.min + ack_delay { latest - ack_delay } else { latest };
        let deviation = if e.smoothed > adjusted { e.smoothed - adjusted } else { adjusted - e.smoothed };
        e.variation = weighted(e.variation, deviation, 4);
        e.smoothed = weighted(e.smoothed, adjusted, 8);
    }

    /// Persistent congestion: the path may have changed, so the minimum restarts at the latest
    /// sample (RFC 9002 §5.2).
    pub fn on_persistent_congestion(&mut self) {
        if let Some(e) = &mut self.0 {
            e.min = e.latest;
        }
    }

    /// The latest sample.
    pub fn latest(&self) -> Option<Span> {
        self.0.map(|e| e.latest)
    }

    /// `smoothed_rtt`.
    pub fn smoothed(&self) -> Option<Span> {
        self.0.map(|e| e.smoothed)
    }

    /// `rttvar`, the mean deviation.
    pub fn variation(&self) -> Option<Span> {
        self.0.map(|e| e.variation)
    }

    /// `min_rtt`.
    pub fn min(&self) -> Option<Span> {
        self.0.map(|e| e.min)
    }

    /// The probe timeout without the peer's `max_ack_delay` (RFC 9002 §6.2.1).
    pub fn probe_timeout(&self) -> Option<Span> {
        self.0.map(|e| e.smoothed + (e.variation * 4).max(GRANULARITY))
    }
}

/// `(n − 1)/n` of `old` and `1/n` of `new`.
fn weighted(old: Span, new: Span, n: u64) -> Span {
    let sum = u128::from(old.as_nanos()) * u128::from(n - 1) + u128::from(new.as_nanos());
    Span::from_nanos((sum / u128::from(n)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Span {
        Span::from_millis(ms)
    }

    #[test]
    fn first_sample_sets_everything() {
        let mut rtt = RttEstimator::new();
        assert_eq!((rtt.latest(), rtt.min(), rtt.variation(), rtt.probe_timeout()), (None, None, None, None));
        rtt.on_sample(ms(100), ms(20));
        assert_eq!((rtt.latest(), rtt.smoothed(), rtt.min()), (Some(ms(100)), Some(ms(100)), Some(ms(100))));
        assert_eq!((rtt.variation(), rtt.probe_timeout()), (Some(ms(50)), Some(ms(300))));
    }

    #[test]
    fn ack_delay_is_subtracted_only_down_to_the_minimum() {
        let mut rtt = RttEstimator::new();
        rtt.on_sample(ms(100), Span::ZERO);
        rtt.on_sample(ms(180), ms(80));
        assert_eq!((rtt.smoothed(), rtt.variation()), (Some(ms(100)), Some(Span::from_micros(37_500))));
        // 108 ms less 16 ms would be below the minimum.
        rtt.on_sample(ms(108), ms(16));
        assert_eq!(rtt.smoothed(), Some(ms(101)));
        // The minimum itself ignores the delay.
        rtt.on_sample(ms(90), ms(80));
        assert_eq!(rtt.min(), Some(ms(90)));
    }

    #[test]
    fn minimum_restarts_after_persistent_congestion() {
        let mut rtt = RttEstimator::new();
        rtt.on_persistent_congestion();
        rtt.on_sample(ms(20), Span::ZERO);
        rtt.on_sample(ms(300), Span::ZERO);
        rtt.on_persistent_congestion();
        assert_eq!(rtt.min(), Some(ms(300)));
    }

    #[test]
    fn extreme_samples_do_not_overflow() {
        let mut rtt = RttEstimator::new();
        for latest in [Span::MAX, Span::ZERO, Span::MAX, Span::MAX] {
            rtt.on_sample(latest, Span::MAX);
        }
        assert!(rtt.smoothed() > Some(Span::ZERO) && rtt.probe_timeout() == Some(Span::MAX));
    }
}
