//! A loaded and pinned controller: reads its build information and replaces it by another build.

use crate::controller::Controller;
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::libbpf::{self, NAME_SIZE};
use crate::listing;
use crate::load_options::{self, BuildInfo, LoadOptions};
use crate::loader;
use crate::namespaces;
use crate::pins::Pins;
use crate::settings;
use crate::sockets::{Purpose, Walker};
use crate::usage;
use libbpf_rs::query::{LinkTypeInfo, MapInfoIter};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, MapType};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// What an update preserved from the previous build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preserved {
    /// Whether live sockets were moved. Otherwise they keep the previous build until they close,
    /// because the kernel clears in-socket state when a socket changes its controller.
    pub sockets: bool,
    /// Whether per-socket state was kept. Otherwise the controller starts over for each socket.
    pub state: bool,
    /// Whether settings were kept. Otherwise all have their defaults.
    pub settings: bool,
}

/// What keeps a controller registered.
enum Registration {
    Link(Link),
    /// On a kernel without links: the controller's map.
    Map(MapHandle),
}

/// A loaded and pinned controller.
pub(crate) struct Pinned {
    registration: Registration,
    /// ID of the controller's struct_ops map.
    pub(crate) map_id: u32,
    pub(crate) name: String,
}

impl Pinned {
    /// Opens the pin of this name, if it exists.
    pub(crate) fn open(pins: &Pins, name: &str) -> Result<Option<Self>> {
        let path = pins.path(name);
        if !path.exists() {
            return Ok(None);
        }
        let refused = |error: libbpf_rs::Error| {
            Error::impossible(
                format!("the pin {} cannot be used: {error}", path.display()),
                "run as root; if another program created it, remove that file",
            )
        };
        let link = Link::open(&path).map_err(refused)?;
        if is_map(link.as_fd()) {
            let mut map = MapHandle::from_pinned_path(&path).map_err(refused)?;
            // An update was killed just before it finished.
            if let Ok(next) = MapHandle::from_pinned_path(pins.next_path(name))
                && is_registered(&next)?
            {
                map = next;
            }
            if map.map_type() == MapType::StructOps {
                let map_id = map.info().map_err(refused)?.info.id;
                return Ok(Some(Pinned {
                    registration: Registration::Map(map),
                    map_id,
                    name: name.to_owned(),
                }));
            }
        }
        let LinkTypeInfo::StructOps(about) = link.info().map_err(refused)?.info else {
            return Err(Error::impossible(
                format!("the pin {} is not a congestion controller", path.display()),
                "remove that file",
            ));
        };
        Ok(Some(Pinned {
            registration: Registration::Link(link),
            map_id: about.map_id,
            name: name.to_owned(),
        }))
    }

    /// Whether sockets can select it. Without links it may not be, if a loader or unloader was
    /// killed.
    pub(crate) fn is_registered(&self) -> Result<bool> {
        match &self.registration {
            Registration::Link(_) => Ok(true),
            Registration::Map(map) => is_registered(map),
        }
    }

    /// Completes or undoes a killed update, before any other change. Returns whether neither build
    /// was registered, which is possible only without links.
    pub(crate) fn recover(pins: &Pins, name: &str) -> Result<bool> {
        let next = pins.next_path(name);
        if !next.exists() {
            return Ok(false);
        }
        let map = MapHandle::from_pinned_path(&next).map_err(|error| {
            Error::impossible(format!("the pin {} cannot be used: {error}", next.display()), "run as root")
        })?;
        if is_registered(&map)? {
            std::fs::rename(&next, pins.path(name)).map_err(Error::io("cannot rename", &next))?;
            return Ok(false);
        }
        std::fs::remove_file(&next).map_err(Error::io("cannot remove", &next))?;
        Ok(Pinned::open(pins, name)?.map(|old| old.is_registered()).transpose()? == Some(false))
    }

    /// Unregisters the controller and removes its pin.
    pub(crate) fn unregister(self, pins: &Pins) -> Result<()> {
        let path = pins.path(&self.name);
        if let Registration::Map(map) = &self.registration {
            unregister(map, &self.name)?;
        }
        std::fs::remove_file(&path).map_err(Error::io("cannot remove", &path))
    }

    /// IDs of its programs.
    pub(crate) fn programs(&self) -> Result<Vec<u32>> {
        let gone = |error: libbpf_rs::Error| {
            Error::impossible(format!("{}'s map cannot be read: {error}", self.name), "run as root")
        };
        let map = MapHandle::from_map_id(self.map_id).map_err(gone)?;
        let value = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(gone)?.unwrap_or_default();
        // The map's value holds program IDs in place of the kernel structure's function pointers.
        let words = value.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
        Ok(words.filter_map(|id| u32::try_from(id).ok()).collect())
    }

    /// Identifies the controller by its program names, regardless of its registered name and build.
    pub(crate) fn controller(&self) -> Result<Option<Controller>> {
        let controller_of = |program: &listing::Program| {
            let starts = |name| program.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('_'));
            Controller::ALL.into_iter().find(|controller| starts(controller.name()))
        };
        Ok(self
            .programs()?
            .into_iter()
            .filter_map(|id| listing::Program::with_id(id).ok())
            .find_map(|program| controller_of(&program)))
    }

    /// The first map of its programs that matches.
    pub(crate) fn map(&self, matches: impl Fn(&MapHandle) -> bool) -> Result<Option<MapHandle>> {
        let maps = self
            .programs()?
            .into_iter()
            .filter_map(|id| listing::Program::with_id(id).ok())
            .flat_map(|about| about.maps);
        Ok(maps.filter_map(|map| MapHandle::from_map_id(map).ok()).find(matches))
    }

    /// The build information in the loaded programs.
    pub(crate) fn build_info(&self) -> Result<Option<BuildInfo>> {
        let map = self.map(|map| BuildInfo::are_in(&map.name().to_string_lossy()))?;
        Ok(map.as_ref().and_then(value).and_then(|config| BuildInfo::read(&config)))
    }

    /// The words of its settings; `None` if their format differs from this build's.
    pub(crate) fn settings(&self) -> Result<Option<Vec<u32>>> {
        if self.build_info()?.and_then(|info| info.format) != Some(load_options::FORMAT) {
            return Ok(None);
        }
        let map = self.map(|map| map.name().to_string_lossy().ends_with(settings::MAP))?;
        Ok(Some(map.as_ref().and_then(value).map_or_else(Vec::new, |value| settings::decode_words(&value))))
    }

    /// Replaces it by this build. Nothing changes until the kernel accepts the new build.
    pub(crate) fn replace_with(
        &self,
        pins: &Pins,
        (controller, ours): (Controller, BuildInfo),
        defaults: &[u32],
        pairs: &[(String, String)],
        kernel: &Kernel,
    ) -> Result<Preserved> {
        let is_same = self.controller()? == Some(controller);
        let has_layout = ours.state_layout.is_some()
            && self.build_info()?.is_some_and(|theirs| theirs.state_layout == ours.state_layout);
        let old = if is_same { self.settings()? } else { None };
        let old = old.filter(|words| words.len() == defaults.len());
        let words = settings::vary(controller, old.as_deref().unwrap_or(defaults), pairs)?;

        let storage = self.map(|map| map.map_type() == MapType::SkStorage)?;
        let storage = storage.filter(|_| is_same && has_layout);
        let start = LoadOptions {
            settings: Some(&words),
            storage: storage.as_ref().map(|storage| storage.as_fd()),
            ..LoadOptions::default()
        };
        // Registrations with and without links cannot replace each other.
        let kernel = Kernel { links: matches!(self.registration, Registration::Link(_)), ..kernel.clone() };
        let mut loaded = loader::load_from(controller, &self.name, &kernel, &start)?;
        match &self.registration {
            Registration::Link(link) => loaded.replace(link)?,
            Registration::Map(map) => self.replace_map(map, pins, &mut loaded)?,
        }
        self.renew_defaults()?;
        let moves = controller.has_storage();
        if moves {
            self.move_sockets()?;
        }
        Ok(Preserved { sockets: moves, state: !moves || storage.is_some(), settings: old.is_some() })
    }

    /// Without links two builds of one name cannot coexist: new sockets cannot select it for a
    /// moment. Existing sockets continue.
    fn replace_map(&self, map: &MapHandle, pins: &Pins, loaded: &mut loader::Loaded) -> Result<()> {
        let next = pins.next_path(&self.name);
        loaded.register_pinned_after(&next, || unregister(map, &self.name))?;
        std::fs::rename(&next, pins.path(&self.name)).map_err(Error::io("cannot rename", &next))
    }

    /// Refreshes the default of namespaces that use it. Otherwise they keep the build that was
    /// registered when the default was set (tcp_update_congestion_control only changes the
    /// list). Call it before [`Pinned::move_sockets`]: connections accepted later would otherwise
    /// still get the old build.
    pub(crate) fn renew_defaults(&self) -> Result<()> {
        namespaces::visit(|namespace| namespace.enter(|| usage::renew_default(&self.name)))
    }

    /// Whether a previous build with this name is still referenced, most likely by sockets.
    pub(crate) fn has_predecessor(&self) -> bool {
        let mut name = [0; NAME_SIZE];
        libbpf::write_name(&mut name, &self.name);
        for about in
            MapInfoIter::default().filter(|map| map.ty == MapType::StructOps && map.id != self.map_id)
        {
            // It may disappear meanwhile.
            let Ok(map) = MapHandle::from_map_id(about.id) else { continue };
            // In a registered map the name is somewhere among the pointers.
            if value(&map).is_some_and(|value| value.windows(NAME_SIZE).step_by(8).any(|words| words == name))
            {
                return true;
            }
        }
        false
    }

    /// Moves live sockets to the build now registered under the name; the kernel does not.
    /// Listeners without an explicit choice are skipped: they follow the default, and moving
    /// them would fix it.
    pub(crate) fn move_sockets(&self) -> Result<()> {
        let walker = Walker::load(Purpose::Migration { from: &self.name, to: &self.name })?;
        namespaces::visit(|namespace| walker.migrate(namespace))
    }
}

/// Offset of `enum bpf_struct_ops_state` in the map's value.
const STATE_AT: usize = 4;
const STATE_INUSE: u32 = 1;

/// Whether a controller's map is registered without a link.
fn is_registered(map: &MapHandle) -> Result<bool> {
    let value = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(|error| {
        Error::impossible(format!("a controller's map cannot be read: {error}"), "run as root")
    })?;
    let state = value.as_deref().and_then(|value| value.get(STATE_AT..STATE_AT + 4));
    Ok(state.and_then(|state| state.try_into().ok()).map(u32::from_ne_bytes) == Some(STATE_INUSE))
}

/// Unregisters a controller's map, if registered.
fn unregister(map: &MapHandle, name: &str) -> Result<()> {
    if !is_registered(map)? {
        return Ok(());
    }
    map.delete(&0u32.to_ne_bytes())
        .map_err(|error| Error::impossible(format!("{name} cannot be unregistered: {error}"), "run as root"))
}

/// Whether a descriptor is a BPF map, so that it is safe to query as one.
fn is_map(fd: BorrowedFd<'_>) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    link.is_ok_and(|link| link.as_os_str() == "anon_inode:bpf-map")
}

/// The value of a single-entry map.
fn value(map: &MapHandle) -> Option<Vec<u8>> {
    map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok().flatten()
}
