//! The kernel's network state as this crate's checks and changes see it: queueing disciplines and routes, TCP sockets,
//! offloads of devices. The kernel is asked through `fullpipe-kernel`.

mod diag;

pub use diag::{BbrState, TcpSocket, sockets};
pub use fullpipe_kernel::ethtool::{DeviceFeatures, features};
pub use fullpipe_kernel::rtnetlink::{
    CongestionRoute, KeyedRoute, LOCAL_TABLE, MAIN_TABLE, QdiscNode, QdiscOperation, ROOT, RouteController,
    RouteKey, Rtnetlink, destination, hex, unhex,
};
