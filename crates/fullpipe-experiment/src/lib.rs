//! The contract between what runs an experiment and what reports it.
#![forbid(unsafe_code)]

pub mod recording;

pub use recording::{Engine, Recording, Results, SCHEMA};
