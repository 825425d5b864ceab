//! The rate at which data passes, for captures that are not at its sender: there an ACK follows its data at once, and
//! the sender's own way to sample the delivery rate would measure nothing.

use crate::histogram::Histogram;
use fullpipe_units::{Span, Time};

/// Fewer packets than this in a window make its rate coarse by more than a few per cent.
const PACKETS: u32 = 20;

/// Rates over windows one after another, each at least a round trip long.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrivals {
    anchor: Option<Time>,
    last: Time,
    bytes: u64,
    packets: u32,
    rates: Histogram,
}

impl Arrivals {
    /// `bytes` pass at `at`, where a round trip takes `rtt`; `behind` others that were under way as they left.
    #[inline]
    pub(super) fn passes(&mut self, at: Time, bytes: u64, rtt: Span, behind: bool) {
        let window = rtt.max(Span::from_millis(1));
        // After a pause of a round trip the sender had nothing to send, or waited for a time-out; unless a packet takes the
        // path longer than that.
        let paused = at.since(self.last) > window && !behind;
        self.last = at;
        let Some(anchor) = self.anchor.filter(|_| !paused) else {
            (self.anchor, self.bytes, self.packets) = (Some(at), 0, 0);
            return;
        };
        self.bytes += bytes;
        self.packets += 1;
        let length = at.since(anchor);
        if length >= window && self.packets >= PACKETS {
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
                a.passes(at, 1000, Span::from_millis(5), false);
            }
        }
        let rate = a.rates().quantile(0.5).unwrap();
        assert!((rate / 1e7 - 1.0).abs() < 0.01, "{rate}");
    }

    #[test]
    fn packets_that_take_longer_than_a_round_trip_are_no_pauses() {
        let mut a = Arrivals::default();
        for i in 0..200 {
            a.passes(Time::from_nanos(i * 20_000_000), 9000, Span::from_millis(15), true);
        }
        let rate = a.rates().quantile(0.5).unwrap();
        assert!((rate / 450e3 - 1.0).abs() < 0.01, "{rate}");
    }
}
