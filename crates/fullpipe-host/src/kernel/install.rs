//! Installs another kernel with the distribution's package manager, beside the running one.

use super::installed::{self, Kernel};
use super::packages::{Manager, Offer, Simulated, Source};
use super::status::{dkms, secure_boot};
use super::{BootEnvironment, INSTALL, Wanted, perform_steps, release_of};
use crate::apply::{lock, make_steps, read_back};
use crate::error::{Error, Result};
use crate::host::{Host, View};
use crate::journal::{Record, Store};
use crate::os_release::distribution;
use crate::plan::{Change, FileState};
use serde::Serialize;

/// A request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// A release, or its prefix; the newest by default.
    pub version: Option<String>,
    /// The package source, if not the distribution's own.
    pub from: Option<Source>,
    /// Absolute path of a package file to install.
    pub file: Option<String>,
}

/// Plan of an installation.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Plan {
    /// The kernel.
    pub kernel: Offer,
    /// Simulated package changes.
    pub packages: Simulated,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Other available kernels, newest first.
    pub others: Vec<String>,
    /// Notes.
    pub notes: Vec<String>,
}

/// A change and its reason.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Step {
    /// The change.
    pub change: Change,
    /// The reason.
    pub why: String,
}

/// Debian's backports as an apt source.
const BACKPORTS: &str = "/etc/apt/sources.list.d/fullpipe-backports.list";
const DEBIAN_KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Space to keep free.
const SPARE: u64 = 32 << 20;
/// Assumed size of a kernel.
const USUAL: u64 = 96 << 20;

/// The backports source, if apt does not have it.
///
/// # Errors
/// [`Error::Usage`] if this is not Debian; [`Error::Impossible`] if its keys are missing.
pub fn source(host: &dyn Host, request: &Request) -> Result<Option<(Change, String)>> {
    if request.from != Some(Source::Backports) {
        return Ok(None);
    }
    let value = |key| distribution(host, key);
    let (Some("debian"), Some(name)) = (value("ID").as_deref(), value("VERSION_CODENAME")) else {
        return Err(Error::usage(
            "--from backports works on Debian only; use --from hwe on Ubuntu, --from elrepo on Red Hat's \
             distributions",
        ));
    };
    let suite = format!("{name}-backports");
    if sources(host)
        .any(|text| text.lines().any(|line| !line.trim_start().starts_with('#') && line.contains(&suite)))
    {
        return Ok(None);
    }
    if !host.exists(DEBIAN_KEYS) {
        return Err(Error::impossible(format_args!(
            "{DEBIAN_KEYS}, which signs Debian's backports, is missing: run `apt-get install \
             debian-archive-keyring`"
        )));
    }
    let mirror = sources(host)
        .find_map(|text| mirror(&text, &name))
        .unwrap_or_else(|| "http://deb.debian.org/debian".into());
    let text = format!(
        "# Written by `fullpipe kernel install --from backports`.\ndeb [signed-by={DEBIAN_KEYS}] {mirror} \
         {suite} main\n"
    );
    let before = FileState::read(host, BACKPORTS)
        .map_err(|e| Error::io(format_args!("cannot read {BACKPORTS}"), &e))?;
    let after = FileState::new_file(host, &text);
    let text = format!("the source {suite} of {mirror}, signed by {DEBIAN_KEYS}");
    Ok(Some((Change::File { path: BACKPORTS.into(), before, after }, text)))
}

/// Contents of apt's source files.
fn sources(view: &dyn View) -> impl Iterator<Item = String> + '_ {
    let folder = "/etc/apt/sources.list.d";
    let files = view.list(folder).unwrap_or_default().into_iter().map(move |name| format!("{folder}/{name}"));
    std::iter::once("/etc/apt/sources.list".to_owned()).chain(files).filter_map(|path| view.content(&path))
}

/// URI of a suite: `deb [options] URI SUITE …`, or paragraphs with `URIs` and `Suites`.
fn mirror(text: &str, suite: &str) -> Option<String> {
    let of_a_line = text.lines().find_map(|line| {
        let rest = line.trim().strip_prefix("deb ")?.trim_start();
        let rest = if rest.starts_with('[') { rest.split_once(']')?.1 } else { rest };
        let mut words = rest.split_ascii_whitespace();
        let uri = words.next()?;
        (words.next() == Some(suite) && uri.starts_with("http")).then(|| uri.to_owned())
    });
    let of_a_paragraph = || {
        text.split("\n\n").find_map(|paragraph| {
            let value = |key: &str| paragraph.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
            value("Suites:")?.split_ascii_whitespace().find(|one| *one == suite)?;
            let uri = value("URIs:")?.split_ascii_whitespace().next()?;
            uri.starts_with("http").then(|| uri.to_owned())
        })
    };
    of_a_line.or_else(of_a_paragraph)
}

/// Makes the plan. Reads only.
///
/// # Errors
/// [`Error::Usage`] for an unavailable version, with the available ones; [`Error::Impossible`] if
/// no other kernel can be booted, space is missing, or the package manager would remove packages.
pub fn plan(host: &dyn Host, request: &Request) -> Result<Plan> {
    let environment = BootEnvironment::detect(host)?;
    let manager = manager(host)?;
    let running = environment.running()?.clone();
    let offers = match &request.file {
        Some(path) => vec![manager.offer_from_file(host, path)?],
        None => manager.offers(host, &running.release, request.from)?,
    };
    let is_there = |offer: &Offer| environment.kernels.iter().any(|kernel| kernel.release == offer.release);
    let offer = choose(request, &offers, &is_there, manager)?;
    if let Some(why) = manager
        .replacement_conflict(host, &offer)
        .map_err(|e| Error::io("cannot run the package manager", &e))?
    {
        return Err(Error::impossible(why));
    }
    if request.from == Some(Source::Elrepo) && secure_boot(host) {
        return Err(Error::impossible(
            "Secure Boot is on, and ELRepo's kernel-ml is not signed: use the distribution's kernel, or \
             disable \
             Secure Boot in the firmware settings",
        ));
    }
    let packages = manager.simulate(host, &offer, request.from)?;
    if !packages.removed.is_empty() {
        return Err(Error::impossible(format_args!(
            "{} would remove {}, and fullpipe does not remove packages: run `{}` to see the conflict",
            manager.name(),
            packages.removed.join(", "),
            manager.install(&offer.packages, request.from).line()
        )));
    }
    room(host, &environment.kernels, packages.bytes)?;
    let mut steps = Vec::new();
    for change in environment.keep_running_default(host)? {
        let why = format!("the running Linux {} stays the default until another is kept", running.release);
        steps.push(Step { change, why });
    }
    let new = packages
        .installed
        .iter()
        .filter(|package| package.instead_of.is_none())
        .map(|package| package.name.clone())
        .collect();
    let change = Change::Packages {
        manager,
        asked: offer.packages.clone(),
        new,
        release: offer.release.clone(),
        from: request.from,
    };
    steps.push(Step { change, why: format!("beside Linux {}; no package is removed", running.release) });
    let others = offers
        .iter()
        .filter(|other| other.release != offer.release)
        .map(|other| other.release.clone())
        .collect();
    Ok(Plan { notes: notes(host, &running, &offer, manager), kernel: offer, packages, steps, others })
}

fn manager(host: &dyn Host) -> Result<Manager> {
    Manager::find(host).ok_or_else(|| {
        Error::impossible(
            "no supported package manager (apt, dnf, yum, zypper, pacman, apk): install a \
                           kernel the way this distribution does, then use `fullpipe kernel try`",
        )
    })
}

fn choose(
    request: &Request,
    offers: &[Offer],
    is_there: &dyn Fn(&Offer) -> bool,
    manager: Manager,
) -> Result<Offer> {
    let list = || {
        const SHOWN: usize = 12;
        let names: Vec<&str> = offers.iter().take(SHOWN).map(|offer| offer.release.as_str()).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    let update = "update its index (`fullpipe kernel install` does), or give another source with --from";
    match &request.version {
        None => match offers.first() {
            None => Err(Error::impossible(format_args!("{} has no kernel: {update}", manager.name()))),
            Some(newest) if is_there(newest) => Err(Error::check(format_args!(
                "Linux {}, the newest kernel of {}, is already installed: `fullpipe kernel try {}` boots it \
                 once",
                newest.release,
                manager.name(),
                newest.release
            ))),
            Some(newest) => Ok(newest.clone()),
        },
        Some(version) => {
            let exact = offers.iter().find(|offer| offer.release == *version || offer.version == *version);
            let begins = |offer: &&Offer| installed::begins_with(&offer.release, version);
            match exact.or_else(|| offers.iter().find(begins)) {
                Some(offer) if is_there(offer) => Err(Error::check(format_args!(
                    "Linux {} is already installed: `fullpipe kernel try {}` boots it once",
                    offer.release, offer.release
                ))),
                Some(offer) => Ok(offer.clone()),
                None => Err(Error::usage(format_args!(
                    "{} has no Linux {version}; available: {}; or {update}",
                    manager.name(),
                    list()
                ))),
            }
        }
    }
}

/// Fails without enough disk space for another kernel.
fn room(host: &dyn Host, kernels: &[Kernel], bytes: Option<u64>) -> Result<()> {
    let largest = kernels.iter().map(|kernel| kernel.bytes).max().filter(|bytes| *bytes > 0).unwrap_or(USUAL);
    // A newer kernel has more drivers, and its initramfs is written before an old one is removed.
    let in_boot = largest.saturating_add(largest / 4).saturating_add(SPARE);
    let in_root = bytes.unwrap_or(4 * USUAL).saturating_add(SPARE);
    let mounts = host.text("/proc/self/mounts").unwrap_or_default();
    let is_apart = mounts.lines().any(|line| line.split_ascii_whitespace().nth(1) == Some("/boot"));
    let needed =
        if is_apart { vec![("/boot", in_boot), ("/", in_root)] } else { vec![("/", in_root.max(in_boot))] };
    for (place, needed) in needed {
        let free = host
            .free(place)
            .map_err(|e| Error::io(format_args!("cannot read the free space of {place}"), &e))?;
        if free < needed {
            let idle: Vec<&str> = kernels
                .iter()
                .filter(|kernel| !kernel.running)
                .map(|kernel| kernel.release.as_str())
                .collect();
            let idle = if idle.is_empty() {
                String::new()
            } else {
                format!(" (kernels not running: {})", idle.join(", "))
            };
            return Err(Error::impossible(format_args!(
                "{place} has {} MB free, and another kernel needs {} MB: free some space with the package \
                 manager{idle}, then try \
                 again; nothing was changed",
                free >> 20,
                needed.div_ceil(1 << 20)
            )));
        }
    }
    Ok(())
}

fn notes(host: &dyn Host, running: &Kernel, offer: &Offer, manager: Manager) -> Vec<String> {
    let mut notes = Vec::new();
    let built = dkms(host);
    if !built.is_empty() {
        notes.push(format!(
            "DKMS builds {} for it and needs its headers: install them as well",
            built.join(", ")
        ));
    }
    if !running.out_of_tree.is_empty() {
        notes.push(format!(
            "Linux {} has out-of-tree modules that the new kernel lacks: {}",
            running.release,
            running.out_of_tree.join(", ")
        ));
    }
    if offer.packages.iter().any(|package| package.starts_with('/')) {
        notes.push("it comes from a file and gets no updates".to_owned());
    } else if manager == Manager::Apt {
        notes.push(format!(
            "this package gets no newer versions: once it is kept, install the meta package for security \
             updates (`apt-get install linux-image-{}`)",
            if distribution(host, "ID").as_deref() == Some("ubuntu") {
                "generic".to_owned()
            } else {
                installed::flavour(&offer.release)
            }
        ));
    }
    notes
}

/// Result of an installation.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Installed {
    /// Release of the installed kernel.
    pub release: String,
    /// The running kernel, which stays the default.
    pub default: String,
    /// Whether an interrupted installation was resumed.
    pub resumed: bool,
}

/// Updates the package manager's index, including the requested source.
///
/// # Errors
/// [`Error::Impossible`] without root; errors of [`source`]; the source cannot be added.
pub fn refresh(host: &dyn Host, store: &Store, request: &Request) -> Result<Option<String>> {
    let _lock = lock(host, "kernel install")?;
    BootEnvironment::detect(host)?;
    if request.file.is_some() {
        return Ok(None);
    }
    if let Some((change, text)) = source(host, request)? {
        let wanted = vec![(change, "the requested source", INSTALL)];
        let learn =
            || manager(host)?.refresh(host).map_err(|e| Error::io(format_args!("{text} cannot be used"), &e));
        perform_steps(host, store, INSTALL, wanted, &|| Ok(()), &learn)?;
        return Ok(None);
    }
    // An older index may suffice.
    Ok(manager(host)?.refresh(host).err().map(|e| e.to_string()))
}

/// Whether an interrupted installation can be resumed.
///
/// # Errors
/// The journal cannot be read.
pub fn is_interrupted(host: &dyn Host, store: &Store) -> Result<bool> {
    Ok(store.load(host)?.is_some_and(|journal| journal.busy_with.as_deref() == Some(INSTALL)))
}

/// Installs the planned kernel, or leaves the host unchanged.
///
/// # Errors
/// [`Error::Impossible`] without root; [`Error::Check`] if something is on trial or was
/// interrupted, or if the
/// boot loader cannot boot the result. After a failure the changes are rolled back.
pub fn install(host: &dyn Host, store: &Store, plan: &Plan) -> Result<Installed> {
    let _lock = lock(host, "kernel install")?;
    let journal = store.load(host)?;
    if let Some(release) =
        journal.iter().flat_map(|journal| &journal.plan.steps).filter_map(release_of).next_back()
    {
        let command = |words: &str| host.identity().as_root(words);
        return Err(Error::check(format_args!(
            "Linux {release} is installed and not kept yet: {} tries it, {} removes it",
            command(&format!("kernel try {release}")),
            command("kernel back")
        )));
    }
    let before: Vec<String> = installed::all(host).into_iter().map(|kernel| kernel.release).collect();
    let default = host.identity().release;
    let wanted: Vec<Wanted> = plan
        .steps
        .iter()
        .map(|step| {
            let why = if matches!(step.change, Change::Packages { .. }) {
                "another kernel"
            } else {
                "the running kernel stays the default"
            };
            (step.change.clone(), why, INSTALL)
        })
        .collect();
    perform_steps(host, store, INSTALL, wanted, &|| Ok(()), &|| {
        is_bootable(host, &before, &default).map(drop)
    })?;
    let release = is_bootable(host, &before, &default)?;
    record_release(host, store, &release)?;
    Ok(Installed { release, default, resumed: false })
}

/// Resumes an interrupted installation.
///
/// # Errors
/// As [`install`], but the changes stay for another attempt, or for `kernel back`.
pub fn resume(host: &dyn Host, store: &Store) -> Result<Installed> {
    let _lock = lock(host, "kernel install")?;
    let mut journal =
        store.load(host)?.ok_or_else(|| Error::check("the journal was removed by another process"))?;
    if let Some(program) = Manager::find(host).and_then(Manager::repair) {
        // Remaining problems show in the installation.
        let _ = host.run(&program);
    }
    store.renumber(host, &mut journal)?;
    let steps = journal.plan.steps.iter().enumerate().filter(|(_, step)| step.uses(INSTALL));
    let numbers: Vec<usize> = steps.map(|(number, _)| number).collect();
    make_steps(host, store, &journal.plan, &numbers, false, &|change, overwrite| {
        change.perform(host, overwrite)
    })?;
    read_back(host, &journal.plan, &numbers)?;
    let default = host.identity().release;
    let Some(wanted) = journal.plan.steps.iter().filter_map(release_of).next_back() else {
        return Err(Error::check(
            "the interrupted command does not install a kernel: `fullpipe kernel back` rolls it back",
        ));
    };
    let others: Vec<String> = installed::all(host)
        .into_iter()
        .map(|kernel| kernel.release)
        .filter(|release| *release != wanted)
        .collect();
    let release = is_bootable(host, &others, &default)?;
    store
        .append(host, &Record::Applied)
        .map_err(|e| Error::io(format_args!("cannot write {}", store.path()), &e))?;
    record_release(host, store, &release)?;
    Ok(Installed { release, default, resumed: true })
}

/// Checks that there is a new kernel that the loader can boot, and that the default is unchanged.
/// Returns its release.
fn is_bootable(host: &dyn Host, before: &[String], default: &str) -> Result<String> {
    let environment = BootEnvironment::detect(host)?;
    let is_new = |kernel: &&Kernel| !before.contains(&kernel.release);
    let new = environment
        .kernels
        .iter()
        .find(is_new)
        .ok_or_else(|| Error::check("the package manager succeeded, but there is no new kernel"))?;
    if new.image.is_none() || environment.loader.entry(new).is_none() {
        return Err(Error::check(format_args!(
            "Linux {} is installed, but {} ({}) has no entry for it",
            new.release,
            environment.loader.kind.name(),
            environment.loader.menu
        )));
    }
    match environment.loader.default_of(host, &environment.kernels) {
        Some(kernel) if kernel.release == default => Ok(new.release.clone()),
        other => Err(Error::check(format_args!(
            "after the installation {} would boot {} by default, not Linux {default}",
            environment.loader.kind.name(),
            other.map_or_else(|| "an unknown entry".to_owned(), |kernel| format!("Linux {}", kernel.release))
        ))),
    }
}

/// Corrects the release in the journal to the installed one.
fn record_release(host: &dyn Host, store: &Store, found: &str) -> Result<()> {
    let Some(mut journal) = store.load(host)? else { return Ok(()) };
    let mut changed = false;
    for step in &mut journal.plan.steps {
        if let Change::Packages { release, .. } = &mut step.change
            && release != found
        {
            found.clone_into(release);
            changed = true;
        }
    }
    if changed {
        store
            .replace(host, &journal)
            .map_err(|e| Error::io(format_args!("cannot write {}", store.path()), &e))?;
    }
    Ok(())
}
