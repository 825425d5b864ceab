//! The kernel's network state by netlink: queueing disciplines and routes (rtnetlink), TCP sockets (sock_diag),
//! offloads of devices (ethtool).
//!
//! Only what this crate asks for, over safe system calls: eight kinds of message did not justify an asynchronous
//! library. Message layouts are those of the kernel's `include/uapi/linux/{netlink,rtnetlink,pkt_sched,inet_diag,tcp,genetlink,ethtool_netlink}.h`.

mod diag;
mod features;
mod qdisc;
mod route;
mod wire;

pub use diag::{BbrState, TcpSocket, parse_socket, sockets};
pub use features::{DeviceFeatures, features, parse_features};
pub use qdisc::{QdiscNode, QdiscOperation, ROOT, change_qdisc, parse_qdisc, qdiscs};
pub use route::{CongestionRoute, change_route, congestion_routes, parse_route, route_towards};
pub use wire::{Attributes, hex, unhex};
