//! Loads BPF objects and registers their controllers.

use crate::controller::Controller;
use crate::error::{Error, Result};
use crate::features::{self, Feature};
use crate::kernel::{self, Kernel};
pub use crate::libbpf::missing_capabilities;
use crate::libbpf::{LibbpfLog, NAME_SIZE, explain, open, write_name};
use crate::load_options::{BuildInfo, LoadOptions};
use crate::pins::{self, Pins, ProcessPin};
use crate::sockets::{Purpose, Walker};
use libbpf_rs::{AsRawLibbpf, Link, MapCore, MapType, Object, OpenObject};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

/// Size of `struct fp_config` in the BPF programs: arguments of cong_control, options, build,
/// format of this structure and of the settings, layout of a socket's state.
const CONFIG_SIZE: usize = 24;
/// The function pointers of `struct tcp_congestion_ops` in the programs, in order; the name
/// follows.
const OPERATIONS: [&str; 12] = [
    "ssthresh",
    "cong_avoid",
    "set_state",
    "cwnd_event",
    TX_START,
    "pkts_acked",
    "min_tso_segs",
    "cong_control",
    "undo_cwnd",
    "sndbuf_expand",
    "init",
    "release",
];
/// The callback for the start of transmission, on kernels that separate it from `cwnd_event`; its
/// event number may then have another meaning there.
const TX_START: &str = "cwnd_event_tx_start";
const NAME_AT: usize = OPERATIONS.len() * 8;
/// A controller whose programs are loaded but not yet registered.
#[derive(Debug)]
pub struct Loaded {
    object: Object,
    name: String,
    /// Whether to register it by a link.
    links: bool,
}

/// Keeps a controller registered until dropped.
#[derive(Debug)]
pub struct Registered {
    _registration: Registration,
}

#[derive(Debug)]
enum Registration {
    Link {
        _link: Link,
    },
    /// Without links: unregisters it on drop. After a kill the next process does so.
    Pin {
        _pin: ProcessPin,
    },
}

/// Loads a controller's programs. `name` overrides the name it will be registered under.
///
/// # Errors
/// [`Error::Impossible`] with the missing capability or kernel feature, or the verifier's message.
pub fn load(controller: Controller, name: Option<&str>, kernel: &Kernel) -> Result<Loaded> {
    load_from(controller, name.unwrap_or(controller.name()), kernel, &LoadOptions::default())
}

/// Verifies a controller's programs: loads and unloads them without registering anything.
///
/// # Errors
/// As [`load`].
pub fn verify(controller: Controller, kernel: &Kernel) -> Result<()> {
    load(controller, None, kernel).map(drop)
}

/// Loads a controller with options.
pub(crate) fn load_from(
    controller: Controller,
    name: &str,
    kernel: &Kernel,
    start: &LoadOptions<'_>,
) -> Result<Loaded> {
    let config = Config { build: controller.build(), options: 0 };
    load_prepared(controller.object(), name, kernel, config, controller.needs(), |open| start.prepare(open))
}

/// A controller that is loaded and registered until dropped.
#[derive(Debug)]
pub struct TemporaryController {
    _registered: Registered,
    _loaded: Loaded,
}

/// Loads and registers a controller under its own name until the result is dropped. Sockets that
/// selected it keep it until they close.
///
/// # Errors
/// As [`load`] and [`Loaded::attach`].
pub fn load_temporarily(controller: Controller) -> Result<TemporaryController> {
    let mut loaded = load(controller, None, &Kernel::detect()?)?;
    Ok(TemporaryController { _registered: loaded.attach()?, _loaded: loaded })
}

/// Loads and registers an object's controller until the first returned value is dropped. Returns
/// its maps of the given names.
pub(crate) fn load_object_temporarily(
    object: &[u8],
    name: &str,
    maps: &[&str],
) -> Result<(TemporaryController, Vec<OwnedFd>)> {
    let mut loaded = load_object(object, name, &Kernel::detect()?, Config::default())?;
    let maps = maps.iter().map(|map| loaded.map(map)).collect::<Result<_>>()?;
    Ok((TemporaryController { _registered: loaded.attach()?, _loaded: loaded }, maps))
}

/// Loads the kernel's own `bbr` or `cubic` behind a wrapper, so that its callbacks can be timed as
/// programs are.
///
/// # Errors
/// As [`load`]; also if `kernels` is neither of the two.
pub fn load_wrapped(kernels: &str, name: &str, kernel: &Kernel) -> Result<Loaded> {
    let object: &[u8] = match kernels {
        "bbr" => object!("wrapped_bbr"),
        "cubic" => object!("wrapped_cubic"),
        other => {
            return Err(Error::Unknown { name: other.to_owned(), known: "bbr, cubic".to_owned() });
        }
    };
    load_object(object, name, kernel, Config::default())
}

/// Configuration written into a program before loading, besides kernel properties.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Config {
    /// The build of the object.
    pub(crate) build: u64,
    /// `FP_OPTION_…` of bpf/kernel.h.
    pub(crate) options: u32,
}

/// Loads an object that holds one congestion controller.
pub(crate) fn load_object(object: &[u8], name: &str, kernel: &Kernel, config: Config) -> Result<Loaded> {
    load_prepared(object, name, kernel, config, &[Feature::Controllers, Feature::Pacing], |_| Ok(()))
}

/// Optional features, with the option of bpf/kernel.h that disables their use.
const OPTIONAL: [(Feature, u32); 3] =
    [(Feature::AppLimitedMark, 4), (Feature::Pacing, 8), (Feature::KernelReads, 16)];

fn load_prepared(
    object: &[u8],
    name: &str,
    kernel: &Kernel,
    config: Config,
    needs: &[Feature],
    prepare: impl Fn(&mut OpenObject) -> Result<()>,
) -> Result<Loaded> {
    check_name(name)?;
    let attempt = |config: Config| {
        let mut log = LibbpfLog::capture();
        let mut open = open(object)?;
        configure(&mut open, name, kernel, config);
        prepare(&mut open)?;
        let object = open.load().map_err(|error| explain(&error, &log.text()))?;
        Ok(Loaded { object, name: name.to_owned(), links: kernel.links })
    };
    attempt(config).or_else(|refused| {
        // Features are probed only after a failure: most kernels have them all.
        if let Some(feature) = features::first_missing(needs) {
            return Err(Error::MissingFeature { what: name.to_owned(), feature });
        }
        let is_missing = |feature: Feature| matches!(feature.is_available(), Ok(false));
        let disabled = OPTIONAL
            .iter()
            .filter(|(feature, _)| is_missing(*feature))
            .map(|(_, option)| option)
            .sum::<u32>();
        if disabled == 0 {
            return Err(refused);
        }
        attempt(Config { options: config.options | disabled, ..config })
    })
}

/// A name must be one word in the kernel's lists and a valid file name for its pin.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let is_word = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    if name.len() >= NAME_SIZE || !is_word || [pins::CGROUPS, pins::HELD].contains(&name) {
        return Err(Error::Malformed(format!(
            "a controller name must have 1 to 15 letters, digits, `_`, `-` or `.`, got {name:?}"
        )));
    }
    Ok(())
}

fn configure(open: &mut OpenObject, name: &str, kernel: &Kernel, config: Config) {
    for mut map in open.maps_mut() {
        let map_name = map.name().to_string_lossy().into_owned();
        let kind = map.map_type();
        if kind == MapType::StructOps && !kernel.links {
            // Clears BPF_F_LINK, which older kernels reject.
            let _ = map.set_map_flags(0);
        }
        let Some(value) = map.initial_value_mut() else { continue };
        if BuildInfo::are_in(&map_name) && value.len() >= CONFIG_SIZE {
            value[0..4].copy_from_slice(&kernel.cong_control_args.to_ne_bytes());
            value[4..8].copy_from_slice(&config.options.to_ne_bytes());
            value[8..16].copy_from_slice(&config.build.to_ne_bytes());
        } else if kind == MapType::StructOps && value.len() >= NAME_AT + NAME_SIZE {
            write_name(&mut value[NAME_AT..NAME_AT + NAME_SIZE], name);
            for (at, operation) in OPERATIONS.iter().enumerate() {
                let is_split = *operation == "cwnd_event" && kernel.operations.contains(TX_START);
                if is_split || !kernel.operations.contains(*operation) {
                    value[at * 8..at * 8 + 8].fill(0);
                }
            }
        }
    }
}

impl Loaded {
    /// Registers the controller: sockets can select it until the result is dropped.
    ///
    /// # Errors
    /// If the name is taken, or the kernel rejects the registration.
    pub fn attach(&mut self) -> Result<Registered> {
        if self.links {
            return Ok(Registered { _registration: Registration::Link { _link: self.register()? } });
        }
        // Without a link a registration outlives its process; the pin lets the next process find it.
        let pins = Pins::lock()?;
        let pin = pins.reserve(&self.name)?;
        self.pin_map(pin.map())?;
        // libbpf's link would unregister it through a descriptor closed with the object.
        self.register()?.disconnect();
        Ok(Registered { _registration: Registration::Pin { _pin: pin } })
    }

    /// Registers the controller until [`crate::lifecycle::unload`] removes its pin at `path`. A
    /// process killed meanwhile leaves nothing registered without a pin.
    pub(crate) fn register_pinned(&mut self, path: &Path) -> Result<()> {
        if self.links {
            let mut link = self.register()?;
            return link.pin(path).map_err(|error| cannot_be_pinned(&self.name, path, &error));
        }
        self.register_pinned_after(path, || Ok(()))
    }

    /// As [`register_pinned`](Self::register_pinned) without a link, running `then` between pinning
    /// and registration.
    pub(crate) fn register_pinned_after(
        &mut self,
        path: &Path,
        then: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.pin_map(path)?;
        match then().and_then(|()| self.register()) {
            Ok(mut link) => {
                link.disconnect();
                Ok(())
            }
            Err(error) => {
                std::fs::remove_file(path).map_err(Error::io("cannot remove", path))?;
                Err(error)
            }
        }
    }

    fn pin_map(&mut self, path: &Path) -> Result<()> {
        let name = self.name.clone();
        self.controller_mut()?.pin(path).map_err(|error| cannot_be_pinned(&name, path, &error))
    }

    fn controller_mut(&mut self) -> Result<libbpf_rs::MapMut<'_>> {
        let mut maps = self.object.maps_mut();
        maps.find(|map| map.map_type() == MapType::StructOps).ok_or_else(no_controller)
    }

    fn register(&mut self) -> Result<Link> {
        let name = self.name.clone();
        self.controller_mut()?.attach_struct_ops().map_err(|error| {
            if kernel::available().is_ok_and(|names| names.contains(&name)) {
                return name_taken(&name);
            }
            Error::impossible(
                format!("the kernel rejected the registration of {name}: {error}"),
                "controllers with cong_control instead of cong_avoid, such as BBR, need Linux 6.0 or newer",
            )
        })
    }

    /// Atomically replaces the controller of a link: sockets switch with their next callback.
    ///
    /// # Errors
    /// If the kernel refuses, for instance because the name differs.
    pub fn replace(&self, link: &Link) -> Result<()> {
        let mut maps = self.object.maps();
        let map = maps.find(|map| map.map_type() == MapType::StructOps).ok_or_else(no_controller)?;
        // libbpf assumes that it created the link from a map, and writes past the end of a link that it
        // opened. It reads only the descriptor: every word of this buffer is the descriptor, and the
        // buffer has room for what is written.
        let descriptor = u64::from(link.as_fd().as_raw_fd().unsigned_abs());
        let mut room = [descriptor << 32 | descriptor; 32];
        // SAFETY: the room is larger than any link of libbpf's, aligned, and ours to be written; the map
        // outlives the call.
        let result = unsafe {
            libbpf_sys::bpf_link__update_map(room.as_mut_ptr().cast(), map.as_libbpf_object().as_ptr())
        };
        if result == 0 {
            return Ok(());
        }
        let reason = std::io::Error::from_raw_os_error(-result);
        Err(Error::impossible(
            format!("the kernel cannot replace {}: {reason}", self.name),
            "unload it and load it again",
        ))
    }

    /// Number of sockets with socket storage of this controller, in all namespaces; 0 if its state
    /// is inside the socket.
    ///
    /// # Errors
    /// If the storage cannot be iterated (before Linux 5.9, or not root).
    pub fn sockets_with_storage(&self) -> Result<usize> {
        let Some(storage) = self.object.maps().find(|map| map.map_type() == MapType::SkStorage) else {
            return Ok(0);
        };
        Walker::load(Purpose::Storage)?.storage_count(storage.as_fd())
    }

    /// Duplicates the descriptor of a map.
    fn map(&self, name: &str) -> Result<OwnedFd> {
        let map = self.object.maps().find(|map| map.name() == name);
        let map = map.ok_or_else(|| Error::Malformed(format!("the object has no map {name}")))?;
        map.as_fd().try_clone_to_owned().map_err(Error::io("cannot duplicate the descriptor of map", name))
    }

    /// The maps and programs.
    pub(crate) fn object(&self) -> &Object {
        &self.object
    }
}

fn no_controller() -> Error {
    Error::Malformed("the BPF object holds no controller".to_owned())
}

fn cannot_be_pinned(name: &str, path: &Path, error: &libbpf_rs::Error) -> Error {
    Error::impossible(
        format!("{name} cannot be pinned at {}: {error}", path.display()),
        "check that the BPF file system is writable",
    )
}

/// The name is already registered.
pub(crate) fn name_taken(name: &str) -> Error {
    Error::impossible(
        format!("a congestion controller named {name} is already registered"),
        "`fullpipe cc status` lists controllers loaded by fullpipe; if another program registered it, \
         stop that program first",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controller_name_must_be_one_word_and_a_file_name() {
        for good in ["fp_bbr1", "a", "fifteen_letters", "x.y-z"] {
            check_name(good).unwrap();
        }
        for bad in [
            "",
            "sixteen_letters_",
            "a b",
            "../bbr1",
            "a/b",
            ".",
            "-x",
            "cgroups",
            "held",
            "bbr\u{e9}",
            "a@1",
        ] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
