//! Congestion controllers for any transport: sans-IO, `no_std`, no allocation, no floating point.
//!
//! A transport owns its packets, clocks and loss detection. It keeps one [`Sampler`] and one
//! [`CongestionControl`] a connection, stores the [`Stamp`] the sampler gives it with each packet,
//! and makes one call for each thing that happens.
#![no_std]
#![forbid(unsafe_code)]

mod control;
mod sampler;

pub use control::{
    Ack, Config, CongestionControl, Lost, Recovery, RecoveryContext, RecoveryState, Sent, Snapshot,
};
pub use fullpipe_units::{Gain, Rate, Span, Time};
pub use sampler::{RateSample, Sampler, Stamp};
