#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod connection;
mod counters;
#[cfg(feature = "export")]
pub mod export;
pub mod filter;
mod limits;
mod owner;
mod reader;
mod recorder;
pub mod records;
pub mod table;
pub mod text;
mod totals;
#[cfg(feature = "view")]
pub mod view;

pub use connection::{Connection, Figures, PathModel};
pub use filter::{Filter, FilterError};
pub use owner::{Owner, Process};
pub use reader::{ModelSource, Reader, SCHEMA, SampleError, Snapshot};
pub use recorder::Recorder;
pub use totals::{StateCount, Total};
