//! Loads the wrapper over the kernel's BBR and collects what it records.

use super::record::Record;
use crate::error::{Error, Result};
use crate::kernel::{BBR_FUNCTIONS, Kernel};
use crate::loader;
use libbpf_rs::{Link, MapCore, MapFlags, RingBufferBuilder};
use std::time::{Duration, Instant};

/// The name sockets choose to be recorded.
pub const NAME: &str = "fp_oracle";

/// `FP_OPTION_PERTURB` of bpf/kernel.h.
const OPTION_PERTURB: u32 = 2;

/// The wrapper, registered.
pub struct Recorder {
    loaded: loader::Loaded,
    _link: Link,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

/// What a recording came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Callbacks written.
    pub records: u64,
    /// Callbacks that found the ring full.
    pub lost: u64,
}

impl Recorder {
    /// Registers the wrapper under `name`. With `perturb`, it disturbs BBR's state before some callbacks,
    /// so that branches are recorded which a path would take only in hours or never.
    ///
    /// # Errors
    /// When the kernel's BBR is not built in or is of a shape the wrapper does not know.
    pub fn start(name: &str, perturb: bool, kernel: &Kernel) -> Result<Self> {
        let missing: Vec<&str> =
            BBR_FUNCTIONS.into_iter().filter(|name| !kernel.bbr_functions.contains(*name)).collect();
        if !missing.is_empty() || kernel.cong_control_args != 4 {
            return Err(Error::impossible(
                format!(
                    "the kernel's BBR cannot be called from here ({})",
                    if missing.is_empty() {
                        "cong_control has 2 arguments".to_owned()
                    } else {
                        format!("{} missing", missing.join(", "))
                    }
                ),
                "Linux 6.10 or newer with CONFIG_TCP_CONG_BBR=y; where BBR is a module, `modprobe tcp_bbr` first",
            ));
        }
        let config = loader::Config { build: 0, options: if perturb { OPTION_PERTURB } else { 0 } };
        let object = include_bytes!("../../bpf/objects/oracle.bpf.o");
        let mut loaded = loader::load_object(object, name, kernel, config)?;
        let link = loaded.attach()?;
        Ok(Recorder { loaded, _link: link })
    }

    /// Collects records until `done` says so (asked about ten times a second) and hands each to `each`.
    ///
    /// # Errors
    /// What `each` says, or the kernel when the ring cannot be read.
    pub fn collect(
        &self,
        mut done: impl FnMut(Duration) -> bool,
        mut each: impl FnMut(&Record) -> std::io::Result<()>,
    ) -> Result<Summary> {
        let object = self.loaded.object();
        let map = |name: &str| {
            object
                .maps()
                .find(|map| map.name().to_string_lossy().ends_with(name))
                .ok_or_else(|| Error::Malformed(format!("the recorder's object has no map {name}")))
        };
        let records = map("records")?;
        let mut failure = None;
        let mut written = 0u64;
        {
            let mut builder = RingBufferBuilder::new();
            builder
                .add(&records, |bytes| {
                    if bytes.len() == std::mem::size_of::<Record>() && failure.is_none() {
                        match each(&bytemuck::pod_read_unaligned(bytes)) {
                            Ok(()) => written += 1,
                            Err(error) => failure = Some(error),
                        }
                    }
                    0
                })
                .map_err(ring_failed)?;
            let ring = builder.build().map_err(ring_failed)?;
            let started = Instant::now();
            while !done(started.elapsed()) {
                // A signal interrupts the wait; `done` then decides.
                let _ = ring.poll_raw(Duration::from_millis(100));
            }
            let _ = ring.consume_raw();
        }
        if let Some(error) = failure {
            return Err(Error::Malformed(format!("the recording cannot be written: {error}")));
        }
        let counts = map(".data.counts")?
            .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(ring_failed)?
            .unwrap_or_default();
        let lost = counts.first_chunk().copied().map_or(0, u64::from_ne_bytes);
        Ok(Summary { records: written, lost })
    }
}

fn ring_failed(error: libbpf_rs::Error) -> Error {
    Error::impossible(format!("the ring buffer cannot be read: {error}"), "Linux 5.8 or newer")
}
