//! Having the distribution's package manager install another kernel, beside the one that runs.

use super::installed::{self, Kernel};
use super::packages::{Manager, Offer, Simulated, Source};
use super::status::{dkms, secure_boot};
use super::{BootEnvironment, INSTALL, Wanted, perform_steps, release_of};
use crate::apply::{lock, make_steps, read_back};
use crate::error::{Error, Result};
use crate::facts::distribution;
use crate::host::{Host, View};
use crate::journal::{Record, Store};
use crate::plan::{Change, FileState};
use serde::Serialize;

/// What is asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// A release, or how it begins; without one the newest.
    pub version: Option<String>,
    /// The source, if not the distribution's own.
    pub from: Option<Source>,
    /// A package's file, by its whole path, instead of what the package manager knows.
    pub file: Option<String>,
}

/// What would be done.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Plan {
    /// The kernel.
    pub kernel: Offer,
    /// What the package manager would do.
    pub packages: Simulated,
    /// The steps, in order, with their reasons.
    pub steps: Vec<Step>,
    /// Other kernels that are on offer, the newest first.
    pub others: Vec<String>,
    /// What to know besides.
    pub notes: Vec<String>,
}

/// A change and its reason.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Step {
    /// The change.
    pub change: Change,
    /// Why.
    pub why: String,
}

/// Debian's backports, as a source that apt reads.
const BACKPORTS: &str = "/etc/apt/sources.list.d/fullpipe-backports.list";
const DEBIAN_KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Room that is left free.
const SPARE: u64 = 32 << 20;
/// What a kernel takes where none tells.
const USUAL: u64 = 96 << 20;

/// The source of backports, where apt does not have it.
///
/// # Errors
/// [`Error::Usage`] where this is no Debian; [`Error::Impossible`] where its keys are missing.
pub fn source(host: &dyn Host, request: &Request) -> Result<Option<(Change, String)>> {
    if request.from != Some(Source::Backports) {
        return Ok(None);
    }
    let value = |key| distribution(host, key);
    let (Some("debian"), Some(name)) = (value("ID").as_deref(), value("VERSION_CODENAME")) else {
        return Err(Error::usage(
            "--from backports: that is Debian's; Ubuntu has --from hwe, Red Hat's distributions --from elrepo",
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
            "{DEBIAN_KEYS} is not there, by which Debian's backports are checked: apt-get install debian-archive-keyring"
        )));
    }
    let mirror = sources(host)
        .find_map(|text| mirror(&text, &name))
        .unwrap_or_else(|| "http://deb.debian.org/debian".into());
    let text = format!(
        "# Written by `fullpipe kernel install --from backports`.\ndeb [signed-by={DEBIAN_KEYS}] {mirror} {suite} main\n"
    );
    let before = FileState::read(host, BACKPORTS)
        .map_err(|e| Error::io(format_args!("cannot read {BACKPORTS}"), &e))?;
    let after = FileState::new_file(host, &text);
    let told = format!("the source {suite} of {mirror}, which is checked by {DEBIAN_KEYS}");
    Ok(Some((Change::File { path: BACKPORTS.into(), before, after }, told)))
}

/// The texts of apt's sources.
fn sources(view: &dyn View) -> impl Iterator<Item = String> + '_ {
    let folder = "/etc/apt/sources.list.d";
    let files = view.list(folder).unwrap_or_default().into_iter().map(move |name| format!("{folder}/{name}"));
    std::iter::once("/etc/apt/sources.list".to_owned()).chain(files).filter_map(|path| view.content(&path))
}

/// Where a suite comes from: `deb [options] URI SUITE …`, or paragraphs with `URIs` and `Suites`.
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

/// Works out what it takes. Reads only.
///
/// # Errors
/// [`Error::Usage`] for a version that is not on offer, which lists those that are; [`Error::Impossible`] where no other kernel can be
/// booted, where there is no room, or where the package manager would remove something.
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
        .map_err(|e| Error::io("the package manager does not answer", &e))?
    {
        return Err(Error::impossible(why));
    }
    if request.from == Some(Source::Elrepo) && secure_boot(host) {
        return Err(Error::impossible(
            "the firmware boots only what is signed (Secure Boot), and ELRepo's kernel-ml is not: use the distribution's own, or switch \
             Secure Boot off in the firmware's settings",
        ));
    }
    let packages = manager.simulate(host, &offer, request.from)?;
    if !packages.removed.is_empty() {
        return Err(Error::impossible(format_args!(
            "{} would remove {} for it, and fullpipe removes nothing: see what keeps them apart by `{}`",
            manager.name(),
            packages.removed.join(", "),
            manager.install(&offer.packages, request.from).line()
        )));
    }
    room(host, &environment.kernels, packages.bytes)?;
    let mut steps = Vec::new();
    for change in environment.keep_running_default(host)? {
        let why = format!("Linux {}, which runs, stays the default until another is kept", running.release);
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
    steps.push(Step { change, why: format!("beside Linux {}; nothing is removed", running.release) });
    let others = offers
        .iter()
        .filter(|other| other.release != offer.release)
        .map(|other| other.release.clone())
        .collect();
    Ok(Plan { notes: notes(host, &running, &offer, manager), kernel: offer, packages, steps, others })
}

fn manager(host: &dyn Host) -> Result<Manager> {
    Manager::find(host).ok_or_else(|| {
        Error::impossible("no package manager that is known (apt, dnf, yum, zypper, pacman, apk): install a kernel as this distribution does, then `fullpipe kernel try`")
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
    let update =
        "have it learn what there is (`fullpipe kernel install` does), or name another source by --from";
    match &request.version {
        None => match offers.first() {
            None => Err(Error::impossible(format_args!("{} offers no kernel: {update}", manager.name()))),
            Some(newest) if is_there(newest) => Err(Error::check(format_args!(
                "Linux {}, the newest that {} offers, is installed already: `fullpipe kernel try {}` boots it once",
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
                    "Linux {} is installed already: `fullpipe kernel try {}` boots it once",
                    offer.release, offer.release
                ))),
                Some(offer) => Ok(offer.clone()),
                None => Err(Error::usage(format_args!(
                    "{} offers no Linux {version}. There are: {}. Or {update}",
                    manager.name(),
                    list()
                ))),
            }
        }
    }
}

/// Refuses where there is no room for another kernel.
fn room(host: &dyn Host, kernels: &[Kernel], bytes: Option<u64>) -> Result<()> {
    let largest = kernels.iter().map(|kernel| kernel.bytes).max().filter(|bytes| *bytes > 0).unwrap_or(USUAL);
    // A newer one has more drivers, and its initial file system is packed before the old one goes.
    let in_boot = largest.saturating_add(largest / 4).saturating_add(SPARE);
    let in_root = bytes.unwrap_or(4 * USUAL).saturating_add(SPARE);
    let mounts = host.text("/proc/self/mounts").unwrap_or_default();
    let is_apart = mounts.lines().any(|line| line.split_ascii_whitespace().nth(1) == Some("/boot"));
    let needed =
        if is_apart { vec![("/boot", in_boot), ("/", in_root)] } else { vec![("/", in_root.max(in_boot))] };
    for (place, needed) in needed {
        let free = host
            .free(place)
            .map_err(|e| Error::io(format_args!("cannot tell how much room {place} has"), &e))?;
        if free < needed {
            let idle: Vec<&str> = kernels
                .iter()
                .filter(|kernel| !kernel.running)
                .map(|kernel| kernel.release.as_str())
                .collect();
            let idle = if idle.is_empty() {
                String::new()
            } else {
                format!(" (kernels that do not run: {})", idle.join(", "))
            };
            return Err(Error::impossible(format_args!(
                "{place} has {} MB free, and another kernel takes {} MB there: make room by the package manager{idle}, then try again. \
                 Nothing was changed",
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
            "DKMS builds {} for it, which needs its headers: install those as well",
            built.join(", ")
        ));
    }
    if !running.out_of_tree.is_empty() {
        notes.push(format!(
            "Linux {} has modules of others, which the new one will not have: {}",
            running.release,
            running.out_of_tree.join(", ")
        ));
    }
    if offer.packages.iter().any(|package| package.starts_with('/')) {
        notes.push("it comes from a file: nobody sends updates of it".to_owned());
    } else if manager == Manager::Apt {
        notes.push(format!(
            "this is one kernel: for its security updates install the package that follows them, too, once it is kept (`apt-get install linux-image-{}`)",
            if distribution(host, "ID").as_deref() == Some("ubuntu") { "generic".to_owned() } else { installed::flavour(&offer.release) }
        ));
    }
    notes
}

/// What an installation did.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Installed {
    /// The release of the kernel that is there now.
    pub release: String,
    /// The one that runs, and is booted every day.
    pub default: String,
    /// Whether an installation that was interrupted was gone on with.
    pub resumed: bool,
}

/// Has the package manager learn what there is, from a source that was named, too.
///
/// # Errors
/// [`Error::Impossible`] without root; what [`source`] says; the source cannot be added.
pub fn refresh(host: &dyn Host, store: &Store, request: &Request) -> Result<Option<String>> {
    let _lock = lock(host, "kernel install")?;
    BootEnvironment::detect(host)?;
    if request.file.is_some() {
        return Ok(None);
    }
    if let Some((change, told)) = source(host, request)? {
        let wanted = vec![(change, "the source that was named", INSTALL)];
        let learn =
            || manager(host)?.refresh(host).map_err(|e| Error::io(format_args!("{told} cannot be used"), &e));
        perform_steps(host, store, INSTALL, wanted, &|| Ok(()), &learn)?;
        return Ok(None);
    }
    // What it knew before may do.
    Ok(manager(host)?.refresh(host).err().map(|e| e.to_string()))
}

/// Whether an installation was interrupted that can be gone on with.
///
/// # Errors
/// The journal cannot be read.
pub fn is_interrupted(host: &dyn Host, store: &Store) -> Result<bool> {
    Ok(store.load(host)?.is_some_and(|journal| journal.busy_with.as_deref() == Some(INSTALL)))
}

/// Installs what was planned, or leaves the host as it was.
///
/// # Errors
/// [`Error::Impossible`] without root; [`Error::Check`] if something is on trial or was interrupted, or if it does not end with a kernel
/// that the loader boots. Whenever it fails after having changed something, that is undone.
pub fn install(host: &dyn Host, store: &Store, plan: &Plan) -> Result<Installed> {
    let _lock = lock(host, "kernel install")?;
    let journal = store.load(host)?;
    if let Some(release) =
        journal.iter().flat_map(|journal| &journal.plan.steps).filter_map(release_of).next_back()
    {
        let command = |words: &str| host.identity().as_root(words);
        return Err(Error::check(format_args!(
            "Linux {release} is installed, and nobody kept it yet: {} tries it, {} removes it",
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
                "the kernel that runs stays the default"
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

/// Goes on with an installation that was interrupted.
///
/// # Errors
/// As [`install`], but what was begun stays for another try, or for `kernel back`.
pub fn resume(host: &dyn Host, store: &Store) -> Result<Installed> {
    let _lock = lock(host, "kernel install")?;
    let journal = store.load(host)?.ok_or_else(|| Error::check("the journal vanished"))?;
    if let Some(program) = Manager::find(host).and_then(Manager::repair) {
        // What is broken still, the installation says.
        let _ = host.run(&program);
    }
    let steps = journal.plan.steps.iter().enumerate().filter(|(_, step)| step.uses(INSTALL));
    let numbers: Vec<usize> = steps.map(|(number, _)| number).collect();
    make_steps(host, store, &journal.plan, &numbers, &|change| change.perform(host))?;
    read_back(host, &journal.plan, &numbers)?;
    let default = host.identity().release;
    let Some(wanted) = journal.plan.steps.iter().filter_map(release_of).next_back() else {
        return Err(Error::check(
            "what was interrupted installs no kernel: `fullpipe kernel back` takes it back",
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

/// Whether a kernel is there that was not, which the loader can boot, and the default is what it was. Gives its release.
fn is_bootable(host: &dyn Host, before: &[String], default: &str) -> Result<String> {
    let environment = BootEnvironment::detect(host)?;
    let is_new = |kernel: &&Kernel| !before.contains(&kernel.release);
    let new = environment
        .kernels
        .iter()
        .find(is_new)
        .ok_or_else(|| Error::check("the package manager ended well, but no other kernel is there"))?;
    if new.image.is_none() || environment.loader.entry(new).is_none() {
        return Err(Error::check(format_args!(
            "Linux {} was installed, but no entry of {} ({}) boots it",
            new.release,
            environment.loader.kind.name(),
            environment.loader.menu
        )));
    }
    match environment.loader.default_of(host, &environment.kernels) {
        Some(kernel) if kernel.release == default => Ok(new.release.clone()),
        other => Err(Error::check(format_args!(
            "after the installation {} would boot {}, and not Linux {default}, every day",
            environment.loader.kind.name(),
            other.map_or_else(
                || "nothing that is known".to_owned(),
                |kernel| format!("Linux {}", kernel.release)
            )
        ))),
    }
}

/// Has the journal call what was installed by the release that it turned out to have.
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
