//! Records of many connections: written as they come, one after the other, into files of bounded size; and read again.

mod files;
mod lines;
#[cfg(feature = "parquet")]
mod parquet;
mod writer;

pub use writer::{Bounds, RecordsError, Writer};
