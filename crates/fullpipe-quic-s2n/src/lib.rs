//! fullpipe's congestion controllers in [s2n-quic](https://docs.rs/s2n-quic): BBR v1 and v3, CUBIC, NewReno
//! and Hybla.
//!
//! One dependency, one `use`, one line in the provider configuration of a server or client:
//!
//! ```
//! use fullpipe_quic_s2n::{ControllerSpec, Endpoint};
//!
//! # fn configure() -> Result<(), Box<dyn std::error::Error>> {
//! let server = s2n_quic::Server::builder()
//!     .with_congestion_controller(Endpoint::new(ControllerSpec::parse("bbr3")?))?;
//! # Ok(())
//! # }
//! # configure().unwrap();
//! ```
//! A specification is a controller's name, with settings if needed: `bbr3:beta_percent=50,ecn=off`.
//!
//! # Missing events
//!
//! s2n-quic does not report all that a controller uses. This crate reconstructs the rest outside the
//! controller:
//!
//! - not reported: reconstructed from; cost
//! - end of recovery: transmission numbers in [`PacketInfo`] and the fixed packet threshold of
//!   3 (RFC 9002 §6.1.1), as fullpipe's simulated TCP ends it; recovery ends at most three
//!   packets late
//! - acknowledged packets one by one: the newest packet and the sum of bytes; none: delivery-
//!   rate samples use the newest packet
//! - the ACK that revealed losses, at the time of the losses: losses wait for an ACK with the
//!   same timestamp; after a loss timer, the window falls with the next packet: one packet, as
//!   RFC 9002 §7.3.2 allows
//! - whether the window limited sending: whether the window had room after each packet; none
//! - spurious losses: nothing; an unnecessary reduction is not undone; reordering beyond 3
//!   packets or 9/8 of the round-trip time costs throughput
//! - probe timeouts: nothing; a timeout has no effect until packets are declared lost (RFC 9002
//!   §6.2)
//! - limits by flow control: counted as application-limited; BBR does not raise its estimate:
//!   set receive windows above 3 BDP
//! - MTU probes, retransmissions: counted as new data; none that was measurable
//! - packet sent time below 1 ms: s2n-quic sends up to 1 ms before the departure time; bursts
//!   of 1 ms at the pacing rate
//!
//! Controllers without a pacing rate (CUBIC, NewReno, Hybla) are paced by their window, as RFC 9002 §7.7
//! requires.
#![forbid(unsafe_code)]

mod controller;
mod observer;

pub use controller::{Controller, PacketInfo};
pub use fullpipe_cc::ControllerSpec;
pub use observer::Observation;

/// The controllers, their settings and the types of [`Observation`].
pub use fullpipe_cc;

use fullpipe_cc::Config;
use observer::Observer;
use s2n_quic_core::recovery::congestion_controller as s2n;
use std::hash::{BuildHasher, RandomState};

/// Builds the controllers of an endpoint: one for each path of each connection.
#[derive(Debug)]
pub struct Endpoint {
    spec: ControllerSpec,
    seed: u64,
    paths: u64,
    observer: Observer,
}

impl Endpoint {
    /// An endpoint whose paths are controlled by `spec`. Random numbers differ from process to process, see
    /// [`with_seed`](Self::with_seed).
    pub fn new(spec: ControllerSpec) -> Self {
        let seed = RandomState::new().hash_one("fullpipe");
        Endpoint { spec, seed, paths: 0, observer: Observer::default() }
    }

    /// Seeds the controllers' random numbers (BBR's probing times). Path `n` of the endpoint, from 0, uses
    /// `seed + n`.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Endpoint { seed, ..self }
    }

    /// Calls `observer` after each ACK with the path's index, from 0 in the order of their creation, and its
    /// state. It runs on the endpoint's thread: a slow observer delays every connection.
    #[must_use]
    pub fn with_observer(self, observer: impl Fn(u64, &Observation) + Send + Sync + 'static) -> Self {
        Endpoint { observer: Observer::new(observer), ..self }
    }
}

impl s2n::Endpoint for Endpoint {
    type CongestionController = Controller;

    fn new_congestion_controller(&mut self, path: s2n::PathInfo) -> Controller {
        let mss = u32::from(path.max_datagram_size).max(1);
        let config = Config {
            smss: mss,
            initial_cwnd: initial_window(mss),
            seed: self.seed.wrapping_add(self.paths),
            selective_acks: true,
            paced: true,
        };
        let observer = self.observer.for_path(self.paths);
        self.paths += 1;
        Controller::new(self.spec.build(&config), &config, observer)
    }
}

/// The initial window in bytes (RFC 9002 §7.2).
fn initial_window(mss: u32) -> u64 {
    u64::from(10 * mss).min(u64::from(2 * mss).max(14_720))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initial_window_is_that_of_rfc_9002() {
        assert_eq!([1200, 1472, 8972].map(initial_window), [12_000, 14_720, 17_944]);
    }

    #[test]
    fn invalid_specifications_are_refused_before_any_connection() {
        assert!(ControllerSpec::parse("bbr9").is_err());
        assert!(ControllerSpec::parse("bbr3:colour=red").is_err());
    }
}
