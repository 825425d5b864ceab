//! Data rates in bytes per second.

use crate::{Gain, Span};

const NS_PER_S: u128 = 1_000_000_000;

/// A data rate in bytes per second, 0 to 1.8·10¹⁹. Parsed and formatted in bits per second
/// (`100mbit`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Rate(u64);

impl Rate {
    /// Zero.
    pub const ZERO: Rate = Rate(0);
    /// The largest rate, used for "unlimited".
    pub const MAX: Rate = Rate(u64::MAX);

    /// A rate in bytes per second.
    pub const fn from_bytes_per_sec(b: u64) -> Self {
        Rate(b)
    }

    /// A rate in bits per second, rounded down to whole bytes.
    pub const fn from_bits_per_sec(b: u64) -> Self {
        Rate(b / 8)
    }

    /// Bytes per second.
    pub const fn as_bytes_per_sec(self) -> u64 {
        self.0
    }

    /// Bits per second.
    pub const fn as_bits_per_sec(self) -> u64 {
        self.0.saturating_mul(8)
    }

    /// Bits per second, for plots and tables.
    pub fn as_bits_per_sec_f64(self) -> f64 {
        self.0 as f64 * 8.0
    }

    /// The rate of `bytes` in `span`: [`Rate::MAX`] for an empty span, [`Rate::ZERO`] for no bytes.
    pub const fn from_bytes_in(bytes: u64, span: Span) -> Self {
        if bytes == 0 {
            return Rate::ZERO;
        }
        let ns = span.as_nanos();
        if ns == 0 {
            return Rate::MAX;
        }
        // Most samples fit in 64 bits, where the division is several times cheaper.
        if bytes <= u64::MAX / 1_000_000_000 {
            return Rate(bytes * 1_000_000_000 / ns);
        }
        let r = bytes as u128 * NS_PER_S / ns as u128;
        Rate(if r > u64::MAX as u128 { u64::MAX } else { r as u64 })
    }

    /// Bytes transferred in `span`, rounded down; saturates.
    pub const fn bytes_in(self, span: Span) -> u64 {
        if let Some(product) = self.0.checked_mul(span.as_nanos()) {
            return product / 1_000_000_000;
        }
        let b = self.0 as u128 * span.as_nanos() as u128 / NS_PER_S;
        if b > u64::MAX as u128 { u64::MAX } else { b as u64 }
    }

    /// The time to send `bytes` at this rate, rounded up so that a link never exceeds its rate;
    /// [`Span::MAX`] at rate zero.
    pub const fn time_to_send(self, bytes: u64) -> Span {
        if bytes == 0 {
            return Span::ZERO;
        }
        if self.0 == 0 {
            return Span::MAX;
        }
        if bytes <= u64::MAX / 1_000_000_000 {
            return Span::from_nanos((bytes * 1_000_000_000).div_ceil(self.0));
        }
        let ns = (bytes as u128 * NS_PER_S).div_ceil(self.0 as u128);
        Span::from_nanos(if ns > u64::MAX as u128 { u64::MAX } else { ns as u64 })
    }

    /// This rate times a gain, rounded down; saturates.
    pub const fn scale(self, gain: Gain) -> Rate {
        let r = self.0 as u128 * gain.as_256ths() as u128 / 256;
        Rate(if r > u64::MAX as u128 { u64::MAX } else { r as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_to_send_is_bytes_over_rate() {
        let r = Rate::from_bits_per_sec(128_000);
        assert_eq!(r.time_to_send(1500), Span::from_micros(93_750));
        assert_eq!(Rate::ZERO.time_to_send(1), Span::MAX);
        assert_eq!(Rate::MAX.time_to_send(1), Span::from_nanos(1));
    }

    #[test]
    fn large_products_do_not_overflow() {
        let r = Rate::from_bits_per_sec(400_000_000_000);
        assert_eq!(r.bytes_in(Span::from_secs(3600)), 50_000_000_000 * 3600);
        assert_eq!(Rate::MAX.bytes_in(Span::MAX), u64::MAX);
        assert_eq!(Rate::from_bytes_in(u64::MAX, Span::from_nanos(1)), Rate::MAX);
        assert_eq!(Rate::from_bytes_in(u64::MAX, Span::from_secs(1)).as_bytes_per_sec(), u64::MAX);
    }

    #[test]
    fn empty_interval_gives_max_and_zero_bytes_give_zero() {
        assert_eq!(Rate::from_bytes_in(1, Span::ZERO), Rate::MAX);
        assert_eq!(Rate::from_bytes_in(0, Span::ZERO), Rate::ZERO);
    }
}
