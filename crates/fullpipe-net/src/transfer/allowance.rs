//! What one direction of a stream may transfer.

use super::meter::Reservation;
use super::token_bucket::{Grant, PACKET, TokenBucket};
use super::{Budget, POLL_INTERVAL};
use crate::control::readable;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Least bytes to receive at a time: fewer would cost more system calls, and more would delay the
/// other streams of a slow address.
pub(crate) const MIN_RECEIVED: usize = 4 * PACKET;
/// A datagram cannot be delayed by its receiver: a sender that is ahead of its rate by more than
/// this, for queues on the path, has exceeded it.
const MAX_DATAGRAMS_AHEAD: Duration = Duration::from_secs(1);
/// After a stall of either end or of the path, the datagrams of this time may arrive at once.
const MAX_DATAGRAMS_CREDIT: Duration = Duration::from_secs(5);
/// Datagrams count for this fraction less, because the clocks of the two ends differ.
const CLOCK_TOLERANCE: usize = 100;

/// The rate of an address and the bytes of a test; the default permits everything.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allowance<'a> {
    pub bucket: Option<&'a TokenBucket>,
    pub budget: Option<&'a Budget>,
}

/// Bytes that may be transferred; those that are not are returned.
#[derive(Debug)]
pub(crate) struct Portion<'a> {
    grant: Grant<'a>,
    reservation: Option<Reservation<'a>>,
}

impl Portion<'_> {
    /// The bytes that may be transferred.
    pub fn bytes(&self) -> usize {
        self.reservation.as_ref().map_or(self.grant.bytes(), Reservation::bytes)
    }

    /// Keeps `bytes`, and returns the others.
    pub fn transferred(self, bytes: usize) {
        self.grant.transferred(bytes);
        if let Some(reservation) = self.reservation {
            reservation.transferred(bytes);
        }
    }
}

impl<'a> Allowance<'a> {
    pub fn is_unlimited(&self) -> bool {
        self.bucket.is_none() && self.budget.is_none()
    }

    /// Waits until a part of `max` bytes may be transferred, at least `min` of them if the rate and
    /// the budget permit; `None` if stopped, or if the budget is used up and not a limit.
    ///
    /// # Errors
    /// If the budget is used up and a limit.
    pub fn portion(&self, max: usize, min: usize, stop: &AtomicBool) -> io::Result<Option<Portion<'a>>> {
        let grant = match self.bucket {
            None => Some(Grant::unlimited(max)),
            Some(bucket) => bucket.grant(max, min, &mut || !stop.load(Relaxed)),
        };
        let Some(grant) = grant else { return Ok(None) };
        let Some(budget) = self.budget else { return Ok(Some(Portion { grant, reservation: None })) };
        let reservation = budget.reserve(grant.bytes(), stop)?;
        Ok(reservation.map(|reservation| Portion { grant, reservation: Some(reservation) }))
    }

    /// Waits for data, and then as [`portion`](Self::portion).
    ///
    /// # Errors
    /// If polling fails, or if the budget is used up and a limit.
    pub fn portion_to_receive(
        &self,
        socket: &impl AsFd,
        max: usize,
        stop: &AtomicBool,
    ) -> io::Result<Option<Portion<'a>>> {
        while !readable(socket, POLL_INTERVAL)? {
            if stop.load(Relaxed) {
                return Ok(None);
            }
        }
        self.portion(max, MIN_RECEIVED, stop)
    }

    /// Accounts for a datagram that has arrived.
    ///
    /// # Errors
    /// If the sender exceeds its rate or budget.
    pub fn arrived(&self, bytes: usize) -> io::Result<()> {
        if let Some(bucket) = self.bucket {
            let charged = bytes - bytes / CLOCK_TOLERANCE;
            if !bucket.charge_with_credit(charged, MAX_DATAGRAMS_AHEAD, MAX_DATAGRAMS_CREDIT) {
                return Err(excess(format!("the client sends more than {}", bucket.rate())));
            }
        }
        self.budget.map_or(Ok(()), |budget| budget.charge(bytes))
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

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::Rate;

    /// The datagrams of a number of seconds at the rate, all at once.
    fn burst(bucket: &TokenBucket, seconds: usize) -> io::Result<()> {
        let allowance = Allowance { bucket: Some(bucket), budget: None };
        (0..seconds * 100).try_for_each(|_| allowance.arrived(1000))
    }

    #[test]
    fn datagrams_of_a_stall_arrive_at_once_and_those_of_a_long_pause_do_not() {
        let rate = Rate::from_bytes_per_sec(100_000);
        let after = |pause| {
            let bucket = TokenBucket::new(rate);
            bucket.rewind(Duration::from_secs(pause));
            bucket
        };
        assert!(burst(&after(4), 4).is_ok());
        assert!(burst(&after(0), 3).is_err(), "ahead of the rate");
        assert!(burst(&after(60), 8).is_err(), "credit is limited");
    }
}
