//! Packets beside the kernel's own TCP and IP: packet sockets with a ring in memory shared with the kernel (packet(7)),
//! bounded, and with what did not fit counted. Nothing of the host is changed, and nothing is left behind.
//!
//! * [`Capture`] looks on: packets from their IP header on, as they pass an interface.
//! * [`Port`] takes what comes in at an interface and sends others out there, past the kernel's own protocols: whole frames,
//!   with checksums and super-packets as virtual network cards hand them to each other.
//! * [`filter`]: by which the kernel leaves out what nobody will look at.

mod capture;
pub mod filter;
mod port;
mod ring;
mod socket;

pub use capture::{Capture, Packet};
pub use port::{FRAMES_PER_BLOCK, Frame, Port, PortError, Sender, VNET_LEN};
pub use socket::{PacketCounts, PacketSocket};
