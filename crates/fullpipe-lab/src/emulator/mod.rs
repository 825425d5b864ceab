//! The path between the ends, in real time.
//!
//! Frames come off one interface with the kernel's time stamp, each segment goes through the elements of
//! `fullpipe-path` in virtual time, and what comes out is sent on the other interface when the clock gets
//! there. Because arrival times are the kernel's and departures are computed from them, reading a frame
//! late changes neither queue nor delay; only sending late does, and [`Audit`] keeps account of that.

mod access;
mod arrivals;
mod audit;
mod clock;
mod direction;
mod parcels;
mod port;
mod rtt;
mod worker;

pub(crate) use access::Access;
pub(crate) use audit::{Audit, micros};
pub(crate) use clock::Clock;
pub(crate) use direction::{FIRST_PORT, Known};
pub(crate) use port::Attachment;
pub(crate) use rtt::Views;
pub(crate) use worker::{Emulator, EmulatorReport, LinkReport, Plan};
