//! The integration tests, each module by itself: `cargo test -p fullpipe-figures --test it MODULE::`.

mod page;
mod published;
