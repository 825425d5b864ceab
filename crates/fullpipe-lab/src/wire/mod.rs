//! What the emulator reads and writes of packets: the virtio header that travels with each frame on an
//! AF_PACKET socket, and the IP, TCP and UDP headers inside it. Nothing here touches a payload.

mod check;
mod checksum;
mod frame;
mod vnet;

pub use check::read_and_cut;
pub(crate) use frame::{Frame, MAX_HEADERS, Protocol};
pub(crate) use vnet::VnetHeader;
