//! Packet sockets as the emulator has them: what to do where the kernel refuses one.

use crate::LabError;
use fullpipe_kernel::packets::filter::Instruction;
use fullpipe_kernel::packets::{PacketSocket, Port, PortError};

/// A packet socket and the interface that it is for. The socket belongs to the network namespace in which it was
/// opened, whoever uses it afterwards.
pub(crate) struct Attachment {
    socket: PacketSocket,
    index: u32,
}

impl Attachment {
    /// For interface `index` of the calling thread's network namespace.
    pub(crate) fn here(index: u32) -> Result<Self, LabError> {
        let socket = PacketSocket::raw().map_err(|e| {
            LabError::Impossible(format!(
                "cannot open a packet socket ({e}): the kernel needs CONFIG_PACKET (as root: `modprobe af_packet`), \
                 the container must not forbid AF_PACKET, and inside a `fullpipe lab shell` it takes the \
                 CAP_NET_RAW that programs get there"
            ))
        })?;
        Ok(Attachment { socket, index })
    }

    /// Leaves out what the kernel's filter program `code` gives 0 for.
    pub(crate) fn filter(&self, code: &[Instruction]) -> Result<(), LabError> {
        self.socket
            .filter(code)
            .map_err(|e| LabError::failed("cannot filter what a packet socket receives", e))
    }

    /// Starts to receive, into `blocks` MiB of ring.
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
