//! State of one TCP socket, and its congestion controller.
//!
//! Newer kernels append fields to `struct tcp_info` and return the length they filled in; fields
//! that the running kernel lacks are `None`, not zero.
//! Sources: `include/uapi/linux/tcp.h`, `include/uapi/linux/inet_diag.h`, `tcp_get_info` in
//! `net/ipv4/tcp.c`.

mod bbr;
mod cc_info;
mod controller;
mod info;

pub use bbr::{PathSender, V3_LOSS_THRESHOLD, bbr_version, bbr_versions};
pub use cc_info::{Bbr3Info, BbrInfo, BbrMode, BbrPhase, CcInfo, DctcpInfo, VegasInfo};
pub use controller::{EBPF_CONTROLLERS, LINUX_CONTROLLERS, PinError, check_name, controller, pin};
pub use info::{CaState, State, TcpInfo};
