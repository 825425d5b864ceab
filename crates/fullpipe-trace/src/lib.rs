//! Analyses the TCP connections of a capture: their path, what limited each of them, and where the
//! capture was taken.
//!
//! A file of any size is read in one pass; memory is bounded by the connections that are open at a
//! time (see [`Analyser`]).
//!
//! ```
//! use fullpipe_trace::{Analyser, Options, input};
//!
//! // An empty pcap file of Ethernet frames: its header only.
//! let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
//! file.extend([0; 8]);
//! file.extend(65_535_u32.to_le_bytes());
//! file.extend(1_u32.to_le_bytes());
//!
//! let mut analyser = Analyser::new(Options::default());
//! let outcome = input::read("empty.pcap", file.as_slice(), |frame| analyser.add_frame(frame))?;
//! assert!(outcome.damage.is_none());
//! assert!(analyser.finish().connections.is_empty());
//! # Ok::<(), fullpipe_trace::TraceError>(())
//! ```
#![forbid(unsafe_code)]

mod analysis;
mod connection;
mod controller;
mod error;
mod facts;
mod filter;
mod histogram;
pub mod input;
mod live;
pub mod qlog;
mod quantity;
mod recording;
mod sequence;
pub mod text;
pub mod wire;

pub use analysis::{Analyser, Analysis, Options, PacketCounts, TracedConnection};
pub use controller::{FeatureComparison, Identification, identify, simulate_capture};
pub use error::{Damage, TraceError};
pub use facts::capture_facts;
pub use filter::{Filter, FilterError};
pub use live::{LiveError, capture_interface};
pub use recording::WINDOW_BYTES;
