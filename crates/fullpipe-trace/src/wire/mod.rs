//! Parses captured frames as TCP segments.

mod data;
mod encapsulation;
mod fragments;
mod ip;
mod layers;
mod link;
mod options;
mod segment;
mod tunnels;
mod wireless;

pub(crate) use encapsulation::Skipped;
pub use encapsulation::{Decapsulator, EncapsulationCounts};
pub use layers::{LINK_HINT, Tunnel, Unread};
pub use link::{Link, OtherLink, link_type_name};
pub use options::{Sack, TcpOptions};
pub use segment::{Ecn, Flags, Identity, Segment, SkipReason};
