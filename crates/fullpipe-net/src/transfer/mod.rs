//! Data transfer over sockets, unlimited or paced, with counters.

mod allowance;
mod endpoint;
mod lane;
mod meter;
mod pace;
mod tcp;
mod udp;

pub(crate) use allowance::{Allowance, is_excess};
pub use endpoint::SocketFacts;
pub(crate) use endpoint::{Counters, Endpoint, Measurement, StreamOptions, Transport};
pub(crate) use lane::Lane;
pub use meter::{Budget, CpuClock, Meter};
pub use pace::Pacer;
pub use tcp::{DEFAULT_SEND_BLOCK, noise};
pub(crate) use tcp::{DISCARD_BLOCK, discard, send};
pub(crate) use udp::{receive_datagrams, send_datagrams};
