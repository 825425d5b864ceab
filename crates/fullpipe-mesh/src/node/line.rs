//! A site's line: one transfer at a time, in or out.

use super::bucket::Bucket;
use super::stop::lock;
use crate::record::{Pair, SiteId};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The share of time for which transfers of one pair of sites hold the line, at most, if there are
/// other peers.
const MAX_SHARE: f64 = 0.5;

/// The lock on the site's line.
#[derive(Debug)]
pub(super) struct Line {
    /// Whether transfers of one direction hold the line together.
    shared: bool,
    own: SiteId,
    began: Instant,
    /// For how long others can join the first transfer of one direction.
    join_within: Duration,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug)]
struct State {
    holder: Option<Holder>,
    /// By peer: seconds for which it may hold the line. A slow peer, or one that falls silent in
    /// the middle of a transfer, leaves the others their time. Empty if there are no others.
    shares: Vec<Bucket>,
}

#[derive(Debug)]
struct Holder {
    pair: Pair,
    transfers: u32,
    since: Instant,
}

/// Holds the line until dropped.
#[derive(Debug)]
pub(super) struct LineGuard<'a>(&'a Line);

impl Line {
    /// The line of site `own` in a mesh of `sites`. With `shared`, transfers of one pair hold the
    /// line together, those that begin within `limit` of the first: the shares are charged when all
    /// have ended.
    pub fn new(shared: bool, own: SiteId, sites: usize, period: Duration, limit: Duration) -> Line {
        let share = Bucket::new(MAX_SHARE, MAX_SHARE * period.as_secs_f64(), Duration::ZERO);
        let shares = if sites > 2 { vec![share; sites] } else { Vec::new() };
        let state = State { holder: None, shares };
        let (began, freed) = (Instant::now(), Condvar::new());
        Line { shared, own, began, join_within: limit, state: Mutex::new(state), freed }
    }

    /// Acquires the line, waiting until the deadline.
    pub fn acquire(&self, pair: Pair, until: Instant) -> Option<LineGuard<'_>> {
        let mut state = lock(&self.state);
        loop {
            let now = Instant::now();
            let mut wait = until.saturating_duration_since(now);
            match &mut state.holder {
                Some(holder)
                    if self.shared
                        && holder.pair == pair
                        && now.saturating_duration_since(holder.since) <= self.join_within =>
                {
                    holder.transfers += 1;
                    return Some(LineGuard(self));
                }
                Some(_) => {}
                None => {
                    let pause = state.shares.get_mut(self.peer(pair)).map_or(Duration::ZERO, |share| {
                        share.time_until_positive(now.saturating_duration_since(self.began))
                    });
                    if pause.is_zero() {
                        state.holder = Some(Holder { pair, transfers: 1, since: now });
                        return Some(LineGuard(self));
                    }
                    wait = wait.min(pause);
                }
            }
            if until <= now {
                return None;
            }
            state = self.freed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether a transfer with this site is in progress.
    pub fn is_busy_with(&self, peer: SiteId) -> bool {
        lock(&self.state).holder.as_ref().is_some_and(|h| h.pair.from == peer || h.pair.to == peer)
    }

    fn peer(&self, pair: Pair) -> usize {
        usize::from(if pair.from == self.own { pair.to } else { pair.from })
    }
}

impl Drop for LineGuard<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        let State { holder, shares } = &mut *state;
        if let Some(held) = holder {
            held.transfers -= 1;
            if held.transfers == 0 {
                let now = Instant::now();
                if let Some(share) = shares.get_mut(self.0.peer(held.pair)) {
                    let held_for = now.saturating_duration_since(held.since);
                    share.spend(held_for.as_secs_f64(), now.saturating_duration_since(self.0.began));
                }
                *holder = None;
            }
        }
        drop(state);
        self.0.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Pair = Pair { from: 0, to: 1 };
    const B: Pair = Pair { from: 2, to: 0 };

    #[test]
    fn the_line_is_exclusive_or_shared_by_one_pair() {
        let now = Instant::now;
        let (period, limit) = (Duration::from_secs(60), Duration::from_secs(20));
        let line = Line::new(false, 0, 3, period, limit);
        let first = line.acquire(A, now()).unwrap();
        assert!(line.acquire(A, now()).is_none() && line.acquire(B, now()).is_none());
        assert!(line.is_busy_with(1) && !line.is_busy_with(2));
        std::thread::scope(|s| {
            let waits = s.spawn(|| line.acquire(B, now() + Duration::from_secs(600)).is_some());
            drop(first);
            assert!(waits.join().unwrap());
        });
        let shared = Line::new(true, 0, 3, period, limit);
        let both = (shared.acquire(A, now()).unwrap(), shared.acquire(A, now()).unwrap());
        drop(both.0);
        assert!(shared.acquire(B, now()).is_none());
        // Overlapping transfers do not keep the line for ever.
        lock(&shared.state).holder.as_mut().unwrap().since -= limit + Duration::from_millis(1);
        assert!(shared.acquire(A, now()).is_none());
        drop(both.1);
        assert!(shared.acquire(B, now()).is_some());
    }

    #[test]
    fn a_peer_that_held_the_line_beyond_its_share_leaves_it_to_others() {
        let period = Duration::from_secs(3600);
        let now = Instant::now;
        let hold = |line: &Line, pair, time: Duration| {
            let guard = line.acquire(pair, now()).unwrap();
            lock(&line.state).holder.as_mut().unwrap().since -= time;
            drop(guard);
        };
        let line = Line::new(false, 0, 3, period, period / 3);
        hold(&line, A, period / 4);
        hold(&line, A.reversed(), period);
        assert!(line.acquire(A, now()).is_none(), "both directions count");
        assert!(line.acquire(B, now()).is_some());
        // One that waits for its share does not keep the line.
        std::thread::scope(|s| {
            let waits = s.spawn(|| line.acquire(A, now() + Duration::from_millis(300)).is_some());
            hold(&line, B, Duration::ZERO);
            assert!(!waits.join().unwrap());
        });
        // Without other peers there is no share.
        let line = Line::new(false, 0, 2, period, period / 3);
        for _ in 0..10 {
            hold(&line, A, period / 10);
        }
        assert!(line.acquire(A, now()).is_some());
    }
}
