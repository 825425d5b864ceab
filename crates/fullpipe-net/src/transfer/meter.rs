//! Counters written by one thread and read by others.

use super::POLL_INTERVAL;
use super::allowance::excess;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The counters of one stream, from its beginning.
#[derive(Debug, Default)]
pub struct Meter {
    bytes: AtomicU64,
    packets: AtomicU64,
    lost: AtomicU64,
    out_of_order: AtomicU64,
    jitter_ns: AtomicU64,
}

impl Meter {
    /// Bytes written to or read from the socket.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Datagrams sent, or the highest number received.
    pub fn packets(&self) -> u64 {
        self.packets.load(Relaxed)
    }

    /// Lost datagrams.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// Datagrams out of order.
    pub fn out_of_order(&self) -> u64 {
        self.out_of_order.load(Relaxed)
    }

    /// Interarrival jitter in seconds (RFC 3550 section 6.4.1).
    pub fn jitter(&self) -> f64 {
        self.jitter_ns.load(Relaxed) as f64 / 1e9
    }

    pub(crate) fn add_bytes(&self, n: u64) {
        self.bytes.fetch_add(n, Relaxed);
    }

    pub(crate) fn set_packets(&self, packets: u64, lost: u64, out_of_order: u64, jitter: f64) {
        self.packets.store(packets, Relaxed);
        self.lost.store(lost, Relaxed);
        self.out_of_order.store(out_of_order, Relaxed);
        self.jitter_ns.store((jitter * 1e9) as u64, Relaxed);
    }
}

/// The bytes left to transfer in one direction of a test, shared by its streams.
#[derive(Debug)]
pub struct Budget {
    remaining: Mutex<Remaining>,
    /// Signals that reserved bytes were transferred or returned.
    settled: Condvar,
    /// The limit, if more than it is an error and not the end of the test.
    limit: Option<u64>,
    /// A stream may always reserve this many bytes.
    min_reservation: u64,
}

#[derive(Debug)]
struct Remaining {
    /// Bytes that are neither transferred nor reserved.
    left: u64,
    /// Bytes that streams are transferring.
    reserved: u64,
}

/// A stream reserves at most this fraction of what is left, so that one which cannot transfer its
/// bytes does not hold all of those that the others need.
const MAX_SHARE: u64 = 16;
/// A stream may always reserve this many bytes, or a block if it sends whole ones.
const MIN_RESERVATION: u64 = 64 * 1024;

/// Bytes of a budget that a stream is transferring; those that it does not transfer are returned.
#[derive(Debug)]
pub(super) struct Reservation<'a> {
    budget: &'a Budget,
    bytes: u64,
    transferred: u64,
}

impl Reservation<'_> {
    /// The bytes that may be transferred.
    pub fn bytes(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or(usize::MAX)
    }

    /// Keeps `bytes` of the reservation, and returns the others.
    pub fn transferred(mut self, bytes: usize) {
        self.transferred = self.bytes.min(bytes as u64);
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let mut remaining = self.budget.lock();
        remaining.reserved -= self.bytes;
        remaining.left += self.bytes - self.transferred;
        self.budget.settled.notify_all();
    }
}

impl Budget {
    /// A budget of `bytes`.
    pub fn new(bytes: u64) -> Self {
        let remaining = Mutex::new(Remaining { left: bytes, reserved: 0 });
        Budget { remaining, settled: Condvar::new(), limit: None, min_reservation: MIN_RESERVATION }
    }

    /// With reservations of a whole block.
    pub fn in_blocks(mut self, block: u64) -> Self {
        self.min_reservation = self.min_reservation.max(block);
        self
    }

    /// A budget of `bytes` that a test must not exceed.
    pub fn limit(bytes: u64) -> Self {
        Budget { limit: Some(bytes), ..Budget::new(bytes) }
    }

    /// As [`limit`](Self::limit), for a sender that sends whole blocks only.
    pub fn limit_in_blocks(bytes: u64, block: u64) -> Self {
        Budget { limit: Some(bytes), ..Budget::new(bytes - bytes % block.max(1)) }
    }

    fn lock(&self) -> MutexGuard<'_, Remaining> {
        self.remaining.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all bytes are transferred or being transferred.
    pub fn is_spent(&self) -> bool {
        self.lock().left == 0
    }

    /// Reserves up to `max` bytes. Waits while there are none, but other streams may return some;
    /// `None` if stopped, or if all are transferred.
    ///
    /// # Errors
    /// If all are transferred and the budget is a limit.
    pub(super) fn reserve(&self, max: usize, stop: &AtomicBool) -> io::Result<Option<Reservation<'_>>> {
        let max = max as u64;
        self.reserve_part(stop, |left| max.min((left / MAX_SHARE).max(self.min_reservation)))
    }

    /// As [`reserve`](Self::reserve), for a datagram, the last of which may be longer than what is
    /// left.
    pub(super) fn reserve_datagram(
        &self,
        bytes: usize,
        stop: &AtomicBool,
    ) -> io::Result<Option<Reservation<'_>>> {
        self.reserve_part(stop, |_| bytes as u64)
    }

    fn reserve_part(
        &self,
        stop: &AtomicBool,
        part: impl FnOnce(u64) -> u64,
    ) -> io::Result<Option<Reservation<'_>>> {
        let mut remaining = self.lock();
        while remaining.left == 0 {
            if stop.load(Relaxed) {
                return Ok(None);
            }
            if remaining.reserved == 0 {
                return if self.limit.is_some() { Err(self.exceeded()) } else { Ok(None) };
            }
            let waited = self.settled.wait_timeout(remaining, POLL_INTERVAL);
            remaining = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let bytes = part(remaining.left).min(remaining.left);
        remaining.left -= bytes;
        remaining.reserved += bytes;
        Ok(Some(Reservation { budget: self, bytes, transferred: 0 }))
    }

    /// Subtracts bytes that have arrived.
    ///
    /// # Errors
    /// If there were fewer left.
    pub(crate) fn charge(&self, bytes: usize) -> io::Result<()> {
        let mut remaining = self.lock();
        let left = remaining.left.checked_sub(bytes as u64);
        remaining.left = left.unwrap_or(0);
        left.map(|_| ()).ok_or_else(|| self.exceeded())
    }

    fn exceeded(&self) -> io::Error {
        excess(
            self.limit.map_or_else(
                || "more bytes than requested".to_owned(),
                |max| format!("more than {max} bytes"),
            ),
        )
    }
}

/// CPU use of this process since the clock was started, in percent of one core.
#[derive(Debug)]
pub struct CpuClock {
    started: Instant,
    user: f64,
    system: f64,
}

impl CpuClock {
    /// Starts the clock.
    pub fn start() -> Self {
        let (user, system) = used();
        CpuClock { started: Instant::now(), user, system }
    }

    /// Total, user and system time in percent of elapsed time.
    pub fn percent(&self) -> [f64; 3] {
        let (user, system) = used();
        let scale = 100.0 / self.started.elapsed().as_secs_f64().max(1e-9);
        let (user, system) = ((user - self.user) * scale, (system - self.system) * scale);
        [user + system, user, system]
    }
}

/// Seconds of user and system time used by this process.
fn used() -> (f64, f64) {
    use nix::sys::resource::{UsageWho, getrusage};
    let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6;
    getrusage(UsageWho::RUSAGE_SELF)
        .map_or((0.0, 0.0), |u| (seconds(u.user_time()), seconds(u.system_time())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_budget_is_spent_to_the_last_byte_and_not_beyond() {
        let go = AtomicBool::new(false);
        for budget in [Budget::new(100), Budget::limit(100)] {
            let transfer = |max, there: usize| {
                let reserved = budget.reserve(max, &go)?;
                Ok::<_, io::Error>(reserved.map(|reserved| {
                    let bytes = there.min(reserved.bytes());
                    reserved.transferred(bytes);
                    bytes
                }))
            };
            assert_eq!((transfer(60, 30).unwrap(), transfer(90, 90).unwrap()), (Some(30), Some(70)));
            assert!(budget.is_spent());
            match transfer(1, 1) {
                Ok(none) => assert!(none.is_none() && budget.limit.is_none()),
                Err(e) => assert_eq!(e.to_string(), "more than 100 bytes"),
            }
        }
    }

    #[test]
    fn bytes_that_are_reserved_and_not_transferred_are_left_to_others() {
        let (budget, go) = (Budget::limit(1000), AtomicBool::new(false));
        let held = budget.reserve(1000, &go).unwrap().unwrap();
        assert_eq!(held.bytes(), 1000);
        // Nothing is transferred yet, so a stream that finds nothing left must not end the test.
        let stopped = AtomicBool::new(true);
        assert!(budget.reserve(1, &stopped).unwrap().is_none());
        std::thread::scope(|s| {
            let other = s.spawn(|| budget.reserve(1000, &go).unwrap().unwrap().bytes());
            std::thread::sleep(Duration::from_millis(20));
            held.transferred(400);
            assert_eq!(other.join().unwrap(), 600);
        });
        budget.reserve(1000, &go).unwrap().unwrap().transferred(600);
        assert!(budget.reserve(1, &go).is_err());
    }

    #[test]
    fn a_budget_in_blocks_reserves_whole_ones() {
        const BLOCK: usize = 128 * 1024;
        let (budget, stop) = (Budget::new(20 * BLOCK as u64).in_blocks(BLOCK as u64), AtomicBool::new(false));
        for _ in 0..20 {
            let reservation = budget.reserve(BLOCK, &stop).unwrap().unwrap();
            assert_eq!(reservation.bytes(), BLOCK);
            reservation.transferred(BLOCK);
        }
        assert!(budget.is_spent());
    }

    #[test]
    fn a_stream_does_not_reserve_all_that_is_left() {
        let (budget, go) = (Budget::limit(64 << 20), AtomicBool::new(false));
        let held: Vec<_> = (0..8).map(|_| budget.reserve(usize::MAX, &go).unwrap().unwrap()).collect();
        assert!(held.iter().all(|reserved| reserved.bytes() >= 2 << 20) && !budget.is_spent());
    }
}
