//! fullpipe's congestion controllers in [noq](https://docs.rs/noq) and
//! [noq-proto](https://docs.rs/noq-proto).
//!
//! ```
//! use fullpipe_quic::{ControllerSpec, noq::Factory};
//! use std::sync::Arc;
//!
//! # fn configure() -> Result<(), Box<dyn std::error::Error>> {
//! let mut transport = noq_proto::TransportConfig::default();
//! transport.congestion_controller_factory(Arc::new(Factory::new(ControllerSpec::parse("bbr3")?)));
//! # Ok(())
//! # }
//! # configure().unwrap();
//! ```
//! noq's pacer sends at the controller's rate. Controllers without a rate (CUBIC, NewReno, Hybla)
//! are paced by noq, at 1.25 windows per round trip.

use noq_proto as proto;

#[path = "factory.rs"]
mod factory;

pub use factory::{Controller, Factory};

use crate::adapter::InFlight;
use fullpipe_cc::{Flight, Packet, Time};
use proto::RttEstimator;
use proto::congestion::{self, ControllerMetrics};
use std::any::Any;
use std::time::Instant;

type InFlightPackets = Packets;
const NAME: &str = "fullpipe_quic::noq::Controller";
/// noq's pacer takes the controller's rate.
const PACED: bool = true;

/// The packets in flight, and those of the transmit in progress.
#[derive(Clone, Default, Debug)]
pub(crate) struct Packets {
    flight: Flight,
    /// Bytes and number of packets that were sent since the last complete transmit.
    batch: (u64, u64),
}

impl InFlight for Packets {
    fn oldest(&self) -> Option<u64> {
        self.flight.iter().next().map(|packet| packet.stamp.id)
    }

    fn discard_sent_before(&mut self, at: Time) -> u64 {
        self.flight.discard_sent_before(at)
    }
}

/// Removes the packet with a number that several packet number spaces may use: during the
/// handshake, the oldest of this size.
fn remove_lost(flight: &mut Flight, number: u64, bytes: u64) -> Option<Packet> {
    let found = flight.iter().find(|packet| packet.number == number && packet.bytes == bytes)?;
    let sent_at = found.stamp.sent_at;
    flight.remove_sent(number, sent_at)
}

impl congestion::Controller for Controller {
    fn on_packet_sent(&mut self, now: Instant, bytes: u16, pn: u64) {
        let bytes = u64::from(bytes);
        let adapter = self.adapter();
        let now = adapter.time(now);
        let stamp = adapter.on_sent(now, bytes);
        let packets = &mut adapter.packets;
        packets.flight.push(Packet { number: pn, bytes, stamp });
        packets.batch = (packets.batch.0 + bytes, packets.batch.1 + 1);
    }

    fn on_sent(&mut self, now: Instant, _bytes: u64, _largest_pn: u64) {
        let adapter = self.adapter();
        let (bytes, packets) = std::mem::take(&mut adapter.packets.batch);
        // A transmit of nothing but ACKs is not paced.
        if packets > 0 {
            let now = adapter.time(now);
            adapter.on_batch_sent(now, bytes, packets);
        }
    }

    fn on_cwnd_limited(&mut self) {
        self.adapter().on_window_limited();
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        pn: u64,
        app_limited: bool,
        _rtt: &RttEstimator,
    ) {
        let adapter = self.adapter();
        let (now, sent) = (adapter.time(now), adapter.time(sent));
        let packet = adapter.packets.flight.remove_sent(pn, sent);
        adapter.on_acked(now, sent, bytes, packet.as_ref().map(|packet| &packet.stamp), app_limited);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, _app_limited: bool, _largest: Option<u64>) {
        let adapter = self.adapter();
        let now = adapter.time(now);
        adapter.on_end_acks(now, in_flight);
    }

    fn on_packet_lost(&mut self, lost_bytes: u16, pn: u64, now: Instant) {
        let adapter = self.adapter();
        let now = adapter.time(now);
        // Packets that elicit no ACK are reported as lost, but not as sent.
        if let Some(packet) = remove_lost(&mut adapter.packets.flight, pn, lost_bytes.into()) {
            adapter.on_lost(now, packet.bytes, &packet.stamp);
        }
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        _sent: Instant,
        is_persistent_congestion: bool,
        is_ecn: bool,
        _lost_bytes: u64,
        _largest_lost_pn: u64,
    ) {
        let adapter = self.adapter();
        let now = adapter.time(now);
        if is_ecn {
            adapter.on_mark();
        } else if is_persistent_congestion {
            adapter.on_persistent_congestion(now);
        }
    }

    fn on_spurious_congestion_event(&mut self) {
        self.adapter().on_spurious();
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.adapter().on_mtu(new_mtu);
    }

    fn window(&self) -> u64 {
        self.lock().window()
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut adapter = self.lock();
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = adapter.window();
        metrics.ssthresh = adapter.ssthresh();
        if let Some((rate, quantum)) = adapter.pacing() {
            metrics.pacing_rate = Some(rate.as_bytes_per_sec());
            metrics.send_quantum = Some(quantum);
        }
        metrics.bandwidth_estimate =
            adapter.delivery_rate().map(|rate| rate.as_bytes_per_sec().saturating_mul(8));
        metrics
    }

    fn clone_box(&self) -> Box<dyn congestion::Controller> {
        Box::new(self.on_new_port())
    }

    fn initial_window(&self) -> u64 {
        self.initial_window
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
