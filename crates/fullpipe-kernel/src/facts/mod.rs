//! Facts about the running kernel.

mod clock;
mod config;
mod controllers;
mod namespace;
mod processor;
mod version;

pub use clock::{monotonic_offset, tick_rate};
pub use config::Config;
pub use controllers::{allowed_controllers, available_controllers, default_controller};
pub use namespace::network_namespace;
pub use processor::{CpuTimes, SchedStat, SchedStatFile, cpu_pressure};
pub use version::Version;
