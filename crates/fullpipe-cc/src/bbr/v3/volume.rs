//! A byte count as a type distinct from rates and times.

use crate::{Gain, Rate, Span};
use core::ops::{Add, AddAssign, Mul, Sub};

/// A number of payload bytes. Arithmetic saturates, so that [`INFINITE`](Self::INFINITE) stays it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Bytes(pub(super) u64);

impl Bytes {
    /// No bytes.
    pub(super) const ZERO: Bytes = Bytes(0);
    /// No bound.
    pub(super) const INFINITE: Bytes = Bytes(u64::MAX);

    /// The number of whole packets of `smss`.
    pub(super) fn packets(self, smss: Bytes) -> u64 {
        self.0 / smss.0.max(1)
    }

    /// The bytes times `gain`, rounded down.
    pub(super) fn scale(self, gain: Gain) -> Bytes {
        Bytes(gain.apply(self.0))
    }

    /// The bytes, or `None` if infinite.
    pub(super) fn finite(self) -> Option<u64> {
        (self != Self::INFINITE).then_some(self.0)
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        *self = *self + other;
    }
}

impl Sub for Bytes {
    type Output = Bytes;
    fn sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }
}

impl Mul<u64> for Bytes {
    type Output = Bytes;
    fn mul(self, n: u64) -> Bytes {
        Bytes(self.0.saturating_mul(n))
    }
}

/// Bytes delivered at `rate` in `span`.
pub(super) fn delivered_in(rate: Rate, span: Span) -> Bytes {
    Bytes(rate.bytes_in(span))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bound_stays_no_bound() {
        assert_eq!(Bytes::INFINITE + Bytes(1), Bytes::INFINITE);
        assert_eq!(Bytes::INFINITE * 2, Bytes::INFINITE);
        assert_eq!((Bytes(1) - Bytes(2), Bytes::INFINITE.finite()), (Bytes::ZERO, None));
    }

    #[test]
    fn packets_are_whole() {
        assert_eq!((Bytes(2999).packets(Bytes(1000)), Bytes(5).packets(Bytes::ZERO)), (2, 5));
    }
}
