//! s2n-quic connections with fullpipe's controllers and its own, with real TLS, in virtual time.

mod conformance;
mod determinism;
mod goodput;
#[path = "../../examples/conformance/harness/mod.rs"]
mod harness;
mod own_bbr;
mod random_paths;
mod tls;
mod transfer;
mod wire;
