//! The integration tests, each module by itself: `cargo test -p fullpipe-mesh --test it MODULE::`.

mod browser;
mod clocks;
mod detection;
mod histories;
mod members;
mod meshes;
mod scale;
