//! Errors of reading captures.

use thiserror::Error;

/// The capture could not be read. A capture that is damaged later gives its readable part and a
/// [`Damage`].
#[derive(Debug, Error)]
pub enum TraceError {
    /// Reading failed before the first packet.
    #[error("cannot read {name}: {source}")]
    Read {
        /// The file.
        name: String,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The file has an unknown format.
    #[error("{name} is not a capture in pcap or pcapng format{hint}")]
    NotACapture {
        /// The file.
        name: String,
        /// What the file may be instead.
        hint: String,
    },
    /// The link type is not supported.
    #[error(
        "{name} has the unsupported link type {link}; supported are Ethernet (1), NULL (0), LOOP (108), raw \
         IP (12, 14, 101, 228, 229) and Linux cooked (113, 276)"
    )]
    Link {
        /// The file.
        name: String,
        /// LINKTYPE number.
        link: i32,
    },
}

/// Where and why reading stopped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Bytes before the damage in the decompressed file.
    pub offset: u64,
    /// The problem.
    pub reason: String,
}
