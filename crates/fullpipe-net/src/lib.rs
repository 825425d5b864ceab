//! TCP on real networks: what a socket is doing, and measurements of it.
//!
//! [`tcp_info`] reads what the kernel knows about a TCP socket (`TCP_INFO`, `TCP_CC_INFO`) and pins its
//! congestion controller (`TCP_CONGESTION`), with no dependency beyond the C library:
//!
//! ```
//! use fullpipe_net::tcp_info::{self, TcpInfo};
//! use std::net::{TcpListener, TcpStream};
//!
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let socket = TcpStream::connect(listener.local_addr()?)?;
//! tcp_info::pin(&socket, "reno")?;
//! assert_eq!(tcp_info::controller(&socket)?, "reno");
//!
//! let info = TcpInfo::of(&socket)?;
//! println!("cwnd {} segments, RTT {}", info.snd_cwnd, info.rtt);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! With the default feature `measure` there are a [`server`] and a [`client`] that speak iperf3's protocol
//! and more, downloads ([`get`]), comparisons of controllers with statistics ([`compare`]), and the answer
//! to what limits a transfer ([`diagnose`]):
//!
//! ```
//! # #[cfg(feature = "measure")] {
//! use fullpipe_net::client::{self, Config};
//! use fullpipe_net::iperf3::Params;
//! use fullpipe_net::server::{self, Server};
//! use std::sync::atomic::AtomicBool;
//!
//! let server = Server::bind(server::Config { port: 0, ..Default::default() }, |event| eprintln!("{event}"))?;
//! let (port, handle) = (server.address().port(), server.handle());
//! let serving = std::thread::spawn(move || server.run());
//!
//! let params = Params { bytes: 10_000_000, seconds: 0, congestion: Some("reno".into()), ..Params::default() };
//! let config = Config { params, ..Config::new("localhost", port) };
//! let outcome = client::run(&config, &AtomicBool::new(false), &mut |_| {})?;
//! assert_eq!(outcome.sum(true).map(|sum| sum.received), Some(10_000_000));
//! assert_eq!(outcome.streams[0].controller.as_deref(), Some("reno"));
//!
//! handle.stop();
//! serving.join().unwrap()?;
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "measure")]
pub mod client;
#[cfg(feature = "measure")]
pub mod compare;
#[cfg(feature = "measure")]
pub mod control;
#[cfg(feature = "measure")]
pub mod diagnose;
#[cfg(feature = "measure")]
pub mod get;
#[cfg(feature = "measure")]
pub mod iperf3;
#[cfg(feature = "measure")]
pub mod recording;
pub mod sample;
#[cfg(feature = "measure")]
pub mod server;
#[cfg(feature = "measure")]
pub mod signals;
#[cfg(feature = "measure")]
pub mod sock_diag;
pub mod tcp_info;
#[cfg(feature = "measure")]
pub mod transfer;
