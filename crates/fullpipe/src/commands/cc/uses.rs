//! `fullpipe cc load` and `cc unload`. The uses of a controller are changes of the host, which
//! `fullpipe-host` makes and journals; loading itself leaves nothing behind that unloading does not
//! remove.

use super::{failure, print_outcome, settings};
use crate::commands::host;
use crate::failure::Failure;
use fullpipe_ebpf::pins::Pins;
use fullpipe_ebpf::{Controller, Error, calls, lifecycle, usage};
use fullpipe_host::assign::{self, Cgroup, Part, Request, RouteBudget, Unassigned};
use fullpipe_host::facts::Scope;
use fullpipe_host::host::{Host, Machine};
use fullpipe_host::journal::Store;
use fullpipe_host::plan::ControllerUnit;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long calls are counted.
pub const COUNT_DURATION: Duration = Duration::from_secs(2);
/// The effect of skipped calls on the controllers.
const CALLS_SKIPPED: &str = ": the controllers compensate from the connection's own counters; see \
    docs/explanation/bbr3-on-stock-kernels.md, \"Skipped BPF calls\"";
/// How long to wait for sockets when a failed load is rolled back.
const UNLOAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How a controller is to be used once it is loaded.
pub struct Uses {
    /// Send a test transfer, and count calls.
    pub verify: bool,
    /// Make it the default of this network namespace.
    pub default: bool,
    /// The control group that uses it.
    pub cgroup: Option<PathBuf>,
    /// The destination of the route that uses it.
    pub route: Option<String>,
    /// Load it at every boot.
    pub persist: bool,
    /// Settings to change.
    pub set: Vec<(String, String)>,
}

impl Uses {
    /// Whether the host is changed, and not only the controller.
    fn any(&self) -> bool {
        self.default || self.cgroup.is_some() || self.route.is_some() || self.persist
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        failure(error)
    }
}

/// This machine as seen from the network namespace of this thread, and its journal.
fn this_machine() -> (Machine, Store) {
    let machine = Machine::new();
    let store = Store::for_scope(&Scope::detect(&machine, &machine.identity()));
    (machine, store)
}

/// Loads a controller and sets up its uses: all of them, or none.
pub fn load(controller: Controller, name: Option<&str>, wanted: &Uses) -> Result<(), Failure> {
    let (machine, store) = this_machine();
    let program = std::env::current_exe().map_err(|error| {
        Failure::Impossible(format!("cannot determine the path of this program: {error}"))
    })?;
    let program = program.to_str().ok_or_else(|| {
        Failure::Impossible(format!(
            "the path of this program is not UTF-8: {}; install it elsewhere",
            program.display()
        ))
    })?;
    let registered = name.unwrap_or(controller.name());
    if let Some(other) = Controller::ALL.into_iter().find(|c| *c != controller && c.name() == registered) {
        return Err(Failure::usage(format_args!(
            "--name {registered} is reserved for {other}: choose another name"
        )));
    }
    let mut which = controller.name().trim_start_matches("fp_").to_owned();
    if registered != controller.name() {
        which += &format!(" --name {registered}");
    }
    let boot = wanted.persist.then_some(ControllerUnit {
        name: registered,
        which: &which,
        settings: &[],
        program,
        default: wanted.default,
    });
    if let Some(unit) = &boot {
        assign::check_boot(&machine, unit).map_err(host::failure)?;
    }
    let before = settings_of(registered, wanted)?;
    let outcome = lifecycle::load_with(controller, name, &wanted.set)?;
    print_outcome(registered, outcome);
    let Err(error) = set_up_uses(&machine, &store, registered, wanted, boot) else { return Ok(()) };
    let (what, rolled_back) = match outcome {
        lifecycle::Outcome::Loaded => {
            let others = Mutex::new(RouteBudget::default());
            let end = |is_own: bool| -> Result<String, Failure> {
                Ok(retire(registered, Part::Live, is_own, &others)?.default)
            };
            let unloaded = lifecycle::unload(registered, UNLOAD_TIMEOUT, &end);
            print_routes_left(registered, others);
            ("rolling back failed", unloaded)
        }
        // A controller that was loaded before stays, with its earlier settings.
        lifecycle::Outcome::Replaced(carried) if !carried.settings => return Err(error),
        _ if before.is_empty() => return Err(error),
        _ => {
            let restored = lifecycle::tune(registered, &before).map(drop);
            ("restoring its settings failed", restored.map_err(Failure::from))
        }
    };
    Err(match rolled_back {
        Ok(()) => error,
        Err(left) => Failure::Impossible(format!("{error}\nand {what}: {left}")),
    })
}

/// The current settings of a loaded controller of that name, if settings are to be changed. Read
/// before loading, since a build that replaces another starts with the new ones. Empty if this
/// build does not know the settings of the other, and so carries none over.
fn settings_of(name: &str, wanted: &Uses) -> Result<Vec<(String, String)>, Failure> {
    if wanted.set.is_empty() || !lifecycle::is_loaded(name)? {
        return Ok(Vec::new());
    }
    let all = lifecycle::tune(name, &[]).unwrap_or_default();
    Ok(all.into_iter().map(|one| (one.about.key.to_owned(), one.value)).collect())
}

/// Does everything besides loading.
fn set_up_uses(
    machine: &Machine,
    store: &Store,
    name: &str,
    wanted: &Uses,
    boot: Option<ControllerUnit<'_>>,
) -> Result<(), Failure> {
    if wanted.verify || wanted.default {
        lifecycle::verify(name)?;
        println!("the test transfer succeeded");
        if wanted.verify {
            match calls::count_calls(COUNT_DURATION) {
                Ok(calls) => println!("{calls}{}", if calls.all_made() { "" } else { CALLS_SKIPPED }),
                // The counter needs pacing, which not every controller does.
                Err(Error::MissingFeature { feature, .. }) => {
                    println!("cannot check that the kernel makes all calls: it lacks {}", feature.about());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    let cgroup = wanted.cgroup.as_deref().map(|path| group(path, name)).transpose()?;
    let attach = || match &cgroup {
        Some((path, pin)) => {
            usage::attach_to_cgroup(pin, path, name).map_err(|error| io::Error::other(error.to_string()))
        }
        None => Ok(()),
    };
    let text = |path: &Path| {
        let not_utf8 = || Failure::usage(format_args!("{} is not UTF-8: use another path", path.display()));
        path.to_str().map(str::to_owned).ok_or_else(not_utf8)
    };
    let cgroup = match &cgroup {
        Some((path, pin)) => Some(Cgroup { path: text(path)?, pin: text(pin)?, attach: &attach }),
        None => None,
    };
    let persists = boot.is_some();
    if !wanted.set.is_empty() {
        // A new load or another build has them already; for this very build they are set now.
        let all = lifecycle::tune(name, &wanted.set)?;
        println!("set: {}", settings::changed(&all).unwrap_or_else(|| "no changes".to_owned()));
    }
    if !wanted.any() {
        return Ok(());
    }
    let settings = if persists { settings::non_default(&lifecycle::tune(name, &[])?) } else { Vec::new() };
    let request = Request {
        controller: name.to_owned(),
        default: wanted.default,
        cgroup,
        route: wanted.route.clone(),
        boot: boot.map(|unit| ControllerUnit { settings: &settings, ..unit }),
        ..Request::default()
    };
    assign::assign(machine, store, &request).map_err(host::failure)?;
    if wanted.default {
        println!("it is now the default of this network namespace");
    }
    if let Some(path) = &wanted.cgroup {
        println!("new connections of processes in {} use it", path.display());
    }
    if let Some(prefix) = &wanted.route {
        println!("new connections over the route {prefix} use it");
    }
    if persists {
        println!("{} loads it at every boot", assign::boot_unit(name));
    }
    Ok(())
}

/// A control group's path, and the path of the pin of its program.
fn group(path: &Path, name: &str) -> Result<(PathBuf, PathBuf), Failure> {
    let pin = usage::cgroup_pin(&Pins::lock()?, path, name)?;
    let path = path
        .canonicalize()
        .map_err(|error| Failure::usage(format_args!("--cgroup {}: {error}", path.display())))?;
    Ok((path, pin))
}

/// Ends the uses of a controller in the network namespace of this thread.
fn retire(name: &str, part: Part, is_own: bool, others: &Mutex<RouteBudget>) -> Result<Unassigned, Failure> {
    let (machine, store) = this_machine();
    let mut others = others.lock().unwrap_or_else(PoisonError::into_inner);
    let others = (!is_own).then_some(&mut *others);
    assign::unassign(&machine, &store, name, part, others).map_err(host::failure)
}

/// Prints what was left in other network namespaces.
fn print_routes_left(name: &str, others: Mutex<RouteBudget>) {
    if let Some(note) = others.into_inner().unwrap_or_else(PoisonError::into_inner).note(name) {
        eprintln!("{note}");
    }
}

/// Unloads a controller and removes its default, cgroup and route assignments; with `until_boot`,
/// the next boot loads it again.
pub fn unload(name: &str, timeout: Duration, until_boot: bool) -> Result<(), Failure> {
    let part = if until_boot { Part::Live } else { Part::Whole };
    let was_loaded_at_boot = AtomicBool::new(false);
    let others = Mutex::new(RouteBudget::default());
    let end = |is_own: bool| -> Result<Unassigned, Failure> {
        let retired = retire(name, part, is_own, &others)?;
        for note in retired.notes() {
            eprintln!("{note}");
        }
        was_loaded_at_boot.fetch_or(retired.was_loaded_at_boot, Ordering::Relaxed);
        Ok(retired)
    };
    let is_loaded = lifecycle::is_loaded(name)?;
    // Uses that a restart or a killed process left behind end even if it is not loaded.
    if is_loaded || end(true)?.is_nothing() {
        lifecycle::unload(name, timeout, &|is_own| Ok::<_, Failure>(end(is_own)?.default))?;
    }
    print_routes_left(name, others);
    let state = if is_loaded { "is unloaded" } else { "was not loaded" };
    let boot = if was_loaded_at_boot.into_inner() { ", and no longer loaded at boot" } else { "" };
    println!("{name} {state}{boot}");
    Ok(())
}
