//! The integration tests, each module by itself: `cargo test -p fullpipe-path --test it MODULE::`.

mod behaviour;
mod properties;
