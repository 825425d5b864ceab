//! What Linux says of TCP, and what it takes.
//!
//! * [`tcp_info`]: one socket of one's own: `TCP_INFO`, `TCP_CC_INFO`, and its controller (`TCP_CONGESTION`).
//! * [`socket`]: sockets step by step, connected within a time; what waits at one is counted, or thrown away.
//! * [`closed`]: what it said of a socket as that closed.
//! * [`sock_diag`]: everybody's sockets, one after the other, in bounded memory.
//! * [`rtnetlink`], [`ethtool`]: links, addresses, routes, queueing disciplines, offloads.
//! * [`facts`]: the controllers that the running kernel offers, its version, configuration and clock.
//! * [`capabilities`]: what a thread may do, given up or handed on.
//! * `confine` (a feature): what a server gives up once it is set up.
//! * [`scheduler`]: when a thread has its turn.
//! * [`packets`]: packets as they pass an interface, for who looks on or stands between.
//! * [`netlink`]: the codec and the socket under these.
//! * [`printable`], [`terminal`]: what others said, as a terminal may show it; how wide that is.
//! * [`signals`], [`process`]: being asked to end, and asking another.
//! * [`xattr`]: extended attributes of files.
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
//! Nothing here knows what it is for: what is good or bad about a kernel, who measures, who changes a host.

pub mod capabilities;
pub mod closed;
#[cfg(feature = "confine")]
pub mod confine;
pub mod ethtool;
pub mod facts;
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
pub mod xattr;
