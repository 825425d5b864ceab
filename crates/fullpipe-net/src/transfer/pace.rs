//! Keeping an average rate by sleeping between blocks.

use fullpipe_units::{Rate, Span};
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
    /// From now on at `rate`, which is a byte per second at least; `None` never waits.
    pub fn new(rate: Option<Rate>) -> Self {
        let rate = rate.map(|r| r.max(Rate::from_bytes_per_sec(1)));
        Pace { rate, due: Instant::now() }
    }

    /// The block to send at once so that a slow rate is smooth: `block`, or what passes in 10 ms if that is
    /// less, but no less than `least`; and never more than passes in a second, so that something moves every
    /// second, whoever watches sees it, and a peer that is gone is noticed.
    pub fn quantum(&self, block: usize, least: usize) -> usize {
        let Some(rate) = self.rate else { return block };
        let bytes_in = |span| usize::try_from(rate.bytes_in(span)).unwrap_or(usize::MAX);
        bytes_in(Span::from_millis(10)).max(least.min(bytes_in(Span::from_secs(1)))).clamp(1, block)
    }

    /// Waits until `bytes` more may be sent. `go_on` is asked before and every 50 ms meanwhile; `false` as soon
    /// as it says no.
    pub fn wait(&mut self, bytes: usize, go_on: &mut dyn FnMut() -> bool) -> bool {
        let Some(rate) = self.rate else { return go_on() };
        loop {
            if !go_on() {
                return false;
            }
            let now = Instant::now();
            if now >= self.due {
                self.due = self.due.max(now.checked_sub(CATCH_UP).unwrap_or(now));
                let takes = Duration::from_nanos(rate.time_to_send(bytes as u64).as_nanos());
                // Only one datagram can take this long: streams send what passes in a second.
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
        let began = Instant::now();
        let mut pace = Pace::new(Some(Rate::from_bytes_per_sec(1_000_000)));
        for _ in 0..20 {
            assert!(pace.wait(10_000, &mut || true));
        }
        // The first block goes at once: 19 intervals of 10 ms.
        assert!(began.elapsed() >= Duration::from_millis(190));
    }

    #[test]
    fn a_stalled_schedule_does_not_burst() {
        let mut pace = Pace::new(Some(Rate::from_bytes_per_sec(100_000)));
        pace.due -= Duration::from_secs(10);
        let began = Instant::now();
        for _ in 0..12 {
            pace.wait(1_000, &mut || true); // 10 ms each
        }
        assert!(began.elapsed() >= Duration::from_millis(10), "only 100 ms may be caught up");
    }

    #[test]
    fn a_waiting_thread_can_be_stopped() {
        assert!(!Pace::new(Some(Rate::from_bytes_per_sec(1))).wait(1_000, &mut || false));
        assert!(!Pace::new(None).wait(1_000, &mut || false));
        let mut pace = Pace::new(Some(Rate::ZERO));
        assert!(pace.wait(1_000, &mut || true), "the first block goes at once");
        let began = Instant::now();
        assert!(!pace.wait(1, &mut || began.elapsed() < Duration::from_millis(120)));
        assert!(began.elapsed() < Duration::from_secs(60), "of the 1000 s that are due");
    }

    #[test]
    fn slow_rates_send_small_blocks() {
        let at = |rate| Pace::new(rate).quantum(131_072, 1448);
        assert_eq!(at(None), 131_072);
        assert_eq!(at(Some(Rate::from_bits_per_sec(8_000_000))), 10_000);
        assert_eq!(at(Some(Rate::from_bits_per_sec(80_000))), 1448);
        assert_eq!(at(Some(Rate::from_bits_per_sec(1000))), 125, "something moves every second");
        assert_eq!(at(Some(Rate::from_bits_per_sec(1))), 1);
    }
}
