//! The kernel's network state by netlink: queueing disciplines and routes (rtnetlink), TCP sockets (sock_diag).
//!
//! Only what this crate asks for, over safe system calls: six kinds of message did not justify an asynchronous
//! library. Message layouts are those of the kernel's `include/uapi/linux/{netlink,rtnetlink,pkt_sched,inet_diag,tcp}.h`.

mod diag;
mod qdisc;
mod route;
mod wire;

pub use diag::{BbrState, TcpSocket, parse_socket, sockets};
pub use qdisc::{QdiscNode, QdiscOperation, ROOT, change_qdisc, parse_qdisc, qdiscs};
pub use route::{CongestionRoute, change_route, congestion_routes, parse_route, route_towards};
pub use wire::{Attributes, hex, unhex};
