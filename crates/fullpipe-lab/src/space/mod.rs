//! The room the lab works in: a process of its own with its own users, network, processes and mounts.
//!
//! ```text
//! caller ── fork ── supervisor (new user namespace) ── fork ── init (new process, network and mount
//!                                                              namespaces): emulator, flows, commands
//! ```
//! Nobody needs to be root for it, and nothing can be left behind: each process dies with its parent
//! (`PR_SET_PDEATHSIG`), the death of `init` kills every process of its namespace, and with the last
//! process the kernel removes the namespaces and the interfaces in them. That holds for SIGKILL too.

mod enclosure;
mod end;
mod identity;
mod outer;
mod sysctl;
mod topology;

pub(crate) use enclosure::{Enclosure, Message, Outbox, remount_proc};
pub(crate) use end::End;
pub(crate) use identity::raise_ambient_capabilities;
pub(crate) use outer::Outer;
pub(crate) use topology::{Addresses, CLIENT, SERVER, Topology, Use};
