//! fullpipe's congestion controllers in [quinn](https://docs.rs/quinn) and
//! [quinn-proto](https://docs.rs/quinn-proto).
//!
//! ```
//! use fullpipe_quic::{ControllerSpec, quinn::Factory};
//! use std::sync::Arc;
//!
//! # fn configure() -> Result<(), Box<dyn std::error::Error>> {
//! let mut transport = quinn_proto::TransportConfig::default();
//! transport.congestion_controller_factory(Arc::new(Factory::new(ControllerSpec::parse("cubic")?)));
//! # Ok(())
//! # }
//! # configure().unwrap();
//! ```
//! **Window only.** quinn 0.11 paces each controller at 1.25 windows per round trip and takes no
//! rate. A BBR then sends faster than it decided: it finds the bandwidth, and fills the queue of the
//! bottleneck up to its window. Use BBR with noq, or accept the queue.

use quinn_proto as proto;

#[path = "factory.rs"]
mod factory;

pub use factory::{Controller, Factory};

use crate::adapter::Batches;
use proto::RttEstimator;
use proto::congestion::{self, ControllerMetrics};
use std::any::Any;
use std::time::Instant;

type InFlightPackets = Batches;
const NAME: &str = "fullpipe_quic::quinn::Controller";
/// quinn's pacer ignores the controller's rate.
const PACED: bool = false;

impl congestion::Controller for Controller {
    fn on_sent(&mut self, now: Instant, bytes: u64, _last_packet_number: u64) {
        let paced = self.paced;
        let adapter = self.adapter();
        let now = adapter.time(now);
        let stamp = adapter.on_sent(now, bytes);
        adapter.packets.push(bytes, stamp);
        if paced {
            adapter.on_batch_sent(now, bytes, bytes.div_ceil(adapter.mss()));
        }
        if adapter.is_window_full() {
            adapter.on_window_limited();
        }
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, _rtt: &RttEstimator) {
        let adapter = self.adapter();
        let (now, sent) = (adapter.time(now), adapter.time(sent));
        let stamp = adapter.packets.remove(sent, bytes);
        adapter.on_acked(now, sent, bytes, stamp.as_ref(), app_limited);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, _app_limited: bool, _largest: Option<u64>) {
        let adapter = self.adapter();
        let now = adapter.time(now);
        adapter.on_end_acks(now, in_flight);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        let adapter = self.adapter();
        let (now, sent) = (adapter.time(now), adapter.time(sent));
        // Without lost bytes it is an ECN mark.
        if lost_bytes == 0 {
            adapter.on_mark();
            return;
        }
        let mut packets = std::mem::take(&mut adapter.packets);
        packets.lose(sent, lost_bytes, |bytes, stamp| adapter.on_lost(now, bytes, &stamp));
        adapter.packets = packets;
        if is_persistent_congestion {
            adapter.on_persistent_congestion(now);
        }
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
        // In bits per second, for its logs.
        metrics.pacing_rate = adapter.pacing().map(|(rate, _)| rate.as_bytes_per_sec().saturating_mul(8));
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
