//! Errors of reading captures.

use crate::wire::{LINK_HINT, link_type_name};
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
    #[error("{name} is neither a capture in pcap or pcapng format nor a qlog{hint}")]
    NotACapture {
        /// The file.
        name: String,
        /// What the file may be instead.
        hint: String,
    },
    /// The file has the form of a qlog and nothing that can be analysed.
    #[error("{name} is not a qlog that can be analysed: {reason}")]
    Log {
        /// The file.
        name: String,
        /// The problem.
        reason: String,
    },
    /// No link type of the file is supported.
    #[error("{name}: {packets} packet{} with the unsupported link type {}; {LINK_HINT}",
        if *.packets == 1 { "" } else { "s" },
        link_type(*.link)
    )]
    Link {
        /// The file.
        name: String,
        /// LINKTYPE number.
        link: i32,
        /// Number of packets.
        packets: u64,
    },
}

/// Number of a link type, after its name if that is known.
pub(crate) fn link_type(number: i32) -> String {
    link_type_name(number).map_or_else(|| number.to_string(), |name| format!("{name} ({number})"))
}

/// Where and why reading stopped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Bytes before the damage in the decompressed file.
    pub offset: u64,
    /// The problem.
    pub reason: String,
}
