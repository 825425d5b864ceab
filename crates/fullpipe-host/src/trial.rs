//! A change on trial: it is rolled back unless it is confirmed in time.
//!
//! The rollback must not depend on the terminal, the connection or the process that made the
//! change. So the deadline is in the journal, by a clock that cannot be set; a separate process
//! watches it ([`watch`]); the files for the next boot are only written by [`confirm`], so that a
//! restart rolls the change back; and any later fullpipe command completes an overdue rollback
//! ([`revert_expired`]).

use crate::apply::{LOCK_TIMEOUT, Part, back_out, lock_within, perform_steps, verify};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::journal::{Phase, Record, Store, Trial};
use crate::plan::Plan;
use crate::revert::{self, Reverted, Selection};
use std::time::Duration;

/// Whether an expired trial still has to be rolled back.
fn overdue(host: &dyn Host, store: &Store) -> Result<bool> {
    let journal = store.load(host)?;
    Ok(journal.and_then(|j| j.trial).is_some_and(|trial| trial.remaining(host.clock()).is_none()))
}

fn undo(host: &dyn Host, store: &Store) -> Result<Option<Reverted>> {
    revert::revert_selection(host, store, Selection::Apply, &revert::Options::automatic())
}

/// Rolls back a trial that expired or was ended by a restart, if the caller is root.
///
/// # Errors
/// From the rollback, or a journal that cannot be read.
pub fn revert_expired(host: &dyn Host, store: &Store) -> Result<Option<Reverted>> {
    if !host.identity().privileged || !overdue(host, store)? {
        return Ok(None);
    }
    match undo(host, store) {
        // The process that holds the lock is rolling it back.
        Err(_) if !overdue(host, store)? => Ok(None),
        outcome => outcome,
    }
}

/// Keeps a change that is on trial and writes the files for the next boot.
///
/// # Errors
/// Nothing is on trial; the trial expired and is rolled back; a setting or a file was changed since
/// the trial began, which goes on; the remaining steps fail and everything is rolled back.
pub fn confirm(host: &dyn Host, store: &Store) -> Result<Plan> {
    let _lock = lock_within(host, "confirm", LOCK_TIMEOUT)?;
    let nothing = || Error::usage("no change is waiting for confirmation");
    let mut journal = store.load(host)?.ok_or_else(nothing)?;
    let trial = journal.trial.as_ref().ok_or_else(nothing)?;
    if trial.remaining(host.clock()).is_none() || journal.phase == Phase::Reverting {
        let reverted = revert::roll_back(host, store, Selection::Apply)?;
        return Err(Error::check(format_args!("the trial has timed out: {}", reverted.summary())));
    }
    if journal.phase == Phase::Applying {
        return Err(Error::check(format_args!(
            "the apply was interrupted: {} rolls it back",
            host.identity().command("revert")
        )));
    }
    refuse_if_changed(host, &journal.plan)?;
    store.renumber(host, &mut journal)?;
    let write = |record| {
        store.append(host, &record).map_err(|e| Error::io(format_args!("cannot write {}", store.path()), &e))
    };
    let kept = write(Record::Confirmed)
        .and_then(|()| perform_steps(host, store, &journal.plan, Part::Whole, false))
        .and_then(|_| verify(host, &journal.plan, Part::Whole))
        .and_then(|_| write(Record::Applied));
    match kept {
        Ok(()) => Ok(journal.plan.without_progress()),
        Err(error) => Err(back_out(host, store, &error)),
    }
}

/// Refuses to confirm what was changed since the trial began: its files were planned then.
fn refuse_if_changed(host: &dyn Host, plan: &Plan) -> Result<()> {
    let changed = revert::changed_since(host, plan, Selection::Apply)?;
    if changed.is_empty() {
        return Ok(());
    }
    Err(Error::check(format_args!(
        "these settings were changed since the trial began; nothing was written, and the trial still ends \
         at its deadline:\n{}\nundo these changes and confirm again, or run {} and apply again",
        revert::Changed::describe(&changed),
        host.identity().command("revert")
    )))
}

/// Answer to a trial that is waiting for confirmation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// No answer yet.
    Pending,
    /// Keep the change.
    Keep,
    /// Roll it back now.
    Undo,
}

/// How a trial ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TrialOutcome {
    /// It was confirmed, here or by another process.
    Kept,
    /// It was rolled back.
    Reverted {
        /// The reason.
        cause: Cause,
        /// What this process did not roll back, one note each.
        exceptions: Vec<String>,
    },
}

/// Why a trial was rolled back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// On request.
    Request,
    /// It timed out.
    Deadline,
    /// Another process did it.
    OtherProcess,
}

impl From<Cause> for TrialOutcome {
    fn from(cause: Cause) -> TrialOutcome {
        TrialOutcome::Reverted { cause, exceptions: Vec::new() }
    }
}

/// Interval at which the journal is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Interval and limit of retries of a failed rollback: another process may hold the lock, the disk
/// may be full.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
const RETRY_LIMIT: Duration = Duration::from_secs(3600);

/// Watches a trial to its end and rolls it back when it expires. `ask` waits for the given time or
/// until there is an answer.
///
/// # Errors
/// A confirmation that fails (the trial ends then), or a rollback that failed for an hour.
pub fn watch(
    host: &dyn Host,
    store: &Store,
    ask: &mut dyn FnMut(Duration) -> Decision,
) -> Result<TrialOutcome> {
    let mut rejected = false;
    let mut refused: Option<Duration> = None;
    let mut known: Option<Trial> = None;
    loop {
        // After the rollback the journal may still hold assignments of loaded controllers.
        let seen = store.load(host).map(|j| j.filter(|j| j.plan.has_apply()).map(|j| j.trial));
        let ended = match seen {
            // Several processes may watch one trial; all but the first find it rolled back.
            Ok(None) if rejected => return Ok(Cause::Request.into()),
            Ok(None) if known.as_ref().is_some_and(|trial| trial.remaining(host.clock()).is_none()) => {
                return Ok(Cause::Deadline.into());
            }
            Ok(None) => return Ok(Cause::OtherProcess.into()),
            Ok(Some(None)) => return Ok(TrialOutcome::Kept),
            Ok(Some(Some(trial))) => match known.insert(trial).remaining(host.clock()) {
                Some(left) if !rejected => {
                    match ask(left.min(POLL_INTERVAL)) {
                        Decision::Pending => {}
                        Decision::Keep => return confirm(host, store).map(|_| TrialOutcome::Kept),
                        Decision::Undo => rejected = true,
                    }
                    continue;
                }
                _ => undo(host, store).map(|reverted| TrialOutcome::Reverted {
                    cause: if rejected { Cause::Request } else { Cause::Deadline },
                    exceptions: reverted.unwrap_or_default().exceptions(),
                }),
            },
            Err(error) => Err(error),
        };
        match ended {
            Ok(ended) => return Ok(ended),
            Err(error) => {
                let now = host.clock().since_boot();
                if now.saturating_sub(*refused.get_or_insert(now)) > RETRY_LIMIT {
                    return Err(error);
                }
                ask(RETRY_INTERVAL);
            }
        }
    }
}
