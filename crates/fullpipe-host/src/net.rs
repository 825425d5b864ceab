//! Network state for checks and changes: queueing disciplines, routes, TCP sockets and offloads,
//! read through `fullpipe-kernel`.

mod diag;

pub use diag::{BbrState, TcpSocket, sockets};
pub use fullpipe_kernel::ethtool::{DeviceFeatures, features};
pub use fullpipe_kernel::rtnetlink::{
    CongestionRoute, KeyedRoute, LOCAL_TABLE, MAIN_TABLE, QdiscNode, QdiscOperation, ROOT, RouteController,
    RouteKey, RouteLimits, RoutesLeft, Rtnetlink, destination, hex, unhex,
};
