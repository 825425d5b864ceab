//! The daily budget, shared by the threads of a node.

use super::stop::lock;
use crate::budget::{Budget, ReserveError};
use crate::clock::Moment;
use std::sync::Mutex;

/// Small messages draw from reservations of this size, because each reservation writes to disk.
const PREPAID_BYTES: u64 = 256 << 10;

/// The budget and its prepaid part.
#[derive(Debug)]
pub(super) struct Ledger {
    budget: Mutex<Budget>,
    prepaid: Mutex<u64>,
}

impl Ledger {
    pub fn new(budget: Budget) -> Ledger {
        Ledger { budget: Mutex::new(budget), prepaid: Mutex::new(0) }
    }

    /// Reserves bytes for a transfer; written to disk before the transfer starts.
    pub fn reserve(&self, bytes: u64, now: Moment) -> Result<(), ReserveError> {
        lock(&self.budget).reserve(bytes, now)
    }

    /// Releases bytes that were not sent.
    pub fn release(&self, bytes: u64) {
        lock(&self.budget).release(bytes);
    }

    /// Reserves bytes for a small message; `false` if the budget is exhausted.
    pub fn reserve_small(&self, bytes: u64, now: Moment) -> bool {
        let mut prepaid = lock(&self.prepaid);
        if *prepaid < bytes {
            let bytes_to_reserve = PREPAID_BYTES.max(bytes);
            if lock(&self.budget).reserve(bytes_to_reserve, now).is_err() {
                return false;
            }
            *prepaid += bytes_to_reserve;
        }
        *prepaid -= bytes;
        true
    }

    /// Bytes spent today, and the daily limit.
    pub fn spent(&self, now: Moment) -> (u64, u64) {
        let prepaid = *lock(&self.prepaid);
        let mut budget = lock(&self.budget);
        (budget.spent(now).saturating_sub(prepaid), budget.limit())
    }

    /// Releases the prepaid bytes.
    pub fn close(&self) {
        let mut budget = lock(&self.budget);
        budget.release(std::mem::take(&mut *lock(&self.prepaid)));
        // If the write fails the bytes count as spent, which is safe.
        let _ = budget.flush();
    }
}
