//! One direction of the traffic of an address, at most at a rate.

use super::pace::quantum;
use fullpipe_units::Rate;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Unused time that is caught up after a pause of the traffic.
const MAX_CREDIT: Duration = Duration::from_millis(20);
/// Time that is caught up if this machine woke a waiting thread too late.
const MAX_LAG: Duration = Duration::from_millis(100);
/// Messages of a test and probes go ahead of data unless the lane is behind by more than this.
const MAX_AHEAD: Duration = Duration::from_millis(100);
/// As [`MAX_AHEAD`] at low rates, where one packet takes longer.
const PACKETS_AHEAD: u64 = 4 * 1514;
/// Poll interval of a waiting thread.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A token bucket shared by everything that is sent, or everything that is received, on behalf of
/// an address. It starts empty, so a new one permits no more than one that was used all the time.
#[derive(Debug)]
pub(crate) struct Lane {
    rate: Rate,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// When what was permitted so far is paid for.
    due: Instant,
    /// Waiting threads in the order of arrival; only the first one waits for `due`.
    waiting: VecDeque<(u64, Thread)>,
    next_ticket: u64,
}

impl Lane {
    /// A lane at `rate`, at least one byte per second.
    pub fn new(rate: Rate) -> Lane {
        let state = State { due: Instant::now(), waiting: VecDeque::new(), next_ticket: 0 };
        Lane { rate: rate.max(Rate::from_bytes_per_sec(1)), state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn time(&self, bytes: u64) -> Duration {
        Duration::from_nanos(self.rate.time_to_send(bytes).as_nanos())
    }

    /// The rate.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// [`Pacer::quantum`](super::Pacer::quantum) at this rate.
    pub fn quantum(&self, block: usize, min: usize) -> usize {
        quantum(self.rate, block, min)
    }

    /// Waits until `bytes` more may be transferred, behind those that wait already. `keep_waiting`
    /// is polled before and every 50 ms; returns `false` when it does.
    pub fn acquire(&self, bytes: usize, keep_waiting: &mut dyn FnMut() -> bool) -> bool {
        let cost = self.time(bytes as u64);
        let mut ticket = None;
        loop {
            let go_on = keep_waiting();
            let mut state = self.lock();
            let first = state.waiting.front().is_none_or(|(number, _)| Some(*number) == ticket);
            let now = Instant::now();
            if !go_on || (first && now >= state.due) {
                if go_on {
                    let caught_up = if ticket.is_some() { MAX_LAG } else { MAX_CREDIT };
                    state.due = state.due.max(now.checked_sub(caught_up).unwrap_or(now)) + cost;
                }
                if ticket.is_some() {
                    state.waiting.retain(|(number, _)| Some(*number) != ticket);
                    match state.waiting.front() {
                        Some((_, next)) if first => next.unpark(),
                        Some(_) => {}
                        // Many lanes are remembered after a rush.
                        None => state.waiting.shrink_to(8),
                    }
                }
                return go_on;
            }
            if ticket.is_none() {
                let number = state.next_ticket;
                state.next_ticket += 1;
                state.waiting.push_back((number, std::thread::current()));
                ticket = Some(number);
            }
            let pause = if first { (state.due - now).min(POLL_INTERVAL) } else { POLL_INTERVAL };
            drop(state);
            std::thread::park_timeout(pause);
        }
    }

    /// As [`acquire`](Self::acquire) for a short message, which goes ahead of waiting data unless the
    /// lane is too far behind.
    pub fn acquire_ahead(&self, bytes: usize, keep_waiting: &mut dyn FnMut() -> bool) -> bool {
        self.charge(bytes, MAX_AHEAD.max(self.time(PACKETS_AHEAD))) || self.acquire(bytes, keep_waiting)
    }

    /// Charges `bytes` without waiting; `false`, and nothing is charged, if the lane is behind by
    /// more than `max_behind`.
    pub fn charge(&self, bytes: usize, max_behind: Duration) -> bool {
        let mut state = self.lock();
        let now = Instant::now();
        if state.due > now + max_behind {
            return false;
        }
        state.due = state.due.max(now.checked_sub(MAX_CREDIT).unwrap_or(now)) + self.time(bytes as u64);
        true
    }

    /// Charges `bytes` that cannot be delayed.
    pub fn owe(&self, bytes: usize) {
        self.charge(bytes, Duration::from_secs(u32::MAX.into()));
    }

    /// Returns bytes that were taken and not used.
    pub fn refund(&self, bytes: usize) {
        if bytes > 0 {
            let mut state = self.lock();
            state.due = state.due.checked_sub(self.time(bytes as u64)).unwrap_or(state.due);
        }
    }

    /// Whether everything permitted is paid for.
    pub fn is_paid(&self) -> bool {
        self.lock().due <= Instant::now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    fn lane() -> Lane {
        Lane::new(Rate::from_bytes_per_sec(100_000))
    }

    #[test]
    fn threads_share_the_rate_in_turn() {
        let (lane, began) = (lane(), Instant::now());
        let taken = [const { AtomicU64::new(0) }; 4];
        let end = || began.elapsed() < Duration::from_millis(600);
        std::thread::scope(|s| {
            for taken in &taken {
                let lane = &lane;
                s.spawn(move || {
                    while lane.acquire(1000, &mut || end()) {
                        taken.fetch_add(1000, Relaxed);
                    }
                });
            }
        });
        let (taken, most) = (taken.map(AtomicU64::into_inner), began.elapsed().as_secs_f64() * 1e5 + 1000.0);
        assert!((taken.iter().sum::<u64>() as f64) <= most, "{taken:?}, at most {most}");
        let (least, most) = (taken.iter().min().unwrap(), taken.iter().max().unwrap());
        // On a busy machine a thread may miss some of its turns.
        assert!(least * 2 >= *most, "{taken:?}");
        assert!(lane.lock().waiting.is_empty());
    }

    #[test]
    fn a_new_lane_permits_one_block_and_a_paused_one_little_more() {
        let lane = lane();
        assert!(
            lane.acquire(1000, &mut || true) && !lane.charge(1, Duration::ZERO),
            "the first block is paid for"
        );
        lane.lock().due = Instant::now() - Duration::from_secs(10);
        let began = Instant::now();
        for _ in 0..6 {
            lane.acquire(1000, &mut || true); // 10 ms each
        }
        assert!(began.elapsed() >= Duration::from_millis(25), "{:?}", began.elapsed());
    }

    #[test]
    fn messages_go_ahead_until_the_lane_is_too_far_behind() {
        let lane = lane();
        assert!(lane.acquire(5000, &mut || true));
        assert!(lane.acquire_ahead(10_000, &mut || false), "50 ms behind");
        assert!(!lane.acquire_ahead(1, &mut || false), "150 ms behind");
        lane.refund(10_000);
        assert!(lane.acquire_ahead(1, &mut || false));
    }

    #[test]
    fn a_waiting_thread_can_be_stopped_and_is_not_charged() {
        let lane = lane();
        assert!(lane.acquire(10_000, &mut || true));
        let due = lane.lock().due;
        let mut polls = 0;
        let stopped = lane.acquire(1000, &mut || {
            polls += 1;
            polls < 2
        });
        assert!(!stopped && lane.lock().due == due && lane.lock().waiting.is_empty());
    }
}
