//! Congestion controllers for a stock running kernel, as eBPF struct_ops programs.
//!
//! No kernel rebuild and no reboot: a controller is loaded, selected by sockets, and unloaded. This
//! crate reads what a loaded controller is used for (default, routes, units); `fullpipe-host`
//! changes it and keeps the journal.
//!
//! ```
//! use fullpipe_ebpf::Controller;
//!
//! let controller: Controller = "bbr1".parse()?;
//! assert_eq!(controller.name(), "fp_bbr1");
//! # Ok::<(), fullpipe_ebpf::Error>(())
//! ```
//!
//! # Cost
//! `cargo bench -p fullpipe-ebpf --bench kernel`, as root, over an unshaped veth pair between two
//! namespaces, both ends on one virtual machine of two processors (AMD EPYC, Linux 6.18).
//! Throughput and processor time are ratios to the kernel's bbr measured alternately: medians of 15
//! or 16 pairs of transfers on a quiet machine, quartiles in brackets. Kernel bbr reached 22.5
//! Gbit/s at 65.6 ms of processor time per gigabit.
//!
//! | controller | throughput | processor time per gigabit |
//! |---|---|---|
//! | kernel bbr (repeat) | 1.02 \[0.97, 1.04\] | 1.01 \[0.98, 1.04\] |
//! | fp_bbr1 | 1.00 \[0.96, 1.02\] | 1.02 \[0.98, 1.04\] |
//! | fp_bbr3 | 1.29 \[1.23, 1.36\] | 0.83 \[0.76, 0.84\] |
//! | kernel cubic | 0.99 \[0.84, 1.22\] | 1.08 \[0.88, 1.49\] |
//!
//! The callback per ACK takes, including two clock readings: 272 ns in kernel bbr's
//! `bbr_main`, 310 ns in fp_bbr1, 325 ns in fp_bbr3; kernel cubic's `cong_avoid` and `pkts_acked`
//! take 78 and 102 ns (medians of 10 transfers).
//!
//! 12 000 concurrent connections carried data with fp_bbr3; each takes 4.2 kB of kernel memory more
//! than with the kernel's bbr, fp_bbr1 or fp_hybla, whose state is inside the socket.

#[macro_use]
mod object;

pub mod calls;
pub mod closings;
mod controller;
mod error;
mod feature;
pub mod features;
pub mod kernel;
mod libbpf;
pub mod lifecycle;
mod listing;
pub mod load_options;
pub mod loader;
pub mod measured;
mod namespaces;
pub mod native;
pub mod oracle;
mod pinned;
pub mod pins;
pub mod policy;
mod ring;
pub mod settings;
pub mod sockets;
pub mod split;
mod storage;
pub mod usage;

pub use controller::Controller;
pub use error::{Error, Result};
