//! Interfaces of the Linux kernel for TCP and networking.
//!
//! * [`tcp_info`]: a socket's `TCP_INFO`, `TCP_CC_INFO` and congestion controller
//!   (`TCP_CONGESTION`).
//! * [`socket`]: sockets step by step: options before connecting, timeouts, queue sizes, discarding
//!   data.
//! * [`closed`]: counters of a socket as it closes.
//! * [`sock_diag`]: all TCP sockets of a network namespace, in bounded memory.
//! * [`rtnetlink`], [`ethtool`]: links, addresses, routes, queueing disciplines, offloads.
//! * [`facts`]: available controllers, kernel version, configuration, clocks, CPU times.
//! * [`capabilities`]: drop capabilities, or keep them across exec.
//! * `confine` (a feature): sandboxing of servers.
//! * [`scheduler`]: scheduling policy of a thread.
//! * [`packets`]: packet capture, and frames sent and received beside the kernel's stack.
//! * [`netlink`]: the codec and the socket under these.
//! * [`printable`], [`terminal`]: escape untrusted text for terminals; terminal width.
//! * [`signals`], [`process`]: handle termination signals; signal a process by pidfd.
//!
//! ```
//! use fullpipe_kernel::tcp_info::{self, TcpInfo};
//! use std::net::{TcpListener, TcpStream};
//!
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let socket = TcpStream::connect(listener.local_addr()?)?;
//! tcp_info::pin(&socket, "reno")?;
//! assert_eq!(tcp_info::controller(&socket)?, "reno");
//!
//! let info = TcpInfo::query(&socket)?;
//! println!("cwnd {} segments, RTT {}", info.snd_cwnd, info.rtt);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! This crate contains mechanisms, not policy: it does not judge a kernel, measure, or change a
//! host by itself.

pub mod capabilities;
pub mod closed;
#[cfg(feature = "confine")]
pub mod confine;
pub mod ethtool;
pub mod facts;
pub mod local_name;
pub mod netlink;
pub mod packets;
pub mod printable;
pub mod process;
pub mod rtnetlink;
pub mod scheduler;
pub mod signals;
pub mod sock_diag;
pub mod socket;
mod sockopt;
pub mod tcp_info;
pub mod terminal;
