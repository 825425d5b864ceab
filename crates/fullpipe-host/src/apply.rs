//! Carrying out a plan: journal, change, verify; and undo all of it if any part fails.

use crate::error::{Error, Result};
use crate::facts::Facts;
use crate::host::Host;
use crate::journal::{Journal, Phase, Record, Store, Trial};
use crate::kernel;
use crate::plan::{self, Change, Plan, Request, Step, StepState};
use crate::revert::{self, Changed, Selection};
use serde::Serialize;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The file selection lock keeps two changes of a host apart.
pub(crate) const LOCK: &str = "/run/fullpipe.lock";

/// How an apply may go about it.
#[derive(Default)]
pub struct Options<'a> {
    /// Overwrite what someone changed since an earlier apply.
    pub force: bool,
    /// Undo everything unless it is confirmed within this time.
    pub trial: Option<OnTrial<'a>>,
    /// This program's path, for a boot unit that starts it.
    pub program: String,
}

/// A change that is undone unless it is confirmed.
#[derive(Clone, Copy)]
pub struct OnTrial<'a> {
    /// The time that there is to confirm it.
    pub within: Duration,
    /// Starts what will undo it whatever becomes of this process ([`crate::trial::watch`] in a process of its own). The
    /// journal is there already, and nothing is changed before this returns.
    pub guard: &'a dyn Fn() -> io::Result<()>,
}

/// What an apply did.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Applied {
    /// The plan that is now in force.
    pub plan: Plan,
    /// How many of its steps were made now (the others held already).
    pub made: usize,
    /// The controller that a new connection was seen to use, if one could be opened.
    pub observed: Option<String>,
    /// What could not be verified or deserves attention.
    pub warnings: Vec<String>,
    /// Whether it is undone unless it is confirmed, and what is for the next boot waits for that.
    pub on_trial: bool,
}

/// Which steps of a plan are meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// All.
    Whole,
    /// Those of the running kernel. A trial makes no others: so a restart takes it back, whoever is there to see to it.
    Live,
}

impl Part {
    /// What a trial on this host consists of. A host that does not run has nothing but its files to change.
    pub(crate) fn for_trial(host: &dyn Host) -> Part {
        if host.identity().running { Part::Live } else { Part::Whole }
    }

    pub(crate) fn includes(self, change: &Change) -> bool {
        self == Part::Whole || change.is_live()
    }

    /// The numbers of an apply's steps that are meant.
    fn apply_steps(self, plan: &Plan) -> Vec<usize> {
        let steps = plan.steps.iter().enumerate();
        steps.filter(|(_, s)| s.part_of.is_none() && self.includes(&s.change)).map(|(i, _)| i).collect()
    }
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// Who may change this host, and who is at it.
pub(crate) fn lock(host: &dyn Host, command: &str) -> Result<Box<dyn std::any::Any>> {
    lock_within(host, command, Duration::ZERO)
}

/// The same, waiting for whoever else is at it.
pub(crate) fn lock_within(
    host: &dyn Host,
    command: &str,
    patience: Duration,
) -> Result<Box<dyn std::any::Any>> {
    const POLL_INTERVAL: Duration = Duration::from_millis(50);
    if !host.identity().privileged {
        return Err(Error::impossible(format_args!(
            "this needs root: run {}",
            host.identity().as_root(command)
        )));
    }
    let place = if host.exists("/run") { LOCK.to_owned() } else { "/fullpipe.lock".to_owned() };
    let mut waited = Duration::ZERO;
    loop {
        match host.lock(&place) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && waited < patience => {
                host.pause(POLL_INTERVAL);
                waited += POLL_INTERVAL;
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                return Err(Error::check(format_args!(
                    "another fullpipe is changing this host ({e}); wait for it to finish and try again"
                )));
            }
            outcome => return outcome.map_err(|e| Error::io(format_args!("cannot lock {place}"), &e)),
        }
    }
}

/// Puts `request` in force on the host, or leaves the host as it was.
///
/// # Errors
/// The plan's refusals; [`Error::Impossible`] without root; [`Error::Check`] if something else is in force, if
/// someone changed what an earlier apply set, or if the result does not verify. Whenever it fails after having
/// changed something, everything is undone; if even that fails, the error says so and `revert` completes it.
pub fn apply(host: &dyn Host, store: &Store, request: &Request, options: &Options<'_>) -> Result<Applied> {
    let _lock = lock(host, &format!("apply {}", request.controller))?;
    let mut known = store.load(host)?;
    if let Some(journal) =
        known.take_if(|j| j.trial.as_ref().is_some_and(|t| t.remaining(host.clock()).is_none()))
    {
        let options = revert::Options { force: true, ..Default::default() };
        revert::undo(host, store, &journal, Selection::Apply, &options)?;
        known = store.load(host)?;
    }
    // A canary did its duty: what it changed is undone before the same is done for everyone.
    if let Some(journal) =
        known.take_if(|j| j.plan.canary.is_some() && request.canary.is_none() && j.trial.is_none())
    {
        revert::undo(host, store, &journal, Selection::Apply, &revert::Options::default())?;
        known = store.load(host)?;
    }
    let journal = match known {
        Some(journal) if journal.plan.has_apply() => {
            extend(host, store, resume(host, journal, request, options)?, request, options)?
        }
        known => {
            let plan = plan::make(host, request, &options.program)?;
            if plan.is_empty() {
                let (observed, warnings) = verify(host, &plan, Part::Whole)?;
                return Ok(Applied { plan, made: 0, observed, warnings, on_trial: false });
            }
            begin(host, store, known, plan)?
        }
    };
    let write = |record| {
        store.append(host, &record).map_err(|e| Error::io(format_args!("cannot write {}", store.path()), &e))
    };
    let on_trial = options.trial.filter(|_| journal.phase == Phase::Applying);
    let part = if on_trial.is_some() { Part::for_trial(host) } else { Part::Whole };
    let attempt = (|| {
        if let Some(trial) = on_trial {
            write(Record::Trial(Trial::starting_now(host.clock(), trial.within)))?;
            (trial.guard)()
                .map_err(|e| Error::io("cannot start what would undo an unconfirmed change", &e))?;
        }
        let made = perform_steps(host, store, &journal.plan, part)?;
        let (observed, warnings) = verify(host, &journal.plan, part)?;
        if journal.phase != Phase::Applied {
            write(Record::Applied)?;
        }
        if let Some(trial) = on_trial {
            // The time counts from when there is something to look at.
            write(Record::Trial(Trial::starting_now(host.clock(), trial.within)))?;
        }
        Ok((made, observed, warnings))
    })();
    match attempt {
        Ok((made, observed, warnings)) => {
            Ok(Applied { plan: journal.plan, made, observed, warnings, on_trial: on_trial.is_some() })
        }
        Err(error) => Err(back_out(host, store, &journal, &error)),
    }
}

/// Makes a plan durable, beside what loaded controllers are in use for.
fn begin(host: &dyn Host, store: &Store, known: Option<Journal>, plan: Plan) -> Result<Journal> {
    let written = match known {
        None => store.begin(host, &plan, None, now()),
        Some(mut journal) => {
            refuse_unfinished(host, &journal)?;
            let steps = [journal.plan.steps, plan.steps].concat();
            journal.plan = Plan { steps, ..plan };
            journal.phase = Phase::Applying;
            store.replace(host, &journal)
        }
    };
    written.map_err(|e| Error::io(format_args!("nothing was changed: cannot write {}", store.path()), &e))?;
    store
        .load(host)?
        .ok_or_else(|| Error::check(format_args!("nothing was changed: {} vanished", store.path())))
}

/// Nothing new is begun upon a revert or a use of a controller that was interrupted.
pub(crate) fn refuse_unfinished(host: &dyn Host, journal: &Journal) -> Result<()> {
    let revert = host.identity().command("revert");
    match &journal.busy_with {
        None if journal.phase == Phase::Reverting => Err(Error::check(format_args!(
            "a revert was interrupted: run {revert} to finish it, then try again"
        ))),
        None => Ok(()),
        Some(part) if [kernel::INSTALL, kernel::TRIAL].contains(&part.as_str()) => {
            Err(Error::check(format_args!(
                "a `fullpipe kernel` command was interrupted: {} says how far it came, {} takes it back",
                host.identity().command("kernel status"),
                host.identity().command("kernel back")
            )))
        }
        Some(controller) => Err(Error::check(format_args!(
            "a `fullpipe cc load` or `cc unload` of {controller} was interrupted: run it again to finish it, or \
             {revert} to take everything back"
        ))),
    }
}

/// Why nothing else is begun while an apply is on trial.
pub(crate) fn on_trial(host: &dyn Host, journal: &Journal) -> Error {
    let command = |words: &str| host.identity().command(words);
    Error::check(format_args!(
        "{} is on trial: {} keeps it, {} takes it back",
        journal.plan.controller,
        command("confirm"),
        command("revert")
    ))
}

/// Why nothing else is begun upon an apply that did not come to its end.
pub(crate) fn interrupted(host: &dyn Host, journal: &Journal) -> Error {
    let controller = &journal.plan.controller;
    Error::check(format_args!(
        "an apply of {controller} was interrupted: {} completes it, {} undoes it",
        host.identity().command(format_args!("apply {controller}")),
        host.identity().command("revert")
    ))
}

/// Whether an earlier apply may be gone on with.
fn resume(host: &dyn Host, journal: Journal, request: &Request, options: &Options<'_>) -> Result<Journal> {
    let in_force = &journal.plan;
    refuse_unfinished(host, &journal)?;
    let command = |words: &str| host.identity().command(words);
    let revert = command("revert");
    if journal.trial.is_some() {
        return Err(on_trial(host, &journal));
    }
    // bbr may be in force as fp_bbr1, which stands in for it.
    let same = in_force.controller == request.controller
        || plan::make(host, request, &options.program).is_ok_and(|p| p.controller == in_force.controller);
    if !same || in_force.canary != request.canary {
        return Err(Error::check(format_args!(
            "{} is in force through fullpipe: run {revert} first, so that the host's own state is the one that is kept",
            in_force.controller
        )));
    }
    let changed = revert::changed_since(host, in_force, Selection::Apply)?;
    if !changed.is_empty() && !options.force {
        return Err(Error::check(format_args!(
            "someone changed this since fullpipe set it:\n{}\n`--force` sets it again; {revert} takes everything back",
            Changed::describe(&changed)
        )));
    }
    if options.trial.is_some() && journal.phase == Phase::Applied && !holds(host, in_force) {
        return Err(Error::check(format_args!(
            "{} is in force through fullpipe for good, and cannot be put on trial: {} without --confirm sets it again",
            in_force.controller,
            command(&format!("apply {}", in_force.controller))
        )));
    }
    Ok(journal)
}

/// Adds to what is in force what more is asked for now: what lasts, after an apply until a restart, or buffers. What is in force already
/// and is to be something else, such as a file of settings with more of them, is changed by a further step, so that each is taken back
/// to what was there before it.
fn extend(
    host: &dyn Host,
    store: &Store,
    mut journal: Journal,
    request: &Request,
    options: &Options<'_>,
) -> Result<Journal> {
    if journal.phase != Phase::Applied || request.canary.is_some() {
        return Ok(journal);
    }
    let plan = plan::make(host, request, &options.program)?;
    let is_new = |step: &Step| {
        let title = step.change.title();
        let last = journal.plan.steps.iter().rposition(|known| known.change.title() == title);
        last.is_none_or(|number| {
            // What someone has changed since is set again as it was said to be (`resume`).
            let stands = journal.plan.state(host, number).is_ok_and(|now| now == StepState::After);
            stands && !step.change.has_same_result_as(&journal.plan.steps[number].change)
        })
    };
    let new: Vec<Step> = plan.steps.into_iter().filter(is_new).collect();
    if new.is_empty() {
        return Ok(journal);
    }
    journal.plan.steps.extend(new);
    journal.plan.notes = plan.notes;
    journal.phase = Phase::Applying;
    store
        .replace(host, &journal)
        .map_err(|e| Error::io(format_args!("nothing was changed: cannot write {}", store.path()), &e))?;
    Ok(journal)
}

fn holds(host: &dyn Host, plan: &Plan) -> bool {
    let mut all = plan.steps.iter().enumerate().filter(|(_, s)| s.part_of.is_none());
    all.all(|(i, _)| plan.state(host, i).is_ok_and(|now| now == StepState::After))
}

/// Makes every step of an apply that does not hold yet.
pub(crate) fn perform_steps(host: &dyn Host, store: &Store, plan: &Plan, part: Part) -> Result<usize> {
    let numbers = part.apply_steps(plan);
    make_steps(host, store, plan, &numbers, &|change| change.perform(host))
}

/// Makes those of these steps that do not hold yet, each by `perform`.
pub(crate) fn make_steps(
    host: &dyn Host,
    store: &Store,
    plan: &Plan,
    numbers: &[usize],
    perform: &dyn Fn(&Change) -> io::Result<()>,
) -> Result<usize> {
    let mut made = 0;
    for &i in numbers {
        let step = &plan.steps[i];
        let title = step.change.title();
        let standing = plan.state(host, i).map_err(|e| Error::io(format_args!("cannot read {title}"), &e))?;
        if standing == StepState::After {
            continue;
        }
        if standing == StepState::Gone {
            return Err(Error::check(format_args!("{title} is not there any more")));
        }
        let write = |record| {
            store
                .append(host, &record)
                .map_err(|e| Error::io(format_args!("cannot write {}", store.path()), &e))
        };
        write(Record::Doing(i))?;
        perform(&step.change).map_err(|e| {
            let what = match &step.change {
                Change::Packages { release, .. } => format!("Linux {release} could not be installed"),
                change => format!("cannot set {title} to {}", change.wanted()),
            };
            Error::io(what, &explain(&step.change, e))
        })?;
        write(Record::Done(i))?;
        made += 1;
    }
    Ok(made)
}

/// The kernel's error numbers for a controller say less than is known.
fn explain(change: &Change, error: io::Error) -> io::Error {
    match (change, error.kind()) {
        (Change::Sysctl { name, after, .. }, io::ErrorKind::NotFound)
            if name.ends_with("congestion_control") =>
        {
            io::Error::new(io::ErrorKind::NotFound, format!("the kernel does not know {after}"))
        }
        (Change::Qdisc { after, .. }, io::ErrorKind::NotFound) => {
            io::Error::new(io::ErrorKind::NotFound, format!("this kernel has no {after}; use --qdisc keep"))
        }
        _ => error,
    }
}

/// Reads everything back and opens a connection.
pub(crate) fn verify(host: &dyn Host, plan: &Plan, part: Part) -> Result<(Option<String>, Vec<String>)> {
    read_back(host, plan, &part.apply_steps(plan))?;
    if !host.identity().running || plan.canary.is_some() {
        return Ok((None, Vec::new()));
    }
    match host.try_connection() {
        Ok(seen) if seen == plan.controller => Ok((Some(seen), Vec::new())),
        Ok(seen) if plan.divides() => {
            let told =
                format!("a new connection uses {seen}: a split gives new connections their controllers");
            Ok((Some(seen), vec![told]))
        }
        Ok(seen) => Err(Error::check(format_args!("a new connection uses {seen}, not {}", plan.controller))),
        // Loopback may be down in a bare namespace: that says nothing about the controller.
        Err(e) => Ok((
            None,
            vec![format!("no loopback connection could be opened to see the controller at work: {e}")],
        )),
    }
}

/// Reads back that these steps hold.
pub(crate) fn read_back(host: &dyn Host, plan: &Plan, numbers: &[usize]) -> Result<()> {
    for &i in numbers {
        let change = &plan.steps[i].change;
        let title = change.title();
        match plan.state(host, i) {
            Ok(StepState::After) => {}
            Ok(_) => return Err(Error::check(format_args!("{title} did not stay {}", change.wanted()))),
            Err(e) => return Err(Error::io(format_args!("cannot read {title} back"), &e)),
        }
    }
    Ok(())
}

/// Undoes everything after `error` and says how that went.
pub(crate) fn back_out(host: &dyn Host, store: &Store, journal: &Journal, error: &Error) -> Error {
    let facts = Facts::gather(host);
    let hint = if facts.scope.read_only { " (/proc/sys is read-only here: act on the host)" } else { "" };
    let options = revert::Options { force: true, ..Default::default() };
    match revert::undo(host, store, journal, Selection::Apply, &options) {
        Ok(_) => Error::check(format_args!("{error}{hint}. Everything was put back as it was")),
        Err(undo) => Error::check(format_args!(
            "{error}{hint}. Putting things back failed as well: {undo}. {} shows where the host stands; {} finishes the work",
            facts.identity.command("status"),
            facts.identity.command("revert")
        )),
    }
}
