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
