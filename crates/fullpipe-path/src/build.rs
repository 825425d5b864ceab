//! The context in which links are built, and build errors.

use fullpipe_units::{Rate, Span};

use crate::LinkSpec;

/// A direction of a path, as seen from the client.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Debug,
    Default,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// The data's direction.
    #[default]
    Forward,
    /// The acknowledgements' direction.
    Reverse,
}

/// Properties of the whole path that the links of one direction need.
#[derive(Clone, Debug)]
pub struct BuildContext {
    /// The path's round-trip time without queueing: the delays of both directions. With
    /// [`bottleneck`](Self::bottleneck) it resolves limits written in `bdp`.
    pub base_rtt: Span,
    /// The lowest rate of any link of this direction; [`Rate::MAX`] if none has one.
    pub bottleneck: Rate,
    /// Largest packet in bytes (L3): the quantum of fair queues.
    pub mtu: u32,
    /// Seeds everything random. The same seed gives the same outcomes.
    pub seed: u64,
    /// Keeps the two directions of a path from drawing the same random numbers.
    pub direction: Direction,
}

impl BuildContext {
    /// The context of one direction of the path with these links, from which base RTT and
    /// bottleneck are computed.
    pub fn for_path(
        forward: &[LinkSpec],
        reverse: &[LinkSpec],
        direction: Direction,
        mtu: u32,
        seed: u64,
    ) -> Self {
        let base_rtt = forward.iter().chain(reverse).fold(Span::ZERO, |sum, link| sum + link.delay);
        let own = match direction {
            Direction::Forward => forward,
            Direction::Reverse => reverse,
        };
        let bottleneck = own.iter().filter_map(LinkSpec::nominal_rate).min().unwrap_or(Rate::MAX);
        BuildContext { base_rtt, bottleneck, mtu, seed, direction }
    }

    /// The bandwidth-delay product in bytes; 0 for a path without any rate.
    pub fn bdp(&self) -> u64 {
        if self.bottleneck == Rate::MAX { 0 } else { self.bottleneck.bytes_in(self.base_rtt) }
    }
}

/// A path cannot be built: the link, the key, what is wrong, and what to do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("link {link}: `{key}`: {reason}")]
pub struct BuildError {
    /// Index of the link in its direction, from 0.
    pub link: usize,
    /// The key as a scenario file writes it, with dots between levels (`queue.limit`).
    pub key: String,
    /// What is wrong and what to do about it.
    pub reason: String,
}

/// A [`BuildError`] without the link.
#[derive(Debug)]
pub(crate) struct LinkError {
    pub key: String,
    pub reason: String,
}

impl LinkError {
    pub fn new(key: impl Into<String>, reason: impl Into<String>) -> Self {
        LinkError { key: key.into(), reason: reason.into() }
    }

    pub fn at(self, link: usize) -> BuildError {
        BuildError { link, key: self.key, reason: self.reason }
    }
}
