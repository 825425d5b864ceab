//! Detects the BPF features of the running kernel by letting it verify one probe program per
//! feature (bpf/probes.bpf.c). Distributions backport BPF features, so version numbers are
//! unreliable.

use crate::controller::Controller;
use crate::error::Result;
use crate::libbpf;
use libbpf_rs::MapType;

pub use crate::feature::Feature;

impl Feature {
    /// Its probe in bpf/probes.bpf.c.
    fn probe(self) -> &'static str {
        match self {
            Feature::Controllers => "fpp_nothing",
            Feature::Pacing => "fpp_pacing",
            Feature::AppLimitedMark => "fpp_mark",
            Feature::Storage => "fpp_storage",
            Feature::StructFunctions => "fpp_steps",
            Feature::KernelReads => "fpp_reading",
        }
    }

    /// Whether the running kernel has it. Nothing is registered.
    ///
    /// # Errors
    /// If the caller may not load BPF programs, or the kernel does not support controllers from
    /// BPF.
    pub fn is_available(self) -> Result<bool> {
        if self.verify().is_ok() {
            return Ok(true);
        }
        Feature::Controllers.verify().map(|()| false)
    }

    fn verify(self) -> Result<()> {
        libbpf::quietly(|| {
            let mut open = libbpf_rs::ObjectBuilder::default().open_memory(object!("probes"))?;
            for mut map in open.maps_mut() {
                let is_selected = match map.map_type() {
                    MapType::StructOps => map.name() == self.probe(),
                    MapType::SkStorage => self == Feature::Storage,
                    _ => continue,
                };
                map.set_autocreate(is_selected)?;
            }
            open.load()
        })
        .map(drop)
    }
}

impl Controller {
    /// The features it requires.
    pub fn needs(self) -> &'static [Feature] {
        match self {
            Controller::Bbr3 => {
                &[Feature::Controllers, Feature::Pacing, Feature::Storage, Feature::StructFunctions]
            }
            Controller::Bbr1 => &[Feature::Controllers, Feature::Pacing, Feature::StructFunctions],
            Controller::Hybla => &[Feature::Controllers],
        }
    }
}

/// The first of `needs` that the running kernel lacks; `None` also if that cannot be determined.
pub(crate) fn first_missing(needs: &[Feature]) -> Option<Feature> {
    needs.iter().copied().find(|need| matches!(need.is_available(), Ok(false)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_has_its_own_probe() {
        let mut open = libbpf::open(object!("probes")).unwrap();
        let mut probes: Vec<String> = open
            .maps_mut()
            .filter(|map| map.map_type() == MapType::StructOps)
            .map(|map| map.name().to_string_lossy().into_owned())
            .collect();
        probes.sort();
        let mut named = Feature::ALL.map(Feature::probe).to_vec();
        named.sort_unstable();
        assert_eq!(probes, named);
    }
}
