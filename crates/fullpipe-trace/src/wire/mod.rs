//! Parses captured frames as TCP segments.

mod link;
mod options;
mod segment;

pub use link::Link;
pub use options::{Sack, TcpOptions};
pub use segment::{Ecn, Flags, Segment, SkipReason};
