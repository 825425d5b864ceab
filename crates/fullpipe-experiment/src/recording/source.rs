//! Where a recording came from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a recording came from.
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
    /// Connections of a host at work.
    Live,
}

impl Source {
    /// Whether anything in it was drawn from a seed: what was only watched has none.
    pub fn has_seed(self) -> bool {
        !matches!(self, Source::Trace | Source::Live)
    }

    /// As written in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Source::Sim => "sim",
            Source::Lab => "lab",
            Source::Net => "net",
            Source::Trace => "trace",
            Source::Live => "live",
        }
    }
}
