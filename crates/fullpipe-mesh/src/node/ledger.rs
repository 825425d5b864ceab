//! The daily budget, shared by the threads of a node and divided between its peers.
//!
//! Each peer is guaranteed its part of two thirds of the budget, which is the plan where the mesh
//! file has no `budget`. What a peer causes is charged to it, and one that has spent its part can
//! only use what is guaranteed to no other peer. So neither a member nor a stranger can spend what
//! the transfers of other members need.

use super::stop::lock;
use crate::budget::{Budget, ReserveError};
use crate::clock::Moment;
use crate::record::SiteId;
use std::sync::Mutex;

/// Small messages draw from reservations of this size, because each reservation writes to disk.
const PREPAID_BYTES: u64 = 256 << 10;

/// The budget, its prepaid part, and what each peer has spent of it.
#[derive(Debug)]
pub(super) struct Ledger(Mutex<Account>);

#[derive(Debug)]
struct Account {
    budget: Budget,
    /// Reserved in the budget and not spent.
    prepaid: u64,
    day: i64,
    /// Bytes guaranteed to each peer on this day.
    guaranteed: u64,
    /// Bytes that each peer caused on this day, as far as this node has run.
    by_peer: Vec<u64>,
}

impl Ledger {
    /// The ledger of a site in a mesh of `sites`.
    pub fn new(budget: Budget, sites: usize, now: Moment) -> Ledger {
        let mut account = Account { budget, prepaid: 0, day: 0, guaranteed: 0, by_peer: vec![0; sites] };
        account.start_day(now);
        Ledger(Mutex::new(account))
    }

    /// Reserves bytes for a transfer with a peer; written to disk before the transfer starts.
    pub fn reserve(&self, peer: SiteId, bytes: u64, now: Moment) -> Result<(), ReserveError> {
        let mut account = lock(&self.0);
        account.roll_over(now);
        if !account.is_available(Some(peer), bytes, now) {
            return Err(ReserveError::Exhausted);
        }
        account.budget.reserve(bytes, now)?;
        account.charge(peer, bytes);
        Ok(())
    }

    /// Releases bytes of a transfer that were not sent.
    pub fn release(&self, peer: SiteId, bytes: u64) {
        let mut account = lock(&self.0);
        account.budget.release(bytes);
        if let Some(spent) = account.by_peer.get_mut(usize::from(peer)) {
            *spent = spent.saturating_sub(bytes);
        }
    }

    /// Charges what a transfer took beyond its reservation, as far as the budget goes.
    pub fn overdraw(&self, peer: SiteId, bytes: u64, now: Moment) {
        let mut account = lock(&self.0);
        account.roll_over(now);
        account.charge(peer, bytes);
        let left = account.budget.limit().saturating_sub(account.budget.spent(now));
        // If the write fails, the next reservation reports it.
        let _ = account.budget.reserve(bytes.min(left), now);
    }

    /// Reserves bytes for a small message of or to a peer, or for a stranger; `false` if the budget
    /// is exhausted.
    pub fn reserve_small(&self, peer: Option<SiteId>, bytes: u64, now: Moment) -> bool {
        let mut account = lock(&self.0);
        account.roll_over(now);
        if !account.is_available(peer, bytes, now) {
            return false;
        }
        if account.prepaid < bytes {
            let missing = bytes - account.prepaid;
            // The whole piece, or what is missing where the budget ends.
            let reserved = [PREPAID_BYTES.max(missing), missing]
                .into_iter()
                .find(|bytes| account.budget.reserve(*bytes, now).is_ok());
            let Some(reserved) = reserved else { return false };
            account.prepaid += reserved;
        }
        account.prepaid -= bytes;
        if let Some(peer) = peer {
            account.charge(peer, bytes);
        }
        true
    }

    /// Charges a peer with bytes that were reserved before it was known.
    pub fn attribute(&self, peer: SiteId, bytes: u64, now: Moment) {
        let mut account = lock(&self.0);
        account.roll_over(now);
        account.charge(peer, bytes);
    }

    /// Bytes spent today, and the daily limit.
    pub fn spent(&self, now: Moment) -> (u64, u64) {
        let mut account = lock(&self.0);
        account.roll_over(now);
        (account.spent(now), account.budget.limit())
    }

    /// Releases the prepaid bytes.
    pub fn close(&self) {
        let mut account = lock(&self.0);
        let prepaid = std::mem::take(&mut account.prepaid);
        account.budget.release(prepaid);
        // If the write fails the bytes count as spent, which is safe.
        let _ = account.budget.flush();
    }
}

impl Account {
    fn roll_over(&mut self, now: Moment) {
        if self.budget.day(now) != self.day {
            self.start_day(now);
        }
    }

    /// Divides what is left of the day: all of it, except after a restart.
    fn start_day(&mut self, now: Moment) {
        self.day = self.budget.day(now);
        // Reserved on the day before.
        self.prepaid = 0;
        self.by_peer.fill(0);
        let left = self.budget.limit().saturating_sub(self.budget.spent(now));
        let peers = self.by_peer.len().saturating_sub(1).max(1) as u64;
        self.guaranteed = left / 3 * 2 / peers;
    }

    fn spent(&mut self, now: Moment) -> u64 {
        self.budget.spent(now).saturating_sub(self.prepaid)
    }

    /// Whether a peer or a stranger can spend `bytes` and leave others what they are guaranteed.
    fn is_available(&mut self, peer: Option<SiteId>, bytes: u64, now: Moment) -> bool {
        let others = self.by_peer.iter().enumerate().filter(|(id, _)| peer.map(usize::from) != Some(*id));
        let reserved: u64 = others.map(|(_, spent)| self.guaranteed.saturating_sub(*spent)).sum();
        // One of the sites is this one, not a peer.
        let reserved = reserved.saturating_sub(self.guaranteed);
        self.spent(now).saturating_add(bytes).saturating_add(reserved) <= self.budget.limit()
    }

    fn charge(&mut self, peer: SiteId, bytes: u64) {
        if let Some(spent) = self.by_peer.get_mut(usize::from(peer)) {
            *spent = spent.saturating_add(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const NOON_MS: i64 = 1_767_268_800_000;

    fn at(hours: u64) -> Moment {
        let steady = Duration::from_secs(hours * 3600);
        Moment { wall_ms: NOON_MS + steady.as_millis() as i64, steady }
    }

    /// Of site 0 with three peers and 90 MB: 20 MB are guaranteed to each.
    fn ledger(directory: &std::path::Path, now: Moment) -> Ledger {
        Ledger::new(Budget::open(directory, 90_000_000, now).unwrap(), 4, now)
    }

    /// Megabytes that a peer or a stranger can spend in small messages.
    fn drain(ledger: &Ledger, peer: Option<SiteId>, now: Moment) -> usize {
        (0..200).take_while(|_| ledger.reserve_small(peer, 1_000_000, now)).count()
    }

    #[test]
    fn no_peer_can_spend_what_others_are_guaranteed() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = ledger(directory.path(), at(0));
        assert_eq!(drain(&ledger, Some(1), at(0)), 50);
        assert_eq!(drain(&ledger, None, at(0)), 0, "strangers");
        // Bytes that are released are available again.
        ledger.reserve(2, 15_000_000, at(0)).unwrap();
        assert!(ledger.reserve(2, 15_000_000, at(0)).is_err());
        ledger.release(2, 10_000_000);
        ledger.reserve(2, 15_000_000, at(0)).unwrap();
        assert_eq!(drain(&ledger, Some(3), at(0)), 20);
        let (spent, limit) = ledger.spent(at(0));
        assert!(spent == limit, "{spent} of {limit}");
        // What a transfer took beyond its reservation is charged, also beyond the limit.
        ledger.release(3, 10_000_000);
        ledger.overdraw(3, 7_000_000, at(0));
        assert_eq!(ledger.spent(at(0)).0, limit - 3_000_000);
        ledger.overdraw(3, 7_000_000, at(0));
        assert!(ledger.reserve(3, 1, at(0)).is_err() && ledger.spent(at(0)).0 == limit);
        // The next day starts without debts.
        assert_eq!((drain(&ledger, Some(1), at(13)), drain(&ledger, Some(3), at(13))), (50, 20));
    }

    #[test]
    fn strangers_spend_what_no_peer_is_guaranteed() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = ledger(directory.path(), at(0));
        assert_eq!(drain(&ledger, None, at(0)), 30);
        // A stranger that turns out to be a peer is charged as one.
        ledger.attribute(2, 5_000_000, at(0));
        assert_eq!(drain(&ledger, None, at(0)), 5);
        for (peer, rest) in [(1, 20), (2, 15), (3, 20)] {
            assert_eq!(drain(&ledger, Some(peer), at(0)), rest, "{peer}");
        }
    }

    #[test]
    fn what_is_left_after_a_restart_is_divided_again() {
        let directory = tempfile::tempdir().unwrap();
        let before = ledger(directory.path(), at(0));
        assert_eq!(drain(&before, Some(1), at(0)), 50);
        drop(before);
        // 40 MB are left, except for a piece of small messages.
        let ledger = ledger(directory.path(), at(0));
        assert_eq!(drain(&ledger, Some(1), at(0)), 22);
        assert!(drain(&ledger, Some(2), at(0)) >= 8 && drain(&ledger, Some(3), at(0)) >= 8);
    }
}
