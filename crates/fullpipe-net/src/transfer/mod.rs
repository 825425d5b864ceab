//! Data transfer over sockets, unlimited or paced, with counters.

mod endpoint;
mod meter;
mod pace;
mod tcp;
mod udp;

pub use endpoint::SocketFacts;
pub(crate) use endpoint::{Counters, Endpoint, Measurement, StreamOptions, Transport};
pub use meter::{Budget, CpuClock, Meter};
pub use pace::Pacer;
pub(crate) use tcp::DISCARD_BLOCK;
pub use tcp::{DEFAULT_SEND_BLOCK, discard, noise, send};
pub use udp::{receive_datagrams, send_datagrams};
