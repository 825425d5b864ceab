//! The elements of a network path in virtual time: queues, rates, loss, delay. The crate is
//! sans-IO: it has no clock and no sockets, and does not inspect packets, so a simulator and an
//! emulator of real packets share it.
//!
//! A [`Path`] is one direction of a path: a chain of links, each described by a [`LinkSpec`] as in
//! a scenario file.
//!
//! ```
//! use fullpipe_path::{BuildContext, Path, Direction, LinkSpec, Outcome, Packet};
//! use fullpipe_units::{Span, Time};
//!
//! let link: LinkSpec = toml::from_str("rate = '12mbit'\ndelay = '20ms'\nqueue = '2p'")?;
//! let links = [link];
//! let ctx = BuildContext::for_path(&links, &[], Direction::Forward, 1500, 1);
//! let mut path = Path::new(&links, &ctx)?;
//! for number in 0..4 {
//!     path.push(Time::ZERO, Packet::new(0, 1500, number));
//! }
//!
//! let mut log = Vec::new();
//! while path.next_event() != Time::NEVER {
//!     path.advance(path.next_event(), &mut |at, outcome| match outcome {
//!         Outcome::Delivered(packet) => {
//!             log.push(format!("{} after {}", packet.data, at.since(Time::ZERO)));
//!         }
//!         Outcome::Dropped(packet, cause) => log.push(format!("{} dropped: {}", packet.data, cause.name())),
//!     });
//! }
//! // One packet was in service and two in the queue, so there was no room for the fourth.
//! assert_eq!(log, ["3 dropped: queue-full", "0 after 21ms", "1 after 22ms", "2 after 23ms"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod backlog;
mod blackout;
mod build;
mod kebab;
mod limit;
mod line;
mod link;
mod loss;
mod packet;
mod path;
mod policer;
mod queue;
mod random;
mod rate;
mod schedule;
mod spec;
mod station;
mod stats;
#[cfg(test)]
mod testing;

pub use blackout::BlackoutSpec;
pub use build::{BuildContext, BuildError, Direction};
pub use limit::Limit;
pub use line::{AggregateSpec, Distribution, JitterSpec, ReorderSpec};
pub use loss::{BernoulliSpec, GilbertElliottSpec, ListSpec, LossSpec};
pub use packet::{DropCause, Ecn, Outcome, Packet};
pub use path::Path;
pub use policer::PolicerSpec;
pub use queue::{CodelSpec, DropTailSpec, FqCodelSpec, FqPieSpec, FqSpec, PieSpec, QueueSpec};
pub use rate::{CellularSpec, Trace, TraceError, TraceSpec};
pub use spec::{Change, LinkSpec, ScheduledChange, shorthand};
pub use stats::LinkStats;
