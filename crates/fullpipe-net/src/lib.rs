//! TCP measurements on real networks.
//!
//! A [`server`] and a [`client`] that speak iperf3's protocol, extensions of it and [`iperf2`], downloads
//! ([`get`]), comparisons of controllers with statistics ([`compare`]), responsiveness under load
//! (`rpm`, with the feature of that name), and diagnosis of what limits a transfer ([`diagnose`]).
//! Socket state and controllers come from `fullpipe-kernel`.
//!
//! ```
//! use fullpipe_net::client::{self, Config};
//! use fullpipe_net::iperf3::Params;
//! use fullpipe_net::server::{self, Server};
//! use std::sync::atomic::AtomicBool;
//!
//! let config = server::Config { port: 0, ..Default::default() };
//! let server = Server::bind(config, |event| eprintln!("{event}"))?;
//! let (port, handle) = (server.address().port(), server.handle());
//! let serving = std::thread::spawn(move || server.run());
//!
//! let congestion = Some("reno".into());
//! let params = Params { bytes: 10_000_000, seconds: 0, congestion, ..Params::default() };
//! let config = Config { params, ..Config::new("localhost", port) };
//! let outcome = client::run(&config, &AtomicBool::new(false), &mut |_| {})?;
//! assert_eq!(outcome.sum(true).and_then(|sum| sum.received), Some(10_000_000));
//! assert_eq!(outcome.streams[0].controller.as_deref(), Some("reno"));
//!
//! handle.stop();
//! serving.join().unwrap()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod account;
pub mod client;
pub mod compare;
pub mod control;
pub mod diagnose;
mod foreign;
pub mod get;
pub mod http;
#[cfg(feature = "rpm")]
mod http2_error;
pub mod iperf2;
pub mod iperf3;
pub use fullpipe_kernel::{printable, signals};
pub mod recording;
#[cfg(feature = "rpm")]
pub mod rpm;
pub mod sample;
pub mod server;
pub mod transfer;
#[cfg(feature = "rpm")]
mod unbuffered;
