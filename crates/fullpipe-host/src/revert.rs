//! Putting a host back as it was, in the reverse order: boot files, then the controller, the disciplines last.

use crate::apply::enter;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::journal::{Journal, Phase, Record, Store};
use crate::plan::{Change, FileState, Plan, Standing, tidy};
use serde::Serialize;
use std::io;

/// How a revert treats what someone changed since.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Overwrite it.
    pub force: bool,
    /// Leave it as it is and undo the rest.
    pub keep_changed: bool,
}

/// What a revert did.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Reverted {
    /// What was put back.
    pub undone: Vec<String>,
    /// What was left, and what to expect.
    pub notes: Vec<String>,
}

/// What is neither as fullpipe left it nor as it was before, each with both states.
pub(crate) fn changed_since(host: &dyn Host, plan: &Plan) -> Result<Vec<String>> {
    let mut changed = Vec::new();
    for step in &plan.steps {
        let title = step.change.title();
        match step.change.standing(host) {
            Ok(Standing::Other(now)) => {
                let mut text =
                    format!("  {title}\n    fullpipe set: {}\n    now:          {now}", step.change.wanted());
                if let Change::File { path, after, .. } = &step.change
                    && let Ok(current) = FileState::of(host, path)
                {
                    for line in crate::diff::lines(&after.text(), &current.text()) {
                        text += &format!("\n      {line}");
                    }
                }
                changed.push(text);
            }
            Ok(_) => {}
            Err(e) => return Err(Error::io(format_args!("cannot read {title}"), &e)),
        }
    }
    Ok(changed)
}

/// Undoes what fullpipe has in force on this host, or had begun. Without anything to undo it does nothing.
///
/// # Errors
/// [`Error::Check`] if someone changed something since (unless `options` say what to do then): nothing is
/// touched in that case. [`Error::Impossible`] if the host refuses; what is left is told, and another `revert` goes on.
pub fn revert(host: &dyn Host, store: &Store, options: &Options) -> Result<Option<Reverted>> {
    let _lock = enter(host, "revert")?;
    match store.load(host)? {
        None => {
            // A crash before the plan was durable may have left what prepared it.
            store.tidy(host).map_err(|e| Error::io(format_args!("cannot tidy up {}", store.path()), &e))?;
            Ok(None)
        }
        Some(journal) => undo_all(host, store, &journal, options).map(Some),
    }
}

/// While a revert is under way, default_qdisc passes through what the devices had.
fn passes_through(plan: &Plan, change: &Change, now: &str) -> bool {
    matches!(change, Change::Sysctl { name, .. } if name == "net.core.default_qdisc")
        && plan.steps.iter().any(
            |s| matches!(&s.change, Change::Qdisc { before, .. } if before.0.iter().any(|n| n.kind == now)),
        )
}

pub(crate) fn undo_all(
    host: &dyn Host,
    store: &Store,
    journal: &Journal,
    options: &Options,
) -> Result<Reverted> {
    let plan = &journal.plan;
    let failed = |what: &str, e: &io::Error| Error::io(what, e);
    if !options.force && !options.keep_changed {
        let mut changed = changed_since(host, plan)?;
        if journal.phase == Phase::Reverting {
            changed.retain(|c| !c.trim_start().starts_with("net.core.default_qdisc\n"));
        }
        if !changed.is_empty() {
            return Err(Error::check(format_args!(
                "someone changed this since fullpipe set it, and nothing was touched:\n{}\n\
                 `fullpipe revert --keep-changed` leaves these and undoes the rest; `--force` overwrites them",
                changed.join("\n")
            )));
        }
    }
    if journal.phase != Phase::Reverting {
        store
            .append(host, &Record::Reverting)
            .map_err(|e| failed(&format!("cannot write {}", store.path()), &e))?;
    }
    let mut report = Reverted::default();
    let controller_sockets = host
        .sockets()
        .ok()
        .map_or(0, |all| all.iter().filter(|s| s.controller == plan.controller && !s.is_loopback()).count());
    for (i, step) in plan.steps.iter().enumerate().rev() {
        let change = &step.change;
        let title = change.title();
        if let Change::File { path, .. } = change {
            tidy(host, path).map_err(|e| failed(&format!("cannot tidy up beside {path}"), &e))?;
        }
        let standing = change.standing(host).map_err(|e| failed(&format!("cannot read {title}"), &e))?;
        match standing {
            Standing::Before => continue,
            Standing::Gone => {
                report.notes.push(format!("{title} is gone: nothing to put back"));
                continue;
            }
            Standing::Other(now) if options.keep_changed && !passes_through(plan, change, &now) => {
                report.notes.push(format!("{title} stays as someone set it since: {now}"));
                continue;
            }
            Standing::After | Standing::Partial | Standing::Other(_) => {}
        }
        match change.undo(host) {
            Ok(()) => report.undone.push(title),
            Err(e) => match (change, e.kind()) {
                (Change::Module { .. }, _) => {
                    report.notes.push(format!("{title} stays loaded until the next boot ({e})"));
                }
                (Change::File { before: FileState::Absent, .. }, io::ErrorKind::DirectoryNotEmpty) => {
                    report.notes.push(format!("{title} stays: something else is in it now"));
                }
                _ => return Err(failed(&format!("cannot put {title} back"), &e)),
            },
        }
        store
            .append(host, &Record::Undone(i))
            .map_err(|e| failed(&format!("cannot write {}", store.path()), &e))?;
    }
    if controller_sockets > 0 && plan.steps.iter().any(|s| matches!(s.change, Change::Qdisc { .. })) {
        report.notes.push(format!(
            "{controller_sockets} established connection(s) still use {}: they were paced by the discipline that is gone \
             and may send unpaced until they close; restart the services that hold them if that matters",
            plan.controller
        ));
    } else if controller_sockets > 0 {
        report.notes.push(format!(
            "{controller_sockets} established connection(s) keep {} until they close",
            plan.controller
        ));
    }
    store.end(host, journal).map_err(|e| failed(&format!("cannot remove {}", store.path()), &e))?;
    Ok(report)
}
