//! Congestion controllers of [`fullpipe_cc`] in QUIC stacks, and whole QUIC connections in virtual
//! time over the paths of the simulator.
#![forbid(unsafe_code)]

#[cfg(feature = "harness")]
pub mod harness;
