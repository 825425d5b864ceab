//! A change on trial: it is undone unless it is confirmed in time.
//!
//! What undoes it must not depend on the terminal, the connection or the process that made it. So the deadline is in the
//! journal, on a clock that nobody can set; a process of its own watches it ([`watch`]); the files for the next boot are
//! only written by [`confirm`], so that a restart takes the change back without anyone's help; and whoever uses fullpipe
//! after the deadline finishes what is left ([`settle`]).

use crate::apply::{Part, back_out, lock, perform_steps, verify};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::journal::{Phase, Record, Store, Trial};
use crate::plan::Plan;
use crate::revert::{self, Reverted, Selection};
use std::time::Duration;

/// Whether a trial is over that nobody undid.
fn overdue(host: &dyn Host, store: &Store) -> Result<bool> {
    let journal = store.load(host)?;
    Ok(journal.and_then(|j| j.trial).is_some_and(|trial| trial.remaining(host.clock()).is_none()))
}

fn undo(host: &dyn Host, store: &Store) -> Result<Option<Reverted>> {
    revert::revert_selection(
        host,
        store,
        Selection::Apply,
        &revert::Options { force: true, ..Default::default() },
    )
}

/// Undoes a trial selection time is up, or that a restart ended, if that was left to do and the caller may.
///
/// # Errors
/// From the undoing, or a journal that cannot be read.
pub fn revert_expired(host: &dyn Host, store: &Store) -> Result<Option<Reverted>> {
    if !host.identity().privileged || !overdue(host, store)? {
        return Ok(None);
    }
    match undo(host, store) {
        // Who holds the lock is at it.
        Err(_) if !overdue(host, store)? => Ok(None),
        outcome => outcome,
    }
}

/// Keeps for good what is on trial, and writes what is for the next boot.
///
/// # Errors
/// Nothing is on trial; its time is up, and it is undone; the rest of the plan cannot be made, and everything is undone.
pub fn confirm(host: &dyn Host, store: &Store) -> Result<Plan> {
    let _lock = lock(host, "confirm")?;
    let nothing = || Error::usage("nothing waits to be confirmed");
    let journal = store.load(host)?.ok_or_else(nothing)?;
    let trial = journal.trial.as_ref().ok_or_else(nothing)?;
    if trial.remaining(host.clock()).is_none() || journal.phase == Phase::Reverting {
        let options = revert::Options { force: true, ..Default::default() };
        revert::undo(host, store, &journal, Selection::Apply, &options)?;
        return Err(Error::check("the time to confirm it was over: everything was put back as it was"));
    }
    if journal.phase == Phase::Applying {
        return Err(Error::check(format_args!(
            "the apply was interrupted: {} undoes it",
            host.identity().command("revert")
        )));
    }
    let write = |record| {
        store.append(host, &record).map_err(|e| Error::io(format_args!("cannot write {}", store.path()), &e))
    };
    let kept = write(Record::Confirmed)
        .and_then(|()| perform_steps(host, store, &journal.plan, Part::Whole))
        .and_then(|_| verify(host, &journal.plan, Part::Whole))
        .and_then(|_| write(Record::Applied));
    match kept {
        Ok(()) => Ok(journal.plan),
        Err(error) => Err(back_out(host, store, &journal, &error)),
    }
}

/// What whoever waits is told while it waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Nothing yet.
    Pending,
    /// To keep the change.
    Keep,
    /// To undo it now.
    Undo,
}

/// How a trial ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrialEnd {
    /// It was confirmed, here or by another process.
    Kept,
    /// It was undone because that was asked for.
    Undone,
    /// The time ran out and everything was undone.
    Expired,
    /// Someone else undid it.
    RevertedElsewhere,
}

/// How often the journal is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How often and how long what fails to be undone is tried again: another fullpipe may have the lock, a disk may be full.
const AGAIN: Duration = Duration::from_secs(1);
const LOCK_TIMEOUT: Duration = Duration::from_secs(3600);

/// Watches a trial to its end, and undoes it when its time is up. `ask` waits for as long as it is given, or until it has
/// something to tell.
///
/// # Errors
/// A confirmation that fails (the trial is over then), or an undoing that failed for an hour.
pub fn watch(host: &dyn Host, store: &Store, ask: &mut dyn FnMut(Duration) -> Decision) -> Result<TrialEnd> {
    let mut told = false;
    let mut refused: Option<Duration> = None;
    let mut known: Option<Trial> = None;
    loop {
        // What is left when a trial is undone may be the uses of loaded controllers.
        let seen = store.load(host).map(|j| j.filter(|j| j.plan.has_apply()).map(|j| j.trial));
        let ended = match seen {
            // Several may wait for the end of one trial: who comes second finds it undone.
            Ok(None) if told => return Ok(TrialEnd::Undone),
            Ok(None) if known.as_ref().is_some_and(|trial| trial.remaining(host.clock()).is_none()) => {
                return Ok(TrialEnd::Expired);
            }
            Ok(None) => return Ok(TrialEnd::RevertedElsewhere),
            Ok(Some(None)) => return Ok(TrialEnd::Kept),
            Ok(Some(Some(trial))) => match known.insert(trial).remaining(host.clock()) {
                Some(left) if !told => {
                    match ask(left.min(POLL_INTERVAL)) {
                        Decision::Pending => {}
                        Decision::Keep => return confirm(host, store).map(|_| TrialEnd::Kept),
                        Decision::Undo => told = true,
                    }
                    continue;
                }
                _ => undo(host, store).map(|_| if told { TrialEnd::Undone } else { TrialEnd::Expired }),
            },
            Err(error) => Err(error),
        };
        match ended {
            Ok(ended) => return Ok(ended),
            Err(error) => {
                let now = host.clock().since_boot();
                if now.saturating_sub(*refused.get_or_insert(now)) > LOCK_TIMEOUT {
                    return Err(error);
                }
                ask(AGAIN);
            }
        }
    }
}
