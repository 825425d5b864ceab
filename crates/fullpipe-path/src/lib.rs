//! The elements of a network path in virtual time: queues, rates, loss, delay. Sans-IO: it knows
//! no clock, no socket and nothing about the contents of a packet, so a simulator and an emulator
//! of real packets share it.
//!
//! A [`Path`] is one direction: links in a row, each described by
//! a [`LinkSpec`] as a scenario file writes it.
//!
//! ```
//! use fullpipe_path::{BuildContext, Path, Direction, LinkSpec, Outcome, Packet};
//! use fullpipe_units::{Span, Time};
//!
//! let link: LinkSpec = toml::from_str("rate = '12mbit'\ndelay = '20ms'\nqueue = '2p'")?;
//! let links = [link];
//! let ctx = BuildContext::of_path(&links, &[], Direction::Forward, 1500, 1);
//! let mut path = Path::new(&links, &ctx)?;
//! for number in 0..4 {
//!     path.push(Time::ZERO, Packet::new(0, 1500, number));
//! }
//!
//! let mut seen = Vec::new();
//! while path.next_event() != Time::NEVER {
//!     path.advance(path.next_event(), &mut |at, outcome| match outcome {
//!         Outcome::Delivered(packet) => seen.push(format!("{} after {}", packet.data, at.since(Time::ZERO))),
//!         Outcome::Dropped(packet, cause) => seen.push(format!("{} dropped: {}", packet.data, cause.name())),
//!     });
//! }
//! // One packet was being sent and two waited: there was no room for the fourth.
//! assert_eq!(seen, ["3 dropped: queue-full", "0 after 21ms", "1 after 22ms", "2 after 23ms"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod blackout;
mod build;
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
