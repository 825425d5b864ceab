//! Congestion controllers for any transport: sans-IO, `no_std`, no allocation, no floating point.
//!
//! BBR v1 and v3, CUBIC, NewReno and Hybla behind one interface. A transport owns its packets, clocks
//! and loss detection; it keeps one [`Sampler`], one [`Pacer`] and one [`Controller`] (or any other
//! [`CongestionControl`]) a connection, stores the [`Stamp`] the sampler gives it with each packet,
//! and makes one call for each thing that happens.
//!
//! Here a sender fills a path of 10 Mbit/s and 40 ms; `flight` is at once its list of unacknowledged
//! packets and the network.
//!
//! ```
//! use fullpipe_cc::*;
//! use std::collections::VecDeque;
//!
//! let config = Config::default();
//! let mss = u64::from(config.smss);
//! let mut cc = Controller::new("bbr", &config, &[("probe_rtt_ms", "200")]).unwrap();
//! let (mut sampler, mut pacer) = (Sampler::new(), Pacer::new());
//! let (link, rtt) = (Rate::from_bits_per_sec(10_000_000), Span::from_millis(40));
//! let mut flight: VecDeque<(Stamp, Time)> = VecDeque::new(); // with the arrival of its ACK
//! let (mut now, mut link_free, end) = (Time::ZERO, Time::ZERO, Time::ZERO + Span::from_secs(10));
//! cc.on_handshake(now, rtt);
//! while now < end {
//!     let inflight = flight.len() as u64 * mss;
//!     let open = inflight + mss <= cc.cwnd();
//!     if open && pacer.ready(now) {
//!         let (app_limited, delivered) = (sampler.is_app_limited(), sampler.delivered());
//!         cc.on_send(&Sent { now, bytes: mss, inflight, app_limited, delivered, retransmit: false });
//!         let stamp = sampler.on_sent(now, mss, inflight);
//!         pacer.on_sent(now, mss, 1, cc.pacing_rate());
//!         link_free = link_free.max(now) + link.time_to_send(mss);
//!         flight.push_back((stamp, link_free + rtt));
//!         continue;
//!     }
//!     // Nothing may leave: wait for the pacer or for an ACK.
//!     let ack_at = flight.front().map_or(Time::NEVER, |&(_, at)| at);
//!     now = if open { ack_at.min(pacer.next_departure()) } else { ack_at };
//!     if now < ack_at {
//!         continue;
//!     }
//!     let (stamp, _) = flight.pop_front().unwrap();
//!     sampler.begin_ack();
//!     sampler.on_acked(now, mss, &stamp);
//!     cc.on_ack(&Ack {
//!         sample: sampler.finish_ack(now, Some(rtt)),
//!         rtt: Some(now - stamp.sent_at),
//!         srtt: Some(rtt),
//!         newly_acked: mss,
//!         inflight_before: inflight,
//!         inflight: inflight - mss,
//!         delivered: sampler.delivered(),
//!         cwnd_limited: !open,
//!         next_departure: pacer.next_departure(),
//!         ..Ack::at(now)
//!     });
//!     if cc.marks_app_limited() {
//!         sampler.mark_app_limited(inflight - mss);
//!     }
//! }
//! let goodput = Rate::from_bytes_in(sampler.delivered(), now - Time::ZERO);
//! assert!(goodput > Rate::from_bits_per_sec(9_600_000), "{goodput}");
//! assert_eq!(cc.snapshot().state, "ProbeBW");
//! ```
//!
//! On loss a transport calls [`on_lost`](CongestionControl::on_lost) for each packet, then
//! [`on_recovery`](CongestionControl::on_recovery) when recovery begins, a time-out strikes, recovery
//! ends or proves to have been unnecessary, and only then `on_ack`. While a controller
//! [`uses_prr`](CongestionControl::uses_prr), [`Prr`] says how much to send during a fast recovery.
//!
//! # Numbers
//!
//! The interface counts bytes and nanoseconds; gains are in 1/256. Controllers that exist in Linux
//! compute as Linux does, in packets and ticks, so that their results are equal, not similar. The
//! same calls give the same results on every machine.
//!
//! # A new controller
//!
//! One file (or folder) that implements [`CongestionControl`] (or, if it only grows a window
//! differently, [`loss_based::Growth`]) and [`registry::Build`], and one line in [`registry`].
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod bbr;
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

pub use control::{
    Ack, Config, CongestionControl, Lost, Recovery, RecoveryContext, RecoveryState, Sent, Snapshot,
};
pub use fullpipe_units::{Gain, Rate, Span, Time};
pub use minmax::MinMax;
pub use pacer::Pacer;
pub use prr::Prr;
pub use registry::{BuildError, CONTROLLERS, Controller};
pub use sampler::{RateSample, Sampler, Stamp};
