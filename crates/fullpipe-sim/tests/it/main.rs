//! The integration tests, each module by itself: `cargo test -p fullpipe-sim --test it MODULE::`.

mod common;
mod loss;
mod other_transports;
mod outside_controller;
mod real_ends;
mod run;
mod same_bytes;
mod windows;
