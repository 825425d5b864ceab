//! Arrival rates, for captures at the receiver: there an ACK follows its data at once, so that
//! delivery rate samples as at the sender are meaningless.

use crate::histogram::Histogram;
use fullpipe_units::{Span, Time};

/// Minimum number of packets of a window; with fewer the rate is too coarse.
const MIN_PACKETS: u32 = 20;

/// Rates over consecutive windows of at least a round trip.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrivals {
    anchor: Option<Time>,
    last: Time,
    bytes: u64,
    packets: u32,
    rates: Histogram,
}

impl Arrivals {
    /// Adds `bytes` at `at` on a path with the RTT `rtt`. `in_flight_before`: other data was in
    /// flight when they were sent.
    #[inline]
    pub(super) fn add(&mut self, at: Time, bytes: u64, rtt: Span, in_flight_before: bool) {
        let window = rtt.max(Span::from_millis(1));
        // After a pause of a round trip the sender was idle or waited for a timeout, unless the
        // serialisation of a packet takes longer.
        let paused = at.since(self.last) > window && !in_flight_before;
        self.last = at;
        let Some(anchor) = self.anchor.filter(|_| !paused) else {
            (self.anchor, self.bytes, self.packets) = (Some(at), 0, 0);
            return;
        };
        self.bytes += bytes;
        self.packets += 1;
        let length = at.since(anchor);
        if length >= window && self.packets >= MIN_PACKETS {
            self.rates.add(self.bytes as f64 / length.as_secs_f64(), self.bytes as f64);
            (self.anchor, self.bytes, self.packets) = (Some(at), 0, 0);
        }
    }

    /// The rates, in bytes per second.
    pub(super) fn rates(&self) -> &Histogram {
        &self.rates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_do_not_count() {
        let mut a = Arrivals::default();
        for burst in 0..5_u64 {
            for i in 0..200 {
                let at = Time::from_nanos(burst * 1_000_000_000 + i * 100_000);
                a.add(at, 1000, Span::from_millis(5), false);
            }
        }
        let rate = a.rates().quantile(0.5).unwrap();
        assert!((rate / 1e7 - 1.0).abs() < 0.01, "{rate}");
    }

    #[test]
    fn slow_packets_are_not_pauses() {
        let mut a = Arrivals::default();
        for i in 0..200 {
            a.add(Time::from_nanos(i * 20_000_000), 9000, Span::from_millis(15), true);
        }
        let rate = a.rates().quantile(0.5).unwrap();
        assert!((rate / 450e3 - 1.0).abs() < 0.01, "{rate}");
    }
}
