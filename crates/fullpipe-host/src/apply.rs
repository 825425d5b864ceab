//! Performs a plan: journal, change, verify. If any part fails, everything is undone.

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

/// Lock file that serialises changes to a host.
pub(crate) const LOCK: &str = "/run/fullpipe.lock";

/// Options of an apply.
#[derive(Default)]
pub struct Options<'a> {
    /// Overwrite settings that were changed since an earlier apply.
    pub force: bool,
    /// Roll everything back unless it is confirmed within this time.
    pub trial: Option<OnTrial<'a>>,
    /// Path of this program, for the boot unit that starts it.
    pub program: String,
}

/// A change that is rolled back unless it is confirmed.
#[derive(Clone, Copy)]
pub struct OnTrial<'a> {
    /// Time allowed for the confirmation.
    pub within: Duration,
    /// Starts the process that rolls it back even if this one dies ([`crate::trial::watch`] in a
    /// separate process).
    /// The journal exists when this is called, and nothing is changed before it returns.
    pub guard: &'a dyn Fn() -> io::Result<()>,
}

/// Result of an apply.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Applied {
    /// The plan that is now active.
    pub plan: Plan,
    /// Number of steps performed now; the others were already in place.
    pub made: usize,
    /// Controller of a new loopback connection, if one could be opened.
    pub observed: Option<String>,
    /// Results that could not be verified or need attention.
    pub warnings: Vec<String>,
    /// Whether it is rolled back unless confirmed; the files for the next boot are written on
    /// confirmation.
    pub on_trial: bool,
}

/// Which steps of a plan are selected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// All.
    Whole,
    /// Those that change the running kernel. A trial performs only these, so that a restart rolls
    /// it back.
    Live,
}

impl Part {
    /// The steps of a trial on this host. On an image only files can change.
    pub(crate) fn for_trial(host: &dyn Host) -> Part {
        if host.identity().running { Part::Live } else { Part::Whole }
    }

    pub(crate) fn includes(self, change: &Change) -> bool {
        self == Part::Whole || change.is_live()
    }

    /// Indices of the selected steps of an apply.
    fn apply_steps(self, plan: &Plan) -> Vec<usize> {
        let steps = plan.steps.iter().enumerate();
        steps.filter(|(_, s)| s.part_of.is_none() && self.includes(&s.change)).map(|(i, _)| i).collect()
    }
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// Time to wait for another fullpipe process. At boot several units load controllers at the same
/// time.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(20);

/// Loads the journal. If it is unfinished, waits for the process that is writing it, so that a
/// running apply or
/// revert is not taken for an interrupted one.
pub(crate) fn load_when_idle(host: &dyn Host, store: &Store) -> Result<Option<Journal>> {
    let journal = store.load(host)?;
    let is_unfinished = |journal: &Journal| journal.phase != Phase::Applied || journal.busy_with.is_some();
    if !journal.as_ref().is_some_and(is_unfinished) || !host.identity().privileged {
        return Ok(journal);
    }
    match lock_within(host, "status", LOCK_TIMEOUT) {
        Ok(_lock) => store.load(host),
        // Reported as it is: the holder hangs, or the lock cannot be taken on a read-only file system.
        Err(_) => Ok(journal),
    }
}

/// Takes the host's lock for `command`, which needs root.
pub(crate) fn lock(host: &dyn Host, command: &str) -> Result<Box<dyn std::any::Any>> {
    lock_within(host, command, Duration::ZERO)
}

/// As [`lock`], waiting up to `patience` for another process to release it.
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
                    "another fullpipe process is changing this host ({e}){}; wait until it finishes, then \
                     try \
                     again",
                    if waited.is_zero() {
                        String::new()
                    } else {
                        format!(" and did not finish within {} s", waited.as_secs())
                    }
                )));
            }
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied && !nix::unistd::geteuid().is_root() => {
                return Err(Error::impossible(format_args!(
                    "cannot lock {}: permission denied\n  help: run as root, or make the directory writable",
                    host.real_path(&place)
                )));
            }
            outcome => {
                let place = host.real_path(&place);
                return outcome.map_err(|e| Error::io(format_args!("cannot lock {place}"), &e));
            }
        }
    }
}

/// Applies `request` to the host, or leaves the host unchanged.
///
/// # Errors
/// The plan's refusals; [`Error::Impossible`] without root; [`Error::Check`] if another plan is
/// active, if a setting of an earlier apply was changed since, or if the result does not verify.
/// After a failure everything is rolled back; if that fails too, the error says so and `revert`
/// completes it.
pub fn apply(host: &dyn Host, store: &Store, request: &Request, options: &Options<'_>) -> Result<Applied> {
    let _lock = lock(host, &format!("apply {}", request.controller))?;
    let mut known = store.load(host)?;
    let mut expired = Vec::new();
    if let Some(journal) =
        known.take_if(|j| j.trial.as_ref().is_some_and(|t| t.remaining(host.clock()).is_none()))
    {
        let options = revert::Options::automatic();
        expired = revert::undo(host, store, &journal, Selection::Apply, &options)?.exceptions();
        known = store.load(host)?;
    }
    // A canary is rolled back before the controller becomes the default for all connections.
    if let Some(journal) =
        known.take_if(|j| j.plan.canary.is_some() && request.canary.is_none() && j.trial.is_none())
    {
        revert::undo(host, store, &journal, Selection::Apply, &revert::Options::default())?;
        known = store.load(host)?;
    }
    let mut journal = match known {
        Some(journal) if journal.plan.has_apply() => {
            extend(host, store, resume(host, journal, request, options)?, request, options)?
        }
        known => {
            let plan = plan::make(host, request, &options.program)?;
            if plan.is_empty() {
                let (observed, warnings) = verify(host, &plan, Part::Whole)?;
                let warnings = [expired, warnings].concat();
                return Ok(Applied { plan, made: 0, observed, warnings, on_trial: false });
            }
            begin(host, store, known, plan)?
        }
    };
    store.renumber(host, &mut journal)?;
    let write = |record| {
        store.append(host, &record).map_err(|e| Error::io(format_args!("cannot write {}", store.path()), &e))
    };
    let on_trial = options.trial.filter(|_| journal.phase == Phase::Applying);
    let part = if on_trial.is_some() { Part::for_trial(host) } else { Part::Whole };
    let attempt = (|| {
        if let Some(trial) = on_trial {
            write(Record::Trial(Trial::starting_now(host.clock(), trial.within)))?;
            (trial.guard)().map_err(|e| {
                Error::io("cannot start the process that rolls back an unconfirmed change", &e)
            })?;
        }
        let made = perform_steps(host, store, &journal.plan, part, options.force)?;
        let (observed, warnings) = verify(host, &journal.plan, part)?;
        if journal.phase != Phase::Applied {
            write(Record::Applied)?;
        }
        if let Some(trial) = on_trial {
            // The time to confirm starts when the change is complete.
            write(Record::Trial(Trial::starting_now(host.clock(), trial.within)))?;
        }
        Ok((made, observed, warnings))
    })();
    match attempt {
        Ok((made, observed, warnings)) => {
            let plan = journal.plan.without_progress();
            let warnings = [expired, warnings].concat();
            Ok(Applied { plan, made, observed, warnings, on_trial: on_trial.is_some() })
        }
        Err(error) => Err(back_out(host, store, &error)),
    }
}

/// Refuses new steps on files that could not be restored exactly: those with several names, and those
/// whose temporary file exists, which fullpipe did not create.
pub(crate) fn refuse_unsafe_files(host: &dyn Host, steps: &[Step]) -> Result<()> {
    let path = |step: &Step| match &step.change {
        Change::File { path, .. } | Change::BootSettings { path, .. } | Change::BootOnce { path, .. } => {
            Some(path.clone())
        }
        _ => None,
    };
    let paths: Vec<String> = steps.iter().filter_map(path).collect();
    paths.iter().try_for_each(|path| plan::refuse_unsafe_file(host, path))?;
    match paths.iter().find_map(|path| plan::has_temporary(host, path)) {
        None => Ok(()),
        Some(name) => Err(Error::check(format_args!(
            "{name} exists and is not from fullpipe, which needs this name: move it away, then try again; \
             nothing \
             was changed"
        ))),
    }
}

/// Writes a plan to the journal, beside the assignments of loaded controllers.
fn begin(host: &dyn Host, store: &Store, known: Option<Journal>, mut plan: Plan) -> Result<Journal> {
    refuse_unsafe_files(host, &plan.steps)?;
    plan.steps = plan.steps.into_iter().map(Step::pending).collect();
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
    written.map_err(|e| Error::io(format_args!("cannot write {}; nothing was changed", store.path()), &e))?;
    store.load(host)?.ok_or_else(|| {
        Error::check(format_args!("{} was removed by another process; nothing was changed", store.path()))
    })
}

/// Refuses new work after an interrupted revert, `cc load`, `cc unload` or `kernel` command.
pub(crate) fn refuse_unfinished(host: &dyn Host, journal: &Journal) -> Result<()> {
    let revert = host.identity().command("revert");
    match &journal.busy_with {
        None if journal.phase == Phase::Reverting => Err(Error::check(format_args!(
            "a revert was interrupted: run {revert} to complete it, then try again"
        ))),
        None => Ok(()),
        Some(part) if [kernel::INSTALL, kernel::TRIAL].contains(&part.as_str()) => {
            Err(Error::check(format_args!(
                "a `fullpipe kernel` command was interrupted: {} shows its state, {} rolls it back",
                host.identity().command("kernel status"),
                host.identity().command("kernel back")
            )))
        }
        Some(controller) => Err(Error::check(format_args!(
            "a `fullpipe cc load` or `fullpipe cc unload` of {controller} was interrupted: run it again to \
             complete it, or \
             {revert} to roll everything back"
        ))),
    }
}

/// The error for new work while an apply is on trial.
pub(crate) fn on_trial(host: &dyn Host, journal: &Journal) -> Error {
    let command = |words: &str| host.identity().command(words);
    Error::check(format_args!(
        "{} is on trial: {} keeps it, {} rolls it back",
        journal.plan.controller,
        command("confirm"),
        command("revert")
    ))
}

/// The error for new work after an interrupted apply.
pub(crate) fn interrupted(host: &dyn Host, journal: &Journal) -> Error {
    let controller = &journal.plan.controller;
    Error::check(format_args!(
        "the apply of {controller} was interrupted: {} completes it, {} rolls it back",
        host.identity().command(format_args!("apply {controller}")),
        host.identity().command("revert")
    ))
}

/// Checks that an earlier apply can be resumed.
fn resume(host: &dyn Host, journal: Journal, request: &Request, options: &Options<'_>) -> Result<Journal> {
    let in_force = &journal.plan;
    refuse_unfinished(host, &journal)?;
    let command = |words: &str| host.identity().command(words);
    let revert = command("revert");
    if journal.trial.is_some() {
        return Err(on_trial(host, &journal));
    }
    // bbr may be active as fp_bbr1, its eBPF replacement.
    let same = in_force.controller == request.controller
        || plan::make(host, request, &options.program).is_ok_and(|p| p.controller == in_force.controller);
    if !same || in_force.canary != request.canary {
        return Err(Error::check(format_args!(
            "fullpipe has already applied {}: run {revert} first, so that the journal keeps the host's \
             original state",
            in_force.controller
        )));
    }
    let changed = revert::changed_since(host, in_force, Selection::Apply)?;
    // --force sets again what was set; what a step that was not begun replaces was planned otherwise.
    if changed.iter().any(Changed::is_pending) {
        return Err(Error::check(format_args!(
            "these settings were changed since the apply was interrupted:\n{}\nrun {revert}, then apply \
             again",
            Changed::describe(&changed)
        )));
    }
    if !changed.is_empty() && !options.force {
        return Err(Error::check(format_args!(
            "these settings were changed since fullpipe applied them:\n{}\nuse --force to set them again, or \
             {revert} to roll everything back",
            Changed::describe(&changed)
        )));
    }
    if options.trial.is_some() && journal.phase == Phase::Applied && !holds(host, in_force) {
        return Err(Error::check(format_args!(
            "{} is already applied and confirmed, so it cannot be put on trial: {} without --confirm sets it \
             again",
            in_force.controller,
            command(&format!("apply {}", in_force.controller))
        )));
    }
    Ok(journal)
}

/// Extends an active plan with further requests, such as boot files after `--live-only`, or
/// buffers. A setting that is already changed gets one more step, so that each step can be rolled
/// back on its own.
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
            // Settings changed since are restored as planned (`resume`).
            let stands = journal.plan.state(host, number).is_ok_and(|now| now == StepState::After);
            stands && !step.change.has_same_result_as(&journal.plan.steps[number].change)
        })
    };
    let new: Vec<Step> = plan.steps.into_iter().filter(is_new).collect();
    if new.is_empty() {
        return Ok(journal);
    }
    refuse_unsafe_files(host, &new)?;
    journal.plan.steps.extend(new.into_iter().map(Step::pending));
    journal.plan.notes = plan.notes;
    journal.phase = Phase::Applying;
    store
        .replace(host, &journal)
        .map_err(|e| Error::io(format_args!("cannot write {}; nothing was changed", store.path()), &e))?;
    Ok(journal)
}

fn holds(host: &dyn Host, plan: &Plan) -> bool {
    let mut all = plan.steps.iter().enumerate().filter(|(_, s)| s.part_of.is_none());
    all.all(|(i, _)| plan.state(host, i).is_ok_and(|now| now == StepState::After))
}

/// Performs the steps of an apply that are not in place yet.
pub(crate) fn perform_steps(
    host: &dyn Host,
    store: &Store,
    plan: &Plan,
    part: Part,
    overwrite: bool,
) -> Result<usize> {
    let numbers = part.apply_steps(plan);
    make_steps(host, store, plan, &numbers, overwrite, &|change, force| change.perform(host, force))
}

/// The error for an object that is neither as it was when it was planned, nor as it should become.
fn changed_meanwhile(title: &str, now: &str) -> Error {
    Error::check(format_args!(
        "{title} was changed by another program since the change was planned (now: {now}), and fullpipe does \
         not overwrite it: try again"
    ))
}

/// Performs those of the numbered steps that are not in place yet, each with `perform`. With
/// `overwrite`, steps that were in place earlier are set again whatever their objects are now. A
/// pending step is planned from another state, which a rollback would restore.
pub(crate) fn make_steps(
    host: &dyn Host,
    store: &Store,
    plan: &Plan,
    numbers: &[usize],
    overwrite: bool,
    perform: &dyn Fn(&Change, bool) -> io::Result<()>,
) -> Result<usize> {
    let mut made = 0;
    for &i in numbers {
        let step = &plan.steps[i];
        let title = step.change.title();
        let standing = plan.state(host, i).map_err(|e| Error::io(format_args!("cannot read {title}"), &e))?;
        let write = |record| {
            store
                .append(host, &record)
                .map_err(|e| Error::io(format_args!("cannot write {}", store.path()), &e))
        };
        let overwrite = overwrite && !step.is_pending;
        match standing {
            StepState::After => {
                // A side effect of an earlier step, to be rolled back with it.
                if step.is_pending && step.change.is_live() {
                    write(Record::Done(i))?;
                }
                continue;
            }
            StepState::Gone => return Err(Error::check(format_args!("{title} no longer exists"))),
            StepState::Other(now) if !overwrite => return Err(changed_meanwhile(&title, &now)),
            StepState::Before | StepState::Partial | StepState::Other(_) => {}
        }
        write(Record::Doing(i))?;
        perform(&step.change, overwrite).map_err(|e| {
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

/// Replaces the kernel's bare ENOENT with what is known about it.
fn explain(change: &Change, error: io::Error) -> io::Error {
    match (change, error.kind()) {
        (Change::Sysctl { name, after, .. }, io::ErrorKind::NotFound)
            if name.ends_with("congestion_control") =>
        {
            io::Error::new(io::ErrorKind::NotFound, format!("this kernel has no controller {after}"))
        }
        (Change::Qdisc { after, .. }, io::ErrorKind::NotFound) => {
            io::Error::new(io::ErrorKind::NotFound, format!("this kernel has no {after}; use --qdisc keep"))
        }
        _ => error,
    }
}

/// Reads every setting back and opens a test connection.
pub(crate) fn verify(host: &dyn Host, plan: &Plan, part: Part) -> Result<(Option<String>, Vec<String>)> {
    read_back(host, plan, &part.apply_steps(plan))?;
    if !host.identity().running || plan.canary.is_some() {
        return Ok((None, Vec::new()));
    }
    match host.try_connection() {
        Ok(seen) if seen == plan.controller => Ok((Some(seen), Vec::new())),
        Ok(seen) if plan.divides() => {
            let note = format!("a new connection uses {seen}: a running split assigns the controllers");
            Ok((Some(seen), vec![note]))
        }
        Ok(seen) => Err(Error::check(format_args!("a new connection uses {seen}, not {}", plan.controller))),
        // Loopback may be down in a bare namespace, which does not concern the controller.
        Err(e) => Ok((None, vec![format!("cannot open a loopback connection to check the controller: {e}")])),
    }
}

/// Reads back that the numbered steps are in place.
pub(crate) fn read_back(host: &dyn Host, plan: &Plan, numbers: &[usize]) -> Result<()> {
    for &i in numbers {
        let change = &plan.steps[i].change;
        let title = change.title();
        match plan.state(host, i) {
            Ok(StepState::After) => {}
            Ok(_) => {
                return Err(Error::check(format_args!("{title} did not keep the value {}", change.wanted())));
            }
            Err(e) => return Err(Error::io(format_args!("cannot read back {title}"), &e)),
        }
    }
    Ok(())
}

/// Rolls everything back after `error`, and reports whether that succeeded.
pub(crate) fn back_out(host: &dyn Host, store: &Store, error: &Error) -> Error {
    let facts = Facts::gather(host);
    let hint =
        if facts.scope.read_only { " (/proc/sys is read-only here: run fullpipe on the host)" } else { "" };
    match revert::roll_back(host, store, Selection::Apply) {
        Ok(reverted) => Error::check(format_args!("{error}{hint}; {}", reverted.summary())),
        Err(undo) => Error::check(format_args!(
            "{error}{hint}; the rollback failed too: {undo}; {} shows the state, {} completes the rollback",
            facts.identity.command("status"),
            facts.identity.command("revert")
        )),
    }
}
