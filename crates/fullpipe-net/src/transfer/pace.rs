//! Keeping an average rate by sleeping between blocks.

use fullpipe_units::{Rate, Span};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A schedule at a constant rate. Time lost to a blocked socket is not made up for beyond
/// `CATCH_UP`: after it the rate is the one asked for again, and not a burst.
#[derive(Debug)]
pub struct Pace {
    rate: Option<Rate>,
    due: Instant,
}

/// How far a schedule may lag behind before it is moved.
const CATCH_UP: Duration = Duration::from_millis(100);
/// A sleeping thread looks this often whether it was stopped.
const LOOK: Duration = Duration::from_millis(50);

impl Pace {
    /// From now on at `rate`; `None` never waits.
    pub fn new(rate: Option<Rate>) -> Self {
        Pace { rate, due: Instant::now() }
    }

    /// The block to send at once so that a slow rate is smooth: `block`, or what passes in 10 ms if that is
    /// less, but no less than `least`.
    pub fn quantum(&self, block: usize, least: usize) -> usize {
        match self.rate {
            None => block,
            Some(rate) => (rate.bytes_in(Span::from_millis(10)) as usize).clamp(least.min(block), block),
        }
    }

    /// Waits until `bytes` more may be sent; `false` when `stop` was set meanwhile.
    pub fn wait(&mut self, bytes: usize, stop: &AtomicBool) -> bool {
        let Some(rate) = self.rate else { return !stop.load(Relaxed) };
        loop {
            if stop.load(Relaxed) {
                return false;
            }
            let now = Instant::now();
            if now >= self.due {
                self.due = self.due.max(now.checked_sub(CATCH_UP).unwrap_or(now));
                let takes = Duration::from_nanos(rate.time_to_send(bytes as u64).as_nanos());
                self.due += takes.min(Duration::from_secs(3600));
                return true;
            }
            std::thread::sleep((self.due - now).min(LOOK));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_is_the_rate_asked_for() {
        let stop = AtomicBool::new(false);
        let mut pace = Pace::new(Some(Rate::from_bytes_per_sec(1_000_000)));
        let began = Instant::now();
        for _ in 0..20 {
            assert!(pace.wait(10_000, &stop));
        }
        // The first block goes at once: 19 intervals of 10 ms.
        assert!(began.elapsed() >= Duration::from_millis(190));
    }

    #[test]
    fn a_stalled_schedule_does_not_burst() {
        let stop = AtomicBool::new(false);
        let mut pace = Pace::new(Some(Rate::from_bytes_per_sec(100_000)));
        pace.due -= Duration::from_secs(10);
        let began = Instant::now();
        for _ in 0..12 {
            pace.wait(1_000, &stop); // 10 ms each
        }
        assert!(began.elapsed() >= Duration::from_millis(10), "only 100 ms may be caught up");
    }

    #[test]
    fn a_waiting_thread_can_be_stopped() {
        let stop = AtomicBool::new(true);
        assert!(!Pace::new(Some(Rate::from_bytes_per_sec(1))).wait(1_000, &stop));
        assert!(!Pace::new(None).wait(1_000, &stop));
    }

    #[test]
    fn slow_rates_send_small_blocks() {
        let at = |rate| Pace::new(rate).quantum(131_072, 1448);
        assert_eq!(at(None), 131_072);
        assert_eq!(at(Some(Rate::from_bits_per_sec(8_000_000))), 10_000);
        assert_eq!(at(Some(Rate::from_bits_per_sec(1000))), 1448);
    }
}
