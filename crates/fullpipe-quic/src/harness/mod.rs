//! Whole QUIC connections in virtual time: both ends of a stack without sockets, clocks and
//! encryption, as a [`Transport`](fullpipe_sim::Transport) of the simulator.

mod crypto;
mod frames;
mod log;
#[allow(clippy::duplicate_mod, reason = "shared sources find the stack's types in their parent")]
mod noq;
mod noq_bbr3;
mod pair;
#[allow(clippy::duplicate_mod, reason = "shared sources find the stack's types in their parent")]
mod quinn;
mod stacks;

pub use pair::Rebinding;
pub use stacks::{Options, Stacks};
