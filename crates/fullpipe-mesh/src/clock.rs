//! Wall clock and monotonic clock, and the number of the current period.

use fullpipe_units::Span;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A point in time on both clocks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Moment {
    /// Milliseconds since 1970 (UTC) on the host's wall clock, which may jump.
    pub wall_ms: i64,
    /// Time on the monotonic clock, since an arbitrary start.
    pub steady: Duration,
}

/// A source of time.
pub trait Clock: Send + Sync {
    /// The current time.
    fn now(&self) -> Moment;
}

/// The host's clocks.
#[derive(Debug)]
pub struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        let wall_ms = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
        };
        Moment { wall_ms, steady: self.0.elapsed() }
    }
}

/// Maps time to period numbers. Periods are counted since 1970, follow the monotonic clock and
/// never decrease: a wall clock that is set back is followed only after a restart, and one that is
/// set forward skips periods.
#[derive(Clone, Debug)]
pub struct Timetable {
    period: Duration,
    /// The mesh's time at the monotonic time `at`.
    at: Duration,
    time: Duration,
}

/// Differences up to this are slewing and ignored; a wall clock further ahead is followed.
const MAX_SLEW: Duration = Duration::from_millis(20);

impl Timetable {
    /// Creates a timetable for periods of this length.
    pub fn new(period: Span, now: Moment) -> Timetable {
        let time = Duration::from_millis(now.wall_ms.max(0) as u64);
        Timetable { period: Duration::from_nanos(period.as_nanos().max(1)), at: now.steady, time }
    }

    /// The number of the current period, and the time passed in it.
    pub fn at(&mut self, now: Moment) -> (i64, Duration) {
        let mut time = self.time + now.steady.saturating_sub(self.at);
        let wall = Duration::from_millis(now.wall_ms.max(0) as u64);
        if wall > time + MAX_SLEW {
            time = wall;
        }
        (self.at, self.time) = (now.steady.max(self.at), time);
        let number = time.as_nanos() / self.period.as_nanos();
        let passed = time.as_nanos() % self.period.as_nanos();
        (number as i64, Duration::from_nanos(passed as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_follow_a_clock_set_forward_and_ignore_one_set_back() {
        let at = |wall_s: i64, steady_s: u64| Moment {
            wall_ms: wall_s * 1000,
            steady: Duration::from_secs(steady_s),
        };
        let mut table = Timetable::new(Span::from_secs(60), at(6000, 5));
        assert_eq!(table.at(at(6000, 5)), (100, Duration::ZERO));
        assert_eq!(table.at(at(6070, 75)), (101, Duration::from_secs(10)));
        assert_eq!(table.at(at(9610, 80)), (160, Duration::from_secs(10)), "an hour forward");
        assert_eq!(table.at(at(6020, 90)), (160, Duration::from_secs(20)), "an hour back");
        assert_eq!(table.at(at(0, 131)), (161, Duration::from_secs(1)));
        assert_eq!(table.at(at(-5, 132)), (161, Duration::from_secs(2)), "before 1970");
    }
}
