//! Congestion controllers for any transport: sans-IO, `no_std`, no allocation, no floating point.
//!
//! BBR v1 and v3, CUBIC, NewReno and Hybla behind one interface. A transport owns its packets,
//! clocks and loss detection. It keeps one [`ControllerSpec`], the choice of a controller and its
//! settings, and per connection one [`SendController`], which combines a delivery-rate [`Sampler`],
//! a [`Pacer`], Proportional Rate Reduction ([`Prr`]) and a [`Controller`] (or any other
//! [`CongestionControl`]); it stores the returned [`Stamp`] with each packet and reports events.
//! Here a sender fills a path of 10 Mbit/s and 40 ms; `flight` is both its list of unacknowledged
//! packets and the network.
//!
//! ```
//! use fullpipe_cc::*;
//! use std::collections::VecDeque;
//!
//! let spec = ControllerSpec::parse("bbr:probe_rtt_ms=200").unwrap();
//! let config = Config { seed: 7, ..Config::default() };
//! let mss = u64::from(config.smss);
//! let mut control = SendController::new(spec.build(&config), config.smss);
//! let (link, path_rtt) = (Rate::from_bits_per_sec(10_000_000), Span::from_millis(40));
//! let mut rtt = RttEstimator::new();
//! let mut flight: VecDeque<(Stamp, Time)> = VecDeque::new(); // with the arrival of its ACK
//! let (mut now, mut link_free, end) = (Time::ZERO, Time::ZERO, Time::ZERO + Span::from_secs(10));
//! while now < end {
//!     let inflight = flight.len() as u64 * mss;
//!     let open = inflight + mss <= control.window();
//!     if open && control.ready(now) {
//!         let stamp = control.on_sent(now, mss, inflight, false);
//!         control.on_batch_sent(now, mss, 1);
//!         link_free = link_free.max(now) + link.time_to_send(mss);
//!         flight.push_back((stamp, link_free + path_rtt));
//!         continue;
//!     }
//!     // Nothing may leave: wait for the pacer or for an ACK.
//!     let ack_at = flight.front().map_or(Time::NEVER, |&(_, at)| at);
//!     now = if open { ack_at.min(control.next_departure()) } else { ack_at };
//!     if now < ack_at {
//!         continue;
//!     }
//!     let (stamp, _) = flight.pop_front().unwrap();
//!     let mut event = control.begin_ack(inflight);
//!     control.on_acked(&mut event, now, mss, &stamp);
//!     rtt.on_sample(now - stamp.sent_at, Span::ZERO);
//!     let report = AckReport {
//!         rtt: rtt.latest(),
//!         srtt: rtt.smoothed(),
//!         min_rtt: rtt.min(),
//!         cwnd_limited: !open,
//!         ..AckReport::at(now, inflight - mss)
//!     };
//!     control.finish_ack(event, &report);
//! }
//! let goodput = Rate::from_bytes_in(control.delivered(), now - Time::ZERO);
//! assert!(goodput > Rate::from_bits_per_sec(9_600_000), "{goodput:?}");
//! assert_eq!(control.controller().state(), "ProbeBW");
//! ```
//! Without text, controllers are built from typed parameters:
//!
//! ```
//! use fullpipe_cc::bbr::v3::{Bbr3, Params};
//! use fullpipe_cc::{Config, ControllerSpec};
//!
//! let params = Params { beta_percent: 50, ..Params::DRAFT };
//! let bbr = Bbr3::new(&Config::default(), params); // the type itself: no dispatch
//! let spec = ControllerSpec::bbr3(params.into());
//! assert_eq!(spec, ControllerSpec::parse("bbr3:beta_percent=50").unwrap());
//! ```
//! A transport with its own sampler or pacer calls the controller directly: on loss
//! [`on_lost`](CongestionControl::on_lost) for each packet, then
//! [`on_recovery`](CongestionControl::on_recovery) when recovery starts, a timeout fires, recovery
//! ends or turns out to be spurious, and then `on_ack`.
//!
//! # QUIC stacks
//!
//! Their callbacks report less than TCP knows. [`RttEstimator`], [`RecoveryEpisode`],
//! [`WindowLimited`] and `Flight` fill the gaps; [`SendController`] says which calls QUIC makes.
//!
//! # Features
//!
//! None is enabled by default. `alloc`: `Flight`, `ControllerSpec` from a text with an error that
//! owns its message, and the trait for `Box<dyn CongestionControl>`.
//! `std`: also conversions between [`Time`] and `std::time::Instant`. `linux`: Linux's other
//! thirteen controllers (module `linux`).
//!
//! # Numbers
//!
//! The interface counts bytes and nanoseconds; bytes are whatever the window counts (for QUIC the
//! UDP payload, with headers and tag); gains are in 1/256. Controllers that exist in
//! Linux use Linux's arithmetic in packets and ticks, so that results are identical. The same calls
//! give the same results on every machine.
//!
//! # A new controller
//!
//! One file (or folder) that implements [`CongestionControl`] (or, if it only grows a window
//! differently, [`loss_based::Growth`]) and [`registry::Build`], and one line in [`registry`]. In a
//! separate crate it needs no registration: pass it to the simulator with
//! `fullpipe_sim::Controllers::with`; `examples/outside-controller` in the repository races one in
//! under seventy lines.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod bbr;
mod control;
pub mod cubic;
pub mod fixed;
pub mod hybla;
mod jiffies;
#[cfg(feature = "linux")]
pub mod linux;
pub mod loss_based;
pub mod minmax;
pub mod pacer;
mod packets;
mod prr;
mod random;
pub mod registry;
pub mod reno;
mod sampler;
mod send_controller;
mod transport;

pub use control::{
    Ack, Config, CongestionControl, Lost, Recovery, RecoveryContext, RecoveryState, Sent, Snapshot,
};
pub use fullpipe_units::{Gain, Rate, Span, Time};
pub use minmax::MinMax;
pub use pacer::Pacer;
pub use prr::Prr;
#[cfg(feature = "alloc")]
pub use registry::ParseSpecError;
pub use registry::{BuildError, CONTROLLERS, Controller, ControllerSpec};
pub use sampler::{RateSample, Sampler, Stamp};
pub use send_controller::{AckEvent, AckReport, Event, LossEvent, SendController};
pub use transport::{EpisodeChange, RecoveryEpisode, RttEstimator, WindowLimited};
#[cfg(feature = "alloc")]
pub use transport::{Flight, Packet};
