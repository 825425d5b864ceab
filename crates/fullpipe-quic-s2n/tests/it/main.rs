//! s2n-quic connections with fullpipe's controllers and its own, with real TLS, in virtual time.

mod determinism;
mod goodput;
mod own_bbr;
mod random_paths;
mod tls;
mod transfer;
mod wire;
