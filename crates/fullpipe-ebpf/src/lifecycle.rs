//! Loads, inspects, replaces and unloads controllers in the running kernel.

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
use crate::sockets::{Purpose, Socket, Walker};
use crate::usage::{self, Uses};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use nix::sys::socket::{setsockopt, sockopt};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The outcome of [`load`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Registered and pinned.
    Loaded,
    /// This build was already loaded.
    AlreadyLoaded,
    /// Replaced another build.
    Replaced(Preserved),
}

/// Loads a controller until [`unload`] or a reboot. `name` overrides the name it is registered
/// under.
///
/// If the same build is already loaded, nothing changes; another build is replaced in place.
///
/// # Errors
/// [`Error::Impossible`] with what is missing. Nothing is left registered or pinned.
pub fn load(controller: Controller, name: Option<&str>) -> Result<Outcome> {
    load_with(controller, name, &[])
}

/// As [`load`], with settings as pairs of key and value. If this build is already loaded, its
/// settings stay; change them with [`tune`].
///
/// # Errors
/// As [`load`]; also for an unknown setting or an invalid value.
pub fn load_with(controller: Controller, name: Option<&str>, pairs: &[(String, String)]) -> Result<Outcome> {
    let name = name.unwrap_or(controller.name());
    loader::check_name(name)?;
    let (ours, defaults) = load_options::inspect(controller)?;
    let words = settings::vary(controller, &defaults, pairs)?;
    let kernel = Kernel::detect()?;
    let pins = Pins::lock()?;
    let was_updated = Pinned::recover(&pins, name)?;
    if let Some(pinned) = Pinned::open(&pins, name)? {
        let is_registered = pinned.is_registered()?;
        if is_registered && pinned.build_info()?.is_some_and(|marks| marks.build == ours.build) {
            // An interrupted update may not have reached the defaults and sockets.
            pinned.renew_defaults()?;
            if controller.has_storage() && pinned.has_predecessor() {
                pinned.move_sockets()?;
            }
            return Ok(Outcome::AlreadyLoaded);
        }
        if is_registered || was_updated {
            let carried = pinned.replace_with(&pins, (controller, ours), &defaults, pairs, &kernel)?;
            return Ok(Outcome::Replaced(carried));
        }
        // A process was killed while loading or unloading it.
        pinned.unregister(&pins)?;
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

/// Loads a controller that pretends to be another build, for tests of updates.
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
/// If it is not loaded.
pub fn update(controller: Controller, name: Option<&str>) -> Result<Outcome> {
    let known = name.unwrap_or(controller.name());
    if !Pins::existing()?.is_some_and(|pins| pins.path(known).exists()) {
        return Err(not_loaded(known));
    }
    load(controller, name)
}

/// Changes settings of a loaded controller, given as pairs of key and value. Live sockets apply
/// them with the next ACK. Returns all settings.
///
/// # Errors
/// If it is not loaded or is another build; for an unknown setting or an invalid value.
pub fn tune(name: &str, pairs: &[(String, String)]) -> Result<Vec<Setting>> {
    loader::check_name(name)?;
    let pins = if pairs.is_empty() { Pins::existing()? } else { Some(Pins::lock()?) };
    let pinned = pins.as_ref().map(|pins| Pinned::open(pins, name)).transpose()?.flatten();
    let Some(pinned) = pinned else { return Err(not_loaded(name)) };
    let (Some(controller), Some(words)) = (pinned.controller()?, pinned.settings()?) else {
        return Err(Error::impossible(
            format!("{name} was loaded by another version of fullpipe with different settings"),
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

/// Transfers data over loopback with the controller and checks that it arrives.
///
/// # Errors
/// [`Error::Impossible`] if a socket cannot select it or the data does not arrive within ten
/// seconds.
pub fn verify(name: &str) -> Result<()> {
    const BYTES: usize = 1 << 20;
    const TRANSFER_TIMEOUT: Duration = Duration::from_secs(10);
    let failed = |reason: String| {
        Error::impossible(
            format!("a test transfer with {name} failed: {reason}"),
            "check that loopback is up; if it is, unload it and report this",
        )
    };
    let io = |error: std::io::Error| failed(error.to_string());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(io)?;
    let address = listener.local_addr().map_err(io)?;
    // Connect before accept, so that neither blocks the other.
    let connection = || -> std::io::Result<_> {
        let peer = std::net::TcpStream::connect_timeout(&address, TRANSFER_TIMEOUT)?;
        let (own, _) = listener.accept()?;
        for end in [&peer, &own] {
            end.set_read_timeout(Some(TRANSFER_TIMEOUT))?;
            end.set_write_timeout(Some(TRANSFER_TIMEOUT))?;
        }
        Ok((peer, own))
    };
    // Both directions are tested: ours with the controller, the peer's with its default.
    let (mut peer, mut own) = connection().map_err(io)?;
    choose(&own, name).map_err(|error| failed(format!("a socket cannot select it: {error}")))?;
    let sender = std::thread::spawn(move || std::io::Write::write_all(&mut peer, &vec![0x5a; BYTES]));
    let mut received = vec![0; BYTES];
    std::io::Read::read_exact(&mut own, &mut received).map_err(io)?;
    sender.join().map_err(|_| failed("the sender thread panicked".to_owned()))?.map_err(io)?;

    let (mut peer, mut own) = connection().map_err(io)?;
    choose(&own, name).map_err(io)?;
    let receiver = std::thread::spawn(move || std::io::Read::read_to_end(&mut peer, &mut Vec::new()));
    std::io::Write::write_all(&mut own, &received).map_err(io)?;
    drop(own);
    match receiver.join().map_err(|_| failed("the receiver thread panicked".to_owned()))?.map_err(io)? {
        BYTES => Ok(()),
        bytes => Err(failed(format!("{bytes} of {BYTES} bytes arrived"))),
    }
}

fn choose(socket: &std::net::TcpStream, name: &str) -> std::io::Result<()> {
    Ok(setsockopt(socket, sockopt::TcpCongestion, &name.into())?)
}

fn not_loaded(name: &str) -> Error {
    Error::impossible(format!("{name} is not loaded"), "`fullpipe cc status` lists loaded controllers")
}

/// The names of loaded controllers, with the controller each one is. Empty without the permission
/// to read pins.
///
/// # Errors
/// If a pin cannot be used.
pub fn loaded() -> Result<Vec<(String, Option<Controller>)>> {
    let Some(pins) = Pins::existing()? else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for name in pins.names()? {
        if let Some(pinned) = Pinned::open(&pins, &name)? {
            all.push((name, pinned.controller()?));
        }
    }
    Ok(all)
}

/// Whether a controller is loaded under this name, as far as the caller may see.
///
/// # Errors
/// If the name is invalid, or another user may change the pins.
pub fn is_loaded(name: &str) -> Result<bool> {
    loader::check_name(name)?;
    Ok(Pins::existing()?.is_some_and(|pins| pins.path(name).exists()))
}

/// Unloads a controller. Calls `end` in each network namespace, with whether it is this process's own,
/// to end its uses and return the new default. Then detaches it from control groups, unregisters it,
/// moves live sockets to the default of their namespace, and waits until the kernel has released it.
///
/// # Errors
/// If it is not loaded, or still referenced after `timeout`; also errors of `end`.
pub fn unload<E: From<Error> + Send>(
    name: &str,
    timeout: Duration,
    end: &(dyn Fn(bool) -> std::result::Result<String, E> + Sync),
) -> std::result::Result<(), E> {
    loader::check_name(name)?;
    let pins = Pins::lock()?;
    Pinned::recover(&pins, name)?;
    let Some(pinned) = Pinned::open(&pins, name)? else { return Err(not_loaded(name).into()) };
    let mut ended = Ended::default();
    namespaces::visit(|namespace| {
        let other = namespace.enter(|| end(namespace.is_own))?;
        if namespace.is_own {
            ended.own.clone_from(&other);
        }
        ended.defaults.insert(namespace.inode, other);
        Ok::<_, E>(())
    })?;
    usage::detach_from_cgroups(name, &pins)?;
    unregister_and_move(name, &pins, pinned, &ended, timeout)?;
    Ok(())
}

/// The default controllers of network namespaces after the uses of a controller ended there.
#[derive(Default)]
struct Ended {
    /// By inode of the namespace.
    defaults: BTreeMap<u64, String>,
    /// That of this process's own namespace, also used for namespaces created since.
    own: String,
}

impl Ended {
    fn default_of(&self, namespace: &Namespace) -> &String {
        self.defaults.get(&namespace.inode).unwrap_or(&self.own)
    }
}

/// Help on kernels that cannot move live sockets to another controller (before Linux 5.15).
const CANNOT_MOVE: &str = "this kernel cannot move live sockets to another controller; they release it \
                           when they close: end their programs, or wait longer (--wait)";

/// Help if sockets remain that no iterator reaches: those without a connection are in no hash table of
/// the kernel (`inet_unhash`), but have a controller from `tcp_init_sock` until they are closed.
const OUT_OF_REACH: &str = "end the programs that use it; three kinds of sockets cannot be moved to another \
                            controller: those without a connection (not connected yet, or ended), those in \
                            a network namespace without a process, and those of processes that this one \
                            may not inspect (CAP_SYS_PTRACE)";

/// Unregisters a controller and moves its sockets to the default of their network namespace.
fn unregister_and_move(
    name: &str,
    pins: &Pins,
    pinned: Pinned,
    ended: &Ended,
    timeout: Duration,
) -> Result<()> {
    let map = pinned.map_id;
    pinned.unregister(pins)?;

    // No socket can select it now; sockets that use it keep its code until they are moved or close.
    let started = Instant::now();
    let mut cannot_move = None;
    let mut walkers: Vec<(String, Walker)> = Vec::new();
    let mut pause = Duration::from_millis(5);
    while MapHandle::from_map_id(map).is_ok() {
        if started.elapsed() > timeout {
            return Err(Error::impossible(
                format!("{name} is unregistered, but still in use after {} s", timeout.as_secs()),
                cannot_move.unwrap_or(OUT_OF_REACH),
            ));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
        if started.elapsed() < Duration::from_millis(30) {
            continue;
        }
        namespaces::visit(|namespace| {
            let other = ended.default_of(namespace);
            if cannot_move.is_none() && !walkers.iter().any(|(to, _)| to == other) {
                match Walker::load(Purpose::Migration { from: name, to: other }) {
                    Ok(walker) => walkers.push((other.clone(), walker)),
                    // Without it, sockets release the controller when they close.
                    Err(_) => cannot_move = Some(CANNOT_MOVE),
                }
            }
            // The namespace's owner may have made the controller the default again in the meantime.
            namespace.enter(|| usage::replace_default(name, other))?;
            for (_, walker) in walkers.iter().filter(|(to, _)| to == other) {
                walker.migrate(namespace)?;
            }
            Ok::<_, Error>(())
        })?;
    }
    Ok(())
}

/// The status of a loaded controller.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Status {
    /// Its registered name.
    pub name: String,
    /// Whether sockets can select it; if not, only its pin is left.
    pub registered: bool,
    /// The loaded build, in hexadecimal.
    pub build: Option<String>,
    /// Whether it is this program's build.
    pub is_this_build: bool,
    /// The controller's own name.
    pub controller: Option<&'static str>,
    /// Version of the per-socket state layout; an update with the same layout keeps the state.
    pub state_layout: Option<u32>,
    /// Its settings; empty if this program does not know that build.
    #[serde(serialize_with = "settings::serialize")]
    pub settings: Vec<Setting>,
    /// ID of its map.
    pub map_id: u32,
    /// Where it is configured.
    pub uses: Uses,
    /// Sockets that use it, in all namespaces.
    pub sockets: Vec<Socket>,
}

/// Maximum time for reading the routes of all network namespaces, for all controllers together.
const ROUTE_TIME: Duration = Duration::from_secs(5);

/// The status of all loaded controllers.
///
/// # Errors
/// If a pin or a namespace cannot be inspected.
pub fn status() -> Result<Vec<Status>> {
    let Some(pins) = Pins::existing()? else { return Ok(Vec::new()) };
    let names = pins.names()?;
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let walker = Walker::load(Purpose::Sockets)?;
    let mut sockets = Vec::new();
    namespaces::visit(|namespace| {
        sockets.extend(walker.sockets(namespace)?);
        Ok::<_, Error>(())
    })?;
    let available = kernel::available()?;
    let deadline = Instant::now() + ROUTE_TIME;
    let mut all = Vec::new();
    for name in names {
        // It may be unloaded meanwhile.
        let Some(pinned) = Pinned::open(&pins, &name)? else { continue };
        let (marks, controller) = (pinned.build_info()?, pinned.controller()?);
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
            uses: usage::find(&name, &pins, deadline)?,
            sockets: sockets.iter().filter(|socket| socket.controller == name).cloned().collect(),
            name,
        });
    }
    Ok(all)
}
