//! The life of a controller in the running kernel: load, look, replace, unload.

use crate::controller::Controller;
use crate::error::{Error, Result};
use crate::kernel::{self, Kernel};
use crate::load_options::{self, BuildInfo, LoadOptions};
use crate::loader::{self, name_taken};
use crate::namespaces::{self, Namespace};
use crate::pinned::Pinned;
pub use crate::pinned::Preserved;
use crate::pins::Pins;
use crate::settings::{self, Setting};
use crate::sockets::{Socket, Walker};
use crate::usage::{self, Uses};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use nix::sys::socket::{setsockopt, sockopt};
use std::time::{Duration, Instant};

/// What [`load`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The controller is registered and pinned now.
    Loaded,
    /// This very build was there already.
    AlreadyLoaded,
    /// Another build took the place of the one that was loaded.
    Replaced(Preserved),
}

/// Puts a controller into the kernel, where it stays until [`unload`] or a reboot. With `name` it
/// is registered under that instead of its own.
///
/// A build that is already loaded stays; a different one is replaced in place.
///
/// # Errors
/// [`Error::Impossible`] with what is missing. Nothing is left registered or pinned then.
pub fn load(controller: Controller, name: Option<&str>) -> Result<Outcome> {
    load_with(controller, name, &[])
}

/// The same with settings, as pairs of key and value. Where this very build is loaded already, its
/// settings stay: see [`tune`].
///
/// # Errors
/// As [`load`]; also for a setting that it does not have, or a value that it cannot have.
pub fn load_with(controller: Controller, name: Option<&str>, pairs: &[(String, String)]) -> Result<Outcome> {
    let name = name.unwrap_or(controller.name());
    loader::check_name(name)?;
    let (ours, defaults) = load_options::inspect(controller)?;
    let words = settings::vary(controller, &defaults, pairs)?;
    let kernel = Kernel::detect()?;
    let pins = Pins::lock()?;
    let was_updated = Pinned::recover(&pins, name)?;
    if let Some(there) = Pinned::open(&pins, name)? {
        let is_registered = there.is_registered()?;
        if is_registered && there.marks()?.is_some_and(|marks| marks.build == ours.build) {
            // An update may have been interrupted before it came to the defaults and the sockets.
            there.renew_defaults()?;
            if controller.has_storage() && there.has_predecessor() {
                there.move_sockets()?;
            }
            return Ok(Outcome::AlreadyLoaded);
        }
        if is_registered || was_updated {
            let carried = there.give_way_to(&pins, (controller, ours), &defaults, pairs, &kernel)?;
            return Ok(Outcome::Replaced(carried));
        }
        // One who loaded or unloaded it was killed.
        there.unregister(&pins)?;
    }
    attach(
        controller,
        name,
        &kernel,
        &pins,
        &LoadOptions { settings: Some(&words), ..LoadOptions::default() },
    )?;
    Ok(Outcome::Loaded)
}

/// Loads a controller that says of itself to be another build: what tests of updates begin with.
///
/// # Errors
/// As [`load`].
#[doc(hidden)]
pub fn load_as_build(controller: Controller, name: &str, claims: BuildInfo) -> Result<()> {
    let start = LoadOptions { claims: Some(claims), ..LoadOptions::default() };
    attach(controller, name, &Kernel::detect()?, &Pins::lock()?, &start)
}

fn attach(
    controller: Controller,
    name: &str,
    kernel: &Kernel,
    pins: &Pins,
    start: &LoadOptions<'_>,
) -> Result<()> {
    let path = pins.path(name);
    if kernel::available()?.iter().any(|taken| taken == name) {
        return Err(name_taken(name));
    }
    loader::load_from(controller, name, kernel, start)?.register_pinned(&path)
}

/// Replaces a loaded controller by this build, in place.
///
/// # Errors
/// When it is not loaded.
pub fn update(controller: Controller, name: Option<&str>) -> Result<Outcome> {
    let known = name.unwrap_or(controller.name());
    if !Pins::existing().is_some_and(|pins| pins.path(known).exists()) {
        return Err(not_loaded(known));
    }
    load(controller, name)
}

/// Changes settings of a loaded controller, given as pairs of key and value; live sockets follow
/// with their next acknowledgement. Gives all its settings as they are then.
///
/// # Errors
/// When it is not loaded or is another build, for a setting that it does not have, or a value that
/// it cannot have.
pub fn tune(name: &str, pairs: &[(String, String)]) -> Result<Vec<Setting>> {
    loader::check_name(name)?;
    let pins = if pairs.is_empty() { Pins::existing() } else { Some(Pins::lock()?) };
    let pinned = pins.as_ref().map(|pins| Pinned::open(pins, name)).transpose()?.flatten();
    let Some(pinned) = pinned else { return Err(not_loaded(name)) };
    let (Some(controller), Some(words)) = (pinned.controller()?, pinned.settings()?) else {
        return Err(Error::impossible(
            format!("{name} was loaded by another version of fullpipe, which has other settings"),
            "`fullpipe cc update` replaces it",
        ));
    };
    let varied = settings::vary(controller, &words, pairs)?;
    if varied != words
        && let Some(map) = pinned.map(|map| map.name().to_string_lossy().ends_with(settings::MAP))?
    {
        map.update(&0u32.to_ne_bytes(), &settings::bytes(&varied), MapFlags::ANY).map_err(|error| {
            Error::impossible(format!("{name}'s settings cannot be written: {error}"), "run as root")
        })?;
    }
    settings::describe(controller, &varied)
}

/// Sends data over loopback with the controller, and makes sure that it arrives.
///
/// # Errors
/// [`Error::Impossible`] when a socket cannot choose it or the data does not arrive within ten
/// seconds.
pub fn verify(name: &str) -> Result<()> {
    const BYTES: usize = 1 << 20;
    const PATIENCE: Duration = Duration::from_secs(10);
    let failed = |reason: String| {
        Error::impossible(
            format!("{name} did not carry a test transfer: {reason}"),
            "check that loopback is up; if it is, unload it and report this",
        )
    };
    let io = |error: std::io::Error| failed(error.to_string());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(io)?;
    let address = listener.local_addr().map_err(io)?;
    // Connected before it is accepted, so that neither waits for the other in vain.
    let connection = || -> std::io::Result<_> {
        let peer = std::net::TcpStream::connect_timeout(&address, PATIENCE)?;
        let (own, _) = listener.accept()?;
        for end in [&peer, &own] {
            end.set_read_timeout(Some(PATIENCE))?;
            end.set_write_timeout(Some(PATIENCE))?;
        }
        Ok((peer, own))
    };
    // Both directions count: what we send chooses the controller, what comes in is the peer's default.
    let (mut peer, mut own) = connection().map_err(io)?;
    choose(&own, name).map_err(|error| failed(format!("a socket cannot choose it: {error}")))?;
    let sender = std::thread::spawn(move || std::io::Write::write_all(&mut peer, &vec![0x5a; BYTES]));
    let mut received = vec![0; BYTES];
    std::io::Read::read_exact(&mut own, &mut received).map_err(io)?;
    sender.join().map_err(|_| failed("the sender ended".to_owned()))?.map_err(io)?;

    let (mut peer, mut own) = connection().map_err(io)?;
    choose(&own, name).map_err(io)?;
    let receiver = std::thread::spawn(move || std::io::Read::read_to_end(&mut peer, &mut Vec::new()));
    std::io::Write::write_all(&mut own, &received).map_err(io)?;
    drop(own);
    match receiver.join().map_err(|_| failed("the receiver ended".to_owned()))?.map_err(io)? {
        BYTES => Ok(()),
        bytes => Err(failed(format!("{bytes} of {BYTES} bytes arrived"))),
    }
}

fn choose(socket: &std::net::TcpStream, name: &str) -> std::io::Result<()> {
    Ok(setsockopt(socket, sockopt::TcpCongestion, &name.into())?)
}

fn not_loaded(name: &str) -> Error {
    Error::impossible(format!("{name} is not loaded"), "`fullpipe cc status` shows what is")
}

/// The names under which controllers are loaded, and which they are. Empty without the right to
/// look.
///
/// # Errors
/// When a pin cannot be used.
pub fn loaded() -> Result<Vec<(String, Option<Controller>)>> {
    let Some(pins) = Pins::existing() else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for name in pins.names()? {
        if let Some(pinned) = Pinned::open(&pins, &name)? {
            all.push((name, pinned.controller()?));
        }
    }
    Ok(all)
}

/// Whether something is loaded under that name, as far as the caller may look.
///
/// # Errors
/// When nothing can have that name.
pub fn is_loaded(name: &str) -> Result<bool> {
    loader::check_name(name)?;
    Ok(Pins::existing().is_some_and(|pins| pins.path(name).exists()))
}

/// Takes a controller out of the kernel: has `end` end its uses in each network namespace and say
/// which controller is the default there now, ends those of control groups, moves live sockets to
/// that default, unregisters it, and waits until nothing holds it any more.
///
/// # Errors
/// When it is not loaded, or still held after `patience`; and what `end` says.
pub fn unload<E: From<Error> + Send>(
    name: &str,
    patience: Duration,
    end: &(dyn Fn() -> std::result::Result<String, E> + Sync),
) -> std::result::Result<(), E> {
    loader::check_name(name)?;
    let pins = Pins::lock()?;
    Pinned::recover(&pins, name)?;
    let Some(pinned) = Pinned::open(&pins, name)? else { return Err(not_loaded(name).into()) };
    let mut ended = Vec::new();
    for namespace in namespaces::all() {
        let other = namespace.enter(end)?;
        ended.push((namespace, other));
    }
    usage::detach_from_cgroups(name, &pins)?;
    take_out(name, &pins, pinned, &ended, patience)?;
    Ok(())
}

/// What helps where no program may give a live socket another controller (Linux before 5.15).
const CANNOT_MOVE: &str = "this kernel lets no program give a live socket another controller: its sockets let go when they are closed; \
                           end the programs that have them, or wait (--wait)";

/// Unregisters it and moves its sockets, in each namespace to what is the default there.
fn take_out(
    name: &str,
    pins: &Pins,
    pinned: Pinned,
    ended: &[(Namespace, String)],
    patience: Duration,
) -> Result<()> {
    let map = pinned.map_id;
    pinned.unregister(pins)?;

    // Nothing can choose it now; sockets that have it keep its code until they are moved or close.
    let started = Instant::now();
    let mut cannot_move = None;
    let mut walkers: Vec<(String, Walker)> = Vec::new();
    let mut pause = Duration::from_millis(5);
    while MapHandle::from_map_id(map).is_ok() {
        if started.elapsed() > patience {
            return Err(Error::impossible(
                format!(
                    "{name} is unregistered, but something still holds it after {} s",
                    patience.as_secs()
                ),
                cannot_move.unwrap_or(
                    "sockets in network namespaces that no process is in, or half-closed ones, let go when they end",
                ),
            ));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
        if started.elapsed() < Duration::from_millis(30) {
            continue;
        }
        for (namespace, other) in ended {
            if cannot_move.is_none() && !walkers.iter().any(|(to, _)| to == other) {
                match Walker::load(Some((name, other))) {
                    Ok(walker) => walkers.push((other.clone(), walker)),
                    // A kernel that has it not for sockets in use has it for closed ones: they let go by
                    // themselves.
                    Err(_) => cannot_move = Some(CANNOT_MOVE),
                }
            }
            for (_, walker) in walkers.iter().filter(|(to, _)| to == other) {
                walker.migrate(namespace)?;
            }
        }
    }
    Ok(())
}

/// A controller that is loaded, and what is known of its use.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Status {
    /// The name it is registered under.
    pub name: String,
    /// Whether sockets can choose it; when not, the pin is there but the controller is not.
    pub registered: bool,
    /// The build that is loaded, in hexadecimal.
    pub build: Option<String>,
    /// Whether that is this program's build.
    pub is_this_build: bool,
    /// Which controller it is, by its own name.
    pub controller: Option<&'static str>,
    /// The layout of the state of its sockets: an update to a build of the same one keeps it.
    pub state_layout: Option<u32>,
    /// What can be varied, and what it is set to; empty when this program does not know that
    /// build's.
    #[serde(serialize_with = "settings::serialize")]
    pub settings: Vec<Setting>,
    /// The kernel's number of its map.
    pub map_id: u32,
    /// Where it is in use by choice.
    pub uses: Uses,
    /// The sockets that use it, in all namespaces.
    pub sockets: Vec<Socket>,
}

/// The controllers that are loaded.
///
/// # Errors
/// When a pin or a namespace may not be looked into.
pub fn status() -> Result<Vec<Status>> {
    let Some(pins) = Pins::existing() else { return Ok(Vec::new()) };
    let names = pins.names()?;
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let walker = Walker::load(None)?;
    let mut sockets = Vec::new();
    for namespace in namespaces::all() {
        sockets.extend(walker.sockets(&namespace)?);
    }
    let available = kernel::available()?;
    let mut all = Vec::new();
    for name in names {
        // It may be unloaded while we look.
        let Some(pinned) = Pinned::open(&pins, &name)? else { continue };
        let (marks, controller) = (pinned.marks()?, pinned.controller()?);
        let build = marks.map(|marks| marks.build);
        let settings = match (controller, pinned.settings()?) {
            (Some(controller), Some(words)) => settings::describe(controller, &words).unwrap_or_default(),
            _ => Vec::new(),
        };
        all.push(Status {
            controller: controller.map(Controller::name),
            state_layout: marks.and_then(|marks| marks.state_layout),
            settings,
            registered: available.contains(&name) && pinned.is_registered()?,
            build: build.map(|build| format!("{build:016x}")),
            is_this_build: Controller::ALL.iter().any(|controller| Some(controller.build()) == build),
            map_id: pinned.map_id,
            uses: usage::find(&name, &pins)?,
            sockets: sockets.iter().filter(|socket| socket.controller == name).cloned().collect(),
            name,
        });
    }
    Ok(all)
}
