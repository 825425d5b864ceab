//! The kernel's clock.

use nix::time::{ClockId, clock_getres, clock_gettime};

/// Ticks a second of the running kernel (`CONFIG_HZ`): its coarse clocks advance by one at a time.
pub fn tick_rate() -> Option<u32> {
    let tick = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).ok()?;
    u32::try_from(tick.tv_nsec())
        .ok()
        .filter(|&nanos| nanos > 0)
        .map(|nanos| (1_000_000_000 + nanos / 2) / nanos)
}

/// What to add to a time of the monotonic clock to have seconds since 1970, as the host's clock is set now.
pub fn monotonic_offset() -> Option<f64> {
    let seconds = |clock| {
        let now = clock_gettime(clock).ok()?;
        Some(now.tv_sec() as f64 + now.tv_nsec() as f64 / 1e9)
    };
    Some(seconds(ClockId::CLOCK_REALTIME)? - seconds(ClockId::CLOCK_MONOTONIC)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tick_is_one_that_kernels_are_built_with() {
        assert!(matches!(tick_rate(), Some(100 | 250 | 300 | 1000)), "{:?}", tick_rate());
    }
}
