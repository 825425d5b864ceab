//! Why a capture could not be read at all.

use thiserror::Error;

/// A capture that gave nothing. One that breaks off later gives what was readable, and [`Damage`].
#[derive(Debug, Error)]
pub enum TraceError {
    /// Reading failed before the first packet.
    #[error("cannot read {name}: {source}")]
    Read {
        /// The file.
        name: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is in no form that is known here.
    #[error(
        "{name} is not a capture: it begins neither as pcap nor as pcapng does{hint}; `tcpdump -w FILE` and Wireshark write both"
    )]
    NotACapture {
        /// The file.
        name: String,
        /// What it may be instead.
        hint: String,
    },
    /// It has a capture's header and a link layer that is not read here.
    #[error(
        "{name} was captured on a link of type {link}, which is not read; read are Ethernet (1), NULL (0), LOOP (108), raw IP (12, 14, 101, 228, 229) and Linux cooked (113, 276)"
    )]
    Link {
        /// The file.
        name: String,
        /// LINKTYPE number.
        link: i32,
    },
}

/// Where and why a capture broke off.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Bytes before the damage, in the file as decompressed.
    pub offset: u64,
    /// What is wrong there.
    pub reason: String,
}
