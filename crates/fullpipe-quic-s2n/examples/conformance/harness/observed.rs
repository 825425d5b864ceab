//! A controller around the sending end's, which records its calls and shows its state.

use fullpipe_cc::{Rate, RecoveryState, Snapshot, Span};
use fullpipe_experiment::recording::EventKind;
use fullpipe_quic_s2n::Controller;
use fullpipe_sim::{Telemetry, TransportEvent};
use s2n_quic_core::event::builder::{BbrState, SlowStartExitCause};
use s2n_quic_core::random::Generator as RandomGenerator;
use s2n_quic_core::recovery::bandwidth::{Bandwidth, RateSample};
use s2n_quic_core::recovery::bbr::BbrCongestionController;
use s2n_quic_core::recovery::congestion_controller::{
    self as s2n, CongestionController, PathInfo, Publisher,
};
use s2n_quic_core::recovery::{CubicCongestionController, RttEstimator};
use s2n_quic_core::time::Timestamp;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a retransmission timeout is above the round-trip time at least, in Linux: after a longer
/// pause, sending restarts.
const MIN_TIMEOUT: Duration = Duration::from_millis(200);

/// What a controller shows beyond the trait; nothing for those of s2n-quic.
pub trait Inspect: CongestionController {
    /// The state in which it starts.
    const FIRST_STATE: &'static str;

    /// Its state and estimates.
    fn snapshot(&self) -> Option<Snapshot> {
        None
    }

    /// [`Snapshot::state`] alone.
    fn state(&self) -> Option<&'static str> {
        None
    }

    /// Whether it recovers from losses.
    fn is_recovering(&self) -> Option<bool> {
        None
    }

    /// The latest delivery-rate sample.
    fn delivery_rate(&self) -> Option<Rate> {
        None
    }
}

impl Inspect for Controller {
    const FIRST_STATE: &'static str = "";

    fn snapshot(&self) -> Option<Snapshot> {
        Some(self.snapshot())
    }

    fn state(&self) -> Option<&'static str> {
        Some(self.state())
    }

    fn is_recovering(&self) -> Option<bool> {
        Some(self.recovery() != RecoveryState::Open)
    }

    fn delivery_rate(&self) -> Option<Rate> {
        self.delivery_rate()
    }
}

impl Inspect for BbrCongestionController {
    const FIRST_STATE: &'static str = "Startup";
}

impl Inspect for CubicCongestionController {
    const FIRST_STATE: &'static str = "SlowStart";
}

/// What happened at the sending end.
#[derive(Debug)]
struct Log {
    events: VecDeque<TransportEvent>,
    state: &'static str,
    inflight: u64,
    delivered: u64,
    sent: u64,
    lost: u64,
    rtt: Option<Span>,
    srtt: Option<Span>,
    pacing_rate: Option<Rate>,
    delivery_rate: Option<Rate>,
    last_sent: Option<Timestamp>,
    /// Whether a recovery is in progress.
    recovering: bool,
    /// When it began, if it is derived from losses (RFC 9002 §7.3.2).
    began: Option<Timestamp>,
}

impl Log {
    fn record(&mut self, kind: EventKind, value: Option<f64>) {
        self.events.push_back(TransportEvent::Recorded(kind, value));
    }

    fn set_recovering(&mut self, recovering: bool, inflight: u64) {
        if recovering != self.recovering {
            self.recovering = recovering;
            if recovering {
                self.record(EventKind::RecoveryEntered, Some(inflight as f64));
            } else {
                self.record(EventKind::RecoveryExited, None);
            }
        }
    }
}

/// A controller with its log.
struct Shared<C> {
    inner: C,
    log: Log,
}

impl<C: Inspect> Shared<C> {
    /// After each call: the state can change in any of them.
    fn update(&mut self, before: u64) {
        self.log.inflight = self.inner.bytes_in_flight().into();
        if let Some(recovering) = self.inner.is_recovering() {
            self.log.set_recovering(recovering, before);
        }
        if let Some(state) = self.inner.state() {
            self.log.state = state;
        }
    }
}

/// What the connection sees of the controller.
pub trait View: Send {
    /// The state.
    fn state(&self) -> &'static str;
    /// The next event.
    fn next_event(&mut self) -> Option<TransportEvent>;
    /// State and counters, except for retransmissions.
    fn telemetry(&self) -> Telemetry;
}

impl<C: Inspect> View for Shared<C> {
    fn state(&self) -> &'static str {
        self.log.state
    }

    fn next_event(&mut self) -> Option<TransportEvent> {
        self.log.events.pop_front()
    }

    fn telemetry(&self) -> Telemetry {
        let Shared { inner, log } = self;
        let window = u64::from(inner.congestion_window());
        let snapshot = inner.snapshot().unwrap_or_else(|| Snapshot {
            state: log.state,
            cwnd: window,
            pacing_rate: log.pacing_rate,
            ..Snapshot::default()
        });
        Telemetry {
            snapshot,
            rtt: log.rtt,
            srtt: log.srtt,
            inflight: log.inflight,
            window,
            pacing_rate: snapshot.pacing_rate,
            delivery_rate: inner.delivery_rate().or(log.delivery_rate),
            delivered: log.delivered,
            sent: log.sent,
            retransmitted: 0,
            lost: log.lost,
        }
    }
}

/// The latest controller that an endpoint built.
pub type Slot = Arc<Mutex<Option<Arc<Mutex<dyn View>>>>>;

fn lock<T: ?Sized>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Builds observed controllers.
#[derive(Debug)]
pub struct Observing<E> {
    inner: E,
    slot: Handle,
}

/// What the connection holds.
#[derive(Clone, Default)]
pub struct Handle(Slot);

impl Handle {
    /// Calls `read` with the controller, once there is one.
    pub fn with<T>(&self, read: impl FnOnce(&mut dyn View) -> T) -> Option<T> {
        lock(&self.0).as_ref().map(|shared| read(&mut *lock(shared)))
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle")
    }
}

impl<E> Observing<E> {
    /// Observes the controllers that `inner` builds through `slot`.
    pub fn new(inner: E, slot: Handle) -> Self {
        Observing { inner, slot }
    }
}

impl<E: s2n::Endpoint> s2n::Endpoint for Observing<E>
where
    E::CongestionController: Inspect,
{
    type CongestionController = Observed<E::CongestionController>;

    fn new_congestion_controller(&mut self, path: PathInfo<'_>) -> Self::CongestionController {
        let inner = self.inner.new_congestion_controller(path);
        let observed = Observed::new(inner);
        *lock(&self.slot.0) = Some(observed.0.clone());
        observed
    }
}

/// What s2n-quic holds.
pub struct Observed<C>(Arc<Mutex<Shared<C>>>);

impl<C: Inspect> Observed<C> {
    fn new(inner: C) -> Self {
        let log = Log {
            events: VecDeque::new(),
            state: inner.state().unwrap_or(C::FIRST_STATE),
            inflight: 0,
            delivered: 0,
            sent: 0,
            lost: 0,
            rtt: None,
            srtt: None,
            pacing_rate: None,
            delivery_rate: None,
            last_sent: None,
            recovering: false,
            began: None,
        };
        Observed(Arc::new(Mutex::new(Shared { inner, log })))
    }
}

impl<C> Clone for Observed<C> {
    /// The same controller: s2n-quic copies a path into its list and drops the first.
    fn clone(&self) -> Self {
        Observed(self.0.clone())
    }
}

impl<C> fmt::Debug for Observed<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observed")
    }
}

/// A packet's state, and when it was sent.
#[derive(Clone, Copy, Debug)]
pub struct PacketInfo<I> {
    inner: I,
    sent: Timestamp,
}

impl<C: Inspect> CongestionController for Observed<C> {
    type PacketInfo = PacketInfo<C::PacketInfo>;

    fn congestion_window(&self) -> u32 {
        lock(&self.0).inner.congestion_window()
    }

    fn bytes_in_flight(&self) -> u32 {
        lock(&self.0).inner.bytes_in_flight()
    }

    fn is_congestion_limited(&self) -> bool {
        lock(&self.0).inner.is_congestion_limited()
    }

    fn requires_fast_retransmission(&self) -> bool {
        lock(&self.0).inner.requires_fast_retransmission()
    }

    fn on_packet_sent<Pub: Publisher>(
        &mut self,
        sent: Timestamp,
        bytes: usize,
        app_limited: Option<bool>,
        rtt: &RttEstimator,
        publisher: &mut Pub,
    ) -> Self::PacketInfo {
        let mut shared = lock(&self.0);
        let Shared { inner, log } = &mut *shared;
        if bytes > 0 {
            let timeout =
                MIN_TIMEOUT + log.rtt.map_or(Duration::ZERO, |rtt| Duration::from_nanos(rtt.as_nanos()));
            let paused = log.last_sent.is_some_and(|last| sent.saturating_duration_since(last) > timeout);
            if inner.bytes_in_flight() == 0 && paused {
                log.record(EventKind::IdleRestart, None);
            }
            log.last_sent = Some(sent);
            log.sent += 1;
        }
        let info = inner.on_packet_sent(sent, bytes, app_limited, rtt, &mut Tap { publisher, log });
        shared.update(0);
        PacketInfo { inner: info, sent }
    }

    fn on_rtt_update<Pub: Publisher>(
        &mut self,
        sent: Timestamp,
        now: Timestamp,
        rtt: &RttEstimator,
        publisher: &mut Pub,
    ) {
        let mut shared = lock(&self.0);
        let Shared { inner, log } = &mut *shared;
        let measured = Span::from(now.saturating_duration_since(sent));
        log.rtt = Some(measured);
        log.srtt = Some(rtt.smoothed_rtt().into());
        log.events.push_back(TransportEvent::Rtt(measured));
        inner.on_rtt_update(sent, now, rtt, &mut Tap { publisher, log });
        shared.update(0);
    }

    fn on_ack<Pub: Publisher>(
        &mut self,
        newest_sent: Timestamp,
        bytes: usize,
        newest: Self::PacketInfo,
        rtt: &RttEstimator,
        random: &mut dyn RandomGenerator,
        now: Timestamp,
        publisher: &mut Pub,
    ) {
        let mut shared = lock(&self.0);
        let Shared { inner, log } = &mut *shared;
        let before = inner.bytes_in_flight();
        log.delivered += bytes as u64;
        if log.began.is_some_and(|began| newest_sent > began) {
            log.began = None;
            log.set_recovering(false, 0);
        }
        let tap = &mut Tap { publisher, log };
        inner.on_ack(newest_sent, bytes, newest.inner, rtt, random, now, tap);
        shared.update(before.into());
    }

    fn on_packet_lost<Pub: Publisher>(
        &mut self,
        bytes: u32,
        packet: Self::PacketInfo,
        persistent_congestion: bool,
        new_loss_burst: bool,
        random: &mut dyn RandomGenerator,
        now: Timestamp,
        publisher: &mut Pub,
    ) {
        let mut shared = lock(&self.0);
        let Shared { inner, log } = &mut *shared;
        let before = inner.bytes_in_flight().into();
        log.lost += 1;
        if persistent_congestion {
            log.record(EventKind::RetransmissionTimeout, None);
        }
        if inner.is_recovering().is_none() && log.began.is_none_or(|began| packet.sent > began) {
            log.began = Some(now);
            log.set_recovering(true, before);
        }
        let tap = &mut Tap { publisher, log };
        inner.on_packet_lost(bytes, packet.inner, persistent_congestion, new_loss_burst, random, now, tap);
        shared.update(before);
    }

    fn on_explicit_congestion<Pub: Publisher>(&mut self, ce_count: u64, at: Timestamp, publisher: &mut Pub) {
        let mut shared = lock(&self.0);
        let Shared { inner, log } = &mut *shared;
        inner.on_explicit_congestion(ce_count, at, &mut Tap { publisher, log });
        shared.update(0);
    }

    fn on_mtu_update<Pub: Publisher>(&mut self, bytes: u16, publisher: &mut Pub) {
        let mut shared = lock(&self.0);
        let Shared { inner, log } = &mut *shared;
        inner.on_mtu_update(bytes, &mut Tap { publisher, log });
        shared.update(0);
    }

    fn on_packet_discarded<Pub: Publisher>(&mut self, bytes: usize, publisher: &mut Pub) {
        let mut shared = lock(&self.0);
        let Shared { inner, log } = &mut *shared;
        inner.on_packet_discarded(bytes, &mut Tap { publisher, log });
        shared.update(0);
    }

    fn earliest_departure_time(&self) -> Option<Timestamp> {
        lock(&self.0).inner.earliest_departure_time()
    }

    fn send_quantum(&self) -> Option<usize> {
        lock(&self.0).inner.send_quantum()
    }
}

/// What s2n-quic's own controllers publish.
struct Tap<'a, P> {
    publisher: &'a mut P,
    log: &'a mut Log,
}

impl<P: Publisher> Publisher for Tap<'_, P> {
    fn on_slow_start_exited(&mut self, cause: SlowStartExitCause, window: u32) {
        self.log.state = "CongestionAvoidance";
        self.publisher.on_slow_start_exited(cause, window);
    }

    fn on_delivery_rate_sampled(&mut self, sample: RateSample) {
        self.log.delivery_rate = Some(rate(sample.delivery_rate()));
        self.publisher.on_delivery_rate_sampled(sample);
    }

    fn on_pacing_rate_updated(&mut self, pacing_rate: Bandwidth, burst: u32, gain: num_rational::Ratio<u64>) {
        self.log.pacing_rate = Some(rate(pacing_rate));
        self.publisher.on_pacing_rate_updated(pacing_rate, burst, gain);
    }

    fn on_bbr_state_changed(&mut self, state: BbrState) {
        self.log.state = match state {
            BbrState::Startup => "Startup",
            BbrState::Drain => "Drain",
            BbrState::ProbeBwDown => "ProbeBW_DOWN",
            BbrState::ProbeBwCruise => "ProbeBW_CRUISE",
            BbrState::ProbeBwRefill => "ProbeBW_REFILL",
            BbrState::ProbeBwUp => "ProbeBW_UP",
            BbrState::ProbeRtt => "ProbeRTT",
        };
        self.publisher.on_bbr_state_changed(state);
    }
}

fn rate(bandwidth: Bandwidth) -> Rate {
    Rate::from_bytes_per_sec(bandwidth.as_bytes_per_second())
}
