//! The life of a controller in the running kernel: load, look, replace, unload.

use crate::controller::Controller;
use crate::error::{Error, Result};
use crate::kernel::{self, Kernel};
use crate::loader::{self, name_taken};
use crate::namespaces;
use crate::pins::Pins;
use crate::sockets::{Socket, Walker};
use crate::usage::{self, Uses};
use libbpf_rs::query::LinkTypeInfo;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Program};
use nix::sys::socket::{setsockopt, sockopt};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// What [`load`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The controller is registered and pinned now.
    Loaded,
    /// This very build was there already.
    AlreadyThere,
    /// Another build took the place of the one that was loaded; sockets moved over without noticing.
    Replaced,
}

/// Puts a controller into the kernel, where it stays until [`unload`] or a reboot. With `name` it is
/// registered under that instead of its own.
///
/// A build that is already loaded stays; a different one is replaced in place.
///
/// # Errors
/// [`Error::Impossible`] with what is missing. Nothing is left registered or pinned then.
pub fn load(controller: Controller, name: Option<&str>) -> Result<Outcome> {
    let name = name.unwrap_or(controller.name());
    loader::check_name(name)?;
    let kernel = Kernel::ask()?;
    let pins = Pins::change()?;
    let path = pins.path(name);
    if let Some(there) = Pinned::open(&pins, name)? {
        if there.build()? == Some(controller.build()) {
            return Ok(Outcome::AlreadyThere);
        }
        loader::load(controller, Some(name), &kernel)?.replace(&there.link)?;
        return Ok(Outcome::Replaced);
    }
    if kernel::available()?.iter().any(|taken| taken == name) {
        return Err(name_taken(name));
    }
    let mut loaded = loader::load(controller, Some(name), &kernel)?;
    let mut link = loaded.attach()?;
    link.pin(&path).map_err(|error| {
        Error::impossible(
            format!("{name} is registered but cannot be pinned at {}: {error}", path.display()),
            "check that the BPF file system is writable",
        )
    })?;
    Ok(Outcome::Loaded)
}

/// Replaces a loaded controller by this build, in place.
///
/// # Errors
/// When it is not loaded.
pub fn update(controller: Controller, name: Option<&str>) -> Result<Outcome> {
    let known = name.unwrap_or(controller.name());
    if !Pins::look().is_some_and(|pins| pins.path(known).exists()) {
        return Err(not_loaded(known));
    }
    load(controller, name)
}

/// Sends data over loopback with the controller, and makes sure that it arrives.
///
/// # Errors
/// [`Error::Impossible`] when a socket cannot choose it or the data does not arrive within ten seconds.
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

/// A controller that is loaded and pinned.
struct Pinned {
    link: Link,
    /// The kernel's number of the controller's struct_ops map.
    map_id: u32,
    name: String,
}

impl Pinned {
    /// Opens the pin of that name, when there is one.
    fn open(pins: &Pins, name: &str) -> Result<Option<Self>> {
        let path = pins.path(name);
        if !path.exists() {
            return Ok(None);
        }
        let refused = |error: libbpf_rs::Error| {
            Error::impossible(
                format!("the pin {} cannot be used: {error}", path.display()),
                "run as root; if something else made it, remove that file",
            )
        };
        let link = Link::open(&path).map_err(refused)?;
        let LinkTypeInfo::StructOps(about) = link.info().map_err(refused)?.info else {
            return Err(Error::impossible(
                format!("the pin {} is not a congestion controller", path.display()),
                "remove that file",
            ));
        };
        Ok(Some(Pinned { link, map_id: about.map_id, name: name.to_owned() }))
    }

    /// The kernel's numbers of the programs it is made of.
    fn programs(&self) -> Result<Vec<u32>> {
        let gone = |error: libbpf_rs::Error| {
            Error::impossible(format!("{}'s map cannot be read: {error}", self.name), "run as root")
        };
        let map = MapHandle::from_map_id(self.map_id).map_err(gone)?;
        let value = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(gone)?.unwrap_or_default();
        // The map's value has the programs' ids where the kernel's structure has its function pointers.
        let words = value.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
        Ok(words.filter_map(|id| u32::try_from(id).ok()).collect())
    }

    /// Which controller it is, whatever it is called and whichever build: its programs carry its own name.
    fn controller(&self) -> Result<Option<Controller>> {
        let of = |program: &AboutProgram| {
            let starts = |name| program.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('_'));
            Controller::ALL.into_iter().find(|controller| starts(controller.name()))
        };
        Ok(self.programs()?.into_iter().filter_map(about_program).find_map(|program| of(&program)))
    }

    /// Which build is loaded, as [`Controller::build`] counts it: read from the loaded programs themselves.
    fn build(&self) -> Result<Option<u64>> {
        for map in self.programs()?.into_iter().filter_map(about_program).flat_map(|about| about.maps) {
            let Ok(map) = MapHandle::from_map_id(map) else { continue };
            if !map.name().to_string_lossy().ends_with(".rodata.config") {
                continue;
            }
            let config = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok().flatten().unwrap_or_default();
            return Ok(config.get(8..16).and_then(|bytes| bytes.try_into().ok()).map(u64::from_ne_bytes));
        }
        Ok(None)
    }
}

/// A loaded program: its name, of which the kernel keeps 15 characters, and its maps' numbers.
struct AboutProgram {
    name: String,
    maps: Vec<u32>,
}

/// The program of that id, if there is one.
fn about_program(id: u32) -> Option<AboutProgram> {
    let fd = Program::fd_from_id(id).ok()?;
    let mut maps = [0u32; 16];
    let mut info = libbpf_sys::bpf_prog_info {
        nr_map_ids: maps.len() as u32,
        map_ids: maps.as_mut_ptr() as u64,
        ..Default::default()
    };
    let mut size = std::mem::size_of_val(&info) as u32;
    // SAFETY: the descriptor is a program's; `info` and the array it points to are writable, and their
    // sizes are given.
    let result = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(fd.as_raw_fd(), &mut info, &mut size) };
    let name = info.name.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
    let maps = maps[..maps.len().min(info.nr_map_ids as usize)].to_vec();
    (result == 0).then(|| AboutProgram { name: String::from_utf8(name).unwrap_or_default(), maps })
}

/// The names under which controllers are loaded, and which they are. Empty without the right to look.
///
/// # Errors
/// When a pin cannot be used.
pub fn loaded() -> Result<Vec<(String, Option<Controller>)>> {
    let Some(pins) = Pins::look() else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for name in pins.names()? {
        if let Some(pinned) = Pinned::open(&pins, &name)? {
            all.push((name, pinned.controller()?));
        }
    }
    Ok(all)
}

/// Takes a controller out of the kernel: ends its uses as a default, on routes and for control groups, moves
/// live sockets to the controller that was the default before, unregisters it, and waits until nothing holds
/// it any more.
///
/// # Errors
/// When it is not loaded, or still held after `patience`.
pub fn unload(name: &str, patience: Duration) -> Result<()> {
    loader::check_name(name)?;
    let pins = Pins::change()?;
    let Some(pinned) = Pinned::open(&pins, name)? else { return Err(not_loaded(name)) };
    let ended = usage::end(name, &pins)?;
    let path = pins.path(name);
    std::fs::remove_file(&path).map_err(Error::io("cannot remove", &path))?;
    let map = pinned.map_id;
    drop(pinned);

    // Nothing can choose it now; sockets that have it keep its code until they are moved or close.
    let started = Instant::now();
    let mut walkers: Vec<(String, Walker)> = Vec::new();
    let mut pause = Duration::from_millis(5);
    while MapHandle::from_map_id(map).is_ok() {
        if started.elapsed() > patience {
            return Err(Error::impossible(
                format!(
                    "{name} is unregistered, but something still holds it after {} s",
                    patience.as_secs()
                ),
                "sockets in network namespaces that no process is in, or half-closed ones, let go when they end",
            ));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
        if started.elapsed() < Duration::from_millis(30) {
            continue;
        }
        for (namespace, other) in &ended {
            if !walkers.iter().any(|(to, _)| to == other) {
                walkers.push((other.clone(), Walker::load(Some((name, other)))?));
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
    let Some(pins) = Pins::look() else { return Ok(Vec::new()) };
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
        let build = pinned.build()?;
        all.push(Status {
            registered: available.contains(&name),
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
