//! The headers that the emulator reads and writes: the virtio header of each frame on an AF_PACKET
//! socket, and the IP, TCP and UDP headers inside the frame. Payload is never touched.

mod check;
mod checksum;
mod frame;
mod vnet;

pub use check::read_and_cut;
pub(crate) use frame::{Frame, MAX_HEADERS, Protocol};
pub(crate) use vnet::VnetHeader;
