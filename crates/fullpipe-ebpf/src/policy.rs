//! Sockets whose window is set from user space.
//!
//! A controller registered for this process only applies the window and pacing rate stored for a
//! socket on each ACK (bpf/policy.bpf.c), and accumulates per-ACK statistics that the kernel does
//! not export otherwise.

use crate::error::{Error, Result};
use crate::loader::{self, TemporaryController};
use crate::storage::{get, put};
use bytemuck::{Pod, Zeroable};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// `struct fp_orders` of bpf/policy.bpf.c.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct RawControl {
    pacing_rate: u64,
    cwnd: u32,
    spare: u32,
}

/// `struct fp_seen` of bpf/policy.bpf.c: statistics of a socket since tracking started.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct SocketStats {
    /// Sum of the measured round-trip times, µs.
    pub rtt_sum_us: u64,
    /// Number of round-trip times.
    pub rtts: u32,
    /// ACKs.
    pub acks: u32,
    /// Packets marked lost on the connection as of the last ACK.
    pub lost: u32,
    spare: u32,
}

/// Controls sockets by their descriptors. The owner may use it with its own sockets, unprivileged
/// and in any network namespace. It consists of two descriptors, which can be passed to another
/// process.
#[derive(Debug)]
pub struct PolicyMaps {
    control: OwnedFd,
    stats: OwnedFd,
}

/// The controller's name, unique to this process.
pub fn name() -> String {
    format!("fp_pol{}", std::process::id())
}

/// Loads the controller under its [`name`] until the first returned value is dropped.
///
/// # Errors
/// As [`loader::load`].
pub fn load() -> Result<(TemporaryController, PolicyMaps)> {
    let (controller, maps) =
        loader::load_object_temporarily(object!("policy"), &name(), &["orders", "seen"])?;
    let maps = PolicyMaps::from_descriptors(maps).map_err(|e| Error::Malformed(e.to_string()))?;
    Ok((controller, maps))
}

impl PolicyMaps {
    /// Duplicates its descriptors, for [`from_descriptors`](Self::from_descriptors).
    ///
    /// # Errors
    /// If there are too many open files.
    pub fn descriptors(&self) -> io::Result<Vec<OwnedFd>> {
        [&self.control, &self.stats].into_iter().map(OwnedFd::try_clone).collect()
    }

    /// Restores it from its [`descriptors`](Self::descriptors), in this or another process.
    ///
    /// # Errors
    /// If the number of descriptors is wrong.
    pub fn from_descriptors(descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let [control, stats] = <[OwnedFd; 2]>::try_from(descriptors).map_err(|got| {
            let text = format!("expected two descriptors, got {}", got.len());
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        Ok(PolicyMaps { control, stats })
    }

    /// Starts tracking a socket.
    ///
    /// # Errors
    /// If the kernel refuses: the descriptor is not a socket, or only root may use BPF.
    pub fn track(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        put(&self.stats, socket, &SocketStats::default())
    }

    /// Statistics of a [tracked](Self::track) socket.
    ///
    /// # Errors
    /// If it is not tracked.
    pub fn stats(&self, socket: BorrowedFd<'_>) -> io::Result<SocketStats> {
        get(&self.stats, socket)
    }

    /// Sets the window in packets and optionally the pacing rate in bytes per second, effective
    /// from the next ACK.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_window(&self, socket: BorrowedFd<'_>, cwnd: u32, pacing_rate: Option<u64>) -> io::Result<()> {
        put(&self.control, socket, &RawControl { pacing_rate: pacing_rate.unwrap_or(0), cwnd, spare: 0 })
    }
}
