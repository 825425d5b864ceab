//! Moving bytes through sockets as fast, or exactly as slowly, as asked, and counting them.

mod lane;
mod meter;
mod pace;
mod tcp;
mod udp;

pub use lane::SocketFacts;
pub(crate) use lane::{Carrier, Lane, Mark, Measured, Orders};
pub use meter::{Budget, CpuClock, Meter};
pub use pace::Pace;
pub(crate) use tcp::DISCARD_BLOCK;
pub use tcp::{DEFAULT_SEND_BLOCK, discard, noise, send};
pub use udp::{receive_datagrams, send_datagrams};
