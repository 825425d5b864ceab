//! A stack's events as those of [`SendController`], in the order that the controllers need.
//!
//! noq and quinn report the packets that an ACK acknowledges, then its end, then the losses that it
//! shows, then an ECN mark; nothing reports that this was all. So an ACK stays open, and it is
//! finished when the stack asks for the window or reports the next event: before anything depends
//! on it. What the callbacks do not report is kept here.

#[cfg(feature = "quinn")]
mod batches;
mod settings;

#[cfg(feature = "quinn")]
pub(crate) use batches::Batches;
pub(crate) use settings::Settings;

use fullpipe_cc::{
    AckEvent, AckReport, Controller, LossEvent, Rate, RecoveryEpisode, RecoveryState, RttEstimator,
    SendController, Snapshot, Span, Stamp, Time, WindowLimited,
};
use std::fmt;
use std::time::Instant;

/// The packets in flight.
pub(crate) trait InFlight: Clone + Default + fmt::Debug {
    /// [`Stamp::id`] of the oldest packet.
    fn oldest(&self) -> Option<u64>;

    /// Forgets packets sent before `at`. Returns their bytes.
    fn discard_sent_before(&mut self, at: Time) -> u64;
}

#[derive(Debug)]
enum Kind {
    /// An ACK, and whether its acknowledged packets are complete.
    Ack(AckEvent, bool),
    /// Losses that a timer found.
    Losses(LossEvent),
}

/// An event that may not be complete.
#[derive(Debug)]
struct Open {
    kind: Kind,
    now: Time,
    /// Number of the newest packet lost in it.
    lost: Option<u64>,
    persistent: bool,
}

/// Congestion control of one path of a connection. `F` holds its packets.
#[derive(Debug)]
pub(crate) struct Adapter<F> {
    sender: SendController<Controller>,
    /// What [`Time::ZERO`] is.
    base: Instant,
    mss: u32,
    /// The packets in flight, for the caller to find stamps in.
    pub packets: F,
    inflight: u64,
    open: Option<Open>,
    rtt: RttEstimator,
    limited: WindowLimited,
    episode: RecoveryEpisode,
    /// Number of the next packet.
    next: u64,
    /// When the newest acknowledged packet was sent.
    newest: Time,
    /// Time of the latest event.
    now: Time,
    /// Marks reported since the last ACK was finished.
    marks: u32,
    /// Losses turned out spurious; applied with the next event, whose time is known.
    spurious: bool,
    delivery_rate: Option<Rate>,
}

impl<F: InFlight> Adapter<F> {
    /// A new path, with packets of `mtu` bytes of UDP payload at most.
    pub fn new(controller: Controller, base: Instant, mtu: u16) -> Self {
        let mss = u32::from(mtu).max(1);
        Adapter {
            sender: SendController::new(controller, mss),
            base,
            mss,
            packets: F::default(),
            inflight: 0,
            open: None,
            rtt: RttEstimator::new(),
            limited: WindowLimited::new(),
            episode: RecoveryEpisode::new(),
            next: 0,
            newest: Time::ZERO,
            now: Time::ZERO,
            marks: 0,
            spurious: false,
            delivery_rate: None,
        }
    }

    /// The same path after a change of the peer's port, without the packets in flight: they
    /// belong to the old one.
    pub fn on_new_port(&mut self) -> Self {
        self.settle();
        Adapter {
            sender: self.sender.clone(),
            packets: F::default(),
            inflight: 0,
            open: None,
            episode: RecoveryEpisode::new(),
            ..*self
        }
    }

    /// The virtual time of `at`.
    pub fn time(&self, at: Instant) -> Time {
        Time::from_instant(self.base, at)
    }

    /// Bytes of a full packet.
    #[cfg(feature = "quinn")]
    pub fn mss(&self) -> u64 {
        self.mss.into()
    }

    /// `bytes` are sent together. The stamp belongs into [`packets`](Self::packets).
    pub fn on_sent(&mut self, now: Time, bytes: u64) -> Stamp {
        self.settle();
        self.now = now;
        let stamp = self.sender.on_sent(now, bytes, self.inflight, false);
        self.next = stamp.id + 1;
        self.inflight = self.inflight.saturating_add(bytes);
        stamp
    }

    /// The pacer releases `bytes` in `packets` at once.
    pub fn on_batch_sent(&mut self, now: Time, bytes: u64, packets: u64) {
        self.sender.on_batch_sent(now, bytes, packets);
    }

    /// The window keeps the stack from sending.
    pub fn on_window_limited(&mut self) {
        self.settle();
        self.limited.on_limited(self.sender.delivered(), self.inflight);
    }

    /// Whether the window has no room for another packet.
    #[cfg(feature = "quinn")]
    pub fn is_window_full(&mut self) -> bool {
        self.inflight.saturating_add(u64::from(self.mss)) >= self.window()
    }

    /// A packet of `bytes`, sent at `sent`, is acknowledged. Its stamp is known unless the packet
    /// was not tracked (a probe of the MTU, a packet of the previous path). `app_limited` is
    /// whether the application had no data when the stack last tried to send.
    pub fn on_acked(&mut self, now: Time, sent: Time, bytes: u64, stamp: Option<&Stamp>, app_limited: bool) {
        if !matches!(&self.open, Some(Open { kind: Kind::Ack(_, false), now: at, .. }) if *at == now) {
            self.begin_ack(now, app_limited);
        }
        self.inflight = self.inflight.saturating_sub(bytes);
        let Some(Open { kind: Kind::Ack(event, _), .. }) = &mut self.open else { return };
        if let Some(stamp) = stamp {
            self.sender.on_acked(event, now, bytes, stamp);
            self.episode.on_acked(stamp.id);
        }
        // A late packet says nothing about the path now (RFC 9002 §5.1).
        if sent > self.newest || self.rtt.latest().is_none() {
            self.newest = sent;
            self.rtt.on_sample(now.since(sent), Span::ZERO);
        }
    }

    fn begin_ack(&mut self, now: Time, app_limited: bool) {
        self.settle();
        self.now = now;
        self.undo_spurious(now);
        if app_limited {
            self.sender.mark_app_limited(self.inflight);
        }
        let event = self.sender.begin_ack(self.inflight);
        self.open = Some(Open { kind: Kind::Ack(event, false), now, lost: None, persistent: false });
    }

    fn undo_spurious(&mut self, now: Time) {
        if std::mem::take(&mut self.spurious) {
            self.episode.clear();
            self.sender.undo(now, self.inflight);
        }
    }

    /// All acknowledged packets of an ACK are reported; `inflight` bytes are in flight, losses that
    /// it shows included. This corrects for packets that the stack forgot.
    pub fn on_end_acks(&mut self, now: Time, inflight: u64) {
        if let Some(Open { kind: Kind::Ack(_, ended), now: at, .. }) = &mut self.open
            && *at == now
        {
            *ended = true;
            self.inflight = inflight;
        }
    }

    /// `bytes` with this stamp are lost, in packets of full size.
    pub fn on_lost(&mut self, now: Time, bytes: u64, stamp: &Stamp) {
        if self.open.as_ref().is_none_or(|open| open.now != now) {
            self.settle();
            self.now = now;
            let event = self.sender.begin_losses(self.inflight);
            self.open = Some(Open { kind: Kind::Losses(event), now, lost: None, persistent: false });
        }
        self.inflight = self.inflight.saturating_sub(bytes);
        self.episode.on_lost(stamp.id, self.next);
        let Some(open) = &mut self.open else { return };
        let mut new_range = open.lost.is_none_or(|lost| lost != stamp.id && lost + 1 != stamp.id);
        open.lost = Some(stamp.id);
        let mut left = bytes;
        while left > 0 {
            let packet = left.min(u64::from(self.mss));
            left -= packet;
            match &mut open.kind {
                Kind::Ack(event, _) => self.sender.on_lost(event, now, packet, stamp, new_range),
                Kind::Losses(event) => self.sender.on_lost(event, now, packet, stamp, new_range),
            }
            new_range = false;
        }
    }

    /// The losses reported last establish persistent congestion (RFC 9002 §7.6).
    pub fn on_persistent_congestion(&mut self, now: Time) {
        if let Some(open) = self.open.as_mut().filter(|open| open.now == now) {
            open.persistent = true;
        }
    }

    /// The peer reports marked packets; how many is not known.
    pub fn on_mark(&mut self) {
        self.marks = self.marks.saturating_add(1);
    }

    /// All losses of an earlier event turned out to be late packets.
    #[cfg(feature = "noq")]
    pub fn on_spurious(&mut self) {
        self.settle();
        self.spurious = true;
    }

    /// The largest UDP payload changed.
    pub fn on_mtu(&mut self, mtu: u16) {
        self.mss = u32::from(mtu).max(1);
        self.sender.on_mtu(self.mss);
    }

    /// Finishes the open event: call before anything that depends on it.
    pub fn settle(&mut self) {
        let Some(Open { kind, now, persistent, .. }) = self.open.take() else { return };
        match kind {
            Kind::Ack(event, _) => self.finish_ack(event, now, persistent),
            Kind::Losses(event) => self.finish_losses(event, now, persistent),
        }
    }

    fn finish_ack(&mut self, mut event: AckEvent, now: Time, persistent: bool) {
        if persistent {
            self.sender.on_persistent_congestion(&mut event, now, self.inflight);
            self.start_over();
        } else {
            let change = self.episode.update(self.packets.oldest(), self.next);
            if change.exit {
                self.sender.exit_recovery(now, self.inflight);
            }
            if change.enter {
                self.sender.enter_recovery(&mut event, now);
            }
        }
        let measured = self.rtt.latest().filter(|_| event.newly_acked() > 0);
        let report = AckReport {
            rtt: measured,
            srtt: self.rtt.smoothed(),
            min_rtt: self.rtt.min(),
            ce_count: std::mem::take(&mut self.marks),
            cwnd_limited: self.limited.is_limited(self.sender.delivered()),
            ..AckReport::at(now, self.inflight)
        };
        let sample = self.sender.finish_ack(event, &report);
        self.delivery_rate = sample.rate.or(self.delivery_rate);
        self.discard_stale();
    }

    fn finish_losses(&mut self, mut event: LossEvent, now: Time, persistent: bool) {
        if persistent {
            self.sender.on_persistent_congestion(&mut event, now, self.inflight);
            self.sender.finish_losses(event);
            self.start_over();
            return;
        }
        let change = self.episode.update(self.packets.oldest(), self.next);
        if change.exit {
            self.sender.exit_recovery(now, self.inflight);
        }
        if change.enter {
            self.sender.enter_recovery_on_timer(event, now, self.inflight);
        } else {
            self.sender.finish_losses(event);
        }
    }

    fn start_over(&mut self) {
        self.episode.restart(self.next);
        self.rtt.on_persistent_congestion();
    }

    /// Forgets packets that the stack forgot: what was sent two round trips before the newest
    /// acknowledged packet would have been acknowledged or declared lost (RFC 9002 §6.1).
    fn discard_stale(&mut self) {
        let rtt = self.rtt.smoothed().max(self.rtt.latest()).unwrap_or(Span::ZERO);
        let stale = self.packets.discard_sent_before(Time::ZERO + self.newest.since(Time::ZERO + rtt * 2));
        if stale > 0 {
            self.sender.on_packet_discarded(stale);
        }
    }

    /// The window in bytes, at least two packets (RFC 9002 §7.2). The controllers' own minimum is
    /// one, as in Linux; quinn sends only while the window exceeds what is in flight, and would
    /// stop forever.
    pub fn window(&mut self) -> u64 {
        self.settle();
        self.undo_spurious(self.now);
        self.sender.window().max(2 * u64::from(self.mss))
    }

    /// Slow-start threshold in bytes, if set.
    pub fn ssthresh(&self) -> Option<u64> {
        use fullpipe_cc::CongestionControl;
        Some(self.sender.controller().ssthresh()).filter(|&bytes| bytes < u64::MAX)
    }

    /// The pacing rate and the largest burst in bytes; `None` for a controller that does not pace.
    pub fn pacing(&mut self) -> Option<(Rate, u64)> {
        self.settle();
        self.sender.pacing_rate().map(|rate| (rate, self.sender.send_quantum()))
    }

    /// When the pacer releases the next burst, and its largest size in bytes; at once and without
    /// limit for a controller that does not pace.
    #[cfg(feature = "harness")]
    pub fn departure(&mut self) -> (Time, u64) {
        match self.pacing() {
            Some((_, quantum)) => (self.sender.next_departure(), quantum),
            None => (Time::ZERO, u64::MAX),
        }
    }

    /// The controller's state.
    pub fn snapshot(&mut self) -> Snapshot {
        use fullpipe_cc::CongestionControl;
        self.settle();
        self.sender.controller().snapshot()
    }

    /// [`Snapshot::state`] alone.
    #[cfg(feature = "harness")]
    pub fn state(&mut self) -> &'static str {
        use fullpipe_cc::CongestionControl;
        self.settle();
        self.sender.controller().state()
    }

    /// The recovery state.
    pub fn recovery(&mut self) -> RecoveryState {
        self.settle();
        self.sender.recovery()
    }

    /// The latest delivery-rate sample.
    pub fn delivery_rate(&self) -> Option<Rate> {
        self.delivery_rate
    }
}
