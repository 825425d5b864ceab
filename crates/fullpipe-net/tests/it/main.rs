//! The integration tests, each module by itself: `cargo test -p fullpipe-net --test it MODULE::`.

#![cfg_attr(not(feature = "rpm"), allow(dead_code))]

mod allowances;
mod common;
mod crowds;
mod downloads;
mod faults;
mod hostile;
#[cfg(feature = "rpm")]
mod hostile_http2;
mod http;
mod iperf2_interoperability;
mod iperf3_interoperability;
#[cfg(feature = "rpm")]
mod rpm;
mod speed_page;
#[cfg(feature = "rpm")]
mod tls;
