//! What one direction of a stream may transfer.

use super::{Budget, Lane};
use crate::control::readable;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Interval at which a stream that waits for data checks whether it is stopped.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// A datagram cannot be delayed by its receiver: a sender that is ahead of its rate by more than
/// this, for queues on the path, has exceeded it.
const MAX_DATAGRAMS_AHEAD: Duration = Duration::from_secs(1);
/// Datagrams count for this fraction less, because the clocks of the two ends differ.
const CLOCK_TOLERANCE: usize = 100;

/// The rate of an address and the bytes of a test; the default permits everything.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allowance<'a> {
    pub lane: Option<&'a Lane>,
    pub budget: Option<&'a Budget>,
}

impl Allowance<'_> {
    pub fn is_unlimited(&self) -> bool {
        self.lane.is_none() && self.budget.is_none()
    }

    /// The number of `bytes` that may be sent now; 0 if stopped.
    pub fn send(&self, bytes: usize, min: usize, stop: &AtomicBool) -> usize {
        let Some(lane) = self.lane else { return bytes };
        let n = lane.quantum(bytes, min);
        if lane.acquire(n, &mut || !stop.load(Relaxed)) { n } else { 0 }
    }

    /// Waits for data, and then until up to `max` bytes may be received; `receive` gets their
    /// number and returns how many there were. `Ok(None)` if stopped.
    ///
    /// # Errors
    /// Those of `receive`, or that there is more data than the budget.
    pub fn receive(
        &self,
        socket: &impl AsFd,
        max: usize,
        stop: &AtomicBool,
        receive: impl FnOnce(usize) -> io::Result<usize>,
    ) -> io::Result<Option<usize>> {
        while !readable(socket, POLL_INTERVAL)? {
            if stop.load(Relaxed) {
                return Ok(None);
            }
        }
        let max = self.lane.map_or(max, |lane| lane.quantum(max, 16 * 1024));
        if let Some(lane) = self.lane
            && !lane.acquire(max, &mut || !stop.load(Relaxed))
        {
            return Ok(None);
        }
        let received = match self.budget {
            None => receive(max),
            Some(budget) => budget.receive(max, receive),
        };
        if let Some(lane) = self.lane {
            lane.refund(max - received.as_ref().map_or(0, |n| *n.min(&max)));
        }
        received.map(Some)
    }

    /// Accounts for a datagram that has arrived.
    ///
    /// # Errors
    /// If the sender exceeds its rate or budget.
    pub fn arrived(&self, bytes: usize) -> io::Result<()> {
        if let Some(lane) = self.lane
            && !lane.charge(bytes - bytes / CLOCK_TOLERANCE, MAX_DATAGRAMS_AHEAD)
        {
            return Err(excess(format!("the client sends more than {}", lane.rate())));
        }
        self.budget.map_or(Ok(()), |budget| {
            budget.receive(bytes, Ok).and_then(|n| if n < bytes { Err(budget.exceeded()) } else { Ok(()) })
        })
    }
}

/// The error for a peer that exceeds its allowance.
pub(super) fn excess(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::QuotaExceeded, what)
}

/// Whether a stream ended because its allowance was exceeded.
pub(crate) fn is_excess(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::QuotaExceeded && error.raw_os_error().is_none()
}
