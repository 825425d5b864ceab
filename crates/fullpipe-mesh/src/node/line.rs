//! A site's line: one transfer at a time, in or out.

use super::stop::lock;
use crate::record::{Pair, SiteId};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

/// The lock on the site's line.
#[derive(Debug)]
pub(super) struct Line {
    shared: bool,
    holder: Mutex<Option<(Pair, u32)>>,
    freed: Condvar,
}

/// Holds the line until dropped.
#[derive(Debug)]
pub(super) struct LineGuard<'a>(&'a Line);

impl Line {
    /// With `shared`, transfers of one pair hold the line together.
    pub fn new(shared: bool) -> Line {
        Line { shared, holder: Mutex::new(None), freed: Condvar::new() }
    }

    /// Acquires the line, waiting until the deadline.
    pub fn acquire(&self, pair: Pair, until: Instant) -> Option<LineGuard<'_>> {
        let mut holder = lock(&self.holder);
        loop {
            match &mut *holder {
                None => {
                    *holder = Some((pair, 1));
                    return Some(LineGuard(self));
                }
                Some((other, n)) if self.shared && *other == pair => {
                    *n += 1;
                    return Some(LineGuard(self));
                }
                Some(_) => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            holder = self.freed.wait_timeout(holder, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether a transfer with this site is in progress.
    pub fn is_busy_with(&self, peer: SiteId) -> bool {
        lock(&self.holder).is_some_and(|(pair, _)| pair.from == peer || pair.to == peer)
    }
}

impl Drop for LineGuard<'_> {
    fn drop(&mut self) {
        let mut holder = lock(&self.0.holder);
        *holder = holder.take().and_then(|(pair, n)| (n > 1).then_some((pair, n - 1)));
        drop(holder);
        self.0.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_line_is_exclusive_or_shared_by_one_pair() {
        let (a, b) = (Pair { from: 0, to: 1 }, Pair { from: 2, to: 0 });
        let now = Instant::now;
        let line = Line::new(false);
        let first = line.acquire(a, now()).unwrap();
        assert!(line.acquire(a, now()).is_none() && line.acquire(b, now()).is_none());
        assert!(line.is_busy_with(1) && !line.is_busy_with(2));
        std::thread::scope(|s| {
            let waits = s.spawn(|| line.acquire(b, now() + Duration::from_secs(600)).is_some());
            drop(first);
            assert!(waits.join().unwrap());
        });
        let shared = Line::new(true);
        let both = (shared.acquire(a, now()).unwrap(), shared.acquire(a, now()).unwrap());
        drop(both.0);
        assert!(shared.acquire(b, now()).is_none());
        drop(both.1);
        assert!(shared.acquire(b, now()).is_some());
    }
}
