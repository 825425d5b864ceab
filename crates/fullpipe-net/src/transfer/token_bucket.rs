//! One direction of the traffic of an address, at most at a rate.

use super::POLL_INTERVAL;
use super::pace::quantum;
use fullpipe_units::Rate;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
#[cfg(feature = "rpm")]
use std::task::Waker;
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Unused time that is caught up after a pause of the traffic.
const MAX_CREDIT: Duration = Duration::from_millis(20);
/// Time that is caught up if this machine woke a waiting thread too late.
const MAX_LAG: Duration = Duration::from_millis(100);
/// Short messages go ahead of data unless the bucket is behind by more than this.
const MAX_AHEAD: Duration = Duration::from_millis(100);
/// A task that does not poll for this long loses its place, so that the others do not wait for it.
#[cfg(feature = "rpm")]
const MAX_SILENCE: Duration = Duration::from_millis(200);
/// As [`MAX_AHEAD`] at low rates, where one packet takes longer.
const PACKETS_AHEAD: u64 = 4 * 1514;
/// Payload of a packet: no less is sent or received at a time, unless it takes more than a second.
pub(crate) const PACKET: usize = 1448;

/// A token bucket shared by everything that is sent, or everything that is received, on behalf of
/// an address. It starts empty, so a new one permits no more than one that was used all the time.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    rate: Rate,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// When what was permitted so far is paid for.
    due: Instant,
    /// Those that wait in the order of arrival; only the first one waits for `due`.
    waiting: VecDeque<(u64, Waiter)>,
    next_ticket: u64,
}

/// A thread or a task that waits.
#[derive(Debug)]
enum Waiter {
    Thread(Thread),
    /// With the time of its latest poll.
    #[cfg(feature = "rpm")]
    Task(Waker, Instant),
}

impl Waiter {
    fn wake(&self) {
        match self {
            Waiter::Thread(thread) => thread.unpark(),
            #[cfg(feature = "rpm")]
            Waiter::Task(waker, _) => waker.wake_by_ref(),
        }
    }

    /// Whether it is a task that polls no more: its connection waits for something else.
    #[cfg(feature = "rpm")]
    fn is_stale(&self, now: Instant) -> bool {
        match self {
            Waiter::Thread(_) => false,
            Waiter::Task(_, polled) => now.saturating_duration_since(*polled) > MAX_SILENCE,
        }
    }
}

/// Bytes that may be transferred; those that are not are refunded.
#[derive(Debug)]
pub(crate) struct Grant<'a> {
    bucket: Option<&'a TokenBucket>,
    bytes: usize,
    used: usize,
}

impl Grant<'_> {
    /// A grant without a rate.
    pub fn unlimited(bytes: usize) -> Self {
        Grant { bucket: None, bytes, used: 0 }
    }

    /// The bytes that may be transferred.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps `bytes` of the grant, and refunds the others.
    pub fn transferred(mut self, bytes: usize) {
        self.used = bytes;
    }
}

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        if let Some(bucket) = self.bucket {
            bucket.refund(self.bytes.saturating_sub(self.used));
        }
    }
}

impl State {
    fn is_first(&self, ticket: Option<u64>) -> bool {
        self.waiting.front().is_none_or(|(number, _)| Some(*number) == ticket)
    }

    fn join(&mut self, waiter: Waiter) -> u64 {
        let number = self.next_ticket;
        self.next_ticket += 1;
        self.waiting.push_back((number, waiter));
        number
    }

    /// Charges `cost` if it is this one's turn.
    fn pass(&mut self, ticket: Option<u64>, now: Instant, cost: Duration) -> bool {
        #[cfg(feature = "rpm")]
        while self.waiting.front().is_some_and(|(number, w)| Some(*number) != ticket && w.is_stale(now)) {
            self.waiting.pop_front();
        }
        let its_turn = self.is_first(ticket) && now >= self.due;
        if its_turn {
            let caught_up = if ticket.is_some() { MAX_LAG } else { MAX_CREDIT };
            self.due = self.due.max(now.checked_sub(caught_up).unwrap_or(now)) + cost;
            self.leave(ticket);
        }
        its_turn
    }

    fn leave(&mut self, ticket: Option<u64>) {
        if ticket.is_none() {
            return;
        }
        let was_first = self.is_first(ticket);
        self.waiting.retain(|(number, _)| Some(*number) != ticket);
        match self.waiting.front() {
            Some((_, next)) if was_first => next.wake(),
            Some(_) => {}
            // Many buckets are remembered after a rush.
            None => self.waiting.shrink_to(8),
        }
    }
}

impl TokenBucket {
    /// A bucket at `rate`, at least one byte per second.
    pub fn new(rate: Rate) -> TokenBucket {
        let state = State { due: Instant::now(), waiting: VecDeque::new(), next_ticket: 0 };
        TokenBucket { rate: rate.max(Rate::from_bytes_per_sec(1)), state: Mutex::new(state) }
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

    /// [`Pacer::quantum`](super::Pacer::quantum) at the share of one more waiting thread.
    pub fn quantum(&self, block: usize, min: usize) -> usize {
        let waiting = self.lock().waiting.len() as u64;
        quantum(Rate::from_bytes_per_sec(self.rate.as_bytes_per_sec() / (waiting + 1)), block, min)
    }

    /// Waits until a part of `max` bytes may be transferred, at least `min` of them if there are as
    /// many, behind those that wait already; `None` when `keep_waiting` is false.
    pub fn grant(&self, max: usize, min: usize, keep_waiting: &mut dyn FnMut() -> bool) -> Option<Grant<'_>> {
        let bytes = self.quantum(max, min);
        self.acquire(bytes, keep_waiting).then(|| Grant { bucket: Some(self), bytes, used: 0 })
    }

    /// As [`grant`](Self::grant) for a short message, which goes ahead of waiting data unless the
    /// bucket is too far behind.
    pub fn grant_ahead(&self, max: usize, keep_waiting: &mut dyn FnMut() -> bool) -> Option<Grant<'_>> {
        let bytes = self.quantum(max, PACKET);
        self.acquire_ahead(bytes, keep_waiting).then(|| Grant { bucket: Some(self), bytes, used: 0 })
    }

    /// Waits until `bytes` more may be transferred, behind those that wait already. `keep_waiting`
    /// is polled before and every 50 ms; returns `false` when it does.
    pub fn acquire(&self, bytes: usize, keep_waiting: &mut dyn FnMut() -> bool) -> bool {
        let cost = self.time(bytes as u64);
        let mut ticket = None;
        loop {
            let go_on = keep_waiting();
            let mut state = self.lock();
            let now = Instant::now();
            if !go_on {
                state.leave(ticket);
                return false;
            }
            if state.pass(ticket, now, cost) {
                return true;
            }
            if ticket.is_none() {
                ticket = Some(state.join(Waiter::Thread(std::thread::current())));
            }
            let pause = if state.is_first(ticket) {
                state.due.saturating_duration_since(now).min(POLL_INTERVAL)
            } else {
                POLL_INTERVAL
            };
            drop(state);
            std::thread::park_timeout(pause);
        }
    }

    /// As [`acquire`](Self::acquire) for a task: acquires `bytes`, or keeps a place in `ticket` and
    /// returns when to poll again at the latest. The task is woken earlier if it becomes the first.
    /// One that no longer waits must [`leave`](Self::leave).
    ///
    /// # Errors
    /// When to poll again.
    #[cfg(feature = "rpm")]
    pub fn poll_acquire(&self, bytes: usize, ticket: &mut Option<u64>, waker: &Waker) -> Result<(), Instant> {
        let cost = self.time(bytes as u64);
        let mut state = self.lock();
        let now = Instant::now();
        if state.pass(*ticket, now, cost) {
            *ticket = None;
            return Ok(());
        }
        match state.waiting.iter_mut().find(|(number, _)| Some(*number) == *ticket) {
            Some((_, waiter)) => *waiter = Waiter::Task(waker.clone(), now),
            None => *ticket = Some(state.join(Waiter::Task(waker.clone(), now))),
        }
        Err(if state.is_first(*ticket) { state.due } else { now + POLL_INTERVAL })
    }

    /// Gives up a place.
    #[cfg(feature = "rpm")]
    pub fn leave(&self, ticket: Option<u64>) {
        self.lock().leave(ticket);
    }

    /// A grant of bytes that were acquired.
    #[cfg(feature = "rpm")]
    pub fn acquired(&self, bytes: usize) -> Grant<'_> {
        Grant { bucket: Some(self), bytes, used: 0 }
    }

    /// Whether a message of `bytes` may go ahead of waiting data now; it is charged then.
    #[cfg(feature = "rpm")]
    pub fn charge_ahead(&self, bytes: usize) -> bool {
        self.charge(bytes, self.max_ahead())
    }

    fn max_ahead(&self) -> Duration {
        MAX_AHEAD.max(self.time(PACKETS_AHEAD))
    }

    /// As [`acquire`](Self::acquire) for a short message, which goes ahead of waiting data unless the
    /// bucket is too far behind.
    pub fn acquire_ahead(&self, bytes: usize, keep_waiting: &mut dyn FnMut() -> bool) -> bool {
        self.charge(bytes, self.max_ahead()) || self.acquire(bytes, keep_waiting)
    }

    /// Charges `bytes` without waiting; `false`, and nothing is charged, if the bucket is behind by
    /// more than `max_behind`.
    pub fn charge(&self, bytes: usize, max_behind: Duration) -> bool {
        self.charge_with_credit(bytes, max_behind, MAX_CREDIT)
    }

    /// As [`charge`](Self::charge), if up to `credit` of unused time may be caught up.
    pub fn charge_with_credit(&self, bytes: usize, max_behind: Duration, credit: Duration) -> bool {
        let mut state = self.lock();
        let now = Instant::now();
        if state.due > now + max_behind {
            return false;
        }
        state.due = state.due.max(now.checked_sub(credit).unwrap_or(now)) + self.time(bytes as u64);
        true
    }

    /// Charges `bytes` that cannot be delayed.
    pub fn owe(&self, bytes: usize) {
        self.charge(bytes, Duration::from_secs(u32::MAX.into()));
    }

    /// Refunds bytes that were charged and not transferred. The first waiting thread may go on
    /// earlier.
    fn refund(&self, bytes: usize) {
        if bytes > 0 {
            let mut state = self.lock();
            state.due = state.due.checked_sub(self.time(bytes as u64)).unwrap_or(state.due);
            if let Some((_, first)) = state.waiting.front() {
                first.wake();
            }
        }
    }

    /// As after a pause of the traffic.
    #[cfg(test)]
    pub fn rewind(&self, pause: Duration) {
        let mut state = self.lock();
        state.due -= pause;
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

    fn bucket() -> TokenBucket {
        TokenBucket::new(Rate::from_bytes_per_sec(100_000))
    }

    #[test]
    fn threads_share_the_rate_in_turn() {
        fullpipe_testing::check_repeatedly("threads share the rate", share_the_rate);
    }

    fn share_the_rate() -> Result<(), String> {
        let (bucket, began) = (bucket(), Instant::now());
        let taken = [const { AtomicU64::new(0) }; 4];
        let end = || began.elapsed() < Duration::from_millis(600);
        std::thread::scope(|s| {
            for taken in &taken {
                let bucket = &bucket;
                s.spawn(move || {
                    while bucket.acquire(1000, &mut || end()) {
                        taken.fetch_add(1000, Relaxed);
                    }
                });
            }
        });
        let (taken, most) = (taken.map(AtomicU64::into_inner), began.elapsed().as_secs_f64() * 1e5 + 1000.0);
        assert!((taken.iter().sum::<u64>() as f64) <= most, "{taken:?}, at most {most}");
        let (least, most) = (taken.iter().min().unwrap(), taken.iter().max().unwrap());
        assert!(bucket.lock().waiting.is_empty());
        // On a busy machine a thread may miss some of its turns.
        if least * 2 >= *most { Ok(()) } else { Err(format!("{taken:?}")) }
    }

    #[test]
    fn a_new_bucket_permits_one_block_and_a_paused_one_little_more() {
        let bucket = bucket();
        assert!(
            bucket.acquire(1000, &mut || true) && !bucket.charge(1, Duration::ZERO),
            "the first block is paid for"
        );
        bucket.rewind(Duration::from_secs(10));
        let began = Instant::now();
        for _ in 0..6 {
            bucket.acquire(1000, &mut || true); // 10 ms each
        }
        assert!(began.elapsed() >= Duration::from_millis(25), "{:?}", began.elapsed());
    }

    #[test]
    fn messages_go_ahead_until_the_bucket_is_too_far_behind() {
        let bucket = bucket();
        assert!(bucket.acquire(5000, &mut || true));
        assert!(bucket.acquire_ahead(10_000, &mut || false), "50 ms behind");
        assert!(!bucket.acquire_ahead(1, &mut || false), "150 ms behind");
        bucket.refund(10_000);
        assert!(bucket.acquire_ahead(1, &mut || false));
    }

    #[test]
    fn a_waiting_thread_can_be_stopped_and_is_not_charged() {
        let bucket = bucket();
        assert!(bucket.acquire(10_000, &mut || true));
        let due = bucket.lock().due;
        let mut polls = 0;
        let stopped = bucket.acquire(1000, &mut || {
            polls += 1;
            polls < 2
        });
        assert!(!stopped && bucket.lock().due == due && bucket.lock().waiting.is_empty());
        assert!(bucket.grant(1000, 1000, &mut || false).is_none() && bucket.lock().due == due);
    }

    #[cfg(feature = "rpm")]
    #[test]
    fn a_task_waits_in_turn_and_loses_its_place_if_it_polls_no_more() {
        let bucket = bucket();
        assert!(bucket.acquire(2000, &mut || true)); // 20 ms
        let (mut first, mut second) = (None, None);
        let due = bucket.poll_acquire(1000, &mut first, Waker::noop()).unwrap_err();
        assert_eq!(due, bucket.lock().due);
        assert!(bucket.poll_acquire(1000, &mut second, Waker::noop()).is_err());
        bucket.rewind(Duration::from_secs(1));
        assert!(bucket.poll_acquire(1000, &mut second, Waker::noop()).is_err(), "it is the first one's turn");
        assert_eq!((bucket.poll_acquire(1000, &mut first, Waker::noop()), first), (Ok(()), None));
        // A thread does not wait for a task that has gone.
        bucket.rewind(Duration::from_secs(1));
        if let Some((_, Waiter::Task(_, polled))) = bucket.lock().waiting.front_mut() {
            *polled -= MAX_SILENCE * 2;
        }
        assert!(bucket.acquire(1000, &mut || true));
        bucket.leave(second);
        assert!(bucket.lock().waiting.is_empty());
    }

    #[test]
    fn a_grant_shrinks_with_the_number_of_waiting_threads() {
        let bucket = TokenBucket::new(Rate::from_bytes_per_sec(1_000_000));
        let quantum = || bucket.quantum(1 << 20, PACKET);
        assert_eq!(quantum(), 10_000);
        let wait = |threads| {
            let mut state = bucket.lock();
            let ticket = state.waiting.len() as u64;
            let waiter = || Waiter::Thread(std::thread::current());
            state.waiting.extend((ticket..threads).map(|n| (n, waiter())));
        };
        wait(3);
        assert_eq!(quantum(), 2500);
        wait(99);
        assert_eq!(quantum(), PACKET);
        wait(9_999);
        assert_eq!(quantum(), 100, "each transfers something every second");
    }

    #[test]
    fn what_is_refunded_is_available_to_the_first_waiting_thread() {
        let late = (0..10).map(|_| {
            let bucket = bucket();
            let large = bucket.grant(100_000, 100_000, &mut || true).unwrap();
            let polls = AtomicU64::new(0);
            std::thread::scope(|s| {
                let waiting = s.spawn(|| {
                    bucket.acquire(1, &mut || {
                        polls.fetch_add(1, Relaxed);
                        true
                    });
                    Instant::now()
                });
                // Right after a poll, the next one is 50 ms away.
                while polls.load(Relaxed) < 2 {
                    std::thread::yield_now();
                }
                std::thread::sleep(Duration::from_millis(1));
                let refunded = Instant::now();
                large.transferred(0);
                waiting.join().unwrap() - refunded
            })
        });
        let least = late.min().unwrap();
        assert!(least < POLL_INTERVAL / 2, "{least:?}");
    }
}
