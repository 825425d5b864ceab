//! Records of closed connections: written to rotated files of bounded size, and read back as
//! distributions.

mod distributions;
mod files;
mod lines;
#[cfg(feature = "parquet")]
mod parquet;
mod reader;
mod sample;
mod sketch;
mod text;
mod writer;

pub use distributions::{Distributions, Group, GroupBy, Metric};
pub use reader::{ReadError, ReadSummary, read, read_lines};
pub use sketch::QuantileSketch;
pub use text::{page, text};
pub use writer::{RecordsError, Rotation, Writer};
