//! What the emulator reads and writes of packets: the virtio header that travels with each frame on an
//! AF_PACKET socket, and the IP, TCP and UDP headers inside it. Nothing here touches a payload.

mod checksum;
mod frame;
mod vnet;

pub(crate) use frame::{Frame, MAX_HEADERS, Protocol};
pub(crate) use vnet::{VNET_LEN, VnetHeader};
