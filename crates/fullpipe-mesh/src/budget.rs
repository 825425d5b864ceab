//! The bytes of a day, which are never gone beyond.
//!
//! What is about to be moved is written into a small file before it moves, and what did not move is given back after: whatever ends
//! the node, the file says at least what went out. The file has its whole length from the start and is written over in place, by
//! turns in two halves, so that it needs no room on a full disk and survives an end in the middle of a write.
//!
//! A day is one of UTC when the node starts, and then lasts 24 hours by a clock that cannot be set: whoever sets the wall clock
//! back and forth does not get the bytes of many days.

use crate::clock::Moment;
use crate::key::digest;
use crate::wire::{Reader, Writer};
use nix::fcntl::{Flock, FlockArg};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

const DAY_MS: i64 = 86_400_000;
/// Bytes of a half: number, day, bytes spent, and the beginning of their hash.
const HALF: usize = 32;
/// Days that an account may lie in the future after the wall clock was set back.
const DAYS_AHEAD: i64 = 1;

/// The account of a site's bytes.
#[derive(Debug)]
pub struct Budget {
    file: Flock<File>,
    limit: u64,
    number: u64,
    day: i64,
    spent: u64,
    /// When the day ends, by the clock that cannot be set.
    ends: Duration,
}

/// Why the account cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum BudgetError {
    /// Another node has it.
    #[error("another node runs with this store")]
    InUse,
    /// The file.
    #[error("the budget's file: {0}")]
    File(#[from] io::Error),
}

/// Why bytes may not be moved.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// They would cross the day's budget.
    #[error("the budget of the day is spent")]
    Spent,
    /// It could not be written down that they move.
    #[error("the budget's file: {0}")]
    File(#[from] io::Error),
}

impl Budget {
    /// Opens the account in `directory`, of at most `limit` bytes a day.
    ///
    /// # Errors
    /// When another process has it open, or the file cannot be read or made.
    pub fn open(directory: &Path, limit: u64, now: Moment) -> Result<Budget, BudgetError> {
        let path = directory.join("budget");
        let file =
            File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let file = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, e)| match e {
            nix::errno::Errno::EWOULDBLOCK => BudgetError::InUse,
            e => BudgetError::File(e.into()),
        })?;
        let mut halves = [0; 2 * HALF];
        let mut read = 0;
        while read < halves.len() {
            match file.read_at(&mut halves[read..], read as u64)? {
                0 => break,
                n => read += n,
            }
        }
        let today = now.wall_ms.div_euclid(DAY_MS);
        let last = halves.chunks_exact(HALF).filter_map(account).max_by_key(|a| a.0);
        let mut budget =
            Budget { file, limit, number: 0, day: today, spent: 0, ends: now.steady + rest_of_day(now) };
        if let Some((number, day, spent)) = last {
            budget.number = number;
            // An account of days to come is one before the clock was set back: what it says is spent. That it is of tomorrow is
            // kept, so that setting the clock back and forth gives no second day; one of years to come is not, for it would stay.
            if day >= today {
                budget.spent = spent;
                if day <= today + DAYS_AHEAD {
                    budget.day = day;
                }
            }
        }
        // Both halves, so that the file has its length.
        budget.write()?;
        budget.write()?;
        Ok(budget)
    }

    /// Writes down that `bytes` are going to be moved.
    ///
    /// # Errors
    /// When they would cross the budget, or cannot be written down: then they must not be moved.
    pub fn take(&mut self, bytes: u64, now: Moment) -> Result<(), Refused> {
        self.turn(now);
        let after = self.spent.saturating_add(bytes);
        if after > self.limit {
            return Err(Refused::Spent);
        }
        let before = std::mem::replace(&mut self.spent, after);
        self.write().inspect_err(|_| self.spent = before)?;
        Ok(())
    }

    /// Of what was taken, `bytes` were not moved. It is written down with what is taken next.
    pub fn give_back(&mut self, bytes: u64) {
        self.spent = self.spent.saturating_sub(bytes);
    }

    /// Bytes of this day, taken and not given back.
    pub fn spent(&mut self, now: Moment) -> u64 {
        self.turn(now);
        self.spent
    }

    /// Bytes that there may be in a day.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Writes down what was given back.
    ///
    /// # Errors
    /// The file's.
    pub fn settle(&mut self) -> io::Result<()> {
        self.write()
    }

    fn turn(&mut self, now: Moment) {
        if now.steady < self.ends {
            return;
        }
        self.ends = now.steady + rest_of_day(now);
        self.day = now.wall_ms.div_euclid(DAY_MS).max(self.day + 1);
        self.spent = 0;
    }

    fn write(&mut self) -> io::Result<()> {
        self.number += 1;
        let mut half = Writer::default();
        half.u64(self.number).i64(self.day).u64(self.spent);
        let hash = digest(&half.0);
        half.bytes(&hash[..HALF - half.0.len()]);
        self.file.write_all_at(&half.0, self.number % 2 * HALF as u64)?;
        self.file.sync_data()
    }
}

fn account(half: &[u8]) -> Option<(u64, i64, u64)> {
    let mut reader = Reader(half);
    let account = (reader.u64().ok()?, reader.i64().ok()?, reader.u64().ok()?);
    let whole = half.len() - reader.0.len();
    (digest(&half[..whole])[..reader.0.len()] == *reader.0).then_some(account)
}

fn rest_of_day(now: Moment) -> Duration {
    Duration::from_millis((DAY_MS - now.wall_ms.rem_euclid(DAY_MS)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(days: f64, steady_hours: f64) -> Moment {
        let wall_ms = (days * DAY_MS as f64) as i64;
        Moment { wall_ms, steady: Duration::from_secs_f64(steady_hours * 3600.0) }
    }

    #[test]
    fn what_was_taken_stays_taken_however_the_node_ends() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Budget::open(directory.path(), 1000, at(20_000.5, 0.0)).unwrap();
        let mut budget = open();
        budget.take(600, at(20_000.5, 0.0)).unwrap();
        assert!(matches!(Budget::open(directory.path(), 1000, at(20_000.5, 0.0)), Err(BudgetError::InUse)));
        drop(budget);
        let mut budget = open();
        assert!(matches!(budget.take(401, at(20_000.5, 0.1)), Err(Refused::Spent)));
        budget.take(400, at(20_000.5, 0.1)).unwrap();
        budget.give_back(250);
        budget.settle().unwrap();
        drop(budget);
        // A write that was cut off: the half before it stands, which does not know of what was given back.
        let path = directory.path().join("budget");
        let mut bytes = std::fs::read(&path).unwrap();
        let newest = open().number;
        let half = (newest % 2) as usize * HALF;
        bytes[half + 20] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(open().spent(at(20_000.5, 0.2)), 1000);
    }

    #[test]
    fn a_day_lasts_a_day_whatever_the_wall_clock_is_set_to() {
        let directory = tempfile::tempdir().unwrap();
        let mut budget = Budget::open(directory.path(), 1000, at(20_000.5, 0.0)).unwrap();
        budget.take(1000, at(20_000.5, 0.0)).unwrap();
        for wall in [20_001.5, 25_000.0, 19_000.0, 0.0] {
            assert!(matches!(budget.take(1, at(wall, 11.9)), Err(Refused::Spent)), "{wall}");
        }
        // Midnight by the day that it began with, twelve hours later.
        budget.take(1000, at(20_001.0, 12.0)).unwrap();
        assert!(budget.take(1, at(20_001.9, 35.9)).is_err());
        budget.take(1, at(20_002.0, 36.0)).unwrap();
        drop(budget);
        // Set back by half a day and started again: yesterday's evening is still the same account.
        let mut budget = Budget::open(directory.path(), 1000, at(20_001.6, 0.0)).unwrap();
        assert_eq!(budget.spent(at(20_001.6, 0.0)), 1);
        drop(budget);
        // A clock that was years ahead and has been put right: what was spent then is spent.
        let mut ahead = Budget::open(directory.path(), 1000, at(40_000.5, 0.0)).unwrap();
        ahead.take(900, at(40_000.5, 0.0)).unwrap();
        drop(ahead);
        let mut budget = Budget::open(directory.path(), 1000, at(20_002.5, 0.0)).unwrap();
        assert_eq!(budget.spent(at(20_002.5, 0.0)), 900);
        // And the next day is another.
        assert_eq!(budget.spent(at(20_003.0, 12.0)), 0);
    }
}
