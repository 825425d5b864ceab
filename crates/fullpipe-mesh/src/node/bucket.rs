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
        self.refill(now);
        let may = self.tokens >= 1.0;
        if may {
            self.tokens -= 1.0;
        }
        may
    }

    /// Removes tokens, even more than there are: their number is known only afterwards.
    pub fn spend(&mut self, tokens: f64, now: Duration) {
        self.refill(now);
        self.tokens -= tokens;
    }

    /// How long there are no tokens without further spending.
    pub fn time_until_positive(&mut self, now: Duration) -> Duration {
        self.refill(now);
        if self.tokens > 0.0 {
            return Duration::ZERO;
        }
        // Rounded up, and more than nothing.
        let missing = Duration::try_from_secs_f64(-self.tokens / self.rate).unwrap_or(Duration::MAX);
        missing.saturating_add(Duration::from_millis(1))
    }

    fn refill(&mut self, now: Duration) {
        self.tokens = (self.tokens + now.saturating_sub(self.at).as_secs_f64() * self.rate).min(self.burst);
        self.at = self.at.max(now);
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

    #[test]
    fn overspent_tokens_are_missing_until_they_are_refilled() {
        let at = Duration::from_secs;
        let mut bucket = Bucket::new(0.5, 10.0, at(0));
        bucket.spend(30.0, at(0));
        assert_eq!(bucket.time_until_positive(at(0)).as_secs(), 40);
        assert_eq!(bucket.time_until_positive(at(30)).as_secs(), 10);
        assert_eq!(bucket.time_until_positive(at(41)), at(0));
    }
}
