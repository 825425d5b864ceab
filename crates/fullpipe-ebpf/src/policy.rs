//! Sockets whose window a program outside of the kernel sets, as it sees fit.
//!
//! A controller registered for this process alone obeys what is written beside a socket (bpf/policy.bpf.c): on each
//! ACK the window becomes that, and the pacing rate if there is one. What the kernel tells nobody of the ACKs it adds up
//! beside the socket.

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

/// `struct fp_seen` of bpf/policy.bpf.c: what has happened to a socket since it was taken.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct SocketStats {
    /// Sum of the round-trip times measured, µs.
    pub rtt_sum_us: u64,
    /// How many they were.
    pub rtts: u32,
    /// ACKs.
    pub acks: u32,
    /// Packets marked lost on the connection, as of the last ACK.
    pub lost: u32,
    spare: u32,
}

/// Steers sockets by their descriptors: whoever holds this may do so with its own sockets, without privilege and in any
/// network namespace. It is two descriptors, of which another process may make it again.
#[derive(Debug)]
pub struct PolicyMaps {
    orders: OwnedFd,
    seen: OwnedFd,
}

/// The name that the controller of this process has. Another's differs, and so do the orders it obeys.
pub fn name() -> String {
    format!("fp_pol{}", std::process::id())
}

/// Loads the controller under its [`name`] until the first of the two is dropped.
///
/// # Errors
/// As [`loader::load`].
pub fn load() -> Result<(TemporaryController, PolicyMaps)> {
    let (held, maps) = loader::load_object_temporarily(object!("policy"), &name(), &["orders", "seen"])?;
    let helm = PolicyMaps::from_descriptors(maps).map_err(|e| Error::Malformed(e.to_string()))?;
    Ok((held, helm))
}

impl PolicyMaps {
    /// What it is made of, opened once more: for [`from_descriptors`](Self::from_descriptors).
    ///
    /// # Errors
    /// When there are too many open files.
    pub fn descriptors(&self) -> io::Result<Vec<OwnedFd>> {
        [&self.orders, &self.seen].into_iter().map(OwnedFd::try_clone).collect()
    }

    /// Makes it again from its [`descriptors`](Self::descriptors), in this process or another.
    ///
    /// # Errors
    /// When there are not as many as it has.
    pub fn from_descriptors(descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let [orders, seen] = <[OwnedFd; 2]>::try_from(descriptors).map_err(|got| {
            let text = format!("a helm is made of two descriptors, not of {}", got.len());
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        Ok(PolicyMaps { orders, seen })
    }

    /// Begins to see what happens to a socket.
    ///
    /// # Errors
    /// When the kernel refuses: the descriptor is not a socket's, or the kernel lets only root use BPF.
    pub fn track(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        put(&self.seen, socket, &SocketStats::default())
    }

    /// What has happened to a socket that was [taken](Self::track).
    ///
    /// # Errors
    /// When it was not.
    pub fn stats(&self, socket: BorrowedFd<'_>) -> io::Result<SocketStats> {
        get(&self.seen, socket)
    }

    /// From the next ACK on the window of a socket is `cwnd` packets, and its pacing rate `pacing_rate` bytes a second,
    /// where one is given.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_window(&self, socket: BorrowedFd<'_>, cwnd: u32, pacing_rate: Option<u64>) -> io::Result<()> {
        put(&self.orders, socket, &RawControl { pacing_rate: pacing_rate.unwrap_or(0), cwnd, spare: 0 })
    }
}
