//! The integration tests, each module by itself: `cargo test -p fullpipe-conformance --test it MODULE::`.

mod draft;
mod outcomes;
mod quic;
mod reference_cases;
mod revision;
