//! s2n-quic's events as fullpipe's, in the order that fullpipe's controllers need.

use crate::observer::{Observation, Observer};
use fullpipe_cc::{
    AckReport, Config, CongestionControl, Controller as Algorithm, Rate, RecoveryEpisode, RecoveryState,
    SendController, Snapshot, Span, Stamp, Time, WindowLimited,
};
use s2n_quic_core::random::Generator as RandomGenerator;
use s2n_quic_core::recovery::RttEstimator;
use s2n_quic_core::recovery::congestion_controller::{CongestionController, Publisher};
use s2n_quic_core::time::Timestamp;
use std::time::Duration;

/// s2n-quic's fixed packet reordering threshold (RFC 9002 §6.1.1): once a packet is acknowledged, each packet
/// sent this many packets earlier is acknowledged or declared lost.
const PACKET_THRESHOLD: u64 = 3;

/// State that s2n-quic stores with each packet and returns when the packet is acknowledged or lost.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketInfo {
    stamp: Stamp,
}

/// A packet declared lost.
#[derive(Clone, Copy, Debug)]
struct LostPacket {
    bytes: u64,
    stamp: Stamp,
    new_range: bool,
}

/// The losses of one event. s2n-quic reports them before the ACK that revealed them, fullpipe's controllers
/// expect them after it: they wait here.
#[derive(Clone, Debug, Default)]
struct Losses {
    at: Time,
    packets: Vec<LostPacket>,
    bytes: u64,
    persistent: bool,
}

impl Losses {
    fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }
}

/// One of fullpipe's controllers on one path of an s2n-quic connection, built by
/// [`Endpoint`](crate::Endpoint).
#[derive(Clone, Debug)]
pub struct Controller {
    sender: SendController<Algorithm>,
    /// s2n-quic's clock at the first event, which is [`Time::ZERO`] here.
    base: Option<Timestamp>,
    mss: u32,
    inflight: u64,
    /// Stamp of the latest packet; its `id` numbers transmissions.
    last: Stamp,
    /// Number of the newest acknowledged packet.
    newest: u64,
    losses: Losses,
    episode: RecoveryEpisode,
    /// Recovery started and nothing has been sent since.
    retransmission_due: bool,
    limited: WindowLimited,
    /// Round-trip time measured by the current ACK.
    rtt: Option<Span>,
    /// ECN marks reported by the current ACK.
    ce_count: u64,
    delivery_rate: Option<Rate>,
    observer: Observer,
}

impl Controller {
    pub(crate) fn new(algorithm: Algorithm, config: &Config, observer: Observer) -> Self {
        Controller {
            sender: SendController::new(algorithm, config.smss).paced_by_window(),
            base: None,
            mss: config.smss,
            inflight: 0,
            last: Stamp::default(),
            newest: 0,
            losses: Losses::default(),
            episode: RecoveryEpisode::new(),
            retransmission_due: false,
            limited: WindowLimited::new(),
            rtt: None,
            ce_count: 0,
            delivery_rate: None,
            observer,
        }
    }

    /// State, window, pacing rate and estimates.
    pub fn snapshot(&self) -> Snapshot {
        self.sender.controller().snapshot()
    }

    /// [`Snapshot::state`] alone.
    pub fn state(&self) -> &'static str {
        self.sender.controller().state()
    }

    /// The recovery state.
    pub fn recovery(&self) -> RecoveryState {
        self.sender.recovery()
    }

    /// The pacing rate in effect.
    pub fn pacing_rate(&self) -> Option<Rate> {
        self.sender.pacing_rate()
    }

    /// The latest delivery-rate sample.
    pub fn delivery_rate(&self) -> Option<Rate> {
        self.delivery_rate
    }

    /// s2n-quic's timestamps are opaque: only their differences have a meaning.
    fn time(&mut self, at: Timestamp) -> Time {
        let base = *self.base.get_or_insert(at);
        Time::ZERO + Span::from(at.saturating_duration_since(base))
    }

    /// Number of the next packet to be sent.
    fn next(&self) -> u64 {
        self.last.id + 1
    }

    /// Number of the oldest packet that may still be in flight, from the packet threshold.
    fn oldest(&self) -> Option<u64> {
        (self.inflight > 0).then(|| (self.newest + 1).saturating_sub(PACKET_THRESHOLD))
    }

    /// Reports losses found by the loss timer: no ACK followed them at their time.
    fn finish_timer_losses(&mut self) {
        if self.losses.is_empty() {
            return;
        }
        let losses = std::mem::take(&mut self.losses);
        let next = self.next();
        let mut event = self.sender.begin_losses(self.inflight + losses.bytes);
        for lost in &losses.packets {
            self.sender.on_lost(&mut event, losses.at, lost.bytes, &lost.stamp, lost.new_range);
            self.episode.on_lost(lost.stamp.id, next);
        }
        if losses.persistent {
            self.episode.restart(next);
            self.retransmission_due = true;
            self.sender.on_persistent_congestion(&mut event, losses.at, self.inflight);
            self.sender.finish_losses(event);
            return;
        }
        let change = self.episode.update(self.oldest(), next);
        if change.exit {
            self.sender.exit_recovery(losses.at, self.inflight);
        }
        if change.enter {
            self.retransmission_due = true;
            self.sender.enter_recovery_on_timer(event, losses.at, self.inflight);
        } else {
            self.sender.finish_losses(event);
        }
    }

    /// Processes an ACK of `bytes` with the losses that it revealed.
    fn finish_ack(&mut self, now: Time, bytes: u64, newest: &Stamp, rtt: &RttEstimator) {
        let losses = std::mem::take(&mut self.losses);
        let next = self.next();
        let mut event = self.sender.begin_ack(self.inflight + losses.bytes);
        self.sender.on_acked(&mut event, now, bytes, newest);
        self.inflight = self.inflight.saturating_sub(bytes);
        let advanced = newest.id > self.newest;
        self.newest = self.newest.max(newest.id);
        self.episode.on_acked(newest.id);
        for lost in &losses.packets {
            self.sender.on_lost(&mut event, now, lost.bytes, &lost.stamp, lost.new_range);
            self.episode.on_lost(lost.stamp.id, next);
        }
        if losses.persistent {
            self.episode.restart(next);
            self.retransmission_due = true;
            self.sender.on_persistent_congestion(&mut event, now, self.inflight);
        } else {
            let change = self.episode.update(self.oldest(), next);
            if change.exit {
                self.retransmission_due = false;
                self.sender.exit_recovery(now, self.inflight);
            }
            if change.enter {
                self.retransmission_due = true;
                self.sender.enter_recovery(&mut event, now);
            }
        }
        let measured = rtt.first_rtt_sample().is_some();
        let report = AckReport {
            rtt: self.rtt.take(),
            srtt: measured.then(|| Span::from(rtt.smoothed_rtt())),
            min_rtt: measured.then(|| Span::from(rtt.min_rtt())),
            advanced,
            ce_count: u32::try_from(std::mem::take(&mut self.ce_count)).unwrap_or(u32::MAX),
            cwnd_limited: self.limited.is_limited(self.sender.delivered()),
            ..AckReport::at(now, self.inflight)
        };
        let sample = self.sender.finish_ack(event, &report);
        self.delivery_rate = sample.rate.or(self.delivery_rate);
        // Returns the buffer, so that losses do not allocate each time.
        self.losses.packets = losses.packets;
        self.losses.packets.clear();
    }
}

impl CongestionController for Controller {
    type PacketInfo = PacketInfo;

    fn congestion_window(&self) -> u32 {
        u32::try_from(self.sender.window()).unwrap_or(u32::MAX)
    }

    fn bytes_in_flight(&self) -> u32 {
        u32::try_from(self.inflight).unwrap_or(u32::MAX)
    }

    fn is_congestion_limited(&self) -> bool {
        self.sender.window().saturating_sub(self.inflight) < u64::from(self.mss)
    }

    fn requires_fast_retransmission(&self) -> bool {
        self.retransmission_due || (!self.losses.is_empty() && !self.episode.is_active())
    }

    fn on_packet_sent<Pub: Publisher>(
        &mut self,
        time_sent: Timestamp,
        sent_bytes: usize,
        app_limited: Option<bool>,
        _rtt: &RttEstimator,
        _publisher: &mut Pub,
    ) -> PacketInfo {
        let now = self.time(time_sent);
        self.finish_timer_losses();
        let bytes = sent_bytes as u64;
        if bytes == 0 {
            // A packet with nothing but an ACK can be the newest packet of a later ACK, whose
            // bytes then belong
            // to the packets before it.
            return PacketInfo { stamp: self.last };
        }
        self.last = self.sender.on_sent(now, bytes, self.inflight, false);
        self.sender.on_batch_sent(now, bytes, 1);
        self.inflight += bytes;
        self.retransmission_due = false;
        // `None`: a packet of the handshake, which waits for the peer, not for the window.
        if app_limited.unwrap_or(true) {
            self.sender.mark_app_limited(self.inflight);
        } else if self.is_congestion_limited() {
            self.limited.on_limited(self.sender.delivered(), self.inflight);
        }
        PacketInfo { stamp: self.last }
    }

    fn on_rtt_update<Pub: Publisher>(
        &mut self,
        time_sent: Timestamp,
        now: Timestamp,
        _rtt: &RttEstimator,
        _publisher: &mut Pub,
    ) {
        self.rtt = Some(Span::from(now.saturating_duration_since(time_sent)));
    }

    fn on_ack<Pub: Publisher>(
        &mut self,
        _newest_time_sent: Timestamp,
        acked_bytes: usize,
        newest: PacketInfo,
        rtt: &RttEstimator,
        _random: &mut dyn RandomGenerator,
        received_at: Timestamp,
        _publisher: &mut Pub,
    ) {
        let now = self.time(received_at);
        if self.losses.at != now {
            self.finish_timer_losses();
        }
        self.finish_ack(now, acked_bytes as u64, &newest.stamp, rtt);
        self.observer.observe(|| Observation {
            at: now,
            delivered: self.sender.delivered(),
            lost: self.sender.lost(),
            inflight: self.inflight,
            in_recovery: self.sender.recovery() != RecoveryState::Open,
            snapshot: self.sender.controller().snapshot(),
        });
    }

    fn on_packet_lost<Pub: Publisher>(
        &mut self,
        lost_bytes: u32,
        packet: PacketInfo,
        persistent_congestion: bool,
        new_loss_burst: bool,
        _random: &mut dyn RandomGenerator,
        at: Timestamp,
        _publisher: &mut Pub,
    ) {
        let now = self.time(at);
        if self.losses.at != now {
            self.finish_timer_losses();
        }
        let bytes = u64::from(lost_bytes);
        self.inflight = self.inflight.saturating_sub(bytes);
        self.losses.at = now;
        self.losses.bytes += bytes;
        self.losses.persistent |= persistent_congestion;
        self.losses.packets.push(LostPacket { bytes, stamp: packet.stamp, new_range: new_loss_burst });
    }

    fn on_explicit_congestion<Pub: Publisher>(
        &mut self,
        ce_count: u64,
        _at: Timestamp,
        _publisher: &mut Pub,
    ) {
        self.ce_count = self.ce_count.saturating_add(ce_count);
    }

    fn on_mtu_update<Pub: Publisher>(&mut self, max_data_size: u16, _publisher: &mut Pub) {
        self.mss = u32::from(max_data_size).max(1);
        self.sender.on_mtu(self.mss);
    }

    fn on_packet_discarded<Pub: Publisher>(&mut self, bytes_sent: usize, _publisher: &mut Pub) {
        let bytes = bytes_sent as u64;
        self.inflight = self.inflight.saturating_sub(bytes);
        self.sender.on_packet_discarded(bytes);
    }

    fn earliest_departure_time(&self) -> Option<Timestamp> {
        self.sender.pacing_rate()?;
        let departure = self.sender.next_departure().since(Time::ZERO);
        self.base?.checked_add(Duration::from_nanos(departure.as_nanos()))
    }

    fn send_quantum(&self) -> Option<usize> {
        self.sender.pacing_rate()?;
        usize::try_from(self.sender.send_quantum()).ok()
    }
}
