//! Quantities of a network path as distinct types, with parsing and formatting (`100mbit`, `40ms`).
//!
//! Integers throughout, so a result is the same on every machine: [`Time`] and [`Span`] count
//! nanoseconds, [`Rate`] counts bytes per second, [`Gain`] counts 1/256.
//!
//! ```
//! use fullpipe_units::{Rate, Span};
//!
//! let rate: Rate = "100mbit".parse().unwrap();
//! let rtt: Span = "100ms".parse().unwrap();
//! assert_eq!(rate.bytes_in(rtt), 1_250_000); // the bandwidth-delay product
//! assert_eq!(rate.time_to_send(1500), Span::from_micros(120));
//! assert_eq!(rate.to_string(), "100mbit");
//! ```
//!
//! Without the default feature `std` the crate is `no_std` and has only the types and their
//! arithmetic; parsing needs `std`, and `serde` adds (de)serialisation in text form.
#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]

mod gain;
#[cfg(feature = "std")]
mod parse;
mod rate;
#[cfg(feature = "serde")]
mod serialize;
mod time;

pub use gain::Gain;
#[cfg(feature = "std")]
pub use parse::{Bytes, Fraction, ParseError};
pub use rate::Rate;
pub use time::{Span, Time};
