//! The room the lab works in: a process of its own with its own users, network, processes and mounts.
//!
//! ```text
//! caller ── exec ── supervisor (new user namespace) ── fork ── init (new process, network and mount
//!                                                              namespaces): emulator, flows, commands
//! ```
//! The supervisor is the caller's own program, started again ([`reenter`](crate::reenter)): it has one thread when it makes
//! namespaces and forks, however many the caller has. Nobody needs to be root for it, and nothing can be left behind: each process dies with its parent
//! (`PR_SET_PDEATHSIG`), the death of `init` kills every process of its namespace, and with the last
//! process the kernel removes the namespaces and the interfaces in them. That holds for SIGKILL too.

mod enclosure;
mod end;
mod identity;
mod outer;
mod supervisor;
mod sysctl;
mod topology;

pub(crate) use enclosure::{Enclosure, Message};
pub(crate) use end::End;
pub(crate) use identity::raise_ambient_capabilities;
pub(crate) use outer::Outer;
pub(crate) use supervisor::{ENTRY, Line, Outbox, remount_proc, supervise};
pub(crate) use topology::{Addresses, CLIENT, SERVER, Topology, Use};
pub use topology::{INITIAL_BUFFER, max_buffer};
