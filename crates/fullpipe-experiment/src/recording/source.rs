//! The engine that made a recording.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The engine that made a recording.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The simulator: virtual time, deterministic.
    Sim,
    /// Kernel TCP over an emulated path.
    Lab,
    /// A test of a real network.
    Net,
    /// A capture of packets.
    Trace,
    /// Live connections of a host.
    Live,
    /// An endpoint's own log of a connection.
    Log,
}

impl Source {
    /// Whether it depends on a seed; observed traffic does not.
    pub fn has_seed(self) -> bool {
        !matches!(self, Source::Trace | Source::Live | Source::Log)
    }

    /// Its name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Source::Sim => "sim",
            Source::Lab => "lab",
            Source::Net => "net",
            Source::Trace => "trace",
            Source::Live => "live",
            Source::Log => "log",
        }
    }
}
