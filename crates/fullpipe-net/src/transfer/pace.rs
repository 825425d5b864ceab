//! Pacing by sleeping between blocks.

use super::POLL_INTERVAL;
use fullpipe_units::{Rate, Span};
use std::time::{Duration, Instant};

/// Paces at a constant rate. Time lost to a blocked socket is caught up by at most `MAX_LAG`, so
/// that no burst follows.
#[derive(Debug)]
pub struct Pacer {
    rate: Option<Rate>,
    due: Instant,
}

/// Maximum lag that is caught up.
const MAX_LAG: Duration = Duration::from_millis(100);

impl Pacer {
    /// Starts pacing at `rate`, at least one byte per second; `None` never waits.
    pub fn new(rate: Option<Rate>) -> Self {
        let rate = rate.map(|r| r.max(Rate::from_bytes_per_sec(1)));
        Pacer { rate, due: Instant::now() }
    }

    /// The block size for smooth pacing: `block`, or 10 ms worth of data if less, but at least
    /// `min`, and at most one second worth, so that there is progress every second and a closed
    /// peer is noticed.
    pub fn quantum(&self, block: usize, min: usize) -> usize {
        self.rate.map_or(block, |rate| quantum(rate, block, min))
    }

    /// Waits until `bytes` more may be sent. `keep_waiting` is polled before and every 50 ms;
    /// returns `false` when it does.
    pub fn wait(&mut self, bytes: usize, keep_waiting: &mut dyn FnMut() -> bool) -> bool {
        let Some(rate) = self.rate else { return keep_waiting() };
        loop {
            if !keep_waiting() {
                return false;
            }
            let now = Instant::now();
            if now >= self.due {
                self.due = self.due.max(now.checked_sub(MAX_LAG).unwrap_or(now));
                let takes = Duration::from_nanos(rate.time_to_send(bytes as u64).as_nanos());
                // Only a single datagram can take this long: streams send at most one second worth.
                self.due += takes.min(Duration::from_secs(3600));
                return true;
            }
            std::thread::sleep((self.due - now).min(POLL_INTERVAL));
        }
    }
}

/// [`Pacer::quantum`] at `rate`.
pub(super) fn quantum(rate: Rate, block: usize, min: usize) -> usize {
    let bytes_in = |span| usize::try_from(rate.bytes_in(span)).unwrap_or(usize::MAX);
    bytes_in(Span::from_millis(10)).max(min.min(bytes_in(Span::from_secs(1)))).clamp(1, block.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_is_the_requested_rate() {
        let began = Instant::now();
        let mut pace = Pacer::new(Some(Rate::from_bytes_per_sec(1_000_000)));
        for _ in 0..20 {
            assert!(pace.wait(10_000, &mut || true));
        }
        // The first block is sent immediately: 19 intervals of 10 ms.
        assert!(began.elapsed() >= Duration::from_millis(190));
    }

    #[test]
    fn a_stalled_schedule_does_not_burst() {
        let mut pace = Pacer::new(Some(Rate::from_bytes_per_sec(100_000)));
        pace.due -= Duration::from_secs(10);
        let began = Instant::now();
        for _ in 0..12 {
            pace.wait(1_000, &mut || true); // 10 ms each
        }
        assert!(began.elapsed() >= Duration::from_millis(10), "only 100 ms may be caught up");
    }

    #[test]
    fn a_waiting_thread_can_be_stopped() {
        assert!(!Pacer::new(Some(Rate::from_bytes_per_sec(1))).wait(1_000, &mut || false));
        assert!(!Pacer::new(None).wait(1_000, &mut || false));
        let mut pace = Pacer::new(Some(Rate::ZERO));
        assert!(pace.wait(1_000, &mut || true), "the first block is sent immediately");
        let began = Instant::now();
        assert!(!pace.wait(1, &mut || began.elapsed() < Duration::from_millis(120)));
        assert!(began.elapsed() < Duration::from_secs(60), "of the 1000 s that are due");
    }

    #[test]
    fn slow_rates_send_small_blocks() {
        let at = |rate| Pacer::new(rate).quantum(131_072, 1448);
        assert_eq!(at(None), 131_072);
        assert_eq!(at(Some(Rate::from_bits_per_sec(8_000_000))), 10_000);
        assert_eq!(at(Some(Rate::from_bits_per_sec(80_000))), 1448);
        assert_eq!(at(Some(Rate::from_bits_per_sec(1000))), 125, "progress every second");
        assert_eq!(at(Some(Rate::from_bits_per_sec(1))), 1);
    }
}
