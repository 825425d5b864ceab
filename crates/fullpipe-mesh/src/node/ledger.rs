//! The day's bytes among the threads of a node.

use super::stop::lock;
use crate::budget::{Budget, Refused};
use crate::clock::Moment;
use std::sync::Mutex;

/// Small messages are paid out of pieces of this size: an account of each would be a write to the disk for each.
const PIECE: u64 = 256 << 10;

/// The account, and the change in the pocket.
#[derive(Debug)]
pub(super) struct Ledger {
    budget: Mutex<Budget>,
    pocket: Mutex<u64>,
}

impl Ledger {
    pub fn new(budget: Budget) -> Ledger {
        Ledger { budget: Mutex::new(budget), pocket: Mutex::new(0) }
    }

    /// For a transfer: written down before it moves.
    pub fn take(&self, bytes: u64, now: Moment) -> Result<(), Refused> {
        lock(&self.budget).take(bytes, now)
    }

    /// What of it was not moved.
    pub fn give_back(&self, bytes: u64) {
        lock(&self.budget).give_back(bytes);
    }

    /// For a small message; whether it may be sent.
    pub fn small(&self, bytes: u64, now: Moment) -> bool {
        let mut pocket = lock(&self.pocket);
        if *pocket < bytes {
            let piece = PIECE.max(bytes);
            if lock(&self.budget).take(piece, now).is_err() {
                return false;
            }
            *pocket += piece;
        }
        *pocket -= bytes;
        true
    }

    /// Bytes of this day, and how many there may be.
    pub fn spent(&self, now: Moment) -> (u64, u64) {
        let pocket = *lock(&self.pocket);
        let mut budget = lock(&self.budget);
        (budget.spent(now).saturating_sub(pocket), budget.limit())
    }

    /// Gives the change back.
    pub fn close(&self) {
        let mut budget = lock(&self.budget);
        budget.give_back(std::mem::take(&mut *lock(&self.pocket)));
        // What cannot be written counts as spent, which is on the safe side.
        let _ = budget.settle();
    }
}
