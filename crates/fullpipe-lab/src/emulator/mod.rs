//! The path between the ends, in real time.
//!
//! Frames are read from one interface with the kernel's timestamps, each segment passes the
//! elements of `fullpipe-path` in virtual time, and is sent on the other interface when the clock
//! reaches its departure time. Because arrival times are the kernel's and departures are computed
//! from them, reading a frame late changes neither queue nor delay; only sending late does, which
//! [`Audit`] measures.

mod access;
mod arrivals;
mod audit;
mod clock;
mod direction;
mod frames;
mod port;
mod rtt;
mod worker;

pub(crate) use access::Access;
pub(crate) use audit::{Audit, micros};
pub(crate) use clock::Clock;
pub(crate) use direction::{FIRST_PORT, KnownFlows};
pub(crate) use port::Attachment;
pub(crate) use rtt::Views;
pub(crate) use worker::{Emulator, EmulatorReport, LinkReport, Plan};
