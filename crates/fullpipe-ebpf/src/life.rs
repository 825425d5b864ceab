//! The life of a controller in the running kernel: load, look, replace, unload.

use crate::controller::Controller;
use crate::error::{Error, Result};
use crate::kernel::{self, Kernel};
use crate::loader::{self, name_taken};
use crate::pins::Pins;
use libbpf_rs::query::LinkTypeInfo;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Program};
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

/// Puts a controller into the kernel, where it stays until [`unload`] or a reboot.
///
/// # Errors
/// [`Error::Impossible`] with what is missing. Nothing is left registered or pinned then.
pub fn load(controller: Controller) -> Result<Outcome> {
    let kernel = Kernel::ask()?;
    let pins = Pins::change()?;
    let path = pins.path(controller.name());
    if let Some(there) = Pinned::open(&pins, controller.name())? {
        if there.build()? == Some(controller.build()) {
            return Ok(Outcome::AlreadyThere);
        }
        loader::load(controller, None, &kernel)?.replace(&there.link)?;
        return Ok(Outcome::Replaced);
    }
    if kernel::available()?.iter().any(|name| name == controller.name()) {
        return Err(name_taken(controller.name()));
    }
    let mut loaded = loader::load(controller, None, &kernel)?;
    let mut link = loaded.attach()?;
    link.pin(&path).map_err(|error| {
        Error::impossible(
            format!("{} is registered but cannot be pinned at {}: {error}", controller, path.display()),
            "check that the BPF file system is writable",
        )
    })?;
    Ok(Outcome::Loaded)
}

/// A controller that is loaded and pinned.
#[derive(Debug)]
pub struct Pinned {
    link: Link,
    map_id: u32,
    name: String,
}

impl Pinned {
    /// Opens the pin of that name, when there is one.
    ///
    /// # Errors
    /// When there is one that is not a controller, or it may not be opened.
    pub fn open(pins: &Pins, name: &str) -> Result<Option<Self>> {
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

    /// The kernel's number of the controller's struct_ops map.
    pub fn map_id(&self) -> u32 {
        self.map_id
    }

    /// Which build is loaded, as [`Controller::build`] counts it: read from the loaded programs themselves.
    ///
    /// # Errors
    /// When the map may not be read.
    pub fn build(&self) -> Result<Option<u64>> {
        let gone = |error: libbpf_rs::Error| {
            Error::impossible(format!("{}'s map cannot be read: {error}", self.name), "run as root")
        };
        let map = MapHandle::from_map_id(self.map_id).map_err(gone)?;
        let value = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(gone)?.unwrap_or_default();
        // The map's value has the programs' ids where the kernel's structure has its function pointers.
        for word in value.chunks_exact(8) {
            let id = u64::from_ne_bytes(word.try_into().unwrap_or_default());
            let Ok(id) = u32::try_from(id) else { continue };
            for map in maps_of_program(id, &self.name) {
                let Ok(map) = MapHandle::from_map_id(map) else { continue };
                if !map.name().to_string_lossy().ends_with(".rodata.config") {
                    continue;
                }
                let config =
                    map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok().flatten().unwrap_or_default();
                return Ok(config.get(8..16).and_then(|bytes| bytes.try_into().ok()).map(u64::from_ne_bytes));
            }
        }
        Ok(None)
    }
}

/// The maps of the program of that id, when its name begins with the controller's.
fn maps_of_program(id: u32, controller: &str) -> Vec<u32> {
    let Ok(fd) = Program::fd_from_id(id) else { return Vec::new() };
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
    let name: Vec<u8> = info.name.iter().map(|byte| *byte as u8).collect();
    if result != 0 || !name.starts_with(controller.as_bytes()) {
        return Vec::new();
    }
    maps[..maps.len().min(info.nr_map_ids as usize)].to_vec()
}

/// Takes a controller out of the kernel.
///
/// # Errors
/// When it is not loaded, or still in use after `patience`.
pub fn unload(name: &str, patience: Duration) -> Result<()> {
    let pins = Pins::change()?;
    let Some(pinned) = Pinned::open(&pins, name)? else {
        return Err(Error::impossible(format!("{name} is not loaded"), "`fullpipe cc status` shows what is"));
    };
    let path = pins.path(name);
    std::fs::remove_file(&path).map_err(Error::io("cannot remove", &path))?;
    let map = pinned.map_id;
    drop(pinned);
    let started = Instant::now();
    while MapHandle::from_map_id(map).is_ok() {
        if started.elapsed() > patience {
            return Err(Error::impossible(
                format!(
                    "{name} is unregistered, but something still holds it after {} s",
                    patience.as_secs()
                ),
                "sockets that chose it keep it until they close",
            ));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
