//! Loads the wrapper over the kernel's BBR and collects what it records.

use super::record::Record;
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::loader;
use crate::ring;
use std::time::{Duration, Instant};

/// The name sockets choose to be recorded.
pub const NAME: &str = "fp_oracle";

/// `FP_OPTION_PERTURB` of bpf/kernel.h.
const OPTION_PERTURB: u32 = 2;

/// The wrapper, registered.
#[derive(Debug)]
pub struct Recorder {
    loaded: loader::Loaded,
    _registered: loader::Registered,
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
    /// Registers the wrapper under `name`. With `perturb`, it disturbs BBR's state before some
    /// callbacks, so that branches are recorded which a path would take only in hours or never.
    ///
    /// # Errors
    /// When the kernel's BBR is not built in or is of a shape the wrapper does not know.
    pub fn start(name: &str, perturb: bool, kernel: &Kernel) -> Result<Self> {
        let missing = kernel.missing_bbr_functions();
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
                "Linux 6.10 or newer with CONFIG_TCP_CONG_BBR; where BBR is a module, `modprobe \
                 tcp_bbr` first",
            ));
        }
        let config = loader::Config { build: 0, options: if perturb { OPTION_PERTURB } else { 0 } };
        let object = object!("oracle");
        let mut loaded = loader::load_object(object, name, kernel, config)?;
        let registered = loaded.attach()?;
        Ok(Recorder { loaded, _registered: registered })
    }

    /// Collects records until `done` says so (asked about ten times a second) and hands each to
    /// `each`.
    ///
    /// # Errors
    /// What `each` says, or the kernel when the ring cannot be read.
    pub fn collect(
        &self,
        mut done: impl FnMut(Duration) -> bool,
        mut each: impl FnMut(&Record) -> std::io::Result<()>,
    ) -> Result<Summary> {
        let mut failure = None;
        let mut records = 0;
        let lost = ring::read(
            self.loaded.object(),
            "records",
            |record| {
                if failure.is_none() {
                    match each(record) {
                        Ok(()) => records += 1,
                        Err(error) => failure = Some(error),
                    }
                }
            },
            |ring| {
                let started = Instant::now();
                while !done(started.elapsed()) {
                    ring.wait(Duration::from_millis(100));
                }
            },
        )?;
        match failure {
            Some(error) => Err(Error::Malformed(format!("the recording cannot be written: {error}"))),
            None => Ok(Summary { records, lost }),
        }
    }
}
