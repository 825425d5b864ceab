//! From a captured frame to a TCP segment.

mod link;
mod options;
mod segment;

pub use link::Link;
pub use options::{Sack, Selective};
pub use segment::{Ecn, Flags, Segment, Skipped};
