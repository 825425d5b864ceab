//! The clock of trials: time since boot, which cannot be set, and the boot ID.

use nix::time::{ClockId, clock_gettime};
use std::fmt::Debug;
use std::time::Duration;

/// A clock that continues during suspend and cannot be set (`CLOCK_BOOTTIME`).
pub trait Clock: Debug {
    /// The boot ID (`/proc/sys/kernel/random/boot_id`); empty if unavailable.
    fn boot(&self) -> String;

    /// Time since boot.
    fn since_boot(&self) -> Duration;
}

/// This machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn boot(&self) -> String {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        id.trim().to_owned()
    }

    fn since_boot(&self) -> Duration {
        // All kernels supported by Rust have this clock.
        clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_id_is_constant_and_time_advances() {
        let (boot, before) = (BootClock.boot(), BootClock.since_boot());
        assert!(!boot.is_empty() && before > Duration::ZERO);
        assert_eq!(BootClock.boot(), boot);
        assert!(BootClock.since_boot() >= before);
    }
}
