//! Boots a kernel once, and keeps it only if all checks pass.

use super::installed::{self, Kernel};
use super::loader::Loader;
use super::status::secure_boot;
use super::trial::{Stage, TRIAL_ARGUMENTS, Trial};
use super::{
    BootEnvironment, INSTALL, MARK, Reason, TRIAL, Wanted, perform_steps, reachability, refuse_if_changed,
    release_of, revert_selection,
};
use crate::apply::{LOCK_TIMEOUT, lock, lock_within};
use crate::error::{Error, Result};
use crate::host::{Host, Program};
use crate::journal::Store;
use crate::plan::{BootFiles, Change, FileState, refuse_writable_program, unit_word};
use crate::revert::{self, Reverted};
use serde::Serialize;
use std::time::Duration;

/// The unit that checks a kernel on trial.
const UNIT: &str = "fullpipe-kernel.service";
const UNITS: &str = "/etc/systemd/system";
/// Targets that start it: a normal boot, and those systemd falls back to when a required unit
/// fails.
const WANTED_BY: [&str; 3] = ["sysinit.target", "emergency.target", "rescue.target"];
/// Interval of the checks.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Time for a restart before it is forced.
const RESTART_TIMEOUT: Duration = Duration::from_secs(90);
/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// A release, or its prefix.
    pub version: String,
    /// The controller it must have.
    pub controller: String,
    /// Time since boot within which all checks must pass.
    pub within: Duration,
    /// Whether keeping it needs a confirmation.
    pub asks: bool,
    /// Path of this program, for the unit.
    pub program: String,
}

/// Changes of a trial before the restart.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Plan {
    /// The kernel's release.
    pub release: String,
    /// The running kernel, to which a failed trial returns.
    pub before: String,
    /// The steps, in order.
    pub steps: Vec<super::install::Step>,
    #[serde(skip)]
    wanted: Vec<Wanted>,
}

fn unit(program: &str) -> Result<String> {
    let program = unit_word(program)?;
    Ok(format!(
        "# Written by `fullpipe kernel try`; removed when the kernel is kept or rolled back.\n\
         [Unit]\n\
         Description=Keep a kernel on trial, or restart into the previous one\n\
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

/// The installed kernel with this version.
fn choose<'a>(kernels: &'a [Kernel], version: &str) -> Result<&'a Kernel> {
    let begins = |kernel: &&Kernel| installed::begins_with(&kernel.release, version);
    let exact = kernels.iter().find(|kernel| kernel.release == version);
    exact.or_else(|| kernels.iter().find(begins)).ok_or_else(|| {
        let all: Vec<&str> = kernels.iter().map(|kernel| kernel.release.as_str()).collect();
        Error::usage(format_args!(
            "Linux {version} is not installed; installed: {}; `fullpipe kernel install \
            {version}` installs it",
            all.join(", ")
        ))
    })
}

/// Makes the plan. Reads only.
///
/// # Errors
/// [`Error::Usage`] for a kernel that is missing or already running; [`Error::Impossible`] if the
/// boot loader cannot boot one once, or cannot boot this one.
pub fn plan(host: &dyn Host, request: &Request) -> Result<Plan> {
    let environment = BootEnvironment::detect(host)?;
    let kernel = choose(&environment.kernels, &request.version)?;
    let before = environment.running()?.release.clone();
    if kernel.running {
        return Err(Error::usage(format_args!("Linux {} is already running", kernel.release)));
    }
    if host.text("/proc/1/comm").as_deref() != Some("systemd") {
        return Err(Error::impossible(
            "a trial needs systemd, which runs its checks: select the kernel in the boot menu at the console \
             instead",
        ));
    }
    let option = format!("CONFIG_TCP_CONG_{}", request.controller.to_uppercase());
    if kernel.has(&option) == Some(false) {
        return Err(Error::impossible(format_args!(
            "Linux {} has no {} either ({option}): try another kernel",
            kernel.release, request.controller
        )));
    }
    if let Some(image) = kernel.image.as_ref().filter(|_| secure_boot(host)) {
        let content = host.read(image).map_err(|e| Error::io(format_args!("cannot read {image}"), &e))?;
        if !installed::is_signed(&content) {
            return Err(Error::impossible(format_args!(
                "Secure Boot is on, and {image} is not signed: sign it with your own key (`mokutil`, \
                 `sbsign`), or disable Secure Boot in the firmware settings"
            )));
        }
    }
    let keeps = "the running kernel stays the default";
    let looks = "checks the kernel after it has booted";
    let mut wanted: Vec<Wanted> = Vec::new();
    wanted.extend(environment.keep_running_default(host)?.into_iter().map(|change| (change, keeps, INSTALL)));
    refuse_writable_program(host, &request.program)?;
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
        "boots it once, and restarts after a panic",
        TRIAL,
    ));
    let step =
        |(change, why, _): &Wanted| super::install::Step { change: change.clone(), why: (*why).to_owned() };
    Ok(Plan { release: kernel.release.clone(), before, steps: wanted.iter().map(step).collect(), wanted })
}

/// Prepares the next boot to use the kernel once.
///
/// # Errors
/// [`Error::Impossible`] without root; [`Error::Check`] if something is on trial or was
/// interrupted. After a failure the changes are rolled back.
pub fn arm(host: &dyn Host, store: &Store, request: &Request) -> Result<Plan> {
    let _lock = lock(host, &format!("kernel try {}", request.version))?;
    if let Some(trial) = Trial::load(host, store)?
        && trial.stage(host) != Stage::Over
    {
        let command = |words: &str| host.identity().as_root(words);
        return Err(Error::check(format_args!(
            "Linux {} is already on trial: {} keeps it, {} rolls it back",
            trial.release,
            command("kernel keep"),
            command("kernel back")
        )));
    }
    let plan = plan(host, request)?;
    let trial = Trial::new(host, &plan.release, &request.controller)?;
    let trial = Trial { within: request.within.as_secs(), asks: request.asks, ..trial };
    let prepare =
        || trial.save(host, store).map_err(|e| Error::io("cannot record the state of this host", &e));
    let made = perform_steps(host, store, TRIAL, plan.wanted.clone(), &prepare, &|| Ok(()));
    if let Err(error) = made {
        // The first error is reported.
        let _ = Trial::forget(host, store);
        return Err(error);
    }
    Ok(plan)
}

/// Restarts the machine, by force if that takes too long. Does not return on a real machine.
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
    // Force a restart that does not complete in time or cannot be requested.
    if asked.is_ok() {
        host.pause(RESTART_TIMEOUT);
    }
    run(&["systemctl", "reboot", "--force", "--force"]).map_err(|e| cannot(&e))?;
    host.pause(RESTART_TIMEOUT);
    Ok(())
}

/// State of a kernel on trial.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrialBoot {
    /// No kernel on trial is running.
    NotRunning,
    /// Some checks do not pass yet.
    Pending(Vec<Reason>),
    /// All checks passed, and it is kept.
    Kept(Kept),
    /// It timed out; the failed checks. The next boot uses the previous kernel.
    Failed(Vec<Reason>),
}

/// Checks the kernel on trial once; keeps it, or returns to the previous kernel at the next boot.
///
/// # Errors
/// It cannot be kept; the next boot uses the previous kernel in any case.
pub fn poll(host: &dyn Host, store: &Store) -> Result<TrialBoot> {
    let Some(trial) = Trial::load(host, store)? else { return Ok(TrialBoot::NotRunning) };
    if trial.stage(host) != Stage::Running {
        return Ok(TrialBoot::NotRunning);
    }
    let mut reasons = reachability::missing(host, &trial);
    if reasons.is_empty() && !trial.asks {
        return keep(host, store, &revert::Options::automatic()).map(TrialBoot::Kept);
    }
    if host.clock().since_boot() < Duration::from_secs(trial.within) {
        return Ok(TrialBoot::Pending(reasons));
    }
    if reasons.is_empty() {
        reasons.push(Reason::new("asked", format!("it was not confirmed within {} s", trial.within)));
    }
    abandon(host, store, trial, reasons.clone(), &revert::Options::automatic())?;
    Ok(TrialBoot::Failed(reasons))
}

/// Checks until it is kept or abandoned.
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

/// Records the reasons, and removes the entry that boots it.
fn abandon(
    host: &dyn Host,
    store: &Store,
    trial: Trial,
    reasons: Vec<Reason>,
    options: &revert::Options,
) -> Result<Vec<String>> {
    let _lock = lock_within(host, "kernel back", LOCK_TIMEOUT)?;
    refuse_if_changed(host, store, &[TRIAL], options, "kernel back")?;
    let trial = Trial { failed: Some(reasons), ..trial };
    trial.save(host, store).map_err(|e| Error::io("cannot record why the kernel is not kept", &e))?;
    revert_selection(host, store, TRIAL, options).map(exceptions)
}

fn exceptions(reverted: Option<Reverted>) -> Vec<String> {
    reverted.unwrap_or_default().exceptions()
}

/// Cleans up after a restart or a kill: the host returned from a trial, or the trial was never
/// booted. Returns what was not restored, since it was changed meanwhile.
///
/// # Errors
/// From the rollback.
pub fn clean_up(host: &dyn Host, store: &Store) -> Result<Vec<String>> {
    if !host.identity().privileged {
        return Ok(Vec::new());
    }
    let trial = Trial::load(host, store)?;
    let journal = store.load(host)?;
    let tries =
        journal.as_ref().is_some_and(|journal| journal.plan.steps.iter().any(|step| step.uses(TRIAL)));
    let interrupted = journal.as_ref().is_some_and(|journal| journal.busy_with.as_deref() == Some(TRIAL));
    let over = trial.as_ref().is_none_or(|trial| trial.stage(host) == Stage::Over);
    if !tries || !(over || interrupted) {
        return Ok(Vec::new());
    }
    // The lock holder cleans up.
    let Ok(_lock) = lock(host, "kernel status") else { return Ok(Vec::new()) };
    match trial {
        Some(trial) if over && trial.failed.is_none() => {
            let why = format!(
                "it panicked, hung, or was powered off before its checks ran; Linux {} was booted again",
                trial.before
            );
            let reasons = vec![Reason::new("start", why)];
            Trial { failed: Some(reasons), ..trial }
                .save(host, store)
                .map_err(|e| Error::io("cannot record the result of the trial", &e))?;
        }
        Some(_) if !over => Trial::forget(host, store)
            .map_err(|e| Error::io("cannot remove the record of an interrupted trial", &e))?,
        _ => {}
    }
    revert_selection(host, store, TRIAL, &revert::Options::automatic()).map(exceptions)
}

/// Result of keeping a kernel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Kept {
    /// Its release.
    pub release: String,
    /// Whether it had to be pinned as the default, because the distribution's rules select another.
    pub named: bool,
    /// What was not restored, since it was changed meanwhile.
    pub exceptions: Vec<String>,
}

/// Keeps the running kernel as the default; its packages are no longer managed by fullpipe.
///
/// # Errors
/// [`Error::Usage`] if no kernel is on trial; [`Error::Impossible`] without root; [`Error::Check`] if
/// a setting was changed since (unless `options` decide): then nothing is changed.
pub fn keep(host: &dyn Host, store: &Store, options: &revert::Options) -> Result<Kept> {
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
            "the running Linux {running} is not on trial: nothing to keep"
        )));
    }
    refuse_if_changed(host, store, &[TRIAL, INSTALL], options, "kernel keep")?;
    let mut left = exceptions(revert_selection(host, store, TRIAL, options)?);
    let cannot_write = |e: std::io::Error| Error::io(format_args!("cannot write {}", store.path()), &e);
    if journal.is_some() {
        journal = store.load(host)?;
    }
    // The packages now belong to the operator, and the pinned default is removed.
    if let Some(mut journal) = journal {
        journal.plan.steps.retain(|step| release_of(step).is_none() && !is_source(&step.change));
        if journal.plan.is_empty() {
            store.end(host, &journal).map_err(cannot_write)?;
        } else {
            store.replace(host, &journal).map_err(cannot_write)?;
            left.extend(exceptions(revert_selection(host, store, INSTALL, options)?));
        }
    }
    let environment = BootEnvironment::detect(host)?;
    let is_default = |loader: &Loader, kernels: &[Kernel]| {
        loader.default_of(host, kernels).is_some_and(|kernel| kernel.running)
    };
    let named = !is_default(&environment.loader, &environment.kernels);
    if named {
        let changes = environment.loader.keep_default(host, environment.running()?, false)?;
        let check = || {
            let environment = BootEnvironment::detect(host)?;
            if is_default(&environment.loader, &environment.kernels) {
                Ok(())
            } else {
                Err(Error::check("the boot loader does not use it as the default"))
            }
        };
        if changes.iter().all(|change| matches!(change, Change::BootDefault { .. })) {
            // As the distribution would have set it: it is the operator's, and a later `revert` leaves it.
            for change in &changes {
                change.perform(host, false).map_err(|e| Error::io("cannot make it the default", &e))?;
            }
            check()?;
        } else {
            let wanted = changes.into_iter().map(|change| (change, "it passed its trial", INSTALL)).collect();
            perform_steps(host, store, INSTALL, wanted, &|| Ok(()), &check)?;
        }
    }
    forget(host, store)?;
    Ok(Kept { release: running, named, exceptions: left })
}

/// Whether a step adds a package source, which is kept for the kernel's updates.
fn is_source(change: &Change) -> bool {
    matches!(change, Change::File { path, .. } if path.starts_with("/etc/apt/sources.list.d/"))
}

/// Removes the record of a trial, and its directory if empty.
fn forget(host: &dyn Host, store: &Store) -> Result<()> {
    let forgotten = Trial::forget(host, store)
        .and_then(|()| if host.exists(&store.path()) { Ok(()) } else { store.tidy(host) });
    forgotten.map_err(|e| Error::io("cannot remove the record of the trial", &e))
}

/// Result of a rollback.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RollBack {
    /// The running kernel is abandoned; a restart into this one must follow.
    Restarts(String),
    /// The kernel is not booted next.
    Disarmed(String),
    /// The installed packages and the pinned default are removed.
    Removed(Vec<String>),
}

/// Rolls back the last trial or installation. Returns also what was not restored, since it was
/// changed meanwhile.
///
/// # Errors
/// [`Error::Usage`] if there is none; [`Error::Check`] while the kernel to be removed is running, or
/// if a setting was changed since (unless `options` decide): then nothing is changed.
pub fn roll_back(
    host: &dyn Host,
    store: &Store,
    options: &revert::Options,
) -> Result<(RollBack, Vec<String>)> {
    let trial = Trial::load(host, store)?;
    let stage = trial.as_ref().map(|trial| trial.stage(host));
    match (trial, stage) {
        (Some(trial), Some(Stage::Running)) => {
            let before = trial.before.clone();
            let reasons = vec![Reason::new("asked", "rolled back by `fullpipe kernel back`")];
            let left = abandon(host, store, trial, reasons, options)?;
            Ok((RollBack::Restarts(before), left))
        }
        (Some(trial), Some(Stage::Armed)) => {
            let _lock = lock_within(host, "kernel back", LOCK_TIMEOUT)?;
            refuse_if_changed(host, store, &[TRIAL], options, "kernel back")?;
            let left = exceptions(revert_selection(host, store, TRIAL, options)?);
            forget(host, store)?;
            Ok((RollBack::Disarmed(trial.release), left))
        }
        (trial, _) => {
            let _lock = lock_within(host, "kernel back", LOCK_TIMEOUT)?;
            let journal = store.load(host)?;
            if let Some(journal) = &journal {
                super::refuse_running(host, journal)?;
            }
            refuse_if_changed(host, store, &[TRIAL, INSTALL], options, "kernel back")?;
            let mut left = exceptions(revert_selection(host, store, TRIAL, options)?);
            let reverted = revert_selection(host, store, INSTALL, options)?;
            let was_tried = trial.is_some();
            forget(host, store)?;
            match reverted {
                Some(reverted) => {
                    left.extend(reverted.exceptions());
                    Ok((RollBack::Removed(reverted.undone().map(str::to_owned).collect()), left))
                }
                None if was_tried => Ok((RollBack::Removed(Vec::new()), left)),
                None => Err(Error::usage("no kernel installed or tried by fullpipe: nothing to roll back")),
            }
        }
    }
}

/// Removes a package source that was added for an installation that did not take place.
///
/// # Errors
/// From the rollback.
pub fn discard_source(host: &dyn Host, store: &Store) -> Result<()> {
    let _lock = lock_within(host, "kernel install", LOCK_TIMEOUT)?;
    let journal = store.load(host)?;
    if journal.is_some_and(|journal| !journal.plan.steps.iter().any(|step| release_of(step).is_some())) {
        revert_selection(host, store, INSTALL, &revert::Options::automatic())?;
    }
    Ok(())
}
