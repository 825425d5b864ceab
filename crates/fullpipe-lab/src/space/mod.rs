//! The lab's isolation: a separate process with its own user, network, process and mount
//! namespaces.
//!
//! ```text
//! caller ── exec ── supervisor (new user namespace) ── fork ── init (new process, network and mount
//!                                                              namespaces): emulator, flows, commands
//! ```
//! The supervisor is the caller's program, re-executed ([`reenter`](crate::reenter)): it has one
//! thread when it creates namespaces and forks, however many the caller has. It does not need root,
//! and leaves nothing behind: each process dies with its parent (`PR_SET_PDEATHSIG`), the death of
//! `init` kills every process of its namespace, and with the last process the kernel removes the
//! namespaces and their interfaces. This also holds for SIGKILL.

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
