//! Booting a kernel once, and keeping it only if all is as before.

use super::installed::{self, Kernel};
use super::loader::Loader;
use super::status::secure_boot;
use super::trial::{Stage, TRIAL_ARGUMENTS, Trial};
use super::{
    BootEnvironment, INSTALL, MARK, Reason, TRIAL, Wanted, perform_steps, reachability, release_of,
    revert_selection,
};
use crate::apply::{lock, lock_within};
use crate::error::{Error, Result};
use crate::host::{Host, Program};
use crate::journal::Store;
use crate::plan::{BootFiles, Change, FileState, unit_word};
use serde::Serialize;
use std::time::Duration;

/// What looks at a kernel that is tried.
const UNIT: &str = "fullpipe-kernel.service";
const UNITS: &str = "/etc/systemd/system";
/// What has it started: an ordinary start, and where systemd ends up when something that is needed is missing.
const WANTED_BY: [&str; 3] = ["sysinit.target", "emergency.target", "rescue.target"];
/// How often it is looked.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// How long a restart may take until it is forced.
const RESTART_TIMEOUT: Duration = Duration::from_secs(90);
/// How long to wait for another fullpipe.
const LOCK_TIMEOUT: Duration = Duration::from_secs(20);

/// What is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// A release, or how it begins.
    pub version: String,
    /// The controller that it must have.
    pub controller: String,
    /// The time it has, from the start of the machine, to show that all is as before.
    pub within: Duration,
    /// Whether someone must say that it is kept.
    pub asks: bool,
    /// This program's path, for the unit.
    pub program: String,
}

/// What a trial changes before the restart.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Plan {
    /// The kernel's release.
    pub release: String,
    /// The one that runs, and is gone back to.
    pub before: String,
    /// The steps, in order.
    pub steps: Vec<super::install::Step>,
    #[serde(skip)]
    wanted: Vec<Wanted>,
}

fn unit(program: &str) -> Result<String> {
    let program = unit_word(program)?;
    Ok(format!(
        "# Written by `fullpipe kernel try`, and removed when the kernel is kept or taken back.\n\
         [Unit]\n\
         Description=Keeps a kernel that is tried, or restarts into the one before\n\
         ConditionKernelCommandLine={MARK}\n\
         DefaultDependencies=no\n\
         After=local-fs.target systemd-tmpfiles-setup.service\n\
         Conflicts=shutdown.target\n\
         Before=shutdown.target\n\
         FailureAction=reboot-force\n\
         \n\
         [Service]\n\
         ExecStart={program} kernel watch\n\
         \n\
         [Install]\n\
         WantedBy={}\n",
        WANTED_BY.join(" ")
    ))
}

/// The kernel that a version names among those on disk.
fn choose<'a>(kernels: &'a [Kernel], version: &str) -> Result<&'a Kernel> {
    let begins = |kernel: &&Kernel| installed::begins_with(&kernel.release, version);
    let exact = kernels.iter().find(|kernel| kernel.release == version);
    exact.or_else(|| kernels.iter().find(begins)).ok_or_else(|| {
        let all: Vec<&str> = kernels.iter().map(|kernel| kernel.release.as_str()).collect();
        Error::usage(format_args!("no Linux {version} is installed. There are: {}. `fullpipe kernel install {version}` looks for it", all.join(", ")))
    })
}

/// Works out what it takes. Reads only.
///
/// # Errors
/// [`Error::Usage`] for a kernel that is not there or runs already; [`Error::Impossible`] where none can be booted once, or this one
/// could not be.
pub fn plan(host: &dyn Host, request: &Request) -> Result<Plan> {
    let environment = BootEnvironment::detect(host)?;
    let kernel = choose(&environment.kernels, &request.version)?;
    let before = environment.running()?.release.clone();
    if kernel.running {
        return Err(Error::usage(format_args!("Linux {} runs already", kernel.release)));
    }
    if host.text("/proc/1/comm").as_deref() != Some("systemd") {
        return Err(Error::impossible(
            "without systemd nothing would look at the kernel once it runs: choose it in the boot menu, at the console",
        ));
    }
    let option = format!("CONFIG_TCP_CONG_{}", request.controller.to_uppercase());
    if kernel.has(&option) == Some(false) {
        return Err(Error::impossible(format_args!(
            "Linux {} has no {} either ({option}): try another",
            kernel.release, request.controller
        )));
    }
    if let Some(image) = kernel.image.as_ref().filter(|_| secure_boot(host)) {
        let content = host.read(image).map_err(|e| Error::io(format_args!("cannot read {image}"), &e))?;
        if !installed::is_signed(&content) {
            return Err(Error::impossible(format_args!(
                "the firmware boots only what is signed (Secure Boot), and {image} is not: sign it with a key of your own (`mokutil`, \
                 `sbsign`), or switch Secure Boot off in the firmware's settings"
            )));
        }
    }
    let keeps = "the kernel that runs stays the default, and is gone back to";
    let looks = "looks at the kernel once it runs";
    let mut wanted: Vec<Wanted> = Vec::new();
    wanted.extend(environment.keep_running_default(host)?.into_iter().map(|change| (change, keeps, INSTALL)));
    let mut files = BootFiles::default();
    let (uid, gid) = host.stat("/etc").map_or((0, 0), |about| (about.uid, about.gid));
    let path = format!("{UNITS}/{UNIT}");
    files.put(host, &path, FileState::new_file(host, &unit(&request.program)?), looks);
    for target in WANTED_BY {
        let link = FileState::Link { target: path.clone(), uid, gid };
        files.put(host, &format!("{UNITS}/{target}.wants/{UNIT}"), link, looks);
    }
    wanted.extend(files.steps(host)?.into_iter().map(|step| (step.change, looks, TRIAL)));
    wanted.push((
        environment.loader.once(host, kernel, TRIAL_ARGUMENTS)?,
        "boots it once, and has it restart by itself after a panic",
        TRIAL,
    ));
    let step =
        |(change, why, _): &Wanted| super::install::Step { change: change.clone(), why: (*why).to_owned() };
    Ok(Plan { release: kernel.release.clone(), before, steps: wanted.iter().map(step).collect(), wanted })
}

/// Makes all ready so that the next start is that of the kernel, once.
///
/// # Errors
/// [`Error::Impossible`] without root; [`Error::Check`] if something is on trial or was interrupted. Whenever it fails after having
/// changed something, that is undone.
pub fn arm(host: &dyn Host, store: &Store, request: &Request) -> Result<Plan> {
    let _lock = lock(host, &format!("kernel try {}", request.version))?;
    if let Some(trial) = Trial::load(host, store)?
        && trial.stage(host) != Stage::Over
    {
        let command = |words: &str| host.identity().as_root(words);
        return Err(Error::check(format_args!(
            "Linux {} is on trial already: {} keeps it, {} takes it back",
            trial.release,
            command("kernel keep"),
            command("kernel back")
        )));
    }
    let plan = plan(host, request)?;
    let trial = Trial::new(host, &plan.release, &request.controller)?;
    let trial = Trial { within: request.within.as_secs(), asks: request.asks, ..trial };
    let prepare =
        || trial.save(host, store).map_err(|e| Error::io("cannot write down what the host is like now", &e));
    let made = perform_steps(host, store, TRIAL, plan.wanted.clone(), &prepare, &|| Ok(()));
    if let Err(error) = made {
        // The error is what there is to tell.
        let _ = Trial::forget(host, store);
        return Err(error);
    }
    Ok(plan)
}

/// Restarts the machine; forces it if that takes too long. Does not return on a machine that can.
///
/// # Errors
/// It cannot be restarted.
pub fn restart(host: &dyn Host) -> Result<()> {
    let cannot = |e: &std::io::Error| Error::io("cannot restart the machine", e);
    let run = |words: &[&str]| {
        let program = Program::new(words.iter().copied());
        host.run(&program)?.checked_stdout(&program)
    };
    let asked = run(&["systemctl", "reboot"]);
    if !host.identity().this_machine {
        return asked.map(drop).map_err(|e| cannot(&e));
    }
    // What does not end in time, or cannot even be asked to, is ended.
    if asked.is_ok() {
        host.pause(RESTART_TIMEOUT);
    }
    run(&["systemctl", "reboot", "--force", "--force"]).map_err(|e| cannot(&e))?;
    host.pause(RESTART_TIMEOUT);
    Ok(())
}

/// What was seen of a kernel on trial.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrialBoot {
    /// None is on trial.
    NotRunning,
    /// Not all is as before yet.
    Pending(Vec<Reason>),
    /// All is as before, and it is kept.
    Kept(Kept),
    /// Its time is over: what was not as before. The next start is that of the kernel before.
    Failed(Vec<Reason>),
}

/// Looks once at the kernel on trial, and keeps it or has the next start be that of the one before.
///
/// # Errors
/// It cannot be kept; then the next start is that of the one before all the same.
pub fn poll(host: &dyn Host, store: &Store) -> Result<TrialBoot> {
    let Some(trial) = Trial::load(host, store)? else { return Ok(TrialBoot::NotRunning) };
    if trial.stage(host) != Stage::Running {
        return Ok(TrialBoot::NotRunning);
    }
    let mut reasons = reachability::missing(host, &trial);
    if reasons.is_empty() && !trial.asks {
        return keep(host, store).map(TrialBoot::Kept);
    }
    if host.clock().since_boot() < Duration::from_secs(trial.within) {
        return Ok(TrialBoot::Pending(reasons));
    }
    if reasons.is_empty() {
        reasons.push(Reason::new("asked", format!("nobody kept it within {} s", trial.within)));
    }
    abandon(host, store, trial, reasons.clone())?;
    Ok(TrialBoot::Failed(reasons))
}

/// Looks until it is kept or given up.
///
/// # Errors
/// As [`poll`].
pub fn watch(host: &dyn Host, store: &Store) -> Result<TrialBoot> {
    loop {
        match poll(host, store)? {
            TrialBoot::Pending(_) => host.pause(POLL_INTERVAL),
            seen => return Ok(seen),
        }
    }
}

/// Writes down why, and removes what boots it.
fn abandon(host: &dyn Host, store: &Store, trial: Trial, reasons: Vec<Reason>) -> Result<()> {
    let _lock = lock_within(host, "kernel back", LOCK_TIMEOUT)?;
    let trial = Trial { failed: Some(reasons), ..trial };
    trial.save(host, store).map_err(|e| Error::io("cannot write down why the kernel is not kept", &e))?;
    revert_selection(host, store, TRIAL).map(drop)
}

/// Finishes what a restart or a kill left: the host came back from a kernel that was tried, or one that was to be tried never was.
///
/// # Errors
/// From the undoing.
pub fn clean_up(host: &dyn Host, store: &Store) -> Result<()> {
    if !host.identity().privileged {
        return Ok(());
    }
    let trial = Trial::load(host, store)?;
    let journal = store.load(host)?;
    let tries =
        journal.as_ref().is_some_and(|journal| journal.plan.steps.iter().any(|step| step.uses(TRIAL)));
    let interrupted = journal.as_ref().is_some_and(|journal| journal.busy_with.as_deref() == Some(TRIAL));
    let over = trial.as_ref().is_none_or(|trial| trial.stage(host) == Stage::Over);
    if !tries || !(over || interrupted) {
        return Ok(());
    }
    // Who has the lock is at it.
    let Ok(_lock) = lock(host, "kernel status") else { return Ok(()) };
    match trial {
        Some(trial) if over && trial.failed.is_none() => {
            let why = format!(
                "it did not come as far as the look at it: it panicked, hung, or was switched off. Linux {} was booted again",
                trial.before
            );
            let reasons = vec![Reason::new("start", why)];
            Trial { failed: Some(reasons), ..trial }
                .save(host, store)
                .map_err(|e| Error::io("cannot write down what became of the kernel", &e))?;
        }
        Some(_) if !over => Trial::forget(host, store)
            .map_err(|e| Error::io("cannot forget a trial that was interrupted", &e))?,
        _ => {}
    }
    revert_selection(host, store, TRIAL).map(drop)
}

/// What keeping a kernel came to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Kept {
    /// Its release.
    pub release: String,
    /// Whether it is named the default: it is not the one that the distribution's own rules would boot.
    pub named: bool,
}

/// Keeps the kernel that runs: it is booted every day from now on, and fullpipe forgets that it installed it.
///
/// # Errors
/// [`Error::Usage`] if none is to be kept; [`Error::Impossible`] without root.
pub fn keep(host: &dyn Host, store: &Store) -> Result<Kept> {
    let _lock = lock_within(host, "kernel keep", LOCK_TIMEOUT)?;
    let running = host.identity().release;
    let on_trial = Trial::load(host, store)?.filter(|trial| trial.stage(host) == Stage::Running);
    let mut journal = store.load(host)?;
    let installed = journal
        .iter()
        .flat_map(|journal| &journal.plan.steps)
        .any(|step| release_of(step).as_ref() == Some(&running));
    if on_trial.is_none() && !installed {
        return Err(Error::usage(format_args!(
            "Linux {running}, which runs, is not on trial: nothing is to be kept"
        )));
    }
    revert_selection(host, store, TRIAL)?;
    let cannot_write = |e: std::io::Error| Error::io(format_args!("cannot write {}", store.path()), &e);
    if journal.is_some() {
        journal = store.load(host)?;
    }
    // The packages are the operator's from now on; then what kept the other kernel the default goes.
    if let Some(mut journal) = journal {
        journal.plan.steps.retain(|step| release_of(step).is_none() && !is_source(&step.change));
        if journal.plan.is_empty() {
            store.end(host, &journal).map_err(cannot_write)?;
        } else {
            store.replace(host, &journal).map_err(cannot_write)?;
            revert_selection(host, store, INSTALL)?;
        }
    }
    let environment = BootEnvironment::detect(host)?;
    let is_default = |loader: &Loader, kernels: &[Kernel]| {
        loader.default_of(host, kernels).is_some_and(|kernel| kernel.running)
    };
    let named = !is_default(&environment.loader, &environment.kernels);
    if named {
        let wanted = environment
            .keep_running_default(host)?
            .into_iter()
            .map(|change| (change, "it was tried, and kept", INSTALL))
            .collect();
        perform_steps(host, store, INSTALL, wanted, &|| Ok(()), &|| {
            let environment = BootEnvironment::detect(host)?;
            if is_default(&environment.loader, &environment.kernels) {
                Ok(())
            } else {
                Err(Error::check("the boot loader does not take it for the default"))
            }
        })?;
    }
    forget(host, store)?;
    Ok(Kept { release: running, named })
}

/// Whether a step adds a source of packages: who keeps the kernel keeps where its updates come from.
fn is_source(change: &Change) -> bool {
    matches!(change, Change::File { path, .. } if path.starts_with("/etc/apt/sources.list.d/"))
}

/// Forgets what was written down of a trial, and the directory if nothing else is in it.
fn forget(host: &dyn Host, store: &Store) -> Result<()> {
    let forgotten = Trial::forget(host, store)
        .and_then(|()| if host.exists(&store.path()) { Ok(()) } else { store.tidy(host) });
    forgotten.map_err(|e| Error::io("cannot forget the trial", &e))
}

/// What going back came to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RollBack {
    /// The kernel that runs is given up: the next start, which is to come now, is that of this one.
    Restarts(String),
    /// The kernel is not booted at the next start.
    Disarmed(String),
    /// What was installed is removed, and what kept the default is undone.
    Removed(Vec<String>),
}

/// Takes back the last thing that was done: a trial, or an installation.
///
/// # Errors
/// [`Error::Usage`] if there is nothing to take back; [`Error::Check`] while the kernel that would be removed runs.
pub fn roll_back(host: &dyn Host, store: &Store) -> Result<RollBack> {
    let trial = Trial::load(host, store)?;
    let stage = trial.as_ref().map(|trial| trial.stage(host));
    match (trial, stage) {
        (Some(trial), Some(Stage::Running)) => {
            let before = trial.before.clone();
            abandon(
                host,
                store,
                trial,
                vec![Reason::new("asked", "it was taken back by `fullpipe kernel back`")],
            )?;
            Ok(RollBack::Restarts(before))
        }
        (Some(trial), Some(Stage::Armed)) => {
            let _lock = lock_within(host, "kernel back", LOCK_TIMEOUT)?;
            revert_selection(host, store, TRIAL)?;
            forget(host, store)?;
            Ok(RollBack::Disarmed(trial.release))
        }
        (trial, _) => {
            let _lock = lock_within(host, "kernel back", LOCK_TIMEOUT)?;
            let journal = store.load(host)?;
            if let Some(journal) = &journal {
                super::refuse_running(host, journal)?;
            }
            revert_selection(host, store, TRIAL)?;
            let reverted = revert_selection(host, store, INSTALL)?;
            let was_tried = trial.is_some();
            forget(host, store)?;
            match reverted {
                Some(reverted) => Ok(RollBack::Removed(reverted.undone().map(str::to_owned).collect())),
                None if was_tried => Ok(RollBack::Removed(Vec::new())),
                None => Err(Error::usage("no kernel that fullpipe installed or tried is to be taken back")),
            }
        }
    }
}

/// Takes back a source that was added for an installation that did not come about.
///
/// # Errors
/// From the undoing.
pub fn discard_source(host: &dyn Host, store: &Store) -> Result<()> {
    let _lock = lock_within(host, "kernel install", LOCK_TIMEOUT)?;
    let journal = store.load(host)?;
    if journal.is_some_and(|journal| !journal.plan.steps.iter().any(|step| release_of(step).is_some())) {
        revert_selection(host, store, INSTALL)?;
    }
    Ok(())
}
