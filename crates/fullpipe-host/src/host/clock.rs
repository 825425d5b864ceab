//! Time as a trial counts it: since the machine started, which nobody sets back, and which start that was.

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
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
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
