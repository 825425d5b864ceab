//! What a controller's programs begin with, and what they say of themselves.

use crate::controller::Controller;
use crate::error::{Error, Result};
use crate::loader;
use crate::settings;
use libbpf_rs::{MapType, OpenObject};
use std::os::fd::BorrowedFd;

/// `FP_FORMAT` of bpf/kernel.h.
pub(crate) const FORMAT: u32 = 1;
/// The map of the programs that `struct fp_config` is in.
const CONFIG_MAP: &str = ".rodata.config";

/// What a controller's programs begin with where it is not the object's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoadOptions<'a> {
    /// The words of its settings.
    pub(crate) settings: Option<&'a [u32]>,
    /// Where another build of the same layout has kept the state of its sockets, to go on with.
    pub(crate) storage: Option<BorrowedFd<'a>>,
    /// What it says of itself instead of the truth.
    pub(crate) claims: Option<BuildInfo>,
}

/// What a loaded controller says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildInfo {
    /// Which build of its object it is, as [`Controller::build`] counts it.
    pub build: u64,
    /// The layout of a socket's state; none of builds that do not tell.
    pub state_layout: Option<u32>,
    /// The form of settings; none of builds that have none.
    pub format: Option<u32>,
}

impl BuildInfo {
    /// Reads them from `struct fp_config`, of this build or an older one.
    pub(crate) fn read(config: &[u8]) -> Option<Self> {
        let word = |at: usize| config.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
        let build = config.get(8..16)?.try_into().ok().map(u64::from_ne_bytes)?;
        Some(BuildInfo { build, format: word(16), state_layout: word(20) })
    }

    /// Whether a map of that name has them.
    pub(crate) fn are_in(map: &str) -> bool {
        map.ends_with(CONFIG_MAP)
    }
}

impl LoadOptions<'_> {
    /// Writes it into the opened object.
    pub(crate) fn prepare(&self, open: &mut OpenObject) -> Result<()> {
        for mut map in open.maps_mut() {
            let map_name = map.name().to_string_lossy().into_owned();
            if map.map_type() == MapType::SkStorage
                && let Some(storage) = self.storage
            {
                map.reuse_fd(storage).map_err(|error| {
                    Error::impossible(
                        format!("the state of its sockets cannot be carried over: {error}"),
                        "unload it and load it again",
                    )
                })?;
            }
            let Some(value) = map.initial_value_mut() else { continue };
            if map_name.ends_with(settings::MAP)
                && let Some(words) = self.settings
            {
                let bytes = settings::bytes(words);
                let field = value.get_mut(..bytes.len()).ok_or_else(|| {
                    Error::Malformed("the BPF object has fewer settings than its controller".to_owned())
                })?;
                field.copy_from_slice(&bytes);
            }
            if BuildInfo::are_in(&map_name)
                && let Some(claims) = self.claims
            {
                value[8..16].copy_from_slice(&claims.build.to_ne_bytes());
                value[16..20].copy_from_slice(&claims.format.unwrap_or(0).to_ne_bytes());
                value[20..24].copy_from_slice(&claims.state_layout.unwrap_or(0).to_ne_bytes());
            }
        }
        Ok(())
    }
}

/// The object of a controller, opened but not loaded: what it says of itself, and its settings' words.
///
/// # Errors
/// When it is not an object.
pub(crate) fn inspect(controller: Controller) -> Result<(BuildInfo, Vec<u32>)> {
    let mut open = loader::open(controller.object())?;
    let (mut marks, mut words) = (None, Vec::new());
    for mut map in open.maps_mut() {
        let map_name = map.name().to_string_lossy().into_owned();
        let Some(value) = map.initial_value_mut() else { continue };
        if BuildInfo::are_in(&map_name) {
            marks = BuildInfo::read(value);
        } else if map_name.ends_with(settings::MAP) {
            words = settings::words(value);
        }
    }
    let marks = marks.ok_or_else(|| Error::Malformed("the BPF object says nothing of itself".to_owned()))?;
    Ok((BuildInfo { build: controller.build(), ..marks }, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_objects_say_which_form_they_have_and_begin_with_the_defaults() {
        for controller in Controller::ALL {
            let (marks, words) = inspect(controller).unwrap();
            assert_eq!(marks.format, Some(FORMAT), "{controller}");
            assert!(marks.state_layout > Some(0), "{controller}");
            let told = settings::describe(controller, &words).unwrap();
            assert!(told.iter().all(settings::Setting::is_default), "{told:?}");
        }
    }
}
