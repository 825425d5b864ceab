//! What adapters of transports need beside [`SendController`](crate::SendController): state that
//! the callbacks of QUIC stacks do not report.

mod episode;
#[cfg(feature = "alloc")]
mod flight;
mod limited;
mod rtt;

pub use episode::{EpisodeChange, RecoveryEpisode};
#[cfg(feature = "alloc")]
pub use flight::{Flight, Packet};
pub use limited::WindowLimited;
pub use rtt::RttEstimator;
