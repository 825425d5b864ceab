//! Netlink (RFC 3549): one codec and one socket type for all netlink protocols of this crate.
//!
//! [`Messages`] and [`Attributes`] are views over the kernel's bytes without allocation; they end
//! at the first malformed item. [`Request`] builds requests. [`Socket`] sends them and passes
//! replies on one by one, so that a table of any size is read with one buffer.

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

/// Request flag: replace an existing object.
pub const REPLACE: u16 = 0x100;
/// Request flag: fail if the object exists.
pub const EXCLUSIVE: u16 = 0x200;
/// Request flag: create the object if absent.
pub const CREATE: u16 = 0x400;

/// Attribute type flag: the value consists of attributes.
pub const NESTED: u16 = 0x8000;
