//! The kernel's coarse clock: some controllers measure time in ticks, and their results depend on
//! the rounding.

use fullpipe_units::Time;

/// Default ticks per second (`CONFIG_HZ`).
pub(crate) const HZ: u32 = 1000;

/// Range of `CONFIG_HZ`.
pub(crate) const HZ_RANGE: core::ops::RangeInclusive<u32> = 24..=1200;

/// The kernel's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticks {
    hz: u32,
}

impl Ticks {
    /// A clock with `hz` ticks per second.
    pub(crate) fn new(hz: u32) -> Self {
        Ticks { hz: hz.clamp(*HZ_RANGE.start(), *HZ_RANGE.end()) }
    }

    /// Ticks per second.
    #[inline]
    pub(crate) fn per_second(self) -> u32 {
        self.hz
    }

    /// The tick at `now`. Starts at one, because the kernel's controllers use zero for "never", and
    /// wraps around like the kernel's.
    #[inline]
    pub(crate) fn at(self, now: Time) -> u32 {
        if self.hz == HZ {
            // A constant divides several times faster.
            return (now.as_nanos() / (1_000_000_000 / HZ as u64)).wrapping_add(1) as u32;
        }
        (now.as_nanos() / (1_000_000_000 / u64::from(self.hz))).wrapping_add(1) as u32
    }

    /// Microseconds as ticks, rounded up (`usecs_to_jiffies`).
    #[inline]
    pub(crate) fn in_micros(self, us: u32) -> u32 {
        us.div_ceil(1_000_000 / self.hz)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::Span;

    #[test]
    fn tick_is_a_millisecond_and_starts_at_one() {
        let ticks = Ticks::new(HZ);
        assert_eq!(ticks.at(Time::ZERO), 1);
        assert_eq!(ticks.at(Time::ZERO + Span::from_micros(2999)), 3);
        assert_eq!([0, 1, 1001].map(|us| ticks.in_micros(us)), [0, 1, 2]);
    }

    #[test]
    fn a_slower_clock_ticks_less_often() {
        let ticks = Ticks::new(250);
        let at = |ms| ticks.at(Time::ZERO + Span::from_millis(ms));
        assert_eq!([0, 3, 4, 1000].map(at), [1, 1, 2, 251]);
        assert_eq!([0, 1, 4000, 4001].map(|us| ticks.in_micros(us)), [0, 1, 1, 2]);
        assert_eq!((Ticks::new(0).per_second(), Ticks::new(u32::MAX).per_second()), (24, 1200));
    }
}
