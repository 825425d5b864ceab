//! Other kernels, for a host whose kernel is too old or lacks options: listing them
//! ([`status::status`]), installing one with the package manager ([`install::install`]), building
//! one from source ([`build::build`]), and booting it once on trial ([`trial_boot::arm`],
//! [`trial_boot::watch`]).
//!
//! The running kernel stays the default until the trial succeeds: it is pinned as the default
//! before anything is installed. The new kernel is booted once by a separate entry of the boot
//! loader. So after any failure, panic and power loss included, the next boot uses the old kernel.
//! Each change is in the host's journal.

pub mod build;
pub mod entries;
pub mod extlinux;
pub mod grub;
pub mod install;
pub mod installed;
pub mod loader;
pub mod packages;
mod reachability;
pub mod screen;
pub mod status;
mod trial;
pub mod trial_boot;

pub use trial::{MARK, Stage, Trial};

use crate::apply::{
    interrupted, make_steps, now, on_trial, read_back, refuse_unfinished, refuse_unsafe_files,
};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::journal::{Journal, Phase, Record, Store};
use crate::plan::{Change, Plan, Step, Use};
use crate::revert::{self, Selection};
use installed::Kernel;
use loader::Loader;
use serde::{Deserialize, Serialize};

/// Stands in for the controller's name in the steps of an installation, and of pinning the default
/// kernel.
pub(crate) const INSTALL: &str = "kernel";
/// The same for the steps of a trial.
pub(crate) const TRIAL: &str = "kernel-trial";

/// A reason why a kernel was not kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reason {
    /// The check: `network`, `address`, `route`, `gateway`, `ssh`, `controller`, `start`, `asked`.
    pub what: String,
    /// The problem.
    pub why: String,
}

impl Reason {
    pub(crate) fn new(what: &str, why: impl Into<String>) -> Reason {
        Reason { what: what.to_owned(), why: why.into() }
    }
}

/// The release of a kernel that a step installed.
pub(crate) fn release_of(step: &Step) -> Option<String> {
    match &step.change {
        Change::Packages { release, .. } => Some(release.clone()),
        _ => None,
    }
}

/// Kernels and boot loader of a host.
struct BootEnvironment {
    kernels: Vec<Kernel>,
    loader: Loader,
}

impl BootEnvironment {
    /// Fails if no other kernel can be booted.
    fn detect(host: &dyn Host) -> Result<BootEnvironment> {
        let kernels = installed::all(host);
        let loader = Loader::find(host);
        if let Some(obstacle) = status::obstacle(host, &kernels, loader.as_ref()) {
            return Err(Error::impossible(obstacle));
        }
        let loader = loader.ok_or_else(|| Error::impossible("no supported boot loader found"))?;
        Ok(BootEnvironment { kernels, loader })
    }

    fn running(&self) -> Result<&Kernel> {
        self.kernels
            .iter()
            .find(|kernel| kernel.running)
            .ok_or_else(|| Error::impossible("the running kernel is not on disk"))
    }

    /// Changes that pin the running kernel as the default.
    fn keep_running_default(&self, host: &dyn Host) -> Result<Vec<Change>> {
        self.loader.keep_default(host, self.running()?, true)
    }
}

/// A change, its reason, and the group it belongs to.
type Wanted = (Change, &'static str, &'static str);

/// Writes steps to the journal, calls `prepare`, performs the steps and reads them back; or leaves
/// the host unchanged.
fn perform_steps(
    host: &dyn Host,
    store: &Store,
    busy_with: &str,
    wanted: Vec<Wanted>,
    prepare: &dyn Fn() -> Result<()>,
    check: &dyn Fn() -> Result<()>,
) -> Result<()> {
    let boot = host.clock().boot();
    let step = |(change, why, part): Wanted| Step {
        part_of: Some(Use { controller: part.to_owned(), boot: boot.clone() }),
        ..Step::new(change, why)
    };
    let steps: Vec<Step> = wanted.into_iter().map(step).map(Step::pending).collect();
    refuse_unsafe_files(host, &steps)?;
    let cannot_write = |e: std::io::Error| Error::io(format_args!("cannot write {}", store.path()), &e);
    let known = store.load(host)?;
    let first = known.as_ref().map_or(0, |journal| journal.plan.steps.len());
    let numbers: Vec<usize> = (first..first + steps.len()).collect();
    let journal = match known {
        None => {
            let plan = Plan { controller: busy_with.to_owned(), steps, notes: Vec::new(), canary: None };
            store.begin(host, &plan, Some(busy_with), now()).map_err(cannot_write)?;
            store.load(host)?.ok_or_else(|| {
                Error::check("the journal was removed by another process; nothing was changed")
            })?
        }
        Some(mut journal) => {
            ready(host, &journal)?;
            journal.plan.steps.extend(steps);
            if !journal.plan.has_apply() {
                busy_with.clone_into(&mut journal.plan.controller);
            }
            (journal.phase, journal.busy_with) = (Phase::Applying, Some(busy_with.to_owned()));
            store.replace(host, &journal).map_err(cannot_write)?;
            journal
        }
    };
    let attempt = prepare()
        .and_then(|()| {
            make_steps(host, store, &journal.plan, &numbers, false, &|change, overwrite| {
                change.perform(host, overwrite)
            })
        })
        .and_then(|_| read_back(host, &journal.plan, &numbers))
        .and_then(|()| check())
        .and_then(|()| store.append(host, &Record::Applied).map_err(cannot_write));
    attempt.map_err(|error| match revert::roll_back(host, store, Selection::Latest(first)) {
        Ok(reverted) => Error::check(format_args!("{error}; {}", reverted.summary())),
        Err(undo) => Error::check(format_args!(
            "{error}; the rollback failed too: {undo}; {} shows the state, {} completes the rollback",
            host.identity().command("kernel status"),
            host.identity().command("kernel back")
        )),
    })
}

/// Fails if a change is on trial or was interrupted.
fn ready(host: &dyn Host, journal: &Journal) -> Result<()> {
    if journal.trial.is_some() {
        return Err(on_trial(host, journal));
    }
    refuse_unfinished(host, journal)?;
    if journal.phase == Phase::Applying && !journal.plan.is_empty() {
        return Err(interrupted(host, journal));
    }
    Ok(())
}

/// Rolls back the steps of a group, if there are any. Settings that were changed since are treated
/// as by [`revert::revert`].
fn revert_selection(
    host: &dyn Host,
    store: &Store,
    part: &str,
    options: &revert::Options,
) -> Result<Option<revert::Reverted>> {
    let Some(journal) = store.load(host)? else { return Ok(None) };
    if !journal.plan.steps.iter().any(|step| step.uses(part)) {
        return Ok(None);
    }
    let selection = Selection::Uses(part, crate::apply::Part::Whole);
    revert::undo(host, store, &journal, selection, options).map(Some)
}

/// Fails if a setting of these groups was changed since, unless `options` decide; `command` is the
/// command that is refused.
fn refuse_if_changed(
    host: &dyn Host,
    store: &Store,
    parts: &[&str],
    options: &revert::Options,
    command: &str,
) -> Result<()> {
    if !options.refuses() {
        return Ok(());
    }
    let Some(journal) = store.load(host)? else { return Ok(()) };
    parts.iter().try_for_each(|part| {
        let selection = Selection::Uses(part, crate::apply::Part::Whole);
        revert::refuse_if_changed(host, &journal, selection, command)
    })
}

/// Refuses to remove the packages of the running kernel.
pub(crate) fn refuse_running(host: &dyn Host, journal: &Journal) -> Result<()> {
    let running = host.identity().release;
    if !journal.plan.steps.iter().filter_map(release_of).any(|release| release == running) {
        return Ok(());
    }
    let command = |words: &str| host.identity().as_root(words);
    Err(Error::check(format_args!(
        "Linux {running} is running; fullpipe installed it and it is not kept yet: {} keeps it, {} returns \
         to the previous kernel",
        command("kernel keep"),
        command("kernel back")
    )))
}
