//! Netlink (RFC 3549): one codec and one socket for every protocol that this crate speaks.
//!
//! [`Messages`] and [`Attributes`] are views over bytes that the kernel wrote; they allocate nothing and end where the
//! bytes stop making sense. [`Request`] builds what is sent. [`Socket`] sends it and hands the answers on one by one,
//! so that a table of any size is read in the space of one buffer.

mod message;
mod request;
mod socket;

pub use message::{Attributes, Message, Messages, parse_c_string, u16_at, u32_at, u64_at};
pub use request::{Request, c_string, put_attribute};
pub use socket::{Dump, DumpItem, Protocol, Socket};

/// `struct nlmsghdr`.
const HEADER: usize = 16;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSG_OVERRUN: u16 = 4;

const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_DUMP: u16 = 0x300;

/// Of a request: takes the place of what is there.
pub const REPLACE: u16 = 0x100;
/// Of a request: fails if it is there.
pub const EXCLUSIVE: u16 = 0x200;
/// Of a request: makes it if it is not there.
pub const CREATE: u16 = 0x400;

/// The bit of an attribute's type that says that its value is attributes.
pub const NESTED: u16 = 0x8000;
