//! Rate limiting with a burst.

use std::time::Duration;

/// A token bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    /// Tokens per second.
    rate: f64,
    burst: f64,
    tokens: f64,
    at: Duration,
}

impl Bucket {
    /// A full bucket of `burst` tokens that refills at `rate` tokens per second.
    pub fn new(rate: f64, burst: f64, now: Duration) -> Bucket {
        Bucket { rate, burst, tokens: burst, at: now }
    }

    /// Takes a token if one is available.
    pub fn try_take(&mut self, now: Duration) -> bool {
        self.tokens = (self.tokens + now.saturating_sub(self.at).as_secs_f64() * self.rate).min(self.burst);
        self.at = now;
        let may = self.tokens >= 1.0;
        if may {
            self.tokens -= 1.0;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_allows_a_burst_and_then_its_rate() {
        let mut bucket = Bucket::new(2.0, 4.0, Duration::ZERO);
        let mut count = |at: u64| (0..100).filter(|_| bucket.try_take(Duration::from_millis(at))).count();
        assert_eq!((count(0), count(1000), count(60_000)), (4, 2, 4));
    }
}
