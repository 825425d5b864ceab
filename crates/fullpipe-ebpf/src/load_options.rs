//! Load options of a controller, and the build information in its programs.

use crate::controller::Controller;
use crate::error::{Error, Result};
use crate::libbpf;
use crate::settings;
use libbpf_rs::{MapType, OpenObject};
use std::os::fd::BorrowedFd;

/// `FP_FORMAT` of bpf/kernel.h.
pub(crate) const FORMAT: u32 = 2;
/// The map of the programs that `struct fp_config` is in.
const CONFIG_MAP: &str = ".rodata.config";

/// Values that replace the defaults in the object.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoadOptions<'a> {
    /// The words of its settings.
    pub(crate) settings: Option<&'a [u32]>,
    /// Socket storage of another build with the same layout, to reuse.
    pub(crate) storage: Option<BorrowedFd<'a>>,
    /// Build information to pretend, for tests.
    pub(crate) claims: Option<BuildInfo>,
}

/// Build information of a loaded controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildInfo {
    /// Identifies the build, see [`Controller::build`].
    pub build: u64,
    /// Version of the per-socket state layout; `None` for builds without one.
    pub state_layout: Option<u32>,
    /// Version of the settings format; `None` for builds without settings.
    pub format: Option<u32>,
}

impl BuildInfo {
    /// Decodes `struct fp_config` of this or an older build.
    pub(crate) fn read(config: &[u8]) -> Option<Self> {
        let word = |at: usize| config.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
        let build = config.get(8..16)?.try_into().ok().map(u64::from_ne_bytes)?;
        Some(BuildInfo { build, format: word(16), state_layout: word(20) })
    }

    /// Whether the map of this name holds the build information.
    pub(crate) fn are_in(map: &str) -> bool {
        map.ends_with(CONFIG_MAP)
    }
}

impl LoadOptions<'_> {
    /// Writes the options into the opened object.
    pub(crate) fn prepare(&self, open: &mut OpenObject) -> Result<()> {
        for mut map in open.maps_mut() {
            let map_name = map.name().to_string_lossy().into_owned();
            if map.map_type() == MapType::SkStorage
                && let Some(storage) = self.storage
            {
                map.reuse_fd(storage).map_err(|error| {
                    Error::impossible(
                        format!("the state of its sockets cannot be reused: {error}"),
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

/// Reads the build information and default settings from a controller's object without loading it.
///
/// # Errors
/// If the object is invalid.
pub(crate) fn inspect(controller: Controller) -> Result<(BuildInfo, Vec<u32>)> {
    let mut open = libbpf::open(controller.object())?;
    let (mut marks, mut words) = (None, Vec::new());
    for mut map in open.maps_mut() {
        let map_name = map.name().to_string_lossy().into_owned();
        let Some(value) = map.initial_value_mut() else { continue };
        if BuildInfo::are_in(&map_name) {
            marks = BuildInfo::read(value);
        } else if map_name.ends_with(settings::MAP) {
            words = settings::decode_words(value);
        }
    }
    let marks =
        marks.ok_or_else(|| Error::Malformed("the BPF object has no build information".to_owned()))?;
    Ok((BuildInfo { build: controller.build(), ..marks }, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_carry_their_format_and_default_settings() {
        for controller in Controller::ALL {
            let (marks, words) = inspect(controller).unwrap();
            assert_eq!(marks.format, Some(FORMAT), "{controller}");
            assert!(marks.state_layout > Some(0), "{controller}");
            let described = settings::describe(controller, &words).unwrap();
            assert!(described.iter().all(settings::Setting::is_default), "{described:?}");
        }
    }
}
