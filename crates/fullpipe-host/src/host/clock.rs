//! Time as a trial counts it: since the machine started, which nobody sets back, and which start that was.

use nix::time::{ClockId, clock_gettime};
use std::fmt::Debug;
use std::time::Duration;

/// A clock that goes on while the machine sleeps and that no one can set (`CLOCK_BOOTTIME`).
pub trait Clock: Debug {
    /// The kernel's name for this run of the machine (`/proc/sys/kernel/random/boot_id`); empty if it has none.
    fn boot(&self) -> String;

    /// The time since the machine started.
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
        // Every kernel that Rust supports has this clock.
        clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_one_start_and_goes_forward() {
        let (boot, before) = (BootClock.boot(), BootClock.since_boot());
        assert!(!boot.is_empty() && before > Duration::ZERO);
        assert_eq!(BootClock.boot(), boot);
        assert!(BootClock.since_boot() >= before);
    }
}
