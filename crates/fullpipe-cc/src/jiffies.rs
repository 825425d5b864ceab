//! The kernel's coarse clock: some of its controllers measure time in ticks, and rounding is part of
//! what they do.

use fullpipe_units::Time;

/// Ticks a second (`CONFIG_HZ`) in the controllers of this crate.
pub(crate) const HZ: u32 = 1000;

/// The tick that `now` falls into. It starts at one, for the kernel's controllers take zero for
/// "never", and wraps around after 49 days as the kernel's does.
#[inline]
pub(crate) fn jiffies(now: Time) -> u32 {
    (now.as_nanos() / (1_000_000_000 / HZ as u64)).wrapping_add(1) as u32
}

/// Microseconds as ticks, rounded up (`usecs_to_jiffies`).
#[inline]
pub(crate) fn from_micros(us: u32) -> u32 {
    us.div_ceil(1_000_000 / HZ)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::Span;

    #[test]
    fn a_tick_is_a_millisecond_and_never_zero_at_the_start() {
        assert_eq!(jiffies(Time::ZERO), 1);
        assert_eq!(jiffies(Time::ZERO + Span::from_micros(2999)), 3);
        assert_eq!((from_micros(0), from_micros(1), from_micros(1001)), (0, 1, 2));
    }
}
