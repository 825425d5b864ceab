//! A server of constant rate, exact to less than a nanosecond over any length of time.

use fullpipe_units::{Rate, Time};

const NS_PER_S: u128 = 1_000_000_000;

/// Counts in 2⁻⁶⁴ ns, so that rounding a departure to a nanosecond never adds up: at 400 Gbit/s
/// a 64-byte packet takes 1.28 ns, and a million of them 1.28 ms.
pub(crate) struct Constant {
    rate: Rate,
    /// Time per byte in units of 2⁻⁶⁴ ns, rounded up (never faster than the rate).
    per_byte: u128,
    /// End of the latest service: whole nanoseconds and the fraction in 2⁻⁶⁴ ns.
    free_at: Time,
    fraction: u64,
    /// A packet stands still at rate zero, with so much work left in byte·ns/s. (Not an `Option`:
    /// its tag would be as wide as the number, and a costly one for all enums around it.)
    stalled: bool,
    left: u128,
}

impl Constant {
    pub fn new(rate: Rate) -> Self {
        Constant { rate, per_byte: per_byte(rate), free_at: Time::ZERO, fraction: 0, stalled: false, left: 0 }
    }

    #[inline]
    pub fn next_start(&self, ready: Time) -> Time {
        ready.max(self.free_at)
    }

    #[inline]
    pub fn serve(&mut self, start: Time, bytes: u32) -> Time {
        if start > self.free_at {
            (self.free_at, self.fraction) = (start, 0);
        }
        if self.rate == Rate::ZERO {
            (self.stalled, self.left) = (true, u128::from(bytes) * NS_PER_S);
            return Time::NEVER;
        }
        // At most 2^94 · 2^32, so there is room for the fraction.
        let took = self.per_byte * u128::from(bytes) + u128::from(self.fraction);
        let ns = self.free_at.as_nanos().saturating_add((took >> 64) as u64);
        (self.free_at, self.fraction) = (Time::from_nanos(ns), took as u64);
        self.free_at
    }

    pub fn set_rate(&mut self, now: Time, rate: Rate, in_service: Option<(Time, u32)>) -> Option<Time> {
        let old = std::mem::replace(&mut self.rate, rate);
        self.per_byte = per_byte(rate);
        let (end, bytes) = in_service?;
        let whole = u128::from(bytes) * NS_PER_S;
        let left = if self.stalled {
            self.left
        } else {
            (u128::from(end.since(now).as_nanos()) * u128::from(old.as_bytes_per_sec())).min(whole)
        };
        self.stalled = rate == Rate::ZERO;
        if self.stalled {
            self.left = left;
            return Some(Time::NEVER);
        }
        let ns = left.div_ceil(u128::from(rate.as_bytes_per_sec()));
        let end = now.as_nanos().saturating_add(u64::try_from(ns).unwrap_or(u64::MAX));
        (self.free_at, self.fraction) = (Time::from_nanos(end), 0);
        Some(self.free_at)
    }
}

fn per_byte(rate: Rate) -> u128 {
    match rate.as_bytes_per_sec() {
        0 => 0,
        bytes_per_sec => (NS_PER_S << 64).div_ceil(u128::from(bytes_per_sec)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::Span;
    use proptest::prelude::*;

    fn at(ns: u64) -> Time {
        Time::from_nanos(ns)
    }

    fn mbit(n: u64) -> Rate {
        Rate::from_bits_per_sec(n * 1_000_000)
    }

    #[test]
    fn a_packet_takes_its_length_over_the_rate() {
        let mut s = Constant::new(mbit(100));
        assert_eq!(s.serve(at(0), 1500), at(120_000));
        assert_eq!(s.next_start(at(5)), at(120_000));
        assert_eq!(s.serve(at(120_000), 1500), at(240_000));
        assert_eq!(s.serve(at(1_000_000), 1500), at(1_120_000), "an idle link serves at once");
    }

    #[test]
    fn fractions_of_a_nanosecond_are_not_lost() {
        let mut s = Constant::new(mbit(400_000));
        let mut end = Time::ZERO;
        for _ in 0..1_000_000 {
            end = s.serve(end, 64);
        }
        assert_eq!(end, at(1_280_000));
    }

    #[test]
    fn a_rate_change_leaves_the_rest_of_a_packet_to_the_new_rate() {
        let mut s = Constant::new(mbit(100));
        let end = s.serve(at(0), 1500);
        // A third is left at 80 µs: 500 bytes, 400 µs at 10 Mbit/s.
        let end = s.set_rate(at(80_000), mbit(10), Some((end, 1500)));
        assert_eq!(end, Some(at(480_000)));
        assert_eq!(s.serve(at(480_000), 1500), at(1_680_000));
    }

    #[test]
    fn stalled_packet_resumes_where_it_stopped() {
        let mut s = Constant::new(mbit(100));
        let end = s.serve(at(0), 1500);
        assert_eq!(s.set_rate(at(60_000), Rate::ZERO, Some((end, 1500))), Some(Time::NEVER));
        assert_eq!(s.set_rate(at(70_000), Rate::ZERO, Some((Time::NEVER, 1500))), Some(Time::NEVER));
        assert_eq!(s.set_rate(at(100_000), mbit(100), Some((Time::NEVER, 1500))), Some(at(160_000)));
        let mut s = Constant::new(Rate::ZERO);
        assert_eq!(s.serve(at(0), 1500), Time::NEVER);
        assert_eq!(s.set_rate(at(1_000), mbit(100), Some((Time::NEVER, 1500))), Some(at(121_000)));
    }

    proptest! {
        /// However often the rate changes, the bytes that left are the integral of the rate.
        #[test]
        fn a_busy_link_never_serves_more_than_its_rate(
            rate in 1u64..1 << 40,
            sizes in prop::collection::vec(1u32..70_000, 1..100),
        ) {
            let mut s = Constant::new(Rate::from_bytes_per_sec(rate));
            let mut end = Time::ZERO;
            for &bytes in &sizes {
                end = s.serve(end, bytes);
            }
            let sum: u64 = sizes.iter().map(|&b| u64::from(b)).sum();
            let exact = u128::from(sum) * NS_PER_S / u128::from(rate);
            let took = u128::from(end.since(Time::ZERO).as_nanos());
            prop_assert!(took == exact || took == exact + 1, "{} {}", took, exact);
        }

        #[test]
        fn no_rate_panics(rate: u64, next: u64, start: u64, bytes: u32, later: u64) {
            let mut s = Constant::new(Rate::from_bytes_per_sec(rate));
            let end = s.serve(at(start), bytes);
            let now = at(start) + Span::from_nanos(later);
            let end = s.set_rate(now, Rate::from_bytes_per_sec(next), Some((end, bytes))).unwrap();
            prop_assert!(end >= now);
        }
    }
}
