//! Congestion controllers for a stock running kernel, as eBPF struct_ops programs.
//!
//! No rebuilt kernel and no reboot: a controller is loaded, chosen by sockets, and unloaded.
//!
//! ```
//! use fullpipe_ebpf::Controller;
//!
//! let controller: Controller = "bbr1".parse()?;
//! assert_eq!(controller.name(), "fp_bbr1");
//! # Ok::<(), fullpipe_ebpf::Error>(())
//! ```

mod controller;
mod error;
pub mod kernel;
pub mod life;
pub mod loader;
pub mod measured;
pub mod namespaces;
pub mod native;
pub mod oracle;
pub mod persist;
pub mod pins;
pub mod sockets;
pub mod usage;

pub use controller::Controller;
pub use error::{Error, Result};
