//! Congestion controllers of [`fullpipe_cc`] in QUIC stacks, and whole QUIC connections in virtual
//! time over the paths of the simulator.
#![forbid(unsafe_code)]

#[cfg(any(feature = "noq", feature = "quinn"))]
mod adapter;
#[cfg(feature = "harness")]
pub mod harness;
#[cfg(feature = "noq")]
#[allow(clippy::duplicate_mod, reason = "shared sources find the stack's types in their parent")]
pub mod noq;
#[cfg(feature = "quinn")]
#[allow(clippy::duplicate_mod, reason = "shared sources find the stack's types in their parent")]
pub mod quinn;

pub use fullpipe_cc::{self, ControllerSpec};
