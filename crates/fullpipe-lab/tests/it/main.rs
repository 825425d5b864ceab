//! The integration tests, each module by itself: `cargo test -p fullpipe-lab --test it MODULE::`.

mod lab;
