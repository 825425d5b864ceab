//! Assigns a loaded controller and unassigns it: as the default, to a route, to a control group, at
//! boot. The changes are in the host's journal beside those of an apply, each with its controller,
//! so that `status` reports them and `revert` rolls them back.

use crate::apply::{
    LOCK_TIMEOUT, interrupted, lock_within, make_steps, now, on_trial, read_back, refuse_unfinished,
    refuse_unsafe_files,
};
use crate::destinations;
use crate::error::{Error, Result};
use crate::facts::Scope;
use crate::host::Host;
use crate::journal::{Journal, Phase, Record, Store};
use crate::net::{KeyedRoute, MAIN_TABLE, RouteController, destination};
use crate::plan::{
    ALLOWED, BootFiles, CONTROLLER, Change, ControllerUnit, FileState, Plan, Step, StepState, Use,
    controller_changes, refuse_writable_program, tidy, unit_name, unit_path,
};
use crate::revert::{self, Outcome, Reverted, Selection, fallback_default};
use std::io;
use std::time::Duration;

pub use crate::apply::Part;

/// What a loaded controller is assigned to.
#[derive(Default)]
pub struct Request<'a> {
    /// The name it is registered under.
    pub controller: String,
    /// The default of the network namespace.
    pub default: bool,
    /// New connections of a control group's processes.
    pub cgroup: Option<Cgroup<'a>>,
    /// Connections over the route to this destination.
    pub route: Option<String>,
    /// Connections to these destinations (as [`destination`] writes them); missing routes are
    /// added.
    pub to: Vec<String>,
    /// The kernel module that provides it, if not loaded.
    pub module: Option<String>,
    /// The unit that loads it at every boot.
    pub boot: Option<ControllerUnit<'a>>,
}

/// A control group whose controller is set by a BPF program.
pub struct Cgroup<'a> {
    /// The control group's directory.
    pub path: String,
    /// Where the program will be pinned.
    pub pin: String,
    /// Attaches the program and pins it there.
    pub attach: &'a dyn Fn() -> io::Result<()>,
}

/// Result of unassigning a controller.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Unassigned {
    /// Titles of the restored objects.
    pub reverted: Reverted,
    /// Whether a unit loaded it at every boot.
    pub was_loaded_at_boot: bool,
    /// The default controller now.
    pub default: String,
    /// What was not changed, and what to do about it.
    pub left: Vec<String>,
}

impl Unassigned {
    /// Whether it was not assigned to anything.
    pub fn is_nothing(&self) -> bool {
        self.reverted.steps.is_empty() && !self.was_loaded_at_boot && self.left.is_empty()
    }

    /// What was not restored.
    pub fn notes(&self) -> Vec<String> {
        [self.reverted.notes(), self.left.clone()].concat()
    }
}

/// Limits the work on the routes of other network namespaces while a controller is unassigned in
/// each, and counts what is left. Any user may create namespaces and add any number of routes, so all
/// of them share one time, and errors about them are only counted.
#[derive(Clone, Debug)]
pub struct RouteBudget {
    remaining: Duration,
    routes_left: usize,
    unread: usize,
}

impl Default for RouteBudget {
    fn default() -> Self {
        RouteBudget::new(Duration::from_secs(5))
    }
}

impl RouteBudget {
    /// A budget of `time` for all other network namespaces together.
    pub fn new(time: Duration) -> Self {
        RouteBudget { remaining: time, routes_left: 0, unread: 0 }
    }

    /// Routes found that still name the controller.
    pub fn routes_left(&self) -> usize {
        self.routes_left
    }

    /// Network namespaces whose routes were not all searched.
    pub fn unread(&self) -> usize {
        self.unread
    }

    /// What was left to the owners of other network namespaces, if anything.
    pub fn note(&self, controller: &str) -> Option<String> {
        let RouteBudget { routes_left, unread, .. } = self;
        (routes_left + unread > 0).then(|| {
            format!(
                "routes in other network namespaces may still name {controller} ({routes_left} found, \
                 {unread} namespaces not searched): the kernel uses its default for them"
            )
        })
    }

    /// Removes a controller from the routes of the current network namespace, which is not the own one.
    fn clear_routes(&mut self, host: &dyn Host, controller: &str) {
        let started = host.clock().since_boot();
        let left = host.clear_routes_within(controller, self.remaining);
        let time = host.clock().since_boot().saturating_sub(started);
        self.remaining = self.remaining.saturating_sub(time);
        self.routes_left += left.found;
        self.unread += usize::from(left.may_be_more);
    }
}

/// Path of the unit that loads a controller of this name at boot.
pub fn boot_unit(controller: &str) -> String {
    unit_path(&unit_name(controller)).0
}

/// Checks that a unit can load a controller on this host; call it before anything is changed.
///
/// # Errors
/// [`Error::Impossible`] without systemd, where boot files are not read, or if the program's path
/// cannot be written into a unit.
pub fn check_boot(host: &dyn Host, unit: &ControllerUnit<'_>) -> Result<()> {
    unit.text("cc load", true)?;
    if !host.exists("/run/systemd/system") {
        return Err(Error::impossible(format_args!(
            "this machine does not run systemd: make your init system run `fullpipe cc load {}{}` at boot",
            unit.which,
            if unit.default { " --default" } else { "" }
        )));
    }
    let scope = Scope::detect(host, &host.identity());
    if !scope.boots {
        return Err(Error::impossible(format_args!(
            "nothing reads boot files here ({}): run it on the host itself",
            scope.describe()
        )));
    }
    refuse_writable_program(host, unit.program)
}

/// Assigns a loaded controller, or leaves the host unchanged. Settings already in place are not
/// changed.
///
/// # Errors
/// [`Error::Usage`] for a missing route; [`Error::Impossible`] without root or if the kernel
/// refuses; [`Error::Check`] if a change is on trial, a command was interrupted, or the result does
/// not verify. After a failure the changes are rolled back; if that fails too, the error says so
/// and `revert` completes it.
pub fn assign(host: &dyn Host, store: &Store, request: &Request<'_>) -> Result<()> {
    assign_steps(host, store, request).map(drop)
}

/// As [`assign`]; returns the steps.
pub(crate) fn assign_steps(host: &dyn Host, store: &Store, request: &Request<'_>) -> Result<Vec<Step>> {
    let controller = &request.controller;
    let _lock = lock_within(host, "cc load", LOCK_TIMEOUT)?;
    let known = store.load(host)?;
    let mut plan = match &known {
        Some(journal) => ready(host, journal, request)?,
        None => Plan { controller: controller.clone(), steps: Vec::new(), notes: Vec::new(), canary: None },
    };
    let mut numbers = steps_to_repeat(host, &plan, request);
    let first = plan.steps.len();
    let boot = host.clock().boot();
    for step in wanted(host, request, numbers.is_empty())? {
        plan.steps.push(
            Step { part_of: Some(Use { controller: controller.clone(), boot: boot.clone() }), ..step }
                .pending(),
        );
    }
    refuse_unsafe_files(host, &plan.steps[first..])?;
    let is_new = plan.steps.len() > first;
    numbers.extend(first..plan.steps.len());
    if !plan.has_apply() {
        plan.controller.clone_from(controller);
    }
    let cannot_write = |e: io::Error| Error::io(format_args!("cannot write {}", store.path()), &e);
    let cannot_remove = |e: io::Error| Error::io(format_args!("cannot remove {}", store.path()), &e);
    let mut journal = match known {
        None if !is_new => return Ok(Vec::new()),
        Some(journal) if plan.is_empty() => {
            return store.end(host, &journal).map(|()| Vec::new()).map_err(cannot_remove);
        }
        None => {
            store.begin(host, &plan, Some(controller), now()).map_err(cannot_write)?;
            store.load(host)?.ok_or_else(|| {
                Error::check("the journal was removed by another process; nothing was changed")
            })?
        }
        Some(journal) if !is_new && plan == journal.plan && journal.busy_with.is_none() => journal,
        Some(journal) => {
            let (phase, busy_with) =
                if is_new { (Phase::Applying, Some(controller.clone())) } else { (Phase::Applied, None) };
            let journal = Journal { plan, phase, busy_with, ..journal };
            store.replace(host, &journal).map_err(cannot_write)?;
            journal
        }
    };
    store.renumber(host, &mut journal)?;
    let perform = |change: &Change, overwrite: bool| match (change, &request.cgroup) {
        (Change::Cgroup { .. }, Some(cgroup)) => (cgroup.attach)(),
        _ => change.perform(host, overwrite),
    };
    let attempt = make_steps(host, store, &journal.plan, &numbers, true, &perform)
        .and_then(|_| read_back(host, &journal.plan, &numbers))
        .and_then(|()| {
            if request.default && !journal.plan.divides() {
                check_new_connection(host, controller)?;
            }
            if is_new { store.append(host, &Record::Applied).map_err(cannot_write) } else { Ok(()) }
        });
    let made = attempt.map_err(|error| {
        let undone = revert::roll_back(host, store, Selection::Latest(first));
        let again = numbers.iter().filter(|number| **number < first);
        let steps_to_repeat =
            again.clone().rev().try_for_each(|number| journal.plan.steps[*number].change.undo(host, false));
        let repeated = steps_to_repeat.map_err(|e| Error::io("cannot restore the default", &e));
        match undone.and_then(|undone| repeated.map(|()| undone.exceptions())) {
            Ok(exceptions) if exceptions.is_empty() => error,
            Ok(exceptions) => Error::check(format_args!("{error}; {}", exceptions.join("; "))),
            Err(undo) => Error::check(format_args!(
                "{error}\nthe rollback failed too: {undo}; {} shows the state, {} completes the rollback",
                host.identity().command("status"),
                host.identity().command("revert")
            )),
        }
    });
    made.map(|()| journal.plan.without_progress().steps.split_off(first))
}

/// The active plan without assignments that are not in place: interrupted ones, and those that were
/// removed or (where they are requested again) changed since.
fn ready(host: &dyn Host, journal: &Journal, request: &Request<'_>) -> Result<Plan> {
    if journal.trial.is_some() {
        return Err(on_trial(host, journal));
    }
    if journal.busy_with.is_none() {
        refuse_unfinished(host, journal)?;
    }
    if journal.phase == Phase::Applying && journal.busy_with.is_none() {
        return Err(interrupted(host, journal));
    }
    let mut plan = journal.plan.clone();
    for number in (0..plan.steps.len()).rev() {
        let step = &plan.steps[number];
        if step.part_of.is_none() {
            continue;
        }
        let title = step.change.title();
        let standing =
            plan.state(host, number).map_err(|e| Error::io(format_args!("cannot read {title}"), &e))?;
        let holds = match standing {
            StepState::After | StepState::Partial => true,
            StepState::Before | StepState::Gone => false,
            StepState::Other(_) => !(step.uses(&request.controller) && request.concerns(&step.change)),
        };
        if !holds {
            if let Change::File { path, before, after } = &step.change {
                tidy(host, path, &[before, after]).map_err(|e| {
                    Error::io(format_args!("cannot remove the temporary file beside {path}"), &e)
                })?;
            }
            plan.steps.remove(number);
        }
    }
    Ok(plan)
}

impl Request<'_> {
    /// Whether the request concerns the object of this change.
    fn concerns(&self, change: &Change) -> bool {
        match change {
            Change::Sysctl { .. } => self.default,
            Change::Congctl { route, .. } => {
                let over = |to: &String| destination(to).is_ok_and(|to| to == route.prefix);
                self.to.contains(&route.prefix) || self.route.as_ref().is_some_and(over)
            }
            Change::Route { route } => self.to.contains(&route.prefix),
            Change::Module { .. } => self.module.is_some(),
            Change::Cgroup { pin, .. } => self.cgroup.as_ref().is_some_and(|cgroup| cgroup.pin == *pin),
            Change::File { .. } => self.boot.is_some(),
            _ => false,
        }
    }
}

/// The step of an apply that makes the controller the default, if a restart has ended it: the
/// apply's unit repeats it.
fn steps_to_repeat(host: &dyn Host, plan: &Plan, request: &Request<'_>) -> Vec<usize> {
    let is_it = |step: &Step| match &step.change {
        Change::Sysctl { name, after, .. } => {
            step.part_of.is_none() && name == CONTROLLER && *after == request.controller
        }
        _ => false,
    };
    let number = plan.steps.iter().position(is_it).filter(|_| request.default);
    number.filter(|n| plan.state(host, *n).is_ok_and(|now| now != StepState::After)).into_iter().collect()
}

/// The steps of a request, in order; `default` tells whether the default is among them.
pub(crate) fn wanted(host: &dyn Host, request: &Request<'_>, default: bool) -> Result<Vec<Step>> {
    let controller = &request.controller;
    let words = |name: &str| -> Vec<String> {
        let text = host.sysctl(name).unwrap_or_default();
        text.split_ascii_whitespace().map(str::to_owned).collect()
    };
    let mut steps = Vec::new();
    if let Some(module) = &request.module {
        let why = format!("the kernel has {controller} as a module that is not loaded");
        steps.push(Step::new(Change::Module { name: module.clone() }, why));
    }
    if request.default && default {
        let before = host
            .sysctl(CONTROLLER)
            .ok_or_else(|| Error::impossible(format_args!("{CONTROLLER} cannot be read")))?;
        if before != *controller {
            // Only the first network namespace can change what all may choose.
            let first = Scope::detect(host, &host.identity()).initial_network;
            let allowed = first.then(|| words(ALLOWED));
            steps.extend(controller_changes(allowed.as_deref(), before, controller));
        }
    }
    if let Some(cgroup) = &request.cgroup
        && host.stat(&cgroup.pin).is_err()
    {
        let (group, pin) = (cgroup.path.clone(), cgroup.pin.clone());
        let change = Change::Cgroup { group, controller: controller.clone(), pin };
        steps.push(Step::new(change, "controller of its new connections"));
    }
    if let Some(prefix) = &request.route {
        steps.extend(on_route(host, prefix, controller, "--route")?);
    }
    for prefix in &request.to {
        steps.extend(destinations::step(host, prefix, controller)?);
    }
    if let Some(unit) = &request.boot {
        check_boot(host, unit)?;
        let text = unit.text("cc load", true)?;
        let mut files = BootFiles::default();
        files.unit(host, &unit_name(controller), &text, "loads the controller at every boot");
        steps.extend(files.steps(host)?);
    }
    Ok(steps)
}

/// The step that sets a controller on the route to a destination; `None` if it is set. `asked` is
/// the option's name.
pub(crate) fn on_route(host: &dyn Host, prefix: &str, controller: &str, asked: &str) -> Result<Option<Step>> {
    let to = destination(prefix).map_err(|e| Error::usage(format_args!("{asked}: {e}")))?;
    let mut routes = host.routes().map_err(|e| Error::io("cannot read the routes", &e))?;
    routes.retain(|route| route.key.prefix == to && route.key.table == MAIN_TABLE);
    let has_it = |route: &KeyedRoute| route.choice.as_ref().is_some_and(|now| now.controller == controller);
    match &routes[..] {
        [] => Err(Error::usage(format_args!("no route to {prefix}: `ip route` lists the routes"))),
        [route] if !route.multipath && has_it(route) => Ok(None),
        [route] if route.advertised => Err(Error::usage(format_args!(
            "the route to {prefix} was learned from router advertisements, and changing it would stop their \
             updates: use --default"
        ))),
        [route] if !route.multipath => {
            let after = RouteController { controller: controller.to_owned(), locked: false };
            let change = Change::Congctl { route: route.key.clone(), before: route.choice.clone(), after };
            Ok(Some(Step::new(change, "controller of connections over it")))
        }
        _ => Err(Error::usage(format_args!(
            "{prefix} has several routes or next hops: set their controller with `ip route`"
        ))),
    }
}

/// Opens a connection and checks its controller.
fn check_new_connection(host: &dyn Host, controller: &str) -> Result<()> {
    match host.try_connection() {
        Ok(seen) if seen != controller => {
            Err(Error::check(format_args!("a new connection uses {seen}, not {controller}")))
        }
        // Loopback may be down, which does not concern the controller.
        _ => Ok(()),
    }
}

/// Unassigns a controller that is about to be unloaded: fullpipe's changes are rolled back, other
/// users of the controller get the kernel's usual one. With [`Part::Live`] it is still loaded at
/// the next boot.
///
/// `others` is the budget for routes in a network namespace of others; routes that remain are only
/// counted. It is `None` for the own namespace: there is no limit, and each route that remains is
/// reported.
///
/// # Errors
/// [`Error::Check`] if an apply uses it, which `revert` ends. [`Error::Impossible`] if the kernel
/// refuses.
pub fn unassign(
    host: &dyn Host,
    store: &Store,
    controller: &str,
    part: Part,
    others: Option<&mut RouteBudget>,
) -> Result<Unassigned> {
    let _lock = lock_within(host, "cc unload", LOCK_TIMEOUT)?;
    let mut unassigned = Unassigned::default();
    let selection = Selection::Uses(controller, part);
    match store.load(host)? {
        None => {
            store.tidy(host).map_err(|e| Error::io(format_args!("cannot clean up {}", store.path()), &e))?;
        }
        // A restart ended all of it.
        Some(journal) if journal.plan.is_empty() => {
            store
                .end(host, &journal)
                .map_err(|e| Error::io(format_args!("cannot remove {}", store.path()), &e))?;
        }
        Some(journal) => {
            refuse_applied(host, &journal, controller)?;
            if journal.plan.steps.iter().any(|step| step.uses(controller)) {
                let options = revert::Options { keep_changed: true, ..Default::default() };
                unassigned.reverted = revert::undo(host, store, &journal, selection, &options)?;
            }
        }
    }
    let (unit, link) = unit_path(&unit_name(controller));
    unassigned.was_loaded_at_boot = unassigned.reverted.undone().any(|title| title == unit);
    // Changes outside this journal: by other tools, or by a journal in another mount namespace.
    let loads = || host.content(&unit).is_some_and(|text| text.contains(" cc load "));
    if part == Part::Whole && Scope::detect(host, &host.identity()).boots && loads() {
        let steps = unassigned.reverted.steps.iter();
        let edited: Vec<&String> =
            steps.filter(|step| matches!(step.outcome, Outcome::Kept(_))).map(|step| &step.title).collect();
        for path in [&link, &unit] {
            if edited.contains(&path) {
                unassigned.left.push(format!("{path} was edited since: remove it manually"));
                continue;
            }
            let state = FileState::read(host, path);
            if state.is_ok_and(|state| state != FileState::Absent) {
                host.remove(path).map_err(|e| Error::io(format_args!("cannot remove {path}"), &e))?;
                unassigned.was_loaded_at_boot = true;
            }
        }
    }
    let default = host.sysctl(CONTROLLER).unwrap_or_default();
    unassigned.default = if default == controller {
        fallback_default(host, controller).map_err(|e| {
            Error::io(format_args!("cannot set {CONTROLLER} to another than {controller}"), &e)
        })?
    } else {
        default
    };
    match others {
        None => clear_routes(host, controller, &mut unassigned)?,
        Some(budget) => budget.clear_routes(host, controller),
    }
    Ok(unassigned)
}

/// Removes a controller from the routes that name it. After its unload the kernel uses its default
/// for them, so they do not keep the module loaded.
fn clear_routes(host: &dyn Host, controller: &str, unassigned: &mut Unassigned) -> Result<()> {
    for route in host.routes().map_err(|e| Error::io("cannot read the routes", &e))? {
        if route.choice.is_some_and(|choice| choice.controller == controller)
            && let Err(e) = host.set_route_controller(&route.key, None)
        {
            let to = &route.key.prefix;
            unassigned.left.push(format!("the route to {to} still names {controller}: {e}"));
        }
    }
    Ok(())
}

/// Refuses to unassign a controller that an apply uses.
fn refuse_applied(host: &dyn Host, journal: &Journal, controller: &str) -> Result<()> {
    let plan = &journal.plan;
    let chosen = || plan.canary.is_some() || host.sysctl(CONTROLLER).as_deref() == Some(controller);
    if plan.has_apply() && plan.controller == controller && chosen() {
        return Err(Error::check(format_args!(
            "{controller} is applied by `fullpipe apply`: run {}, then unload it",
            host.identity().command("revert")
        )));
    }
    Ok(())
}
