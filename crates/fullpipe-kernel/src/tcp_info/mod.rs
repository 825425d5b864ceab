//! What the kernel knows about one TCP socket, and which controller drives it.
//!
//! The kernel appends fields to `struct tcp_info` from time to time and tells how many bytes it filled in;
//! a field the running kernel does not have reads as `None` and not as zero.
//! Sources: `include/uapi/linux/tcp.h`, `include/uapi/linux/inet_diag.h`, `tcp_get_info` in `net/ipv4/tcp.c`.

mod cc_info;
mod controller;
mod info;

pub use cc_info::{Bbr3Info, BbrInfo, BbrMode, CcInfo, DctcpInfo, VegasInfo};
pub use controller::{EBPF_CONTROLLERS, LINUX_CONTROLLERS, PinError, controller, pin};
pub use info::{CaState, State, TcpInfo};
