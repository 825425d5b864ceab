//! Counters written by one thread and read by others.

use super::allowance::excess;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
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
    left: AtomicU64,
    /// The limit, if more than it is an error and not the end of the test.
    limit: Option<u64>,
    /// Serialises receivers, so that none holds bytes that another one needs.
    receiving: Mutex<()>,
}

impl Budget {
    /// A budget of `bytes`.
    pub fn new(bytes: u64) -> Self {
        Budget { left: AtomicU64::new(bytes), limit: None, receiving: Mutex::default() }
    }

    /// A budget of `bytes` that a test must not exceed.
    pub fn limit(bytes: u64) -> Self {
        Budget { limit: Some(bytes), ..Budget::new(bytes) }
    }

    /// As [`limit`](Self::limit), for a sender that sends whole blocks only.
    pub fn limit_in_blocks(bytes: u64, block: u64) -> Self {
        Budget { limit: Some(bytes), ..Budget::new(bytes - bytes % block.max(1)) }
    }

    /// Reserves up to `want` bytes; 0 when exhausted.
    pub fn reserve(&self, want: u64) -> u64 {
        let before = self.left.fetch_update(Relaxed, Relaxed, |left| Some(left.saturating_sub(want)));
        before.unwrap_or_else(|left| left).min(want)
    }

    /// Whether the budget is exhausted.
    pub fn is_spent(&self) -> bool {
        self.left.load(Relaxed) == 0
    }

    /// Calls `receive` for up to `max` bytes, as far as they are left, and subtracts those that it
    /// returns.
    ///
    /// # Errors
    /// Those of `receive`, or that the budget is exhausted.
    pub(super) fn receive(
        &self,
        max: usize,
        receive: impl FnOnce(usize) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let _alone = self.receiving.lock().unwrap_or_else(PoisonError::into_inner);
        let left = self.left.load(Relaxed);
        if left == 0 {
            return Err(self.exceeded());
        }
        let n = receive(max.min(usize::try_from(left).unwrap_or(usize::MAX)))?;
        self.left.store(left.saturating_sub(n as u64), Relaxed);
        Ok(n)
    }

    pub(super) fn exceeded(&self) -> io::Error {
        excess(
            self.limit.map_or_else(
                || "more bytes than requested".to_owned(),
                |max| format!("more than {max} bytes"),
            ),
        )
    }

    /// The result of a sender that has used the budget.
    pub(super) fn end(&self) -> io::Result<()> {
        if self.limit.is_some() { Err(self.exceeded()) } else { Ok(()) }
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

    #[test]
    fn a_budget_is_spent_to_the_last_byte_and_not_beyond() {
        let budget = Budget::new(100);
        assert_eq!((budget.reserve(60), budget.reserve(60), budget.reserve(60)), (60, 40, 0));
        assert!(budget.end().is_ok());
        let limit = Budget::limit(100);
        let receive = |max, there| limit.receive(max, |max| Ok(there).map(|n: usize| n.min(max)));
        assert_eq!((receive(60, 30).unwrap(), receive(90, 90).unwrap()), (30, 70));
        assert!(receive(1, 1).unwrap_err().to_string() == "more than 100 bytes" && limit.end().is_err());
    }
}
