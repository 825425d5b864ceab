//! The kernel's clock.

use nix::time::{ClockId, clock_getres};

/// Ticks a second of the running kernel (`CONFIG_HZ`): its coarse clocks advance by one at a time.
pub fn ticks() -> Option<u32> {
    let tick = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).ok()?;
    u32::try_from(tick.tv_nsec())
        .ok()
        .filter(|&nanos| nanos > 0)
        .map(|nanos| (1_000_000_000 + nanos / 2) / nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tick_is_one_that_kernels_are_built_with() {
        assert!(matches!(ticks(), Some(100 | 250 | 300 | 1000)), "{:?}", ticks());
    }
}
