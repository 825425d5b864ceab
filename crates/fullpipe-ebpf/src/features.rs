//! What the running kernel lets a controller from BPF do, found by having it verify programs that do that alone
//! (bpf/probes.bpf.c): distributions carry newer BPF to older versions, so that a version tells little.

use crate::controller::Controller;
use crate::error::Result;
use crate::loader;
use libbpf_rs::MapType;

/// Something that a controller needs of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Congestion controllers from BPF at all.
    Controllers,
    /// They may set the rate that a connection is paced at.
    Pacing,
    /// They may mark a connection as application-limited. Without it a controller keeps the mark to itself.
    AppLimitedMark,
    /// They may keep more of a connection than fits into its socket.
    Storage,
    /// They may have functions that work on structures, each verified by itself.
    StructFunctions,
    /// They may read the kernel's memory. Without it a controller does not look up which packets were lost.
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

    /// What it is called in JSON.
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

    /// What it is, with the kernel's own names.
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
                "BPF programs that read the kernel's memory (bpf_probe_read_kernel; not with lockdown=confidentiality)"
            }
        }
    }

    /// The version of Linux that it came with.
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

    /// The controller in bpf/probes.bpf.c that does nothing else.
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

    /// Whether the running kernel has it. Nothing is registered by asking.
    ///
    /// # Errors
    /// When the caller may not load BPF programs, or the kernel takes no controllers from BPF at all.
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
                let is_wanted = match map.map_type() {
                    MapType::StructOps => map.name() == self.probe(),
                    MapType::SkStorage => self == Feature::Storage,
                    _ => continue,
                };
                map.set_autocreate(is_wanted)?;
            }
            open.load()
        })
        .map(drop)
    }
}

impl Controller {
    /// What it cannot do without.
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

/// The first of them that the running kernel lacks; none also where that cannot be asked.
pub(crate) fn first_missing(needs: &[Feature]) -> Option<Feature> {
    needs.iter().copied().find(|need| matches!(need.is_available(), Ok(false)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_probe_of_its_own() {
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
