//! Data transfer over sockets, unlimited or paced, with counters.

mod allowance;
mod endpoint;
mod meter;
mod pace;
mod tcp;
mod token_bucket;
mod udp;

pub(crate) use allowance::{Allowance, MIN_RECEIVED, is_excess};
pub use endpoint::SocketFacts;
pub(crate) use endpoint::{Counters, Endpoint, Measurement, StreamOptions, Transport};
pub use meter::{Budget, CpuClock, Meter};
pub use pace::Pacer;
pub use tcp::{DEFAULT_SEND_BLOCK, noise};
pub(crate) use tcp::{DISCARD_BLOCK, discard, send};
pub(crate) use token_bucket::{Grant, PACKET, TokenBucket};
pub(crate) use udp::{Numbering, ReceiveStats, receive_datagrams, send_datagrams, wall_clock_us};

use std::time::Duration;

/// Interval at which a waiting thread checks whether it is stopped.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
