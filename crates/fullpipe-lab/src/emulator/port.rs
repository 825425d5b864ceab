//! The emulator's packet sockets, and remedies if the kernel refuses one.

use crate::LabError;
use fullpipe_kernel::packets::filter::Instruction;
use fullpipe_kernel::packets::{PacketSocket, Port, PortError};

/// A packet socket and its interface. The socket belongs to the network namespace in which it was
/// opened, whichever thread uses it later.
pub(crate) struct Attachment {
    socket: PacketSocket,
    index: u32,
}

impl Attachment {
    /// Opens a socket for interface `index` of the calling thread's network namespace.
    pub(crate) fn here(index: u32) -> Result<Self, LabError> {
        let socket = PacketSocket::raw().map_err(|e| {
            LabError::Impossible(format!(
                "cannot open a packet socket ({e}): the kernel needs CONFIG_PACKET (as root: `modprobe \
                 af_packet`), the container must not forbid AF_PACKET, and inside a `fullpipe lab \
                 shell` it takes the CAP_NET_RAW that programs get there"
            ))
        })?;
        Ok(Attachment { socket, index })
    }

    /// Drops packets for which the filter program `code` returns 0.
    pub(crate) fn filter(&self, code: &[Instruction]) -> Result<(), LabError> {
        self.socket
            .filter(code)
            .map_err(|e| LabError::failed("cannot filter what a packet socket receives", e))
    }

    /// Starts to receive, into a ring of `blocks` MiB.
    pub(crate) fn open(self, blocks: usize) -> Result<Port, LabError> {
        Port::open(self.socket, self.index, blocks).map_err(|e| match e {
            PortError::MissingOption { option, error } => LabError::Impossible(format!(
                "the kernel's packet sockets lack {option} ({error}): Linux 4.20 or later has it"
            )),
            PortError::NoRing(error) => LabError::Impossible(format!(
                "no memory for a ring of {blocks} MiB ({error}): free some, or raise the container's limit"
            )),
            PortError::NotBound(error) => LabError::failed("cannot bind a packet socket", error),
        })
    }
}
