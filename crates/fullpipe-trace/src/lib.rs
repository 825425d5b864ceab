//! What a capture says of its TCP connections: what the path was, what limited each of them, and where it was taken.
//!
//! One pass over the file, whatever its size: memory is bounded by the connections that are open at a time (see
//! [`Analysis`]).
//!
//! ```
//! use fullpipe_trace::{Analysis, Options, input};
//!
//! // An empty pcap file of Ethernet frames: its header only.
//! let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
//! file.extend([0; 8]);
//! file.extend(65_535_u32.to_le_bytes());
//! file.extend(1_u32.to_le_bytes());
//!
//! let mut analysis = Analysis::new(Options::default());
//! let outcome = input::read("empty.pcap", file.as_slice(), |frame| analysis.frame(frame))?;
//! assert!(outcome.damage.is_none());
//! assert!(analysis.finish().connections.is_empty());
//! # Ok::<(), fullpipe_trace::TraceError>(())
//! ```
#![forbid(unsafe_code)]

mod analysis;
mod connection;
mod controller;
mod error;
mod filter;
mod histogram;
pub mod input;
mod live;
mod recording;
mod sequence;
pub mod text;
pub mod wire;

pub use analysis::{Analysed, Analysis, Options, PacketCounts, Traced};
pub use controller::{Compared, Conclusion, identify, simulated};
pub use error::{Damage, TraceError};
pub use filter::{Filter, FilterError};
pub use live::{LiveError, look};
pub use recording::WINDOW_BYTES;
