//! s2n-quic connections with fullpipe's controllers, with real TLS, in virtual time.

mod determinism;
mod goodput;
mod random_paths;
mod tls;
mod transfer;
mod wire;
