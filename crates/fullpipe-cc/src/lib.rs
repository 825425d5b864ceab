//! Congestion controllers for any transport: sans-IO, `no_std`, no allocation, no floating point.
//!
//! BBR v1 and v3, CUBIC, NewReno and Hybla behind one interface. A transport owns its packets,
//! clocks and loss detection. Per connection it keeps one [`Connection`], which combines a
//! delivery-rate [`Sampler`], a [`Pacer`], Proportional Rate Reduction ([`Prr`]) and a
//! [`Controller`] (or any other [`CongestionControl`]); it stores the returned [`Stamp`] with each
//! packet and reports events. Here a sender fills a path of 10 Mbit/s and 40 ms; `flight` is both
//! its list of unacknowledged packets and the network.
//!
//! ```
//! use fullpipe_cc::*;
//! use std::collections::VecDeque;
//!
//! let config = Config::default();
//! let mss = u64::from(config.smss);
//! let bbr = Controller::new("bbr", &config, &[("probe_rtt_ms", "200")]).unwrap();
//! let mut connection = Connection::new(bbr, config.smss);
//! let (link, rtt) = (Rate::from_bits_per_sec(10_000_000), Span::from_millis(40));
//! let mut flight: VecDeque<(Stamp, Time)> = VecDeque::new(); // with the arrival of its ACK
//! let (mut now, mut link_free, end) = (Time::ZERO, Time::ZERO, Time::ZERO + Span::from_secs(10));
//! connection.on_handshake(now, rtt);
//! while now < end {
//!     let inflight = flight.len() as u64 * mss;
//!     let open = inflight + mss <= connection.window();
//!     if open && connection.ready(now) {
//!         let stamp = connection.on_sent(now, mss, inflight, false);
//!         connection.on_batch_sent(now, mss, 1);
//!         link_free = link_free.max(now) + link.time_to_send(mss);
//!         flight.push_back((stamp, link_free + rtt));
//!         continue;
//!     }
//!     // Nothing may leave: wait for the pacer or for an ACK.
//!     let ack_at = flight.front().map_or(Time::NEVER, |&(_, at)| at);
//!     now = if open { ack_at.min(connection.next_departure()) } else { ack_at };
//!     if now < ack_at {
//!         continue;
//!     }
//!     let (stamp, _) = flight.pop_front().unwrap();
//!     connection.begin_ack(inflight);
//!     connection.on_acked(now, mss, &stamp);
//!     connection.finish_ack(&AckReport {
//!         rtt: Some(now - stamp.sent_at),
//!         srtt: Some(rtt),
//!         min_rtt: Some(rtt),
//!         cwnd_limited: !open,
//!         ..AckReport::at(now, inflight - mss)
//!     });
//! }
//! let goodput = Rate::from_bytes_in(connection.delivered(), now - Time::ZERO);
//! assert!(goodput > Rate::from_bits_per_sec(9_600_000), "{goodput:?}");
//! assert_eq!(connection.controller().state(), "ProbeBW");
//! ```
//! A transport with its own sampler or pacer calls the controller directly: on loss
//! [`on_lost`](CongestionControl::on_lost) for each packet, then
//! [`on_recovery`](CongestionControl::on_recovery) when recovery starts, a timeout fires, recovery
//! ends or turns out to be spurious, and then `on_ack`.
//!
//! # Numbers
//!
//! The interface counts bytes and nanoseconds; gains are in 1/256. Controllers that exist in
//! Linux use Linux's arithmetic in packets and ticks, so that results are identical. The same calls
//! give the same results on every machine.
//!
//! # A new controller
//!
//! One file (or folder) that implements [`CongestionControl`] (or, if it only grows a window
//! differently, [`loss_based::Growth`]) and [`registry::Build`], and one line in [`registry`]. In a
//! separate crate it needs no registration: pass it to the simulator with
//! `fullpipe_sim::Controllers::with`; `examples/outside-controller` in the repository races one in
//! sixty lines.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod bbr;
mod connection;
mod control;
pub mod cubic;
pub mod fixed;
pub mod hybla;
mod jiffies;
pub mod loss_based;
pub mod minmax;
pub mod pacer;
mod packets;
mod prr;
mod random;
pub mod registry;
pub mod reno;
mod sampler;

pub use connection::{AckReport, Connection};
pub use control::{
    Ack, Config, CongestionControl, Lost, Recovery, RecoveryContext, RecoveryState, Sent, Snapshot,
};
pub use fullpipe_units::{Gain, Rate, Span, Time};
pub use minmax::MinMax;
pub use pacer::Pacer;
pub use prr::Prr;
pub use registry::{BuildError, CONTROLLERS, Controller};
pub use sampler::{RateSample, Sampler, Stamp};
