//! Records of many connections: written as they come, one after the other, into files of bounded size; and read again.

mod distributions;
mod files;
mod lines;
#[cfg(feature = "parquet")]
mod parquet;
mod reader;
mod seen;
mod spread;
mod text;
mod writer;

pub use distributions::{By, Distributions, Figure, Group};
pub use reader::{Found, ReadError, lines, read};
pub use spread::Spread;
pub use text::{page, text};
pub use writer::{Bounds, RecordsError, Writer};
