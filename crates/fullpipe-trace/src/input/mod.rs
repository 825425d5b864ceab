//! Capture files as a stream of frames: pcap and pcapng, plain or compressed, from files and pipes.

mod compression;
mod file;

pub use file::{Counters, Frame, Outcome, read};
