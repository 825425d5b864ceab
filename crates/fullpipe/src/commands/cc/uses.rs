//! `fullpipe cc load` and `cc unload`: what a loaded controller is used for is changed by the host's writer, which has the
//! journal; loading itself leaves nothing but what unloading takes away.

use super::{failure, say, settings};
use crate::commands::host;
use crate::failure::Failure;
use fullpipe_ebpf::pins::Pins;
use fullpipe_ebpf::{Controller, Error, calls, lifecycle, usage};
use fullpipe_host::assign::{self, Cgroup, Part, Request, Unassigned};
use fullpipe_host::facts::Scope;
use fullpipe_host::host::{Host, Machine};
use fullpipe_host::journal::Store;
use fullpipe_host::plan::ControllerUnit;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long calls are counted.
pub const CALLS_FOR: Duration = Duration::from_secs(2);
/// What that means for the controllers.
const CALLS_MISSED: &str = ": its programs carry on from what the connection counts; see docs/explanation/bbr3-on-stock-kernels.md, \"Skipped BPF calls\"";
/// How long to wait until what was loaded in vain is out again.
const PATIENCE: Duration = Duration::from_secs(10);

/// How a controller is to be used once it is loaded.
pub struct Uses {
    /// Send a test transfer, and count calls.
    pub verify: bool,
    /// As the default of this network namespace.
    pub default: bool,
    /// For this control group.
    pub cgroup: Option<PathBuf>,
    /// On the route to this destination.
    pub route: Option<String>,
    /// Load it at every boot.
    pub persist: bool,
    /// What is varied in it.
    pub set: Vec<(String, String)>,
}

impl Uses {
    /// Whether the host is to be changed, and not only the controller.
    fn any(&self) -> bool {
        self.default || self.cgroup.is_some() || self.route.is_some() || self.persist
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        failure(error)
    }
}

/// This machine as the network namespace of this thread has it, and the journal of that.
fn here() -> (Machine, Store) {
    let machine = Machine::new();
    let store = Store::for_scope(&Scope::detect(&machine, &machine.identity()));
    (machine, store)
}

/// Loads a controller and puts it to use: all that is asked for, or nothing of it.
pub fn load(controller: Controller, name: Option<&str>, wanted: &Uses) -> Result<(), Failure> {
    let (machine, store) = here();
    let program = std::env::current_exe()
        .map_err(|error| Failure::Impossible(format!("this program's path is not known: {error}")))?;
    let program = program.to_str().ok_or_else(|| {
        Failure::Impossible(format!(
            "this program's path is not text: {}; install it elsewhere",
            program.display()
        ))
    })?;
    let registered = name.unwrap_or(controller.name());
    if let Some(other) = Controller::ALL.into_iter().find(|c| *c != controller && c.name() == registered) {
        return Err(Failure::usage(format_args!(
            "--name {registered} is what {other} is registered under, at boot too: give another name"
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
    say(registered, outcome);
    let Err(error) = put_to_use(&machine, &store, registered, wanted, boot) else { return Ok(()) };
    let (what, undone) = match outcome {
        lifecycle::Outcome::Loaded => {
            let end = || -> Result<String, Failure> { Ok(retire(registered, Part::Live)?.default) };
            ("not all of it could be taken back", lifecycle::unload(registered, PATIENCE, &end))
        }
        // What was there before stays, as it was set.
        lifecycle::Outcome::Replaced(carried) if !carried.settings => return Err(error),
        _ if before.is_empty() => return Err(error),
        _ => {
            let back = lifecycle::tune(registered, &before).map(drop);
            ("its settings could not be put back", back.map_err(Failure::from))
        }
    };
    Err(match undone {
        Ok(()) => error,
        Err(left) => Failure::Impossible(format!("{error}\nand {what}: {left}")),
    })
}

/// What is set in a controller of that name that is there already, if settings are asked for: to be read before it is
/// loaded, for a build that takes another's place has them from the first. Nothing where that is a build of which this one
/// does not know them, and takes none over.
fn settings_of(name: &str, wanted: &Uses) -> Result<Vec<(String, String)>, Failure> {
    if wanted.set.is_empty() || !lifecycle::is_loaded(name)? {
        return Ok(Vec::new());
    }
    let all = lifecycle::tune(name, &[]).unwrap_or_default();
    Ok(all.into_iter().map(|one| (one.about.key.to_owned(), one.value)).collect())
}

/// Does what is asked for besides loading.
fn put_to_use(
    machine: &Machine,
    store: &Store,
    name: &str,
    wanted: &Uses,
    boot: Option<ControllerUnit<'_>>,
) -> Result<(), Failure> {
    if wanted.verify || wanted.default {
        lifecycle::verify(name)?;
        println!("a test transfer went through");
        if wanted.verify {
            match calls::count_calls(CALLS_FOR) {
                Ok(calls) => println!("{calls}{}", if calls.all_made() { "" } else { CALLS_MISSED }),
                // The counter paces, which a controller that is not BBR need not.
                Err(Error::MissingFeature { feature, .. }) => {
                    println!(
                        "whether the kernel makes all calls cannot be counted: it has no {}",
                        feature.about()
                    );
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
        let refused = || Failure::usage(format_args!("{} is not text: give another path", path.display()));
        path.to_str().map(str::to_owned).ok_or_else(refused)
    };
    let cgroup = match &cgroup {
        Some((path, pin)) => Some(Cgroup { path: text(path)?, pin: text(pin)?, attach: &attach }),
        None => None,
    };
    let persists = boot.is_some();
    if !wanted.set.is_empty() {
        // Those of a new load or of another build in its place are there already; of this very build they are set now.
        let all = lifecycle::tune(name, &wanted.set)?;
        println!("set: {}", settings::changed(&all).unwrap_or_else(|| "nothing that it was not".to_owned()));
    }
    if !wanted.any() {
        return Ok(());
    }
    let settings = if persists { settings::differing(&lifecycle::tune(name, &[])?) } else { Vec::new() };
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
        println!("it is the default of this network namespace");
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

/// A control group's path, and where its program is pinned.
fn group(path: &Path, name: &str) -> Result<(PathBuf, PathBuf), Failure> {
    let pin = usage::cgroup_pin(&Pins::lock()?, path, name)?;
    let path = path
        .canonicalize()
        .map_err(|error| Failure::usage(format_args!("--cgroup {}: {error}", path.display())))?;
    Ok((path, pin))
}

/// Ends the uses of a controller in the network namespace of this thread.
fn retire(name: &str, part: Part) -> Result<Unassigned, Failure> {
    let (machine, store) = here();
    assign::unassign(&machine, &store, name, part).map_err(host::failure)
}

/// Takes a controller out, wherever it is in use; with `until_boot` it is loaded again at the next boot.
pub fn unload(name: &str, patience: Duration, until_boot: bool) -> Result<(), Failure> {
    let part = if until_boot { Part::Live } else { Part::Whole };
    let was_loaded_at_boot = AtomicBool::new(false);
    let end = || -> Result<Unassigned, Failure> {
        let retired = retire(name, part)?;
        for note in retired.notes() {
            eprintln!("{note}");
        }
        was_loaded_at_boot.fetch_or(retired.was_loaded_at_boot, Ordering::Relaxed);
        Ok(retired)
    };
    let is_loaded = lifecycle::is_loaded(name)?;
    // What a restart or a kill left of its uses ends without it, too.
    if is_loaded || end()?.is_nothing() {
        lifecycle::unload(name, patience, &|| Ok::<_, Failure>(end()?.default))?;
    }
    let is = if is_loaded { "is unloaded" } else { "was not loaded" };
    let no_more = if was_loaded_at_boot.into_inner() { ", and not loaded at boot any more" } else { "" };
    println!("{name} {is}{no_more}");
    Ok(())
}
