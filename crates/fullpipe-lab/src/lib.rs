//! Kernel TCP over an emulated path, without root.
//!
//! Two network namespaces are the ends of a path. A process between them reads every packet, passes
//! it through the elements of `fullpipe-path`, and sends it on when it is due. Both ends use the
//! running kernel's TCP.
//!
//! ```no_run
//! use fullpipe_lab::{Shell, shell};
//!
//! // Must come first: the lab re-executes this program as its own process.
//! fullpipe_lab::reenter();
//! let link: fullpipe_path::LinkSpec = serde_json::from_str(r#"{"rate": "50mbit", "delay": "20ms"}"#)?;
//! let report = shell(&Shell {
//!     forward: vec![link.clone()],
//!     reverse: vec![link],
//!     mtu: 1500,
//!     command: ["ping", "-c", "3", "198.18.0.2"].map(Into::into).to_vec(),
//!     ..Shell::default()
//! })?;
//! assert!(report.invalid_because.is_empty(), "the machine was too busy");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod capture;
mod emulator;
mod error;
mod flow;
mod health;
mod inspect;
mod kernel;
mod priority;
mod reenter;
mod run;
mod shell;
mod space;
mod waits;
mod wire;

pub use error::LabError;
pub use inspect::{ControllerState, Inspect, SocketCounters, Steer};
pub use kernel::{controllers, has_controller};
pub use reenter::{reenter, reenter_with};
pub use run::{Options, run, run_with};
pub use shell::{CLIENT_ADDRESS, LinkReport, SERVER_ADDRESS, Shell, ShellReport, shell};
use space::Outer;
pub use space::{INITIAL_BUFFER, max_buffer};
#[doc(hidden)]
pub use wire::read_and_cut;
