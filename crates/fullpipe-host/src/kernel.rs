//! Another kernel, for a host whose own is too old or was built without what is needed: what is there ([`status::status`]), having
//! the distribution's package manager install one ([`install::install`]), making one of its source ([`build::build`]), booting it once and keeping it only if all is as before
//! ([`trial_boot::arm`], [`trial_boot::watch`]).
//!
//! The kernel that runs stays the default until another has shown itself: it is named the default before anything is installed. What is
//! tried is booted by an entry of its own, which the boot loader takes once. So whatever happens, a panic and a power cut included, the
//! next start is that of the kernel before. Each change is in the host's journal.

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

use crate::apply::{interrupted, make_steps, now, on_trial, read_back, refuse_unfinished};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::journal::{Journal, Phase, Record, Store};
use crate::plan::{Change, Plan, Step, Use};
use crate::revert::{self, Selection};
use installed::Kernel;
use loader::Loader;
use serde::{Deserialize, Serialize};

/// What stands for a controller's name beside the steps of an installation, and of what keeps the kernel that runs the default.
pub(crate) const INSTALL: &str = "kernel";
/// The same beside the steps of a trial.
pub(crate) const TRIAL: &str = "kernel-trial";

/// Why a kernel was not kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reason {
    /// What was looked at: `network`, `address`, `route`, `gateway`, `ssh`, `controller`, `start`, `asked`.
    pub what: String,
    /// What was wrong with it.
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

/// What of a host's kernels and their loader both an installation and a trial need to know.
struct BootEnvironment {
    kernels: Vec<Kernel>,
    loader: Loader,
}

impl BootEnvironment {
    /// Refuses where no other kernel can be booted.
    fn detect(host: &dyn Host) -> Result<BootEnvironment> {
        let kernels = installed::all(host);
        let loader = Loader::find(host);
        if let Some(obstacle) = status::obstacle(host, &kernels, loader.as_ref()) {
            return Err(Error::impossible(obstacle));
        }
        let loader = loader.ok_or_else(|| Error::impossible("no boot loader is known here"))?;
        Ok(BootEnvironment { kernels, loader })
    }

    fn running(&self) -> Result<&Kernel> {
        self.kernels
            .iter()
            .find(|kernel| kernel.running)
            .ok_or_else(|| Error::impossible("the kernel that runs is not on disk"))
    }

    /// What keeps the kernel that runs the default whichever is installed.
    fn keep_running_default(&self, host: &dyn Host) -> Result<Vec<Change>> {
        self.loader.keep_default(host, self.running()?)
    }
}

/// A change, its reason, and what it is part of.
type Wanted = (Change, &'static str, &'static str);

/// Puts steps into the journal, has `prepare` write down what else is needed, makes them, and reads them back; or leaves the host as it was.
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
    let steps: Vec<Step> = wanted.into_iter().map(step).collect();
    let cannot_write = |e: std::io::Error| Error::io(format_args!("cannot write {}", store.path()), &e);
    let known = store.load(host)?;
    let first = known.as_ref().map_or(0, |journal| journal.plan.steps.len());
    let numbers: Vec<usize> = (first..first + steps.len()).collect();
    let journal = match known {
        None => {
            let plan = Plan { controller: busy_with.to_owned(), steps, notes: Vec::new(), canary: None };
            store.begin(host, &plan, Some(busy_with), now()).map_err(cannot_write)?;
            store.load(host)?.ok_or_else(|| Error::check("the journal vanished: nothing was changed"))?
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
        .and_then(|()| make_steps(host, store, &journal.plan, &numbers, &|change| change.perform(host)))
        .and_then(|_| read_back(host, &journal.plan, &numbers))
        .and_then(|()| check())
        .and_then(|()| store.append(host, &Record::Applied).map_err(cannot_write));
    attempt.map_err(|error| {
        let options = revert::Options { force: true, ..Default::default() };
        match revert::undo(host, store, &journal, Selection::Latest(first), &options) {
            Ok(_) => Error::check(format_args!("{error}. Everything was put back as it was")),
            Err(undo) => Error::check(format_args!(
                "{error}. Putting things back failed as well: {undo}. {} shows where the host stands; {} finishes the work",
                host.identity().command("kernel status"),
                host.identity().command("kernel back")
            )),
        }
    })
}

/// Nothing is begun upon what is on trial or was interrupted.
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

/// Undoes what is part of this, if there is such.
fn revert_selection(host: &dyn Host, store: &Store, part: &str) -> Result<Option<revert::Reverted>> {
    let Some(journal) = store.load(host)? else { return Ok(None) };
    if !journal.plan.steps.iter().any(|step| step.uses(part)) {
        return Ok(None);
    }
    let options = revert::Options { force: true, ..Default::default() };
    revert::undo(host, store, &journal, Selection::Uses(part, crate::apply::Part::Whole), &options).map(Some)
}

/// Refuses to take a kernel's packages away while it runs.
pub(crate) fn refuse_running(host: &dyn Host, journal: &Journal) -> Result<()> {
    let running = host.identity().release;
    if !journal.plan.steps.iter().filter_map(release_of).any(|release| release == running) {
        return Ok(());
    }
    let command = |words: &str| host.identity().as_root(words);
    Err(Error::check(format_args!(
        "Linux {running} runs, which fullpipe installed and nobody kept yet: {} keeps it, {} goes back to the kernel before",
        command("kernel keep"),
        command("kernel back")
    )))
}
