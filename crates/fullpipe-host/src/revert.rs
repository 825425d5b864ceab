//! Rolls a host back in reverse order: boot files, then the controller, queueing disciplines last.

mod report;

pub use report::{Left, Outcome, Reverted, Undone};

use crate::apply::{LOCK_TIMEOUT, Part, lock_within};
use crate::error::{Error, Result};
use crate::host::{Host, parent};
use crate::journal::{Journal, Phase, Record, Store};
use crate::kernel;
use crate::plan::{CONTROLLER, Change, FileState, Plan, Step, StepState, choice, tidy};
use std::io;

/// How a revert treats settings that were changed since.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Overwrite them.
    pub force: bool,
    /// Leave them unchanged and revert the rest.
    pub keep_changed: bool,
    /// Leave changed files unchanged, and overwrite other settings: the host is reachable as
    /// before, and no edit is lost.
    pub keep_files: bool,
}

impl Options {
    /// Of a rollback without a request: after a failure, or at the deadline of a trial.
    pub fn automatic() -> Options {
        Options { keep_files: true, ..Options::default() }
    }

    /// Whether a setting that was changed since is an error.
    pub(crate) fn refuses(&self) -> bool {
        !self.force && !self.keep_changed && !self.keep_files
    }

    fn keeps(&self, change: &Change) -> bool {
        self.keep_changed || self.keep_files && !change.is_live()
    }
}

/// Which steps of a plan are rolled back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Selection<'a> {
    /// All of them.
    All,
    /// Those of an apply.
    Apply,
    /// The assignments of a loaded controller: all, or only those in the running kernel.
    Uses(&'a str, Part),
    /// The steps from this index on, which are assignments of a loaded controller.
    Latest(usize),
}

impl Selection<'_> {
    fn includes(self, number: usize, step: &Step) -> bool {
        match self {
            Selection::All => true,
            Selection::Apply => step.part_of.is_none(),
            Selection::Uses(controller, part) => step.uses(controller) && part.includes(&step.change),
            Selection::Latest(first) => number >= first,
        }
    }
}

/// A setting that is neither as applied nor as before.
pub(crate) struct Changed<'a> {
    pub change: &'a Change,
    /// Current value.
    pub now: String,
    /// The lines of a file that differ.
    pub lines: Vec<String>,
    /// Whether its step was not begun.
    is_pending: bool,
}

impl Changed<'_> {
    /// Whether its step was not begun.
    pub fn is_pending(&self) -> bool {
        self.is_pending
    }

    /// Lists all of them, each with the applied and the current value.
    pub fn describe(all: &[Changed<'_>]) -> String {
        let one = |changed: &Changed<'_>| {
            let (title, wanted) = (changed.change.title(), changed.change.wanted());
            let lines: String = changed.lines.iter().map(|line| format!("\n      {line}")).collect();
            let set = if changed.is_pending { "would set:   " } else { "fullpipe set:" };
            format!("  {title}\n    {set} {wanted}\n    now:          {}{lines}", changed.now)
        };
        all.iter().map(one).collect::<Vec<_>>().join("\n")
    }
}

/// Settings among `selection` that were changed since they were applied, or (while an apply is
/// unfinished) since they were planned.
pub(crate) fn changed_since<'a>(
    host: &dyn Host,
    plan: &'a Plan,
    selection: Selection<'_>,
) -> Result<Vec<Changed<'a>>> {
    let mut all = Vec::new();
    for (number, step) in plan.steps.iter().enumerate().filter(|(n, s)| selection.includes(*n, s)) {
        let change = &step.change;
        let standing = plan.state(host, number);
        let standing = standing.map_err(|e| Error::io(format_args!("cannot read {}", change.title()), &e))?;
        let StepState::Other(now) = standing else { continue };
        let lines = match change {
            Change::File { path, after, .. } => FileState::read(host, path)
                .map(|current| crate::diff::lines(&after.text(), &current.text()))
                .unwrap_or_default(),
            _ => Vec::new(),
        };
        all.push(Changed { change, now, lines, is_pending: step.is_pending });
    }
    Ok(all)
}

/// Rolls back everything that fullpipe applied or began to apply on this host.
///
/// # Errors
/// [`Error::Check`] if settings were changed since (unless `options` decide): then nothing is
/// changed. [`Error::Impossible`] if the host refuses: the error names what is left, and another
/// `revert` resumes.
pub fn revert(host: &dyn Host, store: &Store, options: &Options) -> Result<Option<Reverted>> {
    revert_selection(host, store, Selection::All, options)
}

/// Rolls the selected steps back without being asked to; what is left unchanged is in the result.
///
/// # Errors
/// As [`revert`].
pub(crate) fn roll_back(host: &dyn Host, store: &Store, selection: Selection<'_>) -> Result<Reverted> {
    // The journal states which steps were begun. `load` leaves out steps that have become void since, so
    // that the numbers of the others change.
    let journal = match selection {
        Selection::Latest(_) => store.read(host)?,
        _ => store.load(host)?,
    };
    match journal {
        Some(journal) => undo(host, store, &journal, selection, &Options::automatic()),
        None => Ok(Reverted::default()),
    }
}

/// As [`revert`], for the selected steps.
pub(crate) fn revert_selection(
    host: &dyn Host,
    store: &Store,
    selection: Selection<'_>,
    options: &Options,
) -> Result<Option<Reverted>> {
    let _lock = lock_within(host, "revert", LOCK_TIMEOUT)?;
    match store.load(host)? {
        None => {
            // A crash before the plan was durable may have left what prepared it.
            store.tidy(host).map_err(|e| Error::io(format_args!("cannot clean up {}", store.path()), &e))?;
            Ok(None)
        }
        Some(journal) => {
            if selection == Selection::All {
                kernel::refuse_running(host, &journal)?;
                if options.refuses() {
                    refuse_if_changed(host, &journal, selection, "revert")?;
                }
                kernel::Trial::forget(host, store)
                    .map_err(|e| Error::io("cannot remove the record of the kernel trial", &e))?;
            }
            undo(host, store, &journal, selection, options).map(Some)
        }
    }
}

/// While a revert is under way, default_qdisc passes through what the devices had.
fn passes_through(plan: &Plan, change: &Change, now: &str) -> bool {
    is_default_qdisc(change)
        && plan.steps.iter().any(
            |s| matches!(&s.change, Change::Qdisc { before, .. } if before.0.iter().any(|n| n.kind == now)),
        )
}

fn is_default_qdisc(change: &Change) -> bool {
    matches!(change, Change::Sysctl { name, .. } if name == "net.core.default_qdisc")
}

/// Rolls back the selected steps and keeps the others in the journal.
pub(crate) fn undo(
    host: &dyn Host,
    store: &Store,
    journal: &Journal,
    selection: Selection<'_>,
    options: &Options,
) -> Result<Reverted> {
    let plan = &journal.plan;
    if options.refuses() {
        refuse_if_changed(host, journal, selection, "revert")?;
    }
    let announced = match selection {
        Selection::Uses(controller, _) => Some(Record::Unassigning(controller.to_owned())),
        // What was just begun says so already.
        Selection::Latest(_) => None,
        Selection::All | Selection::Apply => Some(Record::Reverting),
    };
    let is_resumed = journal.phase == Phase::Reverting && journal.busy_with.is_none();
    if let Some(record) = announced.filter(|_| !is_resumed) {
        record_progress(host, store, &record)?;
    }
    let connections = host
        .sockets()
        .ok()
        .map_or(0, |all| all.iter().filter(|s| s.controller == plan.controller && !s.is_loopback()).count());
    let mut report = Reverted::default();
    let mut rest = plan.clone();
    let mut kept = vec![true; plan.steps.len()];
    let mut failed = None;
    for (number, step) in plan.steps.iter().enumerate().rev().filter(|(n, s)| selection.includes(*n, s)) {
        kept[number] = false;
        if step.is_pending {
            continue;
        }
        // A later step of another command changed the same object again: its undo then restores what this
        // one replaced. Steps between the two that are undone as well were skipped in the same way.
        let is_later = |&n: &usize| {
            kept[n] && !plan.steps[n].is_pending && plan.steps[n].change.same_target(&step.change)
        };
        if let Some(later) = (number + 1..kept.len()).find(is_later) {
            let earlier = rest.steps[number].change.clone();
            rest.steps[later].change.inherit_before(&earlier);
            continue;
        }
        let change = &rest.steps[number].change;
        let restored = match restore_step(host, plan, change, selection, options) {
            // Without space for a file, the host can still be made reachable as before; and a split of a
            // container does not keep older changes from being undone.
            Err(e) if options.keep_files && !change.is_live() || change.is_foreign_split(host) => {
                failed.get_or_insert(e);
                continue;
            }
            restored => restored?,
        };
        let Some(outcome) = restored else { continue };
        if outcome == Outcome::NotEmpty
            && let Some(heir) = step_inside(&rest, &kept, change)
        {
            let heir = rest.steps[heir].part_of.clone();
            rest.steps[number].part_of = heir;
            kept[number] = true;
            continue;
        }
        report.add(step.change.title(), outcome);
        record_progress(host, store, &Record::Undone(number))?;
    }
    if let Some(error) = failed {
        return Err(error);
    }
    // `cc unload` moves those of the controller that it unloads.
    if connections > 0 && matches!(selection, Selection::All | Selection::Apply) {
        let unpaced = plan.steps.iter().any(|s| matches!(s.change, Change::Qdisc { .. }));
        report.left = Some(Left { controller: plan.controller.clone(), connections, unpaced });
    }
    let mut kept = kept.into_iter();
    rest.steps.retain(|_| kept.next() == Some(true));
    conclude(host, store, journal, rest, selection)?;
    Ok(report)
}

/// Records the progress of a rollback. Nothing depends on the record: which objects are restored is
/// read from the host, so another rollback resumes without it. A full disk must not keep a host
/// unreachable.
fn record_progress(host: &dyn Host, store: &Store, record: &Record) -> Result<()> {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    match store.append(host, record) {
        Err(e) if [FileTooLarge, QuotaExceeded, ReadOnlyFilesystem, StorageFull].contains(&e.kind()) => {
            Ok(())
        }
        outcome => outcome.map_err(|e| Error::io(format_args!("cannot write {}", store.path()), &e)),
    }
}

/// Fails if a selected setting was changed since; `command` is the command that is refused.
pub(crate) fn refuse_if_changed(
    host: &dyn Host,
    journal: &Journal,
    selection: Selection<'_>,
    command: &str,
) -> Result<()> {
    // Steps that were not begun are not rolled back, and do not hide a change of what an earlier step set.
    let mut begun = journal.plan.clone();
    begun.steps.retain(|step| !step.is_pending);
    let mut changed = changed_since(host, &begun, selection)?;
    if journal.phase == Phase::Reverting {
        changed.retain(|c| !is_default_qdisc(c.change));
    }
    if changed.is_empty() {
        return Ok(());
    }
    Err(Error::check(format_args!(
        "these settings were changed since fullpipe applied them; nothing was reverted:\n{}\n\
         {} keeps them and reverts the rest; --force overwrites them",
        Changed::describe(&changed),
        host.identity().command(format_args!("{command} --keep-changed"))
    )))
}

/// Restores one object; `None` if it is already in its original state.
fn restore_step(
    host: &dyn Host,
    plan: &Plan,
    change: &Change,
    selection: Selection<'_>,
    options: &Options,
) -> Result<Option<Outcome>> {
    let title = change.title();
    if let Change::File { path, before, after }
    | Change::BootSettings { path, before, after, .. }
    | Change::BootOnce { path, before, after, .. } = change
    {
        tidy(host, path, &[before, after])
            .map_err(|e| Error::io(format_args!("cannot remove the temporary file beside {path}"), &e))?;
    }
    let standing = change.state(host).map_err(|e| Error::io(format_args!("cannot read {title}"), &e))?;
    match standing {
        StepState::Before => return Ok(None),
        StepState::Gone => return Ok(Some(Outcome::Gone)),
        StepState::Other(now) if options.keeps(change) && !passes_through(plan, change, &now) => {
            change.disarm(host).map_err(|e| Error::io(format_args!("cannot disarm {title}"), &e))?;
            return Ok(Some(Outcome::Kept(now)));
        }
        StepState::After | StepState::Partial | StepState::Other(_) => {}
    }
    let Err(e) = change.undo(host, options.force) else { return Ok(Some(Outcome::Restored)) };
    // Changed after its state was read.
    if e.kind() == io::ErrorKind::ResourceBusy
        && options.keeps(change)
        && let Ok(StepState::Other(now)) = change.state(host)
    {
        return Ok(Some(Outcome::Kept(now)));
    }
    let refused = |e: &io::Error| Error::io(format_args!("cannot restore {title}"), e);
    let is_of_uses = matches!(selection, Selection::Uses(..));
    match (change, e.kind()) {
        (Change::Module { .. }, _) => Ok(Some(Outcome::StillLoaded(e.to_string()))),
        (Change::File { before: FileState::Absent, .. }, io::ErrorKind::DirectoryNotEmpty) => {
            Ok(Some(Outcome::NotEmpty))
        }
        // The previous controller may no longer exist; then one of the usual ones takes over.
        (Change::Sysctl { name, after, .. }, kind)
            if name == CONTROLLER && (is_of_uses || kind == io::ErrorKind::NotFound) =>
        {
            let now = fallback_default(host, after).map_err(|_| refused(&e))?;
            Ok(Some(Outcome::Replaced { now, why: e.to_string() }))
        }
        (Change::Congctl { route, .. }, kind) if is_of_uses || kind == io::ErrorKind::InvalidInput => {
            match host.set_route_controller(route, None) {
                Ok(()) => Ok(Some(Outcome::Replaced { now: choice(None), why: e.to_string() })),
                // The kernel drops the name when the controller is unregistered.
                Err(_) if is_of_uses => Ok(Some(Outcome::Refused(e.to_string()))),
                Err(_) => Err(refused(&e)),
            }
        }
        _ => Err(refused(&e)),
    }
}

/// Makes one of the kernel's usual controllers the default, except `not`.
pub(crate) fn fallback_default(host: &dyn Host, not: &str) -> io::Result<String> {
    let available = host.sysctl("net.ipv4.tcp_available_congestion_control").unwrap_or_default();
    let mut refused = io::Error::from(io::ErrorKind::NotFound);
    for usual in ["cubic", "bbr", "reno"] {
        if usual == not || !available.split_ascii_whitespace().any(|there| there == usual) {
            continue;
        }
        match host.set_sysctl(CONTROLLER, usual) {
            Ok(()) => return Ok(usual.to_owned()),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

/// The kept step whose file is in the directory that `change` created.
fn step_inside(plan: &Plan, kept: &[bool], change: &Change) -> Option<usize> {
    let Change::File { path: directory, .. } = change else { return None };
    let inside = |path: &str| {
        let mut above = parent(path);
        while above != "/" && above != directory {
            above = parent(above);
        }
        above == directory
    };
    let mut numbered = plan.steps.iter().enumerate();
    let found =
        numbered.find(|(n, s)| kept[*n] && matches!(&s.change, Change::File { path, .. } if inside(path)));
    found.map(|(number, _)| number)
}

/// Writes the remaining steps to the journal, or removes the journal if none are left.
fn conclude(
    host: &dyn Host,
    store: &Store,
    journal: &Journal,
    mut rest: Plan,
    selection: Selection<'_>,
) -> Result<()> {
    if rest.steps.is_empty() {
        return store
            .end(host, journal)
            .map_err(|e| Error::io(format_args!("cannot remove {}", store.path()), &e));
    }
    let mut left = journal.clone();
    if !rest.has_apply() {
        let last = rest.steps.last().and_then(|s| s.part_of.as_ref());
        rest.controller = last.map(|part| part.controller.clone()).unwrap_or_default();
        (rest.notes, rest.canary, left.trial) = (Vec::new(), None, None);
    }
    left.plan = rest;
    let its_own = match selection {
        Selection::All | Selection::Apply => true,
        Selection::Uses(controller, _) => journal.busy_with.as_deref() == Some(controller),
        Selection::Latest(_) => true,
    };
    if its_own {
        (left.phase, left.busy_with) = (Phase::Applied, None);
    }
    store.replace(host, &left).map_err(|e| Error::io(format_args!("cannot write {}", store.path()), &e))
}
