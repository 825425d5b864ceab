//! Kernel clocks.

use nix::time::{ClockId, clock_getres, clock_gettime};

/// Timer ticks per second of the running kernel (`CONFIG_HZ`), from the resolution of its coarse
/// clocks.
pub fn tick_rate() -> Option<u32> {
    let tick = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).ok()?;
    u32::try_from(tick.tv_nsec())
        .ok()
        .filter(|&nanos| nanos > 0)
        .map(|nanos| (1_000_000_000 + nanos / 2) / nanos)
}

/// Offset from the monotonic clock to Unix time in seconds, as the host's clock is set now.
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
    fn tick_rate_is_a_valid_config_hz() {
        assert!(matches!(tick_rate(), Some(100 | 250 | 300 | 1000)), "{:?}", tick_rate());
    }
}
