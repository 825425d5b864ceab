//! How well the emulator kept its schedule.

use fullpipe_units::Span;
use hdrhistogram::Histogram;

/// Histograms in nanoseconds, up to 100 s, and counts.
pub(crate) struct Audit {
    /// Time from when a packet was due at the far end until the kernel there received it.
    pub(crate) lateness: Histogram<u64>,
    /// Time from when the kernel received a packet until the emulator read it.
    pub(crate) read_latency: Histogram<u64>,
    /// Frames dropped because the ring was full.
    pub(crate) ring_drops: u64,
    /// Frames that the kernel refused to send.
    pub(crate) send_failures: u64,
    /// Frames that are not traffic of the path (neighbour discovery and the like).
    pub(crate) not_ours: u64,
    /// CPU time of the emulator's threads.
    pub(crate) cpu: Span,
    /// Time that they were runnable and waited for a processor.
    pub(crate) waited: Span,
}

impl Audit {
    pub(crate) fn new() -> Self {
        let histogram = || Histogram::new_with_max(100_000_000_000, 2).unwrap_or_else(|_| unreachable!());
        Audit {
            lateness: histogram(),
            read_latency: histogram(),
            ring_drops: 0,
            send_failures: 0,
            not_ours: 0,
            cpu: Span::ZERO,
            waited: Span::ZERO,
        }
    }

    /// `count` packets left `span` after they should have.
    pub(crate) fn late(&mut self, span: Span, count: u64) {
        self.lateness.saturating_record_n(span.as_nanos(), count);
    }

    /// A frame was read `span` after it arrived.
    pub(crate) fn read(&mut self, span: Span) {
        self.read_latency.saturating_record(span.as_nanos());
    }

    /// Merges two audits.
    pub(crate) fn merge(mut self, other: Audit) -> Self {
        // Histograms of equal bounds always add.
        let _ = self.lateness.add(other.lateness);
        let _ = self.read_latency.add(other.read_latency);
        self.ring_drops += other.ring_drops;
        self.send_failures += other.send_failures;
        self.not_ours += other.not_ours;
        self.cpu += other.cpu;
        self.waited += other.waited;
        self
    }
}

/// A quantile of a histogram of nanoseconds, in microseconds; 0 without a value.
pub(crate) fn micros(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    if histogram.is_empty() { 0.0 } else { histogram.value_at_quantile(quantile) as f64 / 1e3 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_of_two_threads_add_up() {
        let mut one = Audit::new();
        one.late(Span::from_micros(10), 99);
        let mut other = Audit::new();
        other.late(Span::from_secs(1000), 1);
        other.ring_drops = 3;
        let both = one.merge(other);
        assert_eq!((both.lateness.len(), both.ring_drops), (100, 3));
        assert!((micros(&both.lateness, 0.5) - 10.0).abs() < 0.5);
        assert!(micros(&both.lateness, 1.0) > 9e7, "what is beyond the scale counts as its end");
        assert_eq!(micros(&both.read_latency, 0.99), 0.0);
    }
}
