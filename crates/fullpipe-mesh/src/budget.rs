//! The daily byte budget of a node.
//!
//! Bytes are reserved in a small file before they are sent, and unused bytes are released
//! afterwards: after a crash the file shows at least what was sent. The file has its full length
//! from the start and is overwritten in place, alternating between two slots, so it needs no space
//! on a full disk and survives an interrupted write.
//!
//! When the node starts, the day ends at midnight UTC; after that, each day lasts 24 hours on the
//! monotonic clock. Setting the wall clock back and forth does not renew the budget.

use crate::clock::Moment;
use crate::key::digest;
use crate::wire::{Reader, Writer};
use nix::fcntl::{Flock, FlockArg, OFlag};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

const DAY_MS: i64 = 86_400_000;
/// Bytes of a slot: sequence number, day, bytes spent, and a truncated hash.
const SLOT_LEN: usize = 32;
/// Days by which a stored record may lie in the future, after the wall clock was set back.
const MAX_DAYS_AHEAD: i64 = 1;

/// The byte budget of a site.
#[derive(Debug)]
pub struct Budget {
    file: Flock<File>,
    limit: u64,
    number: u64,
    day: i64,
    spent: u64,
    /// When the day ends, on the monotonic clock.
    ends: Duration,
}

/// Why the budget file cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum BudgetError {
    /// Another node has it open.
    #[error("another node uses this store")]
    InUse,
    /// Reading, writing or locking the file failed.
    #[error("cannot access the budget file: {0}")]
    File(#[from] io::Error),
}

/// Why bytes cannot be reserved.
#[derive(Debug, thiserror::Error)]
pub enum ReserveError {
    /// They would exceed the daily budget.
    #[error("the daily budget is exhausted")]
    Exhausted,
    /// The reservation could not be written.
    #[error("cannot access the budget file: {0}")]
    File(#[from] io::Error),
}

impl Budget {
    /// Opens the budget in `directory`, limited to `limit` bytes a day.
    ///
    /// # Errors
    /// If another process has it open, or the file cannot be read or created.
    pub fn open(directory: &Path, limit: u64, now: Moment) -> Result<Budget, BudgetError> {
        let path = directory.join(crate::store::BUDGET);
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        // Neither a link nor a FIFO: the first bytes are overwritten.
        let file = options.custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits()).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(BudgetError::File(io::Error::other("not a regular file")));
        }
        let file = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, e)| match e {
            nix::errno::Errno::EWOULDBLOCK => BudgetError::InUse,
            e => BudgetError::File(e.into()),
        })?;
        let mut slots = [0; 2 * SLOT_LEN];
        let mut read = 0;
        while read < slots.len() {
            match file.read_at(&mut slots[read..], read as u64)? {
                0 => break,
                n => read += n,
            }
        }
        let today = now.wall_ms.div_euclid(DAY_MS);
        let last = slots.chunks_exact(SLOT_LEN).filter_map(parse_slot).max_by_key(|a| a.0);
        let mut budget =
            Budget { file, limit, number: 0, day: today, spent: 0, ends: now.steady + rest_of_day(now) };
        if let Some((number, day, spent)) = last {
            budget.number = number;
            // A record from a future day predates a clock that was set back; its bytes count as
            // spent. A record from tomorrow keeps its day, so that setting the clock back and forth
            // does not give a second day; one from years ahead does not, because it would never
            // expire.
            if day >= today {
                budget.spent = spent;
                if day <= today + MAX_DAYS_AHEAD {
                    budget.day = day;
                }
            }
        }
        // Write both slots, so that the file has its full length.
        budget.write()?;
        budget.write()?;
        Ok(budget)
    }

    /// Reserves `bytes` before they are sent.
    ///
    /// # Errors
    /// If they exceed the budget or the reservation cannot be written; then they must not be sent.
    pub fn reserve(&mut self, bytes: u64, now: Moment) -> Result<(), ReserveError> {
        self.roll_over(now);
        let after = self.spent.saturating_add(bytes);
        if after > self.limit {
            return Err(ReserveError::Exhausted);
        }
        let before = std::mem::replace(&mut self.spent, after);
        self.write().inspect_err(|_| self.spent = before)?;
        Ok(())
    }

    /// Releases `bytes` that were reserved and not sent. The change is written with the next
    /// reservation.
    pub fn release(&mut self, bytes: u64) {
        self.spent = self.spent.saturating_sub(bytes);
    }

    /// Bytes reserved today and not released.
    pub fn spent(&mut self, now: Moment) -> u64 {
        self.roll_over(now);
        self.spent
    }

    /// The number of the budget day, in days since 1970 by the clock at its start.
    pub fn day(&mut self, now: Moment) -> i64 {
        self.roll_over(now);
        self.day
    }

    /// The daily limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Writes released bytes to the file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.write()
    }

    fn roll_over(&mut self, now: Moment) {
        if now.steady < self.ends {
            return;
        }
        self.ends = now.steady + rest_of_day(now);
        self.day = now.wall_ms.div_euclid(DAY_MS).max(self.day + 1);
        self.spent = 0;
    }

    fn write(&mut self) -> io::Result<()> {
        let number = self.number + 1;
        let mut slot = Writer::default();
        slot.u64(number).i64(self.day).u64(self.spent);
        let hash = digest(&slot.0);
        slot.bytes(&hash[..SLOT_LEN - slot.0.len()]);
        self.file.write_all_at(&slot.0, number % 2 * SLOT_LEN as u64)?;
        self.file.sync_data()?;
        // After an error, the next write goes to the same slot: the other one is intact.
        self.number = number;
        Ok(())
    }
}

fn parse_slot(slot: &[u8]) -> Option<(u64, i64, u64)> {
    let mut reader = Reader(slot);
    let account = (reader.u64().ok()?, reader.i64().ok()?, reader.u64().ok()?);
    let whole = slot.len() - reader.0.len();
    (digest(&slot[..whole])[..reader.0.len()] == *reader.0).then_some(account)
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
    fn reserved_bytes_survive_a_crash() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Budget::open(directory.path(), 1000, at(20_000.5, 0.0)).unwrap();
        let mut budget = open();
        budget.reserve(600, at(20_000.5, 0.0)).unwrap();
        assert!(matches!(Budget::open(directory.path(), 1000, at(20_000.5, 0.0)), Err(BudgetError::InUse)));
        drop(budget);
        let mut budget = open();
        assert!(matches!(budget.reserve(401, at(20_000.5, 0.1)), Err(ReserveError::Exhausted)));
        budget.reserve(400, at(20_000.5, 0.1)).unwrap();
        budget.release(250);
        budget.flush().unwrap();
        drop(budget);
        // An interrupted write: the previous slot is used, which does not include the release.
        let path = directory.path().join("budget");
        let mut bytes = std::fs::read(&path).unwrap();
        let newest = open().number;
        let slot = (newest % 2) as usize * SLOT_LEN;
        bytes[slot + 20] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(open().spent(at(20_000.5, 0.2)), 1000);
    }

    #[test]
    fn a_link_in_place_of_the_file_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("target");
        std::fs::write(&target, "as before").unwrap();
        std::os::unix::fs::symlink(&target, directory.path().join("budget")).unwrap();
        assert!(Budget::open(directory.path(), 1000, at(20_000.5, 0.0)).is_err());
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "as before");
    }

    #[test]
    fn setting_the_wall_clock_does_not_renew_the_budget() {
        let directory = tempfile::tempdir().unwrap();
        let mut budget = Budget::open(directory.path(), 1000, at(20_000.5, 0.0)).unwrap();
        budget.reserve(1000, at(20_000.5, 0.0)).unwrap();
        for wall in [20_001.5, 25_000.0, 19_000.0, 0.0] {
            assert!(matches!(budget.reserve(1, at(wall, 11.9)), Err(ReserveError::Exhausted)), "{wall}");
        }
        // Midnight of the first day, twelve hours later.
        budget.reserve(1000, at(20_001.0, 12.0)).unwrap();
        assert!(budget.reserve(1, at(20_001.9, 35.9)).is_err());
        budget.reserve(1, at(20_002.0, 36.0)).unwrap();
        drop(budget);
        // Set back by half a day and restarted: the same day continues.
        let mut budget = Budget::open(directory.path(), 1000, at(20_001.6, 0.0)).unwrap();
        assert_eq!(budget.spent(at(20_001.6, 0.0)), 1);
        drop(budget);
        // A clock that was years ahead and was corrected: those bytes count as spent.
        let mut ahead = Budget::open(directory.path(), 1000, at(40_000.5, 0.0)).unwrap();
        ahead.reserve(900, at(40_000.5, 0.0)).unwrap();
        drop(ahead);
        let mut budget = Budget::open(directory.path(), 1000, at(20_002.5, 0.0)).unwrap();
        assert_eq!(budget.spent(at(20_002.5, 0.0)), 900);
        // The next day starts at zero.
        assert_eq!(budget.spent(at(20_003.0, 12.0)), 0);
    }
}
