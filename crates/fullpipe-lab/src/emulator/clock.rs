//! The run's clock, and the kernel's time stamps on it.

use fullpipe_units::Time;
use nix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC` since the run began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: u64,
}

fn read(clock: ClockId) -> u64 {
    // Both clocks exist on every Linux; the vDSO answers without a system call.
    clock_gettime(clock).map_or(0, |t| t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64)
}

impl Clock {
    /// A clock that reads zero now.
    pub(crate) fn start() -> Self {
        Clock { origin: read(ClockId::CLOCK_MONOTONIC) }
    }

    /// The time since the start.
    pub(crate) fn now(&self) -> Time {
        Time::from_nanos(read(ClockId::CLOCK_MONOTONIC) - self.origin)
    }

    /// The offset from `CLOCK_REALTIME`, in which packets are timestamped, to this clock. It is
    /// valid only briefly, because that clock is adjusted during the run.
    pub(crate) fn realtime(&self) -> RealtimeOffset {
        let before = read(ClockId::CLOCK_MONOTONIC);
        let real = read(ClockId::CLOCK_REALTIME);
        let after = read(ClockId::CLOCK_MONOTONIC);
        RealtimeOffset((before + (after - before) / 2).wrapping_sub(self.origin).wrapping_sub(real))
    }
}

/// What to add to a time of `CLOCK_REALTIME`, modulo 2⁶⁴.
#[derive(Clone, Copy)]
pub(crate) struct RealtimeOffset(u64);

impl RealtimeOffset {
    /// The time of the run at which `CLOCK_REALTIME` read `nanos`.
    pub(crate) fn apply(self, nanos: u64) -> Time {
        Time::from_nanos(nanos.wrapping_add(self.0))
    }
}
