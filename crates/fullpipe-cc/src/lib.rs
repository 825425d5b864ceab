//! Congestion controllers for any transport: sans-IO, `no_std`, no allocation, no floating point.
//!
//! A transport owns its packets, clocks and loss detection. It keeps one [`Sampler`] and one
//! [`CongestionControl`] a connection, stores the [`Stamp`] the sampler gives it with each packet,
//! and makes one call for each thing that happens.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod bbr;
mod control;
pub mod cubic;
pub mod fixed;
pub mod hybla;
mod jiffies;
pub mod loss_based;
pub mod minmax;
pub mod pacer;
mod packets;
mod prr;
mod random;
pub mod registry;
pub mod reno;
mod sampler;

pub use control::{
    Ack, Config, CongestionControl, Lost, Recovery, RecoveryContext, RecoveryState, Sent, Snapshot,
};
pub use fullpipe_units::{Gain, Rate, Span, Time};
pub use minmax::MinMax;
pub use pacer::Pacer;
pub use prr::Prr;
pub use registry::{BuildError, CONTROLLERS, Controller};
pub use sampler::{RateSample, Sampler, Stamp};
