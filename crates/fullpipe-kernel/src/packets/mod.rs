//! Packet sockets with a ring in memory shared with the kernel (packet(7)): bounded, with dropped
//! packets counted. They change no configuration of the host and leave nothing behind.
//!
//! * [`Capture`]: packets of an interface, from their IP header on.
//! * [`Port`]: receives and sends whole frames on an interface, bypassing the kernel's protocols,
//!   with the checksum and segmentation offloads of virtual network devices.
//! * [`filter`]: filter programs.

mod capture;
pub mod filter;
mod port;
mod ring;
mod socket;

pub use capture::{Capture, Packet};
pub use port::{FRAMES_PER_BLOCK, Frame, Port, PortError, Sender, VNET_LEN};
pub use socket::{PacketCounts, PacketSocket};
