//! Detects the BPF features of the running kernel by letting it verify one probe program per
//! feature (bpf/probes.bpf.c). Distributions backport BPF features, so version numbers are
//! unreliable.

use crate::controller::Controller;
use crate::error::Result;
use crate::loader;
use libbpf_rs::MapType;

/// A kernel feature that controllers use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Congestion controllers as struct_ops programs.
    Controllers,
    /// Writing the pacing rate of a socket.
    Pacing,
    /// Writing the application-limited mark of a socket. Without it a controller keeps the mark in
    /// its own state.
    AppLimitedMark,
    /// Socket storage, for state that does not fit into the socket.
    Storage,
    /// Global functions with structure arguments, verified separately.
    StructFunctions,
    /// Reading kernel memory. Without it a controller does not look up which packets were lost.
    KernelReads,
}

impl Feature {
    /// All of them.
    pub const ALL: [Feature; 6] = [
        Feature::Controllers,
        Feature::Pacing,
        Feature::AppLimitedMark,
        Feature::Storage,
        Feature::StructFunctions,
        Feature::KernelReads,
    ];

    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Feature::Controllers => "controllers",
            Feature::Pacing => "pacing",
            Feature::AppLimitedMark => "app-limited mark",
            Feature::Storage => "socket storage",
            Feature::StructFunctions => "functions on structures",
            Feature::KernelReads => "kernel memory",
        }
    }

    /// A description with the kernel's identifiers.
    pub fn about(self) -> &'static str {
        match self {
            Feature::Controllers => "congestion controllers from BPF (struct_ops)",
            Feature::Pacing => {
                "controllers from BPF that set the pacing rate (sk_pacing_rate, sk_pacing_status)"
            }
            Feature::AppLimitedMark => {
                "controllers from BPF that mark a connection as application-limited (app_limited)"
            }
            Feature::Storage => "controllers from BPF that keep state beside a socket (bpf_sk_storage_get)",
            Feature::StructFunctions => "BPF programs of several functions that work on structures",
            Feature::KernelReads => {
                "BPF programs that read the kernel's memory (bpf_probe_read_kernel; not with \
                 lockdown=confidentiality)"
            }
        }
    }

    /// The Linux version that introduced it.
    pub fn since(self) -> &'static str {
        match self {
            Feature::Controllers => "5.6",
            Feature::KernelReads => "5.5",
            Feature::Storage => "5.7",
            Feature::StructFunctions => "5.12",
            Feature::Pacing => "6.0",
            Feature::AppLimitedMark => "6.4",
        }
    }

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
        loader::quietly(|| {
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
        let mut open = loader::open(object!("probes")).unwrap();
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
