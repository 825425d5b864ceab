//! How often something may happen: at a rate, with some at once.

use std::time::Duration;

/// A token bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    /// Tokens a second.
    rate: f64,
    most: f64,
    left: f64,
    at: Duration,
}

impl Bucket {
    /// Full, with `most` tokens; `rate` come each second.
    pub fn new(rate: f64, most: f64, now: Duration) -> Bucket {
        Bucket { rate, most, left: most, at: now }
    }

    /// Takes a token, if there is one.
    pub fn take(&mut self, now: Duration) -> bool {
        self.left = (self.left + now.saturating_sub(self.at).as_secs_f64() * self.rate).min(self.most);
        self.at = now;
        let may = self.left >= 1.0;
        if may {
            self.left -= 1.0;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_gets_more_than_a_burst_and_then_the_rate() {
        let mut bucket = Bucket::new(2.0, 4.0, Duration::ZERO);
        let mut count = |at: u64| (0..100).filter(|_| bucket.take(Duration::from_millis(at))).count();
        assert_eq!((count(0), count(1000), count(60_000)), (4, 2, 4));
    }
}
