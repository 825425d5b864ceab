//! The integration tests, each module by itself: `cargo test -p fullpipe-cc --test it MODULE::`.

mod absurd_inputs;
mod behaviour;
mod downstream;
mod forwarding;
mod freestanding;
#[cfg(feature = "linux")]
mod linux_modules;
mod transport;
