//! Combines sampler, pacer, Proportional Rate Reduction and controller of one connection and calls
//! them in the required order.

use crate::control::{Ack, CongestionControl, Lost, Recovery, RecoveryContext, RecoveryState, Sent};
use crate::pacer::{Pacer, autosize, rate_for_window};
use crate::prr::Prr;
use crate::sampler::{RateSample, Sampler, Stamp};
use fullpipe_units::{Rate, Span, Time};
use sealed::Counts;

/// What a transport reports at the end of an ACK, beyond acknowledged and lost packets.
///
/// Build it with struct update syntax from [`AckReport::at`]: later versions may add fields. (This
/// is why it is not `#[non_exhaustive]`, which forbids that syntax.)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AckReport {
    /// When the ACK arrived.
    pub now: Time,
    /// Round-trip time of the newest acknowledged packet that was not retransmitted.
    pub rtt: Option<Span>,
    /// Smoothed round-trip time (RFC 6298, or RFC 9002 §5.3), this ACK included.
    pub srtt: Option<Span>,
    /// Minimum round-trip time, including this ACK.
    pub min_rtt: Option<Span>,
    /// Bytes in flight: without acknowledged and lost bytes.
    pub inflight: u64,
    /// Bytes sent and not acknowledged cumulatively, including lost and
    /// selectively acknowledged ones (`packets_out`). Only used if
    /// [paced by window](SendController::paced_by_window).
    pub outstanding: u64,
    /// Whether the ACK advanced the cumulative acknowledgement.
    pub advanced: bool,
    /// Packets newly reported as marked Congestion Experienced.
    pub ce_count: u32,
    /// Whether the window (not the application, not the receiver) limited sending in the last round
    /// trip.
    pub cwnd_limited: bool,
    /// Whether selective acknowledgements leave a hole of which nothing is marked lost
    /// ([`RecoveryState::Disorder`]).
    pub disorder: bool,
    /// Whether it acknowledges a single packet, less than full, and leaves none outstanding: the
    /// receiver may have delayed such an ACK.
    pub lone_runt: bool,
}

impl AckReport {
    /// A report at `now` with `inflight` bytes outstanding and in flight, to be completed with
    /// struct update syntax.
    pub fn at(now: Time, inflight: u64) -> Self {
        AckReport {
            now,
            rtt: None,
            srtt: None,
            min_rtt: None,
            inflight,
            outstanding: inflight,
            advanced: true,
            ce_count: 0,
            cwnd_limited: false,
            disorder: false,
            lone_runt: false,
        }
    }
}

/// An ACK that is being processed: from [`SendController::begin_ack`] to
/// [`SendController::finish_ack`].
///
/// A transport whose callbacks report the losses of an ACK after its acknowledged packets stores
/// the event (for example in an `Option`) until the last of them. Dropping it without finishing it
/// withholds the ACK from the controller.
#[derive(Debug)]
#[must_use = "pass it to `finish_ack`, or the controller is not notified"]
pub struct AckEvent(Counts);

/// Losses that a timer found: from [`SendController::begin_losses`] to
/// [`enter_recovery_on_timer`](SendController::enter_recovery_on_timer),
/// [`enter_loss`](SendController::enter_loss) or
/// [`finish_losses`](SendController::finish_losses).
#[derive(Debug)]
#[must_use = "pass it to `enter_recovery_on_timer`, `enter_loss` or `finish_losses`"]
pub struct LossEvent(Counts);

impl AckEvent {
    /// Bytes newly acknowledged by this ACK so far.
    #[inline]
    pub fn newly_acked(&self) -> u64 {
        self.0.acked
    }
}

mod sealed {
    /// Counts since an event began. `inflight` is the number of bytes in flight before it.
    #[derive(Debug)]
    pub struct Counts {
        pub inflight: u64,
        pub acked: u64,
        pub lost: u64,
        pub lost_ranges: u32,
    }

    impl Counts {
        #[inline]
        pub fn new(inflight: u64) -> Self {
            Counts { inflight, acked: 0, lost: 0, lost_ranges: 0 }
        }
    }

    pub trait Event {
        fn counts(&self) -> &Counts;
        fn counts_mut(&mut self) -> &mut Counts;
    }
}

/// An event in which packets can be reported lost: an [`AckEvent`] or a [`LossEvent`].
pub trait Event: sealed::Event {
    /// Bytes marked lost in this event so far.
    #[inline]
    fn newly_lost(&self) -> u64 {
        self.counts().lost
    }
}

macro_rules! event {
    ($($type:ident)+) => {$(
        impl sealed::Event for $type {
            #[inline]
            fn counts(&self) -> &Counts {
                &self.0
            }
            #[inline]
            fn counts_mut(&mut self) -> &mut Counts {
                &mut self.0
            }
        }
        impl Event for $type {}
    )+};
}

event!(AckEvent LossEvent);

/// Pacing of a controller without its own rate; none until a round-trip time is known.
#[derive(Clone, Copy, Debug, Default)]
struct ByWindow {
    rate: Option<Rate>,
    quantum: u64,
}

/// The congestion control of one connection's sending side: a controller with a delivery-rate
/// [`Sampler`], a [`Pacer`] and Proportional Rate Reduction ([`Prr`]). The transport keeps its
/// packets, clocks, round-trip times and loss detection.
///
/// - Sending: while [`ready`](Self::ready) and the bytes in flight are below
///   [`window`](Self::window), up to [`send_quantum`](Self::send_quantum) bytes leave together:
///   [`on_sent`](Self::on_sent) for each packet, whose [`Stamp`] is kept with it, then
///   [`on_batch_sent`](Self::on_batch_sent) once.
/// - An ACK: [`begin_ack`](Self::begin_ack) opens an [`AckEvent`]. Until
///   [`finish_ack`](Self::finish_ack) consumes it, in any order: [`on_acked`](Self::on_acked) for
///   each packet newly acknowledged, [`on_lost`](Self::on_lost) for each packet that it shows to be
///   lost, [`exit_recovery`](Self::exit_recovery) or [`undo`](Self::undo) if it ends recovery, and
///   [`enter_recovery`](Self::enter_recovery) if its losses are the first.
/// - A loss timer: [`begin_losses`](Self::begin_losses) opens a [`LossEvent`]; `on_lost` for each
///   packet; then [`enter_recovery_on_timer`](Self::enter_recovery_on_timer) if the losses start
///   recovery, [`enter_loss`](Self::enter_loss) for a retransmission timeout, or
///   [`finish_losses`](Self::finish_losses).
/// - The path: [`on_mtu`](Self::on_mtu), [`on_path_change`](Self::on_path_change).
///
/// # Bytes
/// Bytes are whatever the window counts, the same everywhere: TCP's payload, or QUIC's UDP payload
/// with headers and authentication tag. [`Config::smss`](crate::Config::smss) is then the largest
/// UDP payload.
///
/// # QUIC
/// - [`on_handshake`](Self::on_handshake) cannot be called, because QUIC sends before it knows a
///   round-trip time. Every controller works without it.
/// - A probe timeout is not a loss (RFC 9002 §6.2): report nothing. Only persistent congestion is
///   reported as a timeout would be ([`on_persistent_congestion`](Self::on_persistent_congestion)).
/// - [`RttEstimator`](crate::RttEstimator), [`RecoveryEpisode`](crate::RecoveryEpisode),
///   [`WindowLimited`](crate::WindowLimited) and `Flight` (feature `alloc`) supply what a stack's
///   callbacks do not report.
///
/// The crate documentation has a complete sender.
#[derive(Clone, Debug)]
pub struct SendController<C> {
    cc: C,
    sampler: Sampler,
    pacer: Pacer,
    by_window: Option<ByWindow>,
    prr: Option<Prr>,
    smss: u32,
    recovery: RecoveryState,
    /// Ranges that a timer marked lost since the last ACK.
    timer_ranges: u32,
}

impl<C: CongestionControl> SendController<C> {
    /// The sending side of a new connection with packets of at most `smss` bytes, controlled by
    /// `cc`.
    pub fn new(cc: C, smss: u32) -> Self {
        SendController {
            cc,
            sampler: Sampler::new(),
            pacer: Pacer::new(),
            by_window: None,
            prr: None,
            smss: smss.max(1),
            recovery: RecoveryState::Open,
            timer_ranges: 0,
        }
    }

    /// Paces a controller without a pacing rate at a rate derived from its window, as Linux does
    /// under the `fq` qdisc (`tcp_update_pacing_rate`, `tcp_tso_autosize`). Also set
    /// [`Config::paced`](crate::Config::paced).
    #[must_use]
    pub fn paced_by_window(self) -> Self {
        SendController { by_window: Some(ByWindow::default()), ..self }
    }

    /// The controller.
    #[inline]
    pub fn controller(&self) -> &C {
        &self.cc
    }

    /// The controller, mutable, for external control. Report events to the facade instead: it keeps
    /// state of its own.
    #[inline]
    pub fn controller_mut(&mut self) -> &mut C {
        &mut self.cc
    }

    /// Bytes delivered on this path so far: since the start or the last
    /// [path change](Self::on_path_change).
    #[inline]
    pub fn delivered(&self) -> u64 {
        self.sampler.delivered()
    }

    /// Bytes marked lost on this path so far.
    #[inline]
    pub fn lost(&self) -> u64 {
        self.sampler.lost()
    }

    /// The loss-recovery state; [`RecoveryState::Disorder`] is known to the transport only and not
    /// reported here.
    #[inline]
    pub fn recovery(&self) -> RecoveryState {
        self.recovery
    }

    /// The effective window in bytes: the controller's, or that of Proportional Rate Reduction.
    #[inline]
    pub fn window(&self) -> u64 {
        self.prr.as_ref().map_or_else(|| self.cc.cwnd(), Prr::cwnd)
    }

    /// The pacing rate: the controller's, or one derived from its window if
    /// [enabled](Self::paced_by_window); `None` if unpaced.
    #[inline]
    pub fn pacing_rate(&self) -> Option<Rate> {
        self.cc.pacing_rate().or_else(|| self.by_window?.rate)
    }

    /// Maximum burst in bytes before querying the pacer again; unlimited if unpaced.
    #[inline]
    pub fn send_quantum(&self) -> u64 {
        match self.by_window {
            _ if self.cc.pacing_rate().is_some() => self.cc.send_quantum(),
            Some(ByWindow { rate: Some(_), quantum }) => quantum,
            _ => u64::MAX,
        }
    }

    /// Whether the pacer allows a burst at `now`.
    #[inline]
    pub fn ready(&self, now: Time) -> bool {
        self.pacing_rate().is_none() || self.pacer.ready(now)
    }

    /// The earliest departure time of the next burst.
    #[inline]
    pub fn next_departure(&self) -> Time {
        self.pacer.next_departure()
    }

    /// The handshake measured a first round-trip time. Call at most once, before the first packet,
    /// or not at all.
    pub fn on_handshake(&mut self, now: Time, rtt: Span) {
        self.cc.on_handshake(now, rtt);
        self.pace_by_window(0, Some(rtt), Some(rtt));
    }

    /// The size of the largest packet changed to `smss` bytes: path MTU discovery found more, or less.
    pub fn on_mtu(&mut self, smss: u32) {
        self.smss = smss.max(1);
        self.cc.on_mtu(self.smss);
        if let Some(prr) = &mut self.prr {
            prr.on_mtu(self.smss);
        }
    }

    /// The connection moved to another path: `cc`, a new controller (from the same
    /// [`ControllerSpec`](crate::ControllerSpec) and a [`Config`](crate::Config) for the new path),
    /// replaces the old one, and sampler, pacer and recovery start anew (RFC 9000 §9.4). Packets in
    /// flight were sent on the old path: their acknowledgements and losses are ignored. Finish
    /// an open event first, and report as in flight only what is sent on the new path.
    ///
    /// A mere change of the peer's port may keep the state (RFC 9000 §9.4): then call nothing.
    pub fn on_path_change(&mut self, now: Time, cc: C, smss: u32) {
        self.cc = cc;
        self.smss = smss.max(1);
        self.sampler.start_path(now);
        self.pacer = Pacer::new();
        self.by_window = self.by_window.map(|_| ByWindow::default());
        self.prr = None;
        self.recovery = RecoveryState::Open;
    }

    #[inline]
    fn pace_by_window(&mut self, outstanding: u64, srtt: Option<Span>, min_rtt: Option<Span>) {
        if let (Some(_), Some(srtt)) = (self.by_window, srtt) {
            let rate = rate_for_window(self.window(), self.cc.ssthresh(), outstanding, srtt);
            let quantum = autosize(rate, min_rtt, self.smss, 2);
            self.by_window = Some(ByWindow { rate: Some(rate), quantum });
        }
    }

    /// The application has no more data while `inflight` bytes in flight leave the window open.
    #[inline]
    pub fn mark_app_limited(&mut self, inflight: u64) {
        self.sampler.mark_app_limited(inflight);
    }

    /// A packet of `bytes` is sent at `now` with `inflight` bytes in flight before it. Store the
    /// stamp with the packet.
    #[inline]
    pub fn on_sent(&mut self, now: Time, bytes: u64, inflight: u64, retransmit: bool) -> Stamp {
        self.cc.on_send(&Sent {
            now,
            bytes,
            inflight,
            app_limited: self.sampler.is_app_limited(),
            delivered: self.sampler.delivered(),
            retransmit,
        });
        if let Some(prr) = &mut self.prr {
            prr.on_sent(bytes);
        }
        self.sampler.on_sent(now, bytes, inflight)
    }

    /// The packets reported by [`on_sent`](Self::on_sent) since the last burst, `bytes` in
    /// `segments`, were sent together. Probes and timer retransmissions are not paced and form
    /// no burst.
    #[inline]
    pub fn on_batch_sent(&mut self, now: Time, bytes: u64, segments: u64) {
        self.pacer.on_sent(now, bytes, segments, self.pacing_rate());
    }

    /// A packet of `bytes` left the flight neither acknowledged nor lost: its keys were discarded,
    /// or it probed the MTU. It counts as neither; without this call an application-limited mark
    /// lasts until as many further bytes are delivered. Later events report the smaller flight.
    pub fn on_packet_discarded(&mut self, bytes: u64) {
        self.sampler.on_discarded(bytes);
    }

    /// Starts processing an ACK, with `inflight` bytes in flight before it.
    #[inline]
    pub fn begin_ack(&mut self, inflight: u64) -> AckEvent {
        self.sampler.begin_ack();
        AckEvent(Counts::new(inflight))
    }

    /// The packet of `bytes` sent with `stamp` is newly acknowledged, cumulatively or selectively.
    #[inline]
    pub fn on_acked(&mut self, event: &mut AckEvent, now: Time, bytes: u64, stamp: &Stamp) {
        if self.sampler.is_of_path(stamp) {
            event.0.acked = event.0.acked.saturating_add(bytes);
            self.sampler.on_acked(now, bytes, stamp);
        }
    }

    /// Starts reporting losses found by a timer instead of an ACK, with `inflight` bytes in flight
    /// before them.
    pub fn begin_losses(&mut self, inflight: u64) -> LossEvent {
        LossEvent(Counts::new(inflight))
    }

    /// A packet of `bytes` sent with `stamp` is newly marked lost. `new_range` is whether it starts
    /// a range of lost packets: false if the packet sent before it is marked lost in the same event.
    /// A transport that does not know passes true for the first packet of an event only.
    #[inline]
    pub fn on_lost(&mut self, event: &mut impl Event, now: Time, bytes: u64, stamp: &Stamp, new_range: bool) {
        if !self.sampler.is_of_path(stamp) {
            return;
        }
        let counts = event.counts_mut();
        counts.lost = counts.lost.saturating_add(bytes);
        counts.lost_ranges += u32::from(new_range);
        self.sampler.on_lost(bytes);
        self.cc.on_lost(&Lost {
            now,
            bytes,
            tx_in_flight: stamp.tx_in_flight,
            delivered_at_send: stamp.delivered,
            lost_at_send: stamp.lost,
            lost: self.sampler.lost(),
            delivered: self.sampler.delivered(),
            app_limited: stamp.app_limited,
        });
    }

    fn change_recovery(&mut self, event: Recovery, state: RecoveryState, now: Time, inflight: u64) {
        self.recovery = state;
        let context =
            RecoveryContext { now, inflight, delivered: self.sampler.delivered(), lost: self.sampler.lost() };
        self.cc.on_recovery(event, &context);
    }

    fn start_recovery(&mut self, now: Time, inflight_before: u64) {
        let prior_cwnd = self.cc.cwnd();
        let reducing = self.prr.take().filter(|_| self.cc.in_cwr());
        self.change_recovery(Recovery::EnterFast, RecoveryState::Recovery, now, inflight_before);
        // A reduction for an ECN mark in progress continues (`tcp_enter_recovery`).
        self.prr = reducing.or_else(|| self.cc.uses_prr().then(|| Prr::new(prior_cwnd, self.smss)));
    }

    /// Enters fast recovery for losses that this ACK shows.
    pub fn enter_recovery(&mut self, event: &mut AckEvent, now: Time) {
        self.start_recovery(now, event.0.inflight);
    }

    /// Enters fast recovery on a timer, without an ACK: the losses of `event` leave `inflight`
    /// bytes, and one packet may be sent immediately (`tcp_rack_reo_timeout`).
    pub fn enter_recovery_on_timer(&mut self, event: LossEvent, now: Time, inflight: u64) {
        self.start_recovery(now, event.0.inflight);
        self.timer_ranges = self.timer_ranges.saturating_add(event.0.lost_ranges);
        if let Some(prr) = &mut self.prr {
            prr.on_ack(u64::from(self.smss), event.0.lost, inflight, self.cc.ssthresh(), false);
        }
    }

    /// The retransmission timer fired; `inflight` bytes remain after reporting everything presumed
    /// lost.
    pub fn enter_loss(&mut self, event: LossEvent, now: Time, inflight: u64) {
        let LossEvent(_) = event;
        self.presume_all_lost(now, inflight);
    }

    /// Closes losses found by a timer that change no state: the connection recovers already.
    pub fn finish_losses(&mut self, event: LossEvent) {
        self.timer_ranges = self.timer_ranges.saturating_add(event.0.lost_ranges);
    }

    /// The losses of `event` establish persistent congestion (RFC 9002 §7.6): `inflight` bytes
    /// remain. The controller starts over, as after a retransmission timeout. QUIC's probe timeout
    /// is not a loss and must not be reported here.
    ///
    /// NewReno, CUBIC, Hybla and BBR v1 fall to a window of one packet, as in Linux; RFC 9002 falls
    /// to two.
    pub fn on_persistent_congestion(&mut self, event: &mut impl Event, now: Time, inflight: u64) {
        let _ = event.counts();
        self.presume_all_lost(now, inflight);
    }

    fn presume_all_lost(&mut self, now: Time, inflight: u64) {
        self.prr = None;
        self.change_recovery(Recovery::EnterRto, RecoveryState::Loss, now, inflight);
    }

    /// A tail loss probe repaired a loss before it was detected: reduces the window without a
    /// recovery (`tcp_process_tlp_ack`). Has no effect on controllers that set their own
    /// window.
    pub fn reduce_for_repaired_loss(&mut self, now: Time, inflight: u64) {
        if self.cc.uses_prr() {
            self.change_recovery(Recovery::EnterFast, RecoveryState::Recovery, now, inflight);
            self.change_recovery(Recovery::Exit, RecoveryState::Open, now, inflight);
        }
    }

    /// Everything outstanding when recovery started is acknowledged (see [`Recovery::Exit`]).
    pub fn exit_recovery(&mut self, now: Time, inflight: u64) {
        self.prr = None;
        self.change_recovery(Recovery::Exit, RecoveryState::Open, now, inflight);
    }

    /// The losses were spurious: undoes their effects and ends a recovery in progress. A stack that
    /// reports this without a time passes that of its last event.
    pub fn undo(&mut self, now: Time, inflight: u64) {
        if self.recovery != RecoveryState::Open {
            self.prr = None;
        }
        self.change_recovery(Recovery::Spurious, RecoveryState::Open, now, inflight);
    }

    /// Starts or ends the reduction for an ECN mark (`tcp_enter_cwr`, `tcp_end_cwnd_reduction`).
    #[inline]
    fn reduce_for_mark(&mut self, prior_cwnd: u64) {
        match (self.cc.in_cwr(), self.prr) {
            (true, None) => self.prr = Some(Prr::new(prior_cwnd, self.smss)),
            (false, Some(_)) => self.prr = None,
            _ => {}
        }
    }

    /// Finishes processing an ACK and notifies the controller. Returns its delivery-rate sample.
    #[inline]
    pub fn finish_ack(&mut self, event: AckEvent, report: &AckReport) -> RateSample {
        let sample = self.sampler.finish_ack(report.now, report.min_rtt);
        let Counts { inflight: inflight_before, acked: newly_acked, lost: newly_lost, lost_ranges } = event.0;
        let disorder = report.disorder && self.recovery == RecoveryState::Open;
        let prior_cwnd = self.cc.cwnd();
        self.cc.on_ack(&Ack {
            now: report.now,
            sample,
            rtt: report.rtt,
            srtt: report.srtt,
            newly_acked,
            newly_lost,
            lost_ranges: lost_ranges.saturating_add(core::mem::take(&mut self.timer_ranges)),
            inflight_before,
            inflight: report.inflight,
            delivered: self.sampler.delivered(),
            lost: self.sampler.lost(),
            cwnd_limited: report.cwnd_limited,
            ce_count: report.ce_count,
            // Nothing else arrived since it left (`tcp_clean_rtx_queue`).
            delayed: report.lone_runt && sample.delivered == newly_acked,
            recovery: if disorder { RecoveryState::Disorder } else { self.recovery },
            next_departure: self.pacer.next_departure(),
        });
        if self.cc.marks_app_limited() {
            self.sampler.mark_app_limited(report.inflight);
        }
        if self.recovery == RecoveryState::Open {
            self.reduce_for_mark(prior_cwnd);
        }
        if let Some(prr) = &mut self.prr {
            prr.on_ack(newly_acked, newly_lost, report.inflight, self.cc.ssthresh(), report.advanced);
        }
        self.pace_by_window(report.outstanding, report.srtt, report.min_rtt);
        sample
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, ControllerSpec, Snapshot};
    use std::vec::Vec;

    const SMSS: u64 = 1000;

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    /// Records its calls.
    #[derive(Default)]
    struct CallRecorder {
        calls: Vec<&'static str>,
        acks: Vec<Ack>,
        losses: Vec<Lost>,
    }

    impl CongestionControl for CallRecorder {
        fn on_send(&mut self, _: &Sent) {
            self.calls.push("send");
        }
        fn on_lost(&mut self, lost: &Lost) {
            self.calls.push("lost");
            self.losses.push(*lost);
        }
        fn on_ack(&mut self, ack: &Ack) {
            self.calls.push("ack");
            self.acks.push(*ack);
        }
        fn on_recovery(&mut self, event: Recovery, _: &RecoveryContext) {
            self.calls.push(match event {
                Recovery::EnterFast => "recovery",
                Recovery::EnterRto => "timeout",
                Recovery::Exit => "exit",
                Recovery::Spurious => "spurious",
            });
        }
        fn on_mtu(&mut self, _: u32) {}
        fn cwnd(&self) -> u64 {
            10 * SMSS
        }
        fn ssthresh(&self) -> u64 {
            5 * SMSS
        }
        fn pacing_rate(&self) -> Option<Rate> {
            None
        }
        fn send_quantum(&self) -> u64 {
            SMSS
        }
        fn snapshot(&self) -> Snapshot {
            Snapshot::default()
        }
    }

    fn ten_sent<C: CongestionControl>(control: &mut SendController<C>) -> Vec<Stamp> {
        let stamps = (0..10).map(|i| control.on_sent(at(0), SMSS, i * SMSS, false)).collect();
        control.on_batch_sent(at(0), 10 * SMSS, 10);
        stamps
    }

    #[test]
    fn controller_without_a_rate_is_paced_by_its_window_if_enabled() {
        let unpaced = SendController::new(CallRecorder::default(), SMSS as u32);
        assert_eq!((unpaced.pacing_rate(), unpaced.send_quantum()), (None, u64::MAX));
        let mut paced = unpaced.paced_by_window();
        assert_eq!(paced.pacing_rate(), None, "no round-trip time is known");
        let ack = |control: &mut SendController<CallRecorder>, srtt| {
            let event = control.begin_ack(0);
            let srtt = Some(Span::from_millis(srtt));
            control.finish_ack(event, &AckReport { srtt, min_rtt: srtt, ..AckReport::at(at(100), 0) });
            (control.pacing_rate().unwrap().as_bytes_per_sec(), control.send_quantum())
        };
        // Past half of the threshold: 1.2 windows of ten packets a round trip, in bursts of two packets at
        // least.
        assert_eq!(ack(&mut paced, 100), (120_000, 2 * SMSS));
        // What is outstanding, if that is more than the window: in a recovery.
        let event = paced.begin_ack(0);
        let srtt = Some(Span::from_millis(100));
        let recovering =
            AckReport { srtt, min_rtt: srtt, outstanding: 25 * SMSS, ..AckReport::at(at(100), 0) };
        paced.finish_ack(event, &recovering);
        assert_eq!(paced.pacing_rate().unwrap().as_bytes_per_sec(), 300_000);
        // A nearby peer gets larger bursts.
        let (rate, quantum) = ack(&mut paced, 1);
        assert!(rate == 12_000_000 && quantum > 10 * SMSS, "{rate} {quantum}");
        ten_sent(&mut paced);
        assert!(!paced.ready(at(0)));
        let mut own = SendController::new(
            ControllerSpec::parse("bbr").unwrap().build(&Config::default()),
            Config::default().smss,
        )
        .paced_by_window();
        own.on_handshake(at(0), Span::from_millis(100));
        assert_eq!(
            own.pacing_rate(),
            own.controller().pacing_rate(),
            "the controller's own rate has priority"
        );
    }

    #[test]
    fn losses_are_reported_before_their_ack_and_summed_in_it() {
        let mut control = SendController::new(CallRecorder::default(), SMSS as u32);
        let stamps = ten_sent(&mut control);
        let mut event = control.begin_ack(10 * SMSS);
        for i in [3, 4, 9] {
            control.on_acked(&mut event, at(50), SMSS, &stamps[i]);
        }
        for (i, new_range) in [(0, true), (1, false), (5, true)] {
            control.on_lost(&mut event, at(50), SMSS, &stamps[i], new_range);
        }
        assert_eq!((event.newly_acked(), event.newly_lost()), (3000, 3000));
        control.enter_recovery(&mut event, at(50));
        control.finish_ack(event, &AckReport { advanced: false, ..AckReport::at(at(50), 4 * SMSS) });
        let recorder = control.controller();
        assert_eq!(recorder.calls[10..], ["lost", "lost", "lost", "recovery", "ack"]);
        let ack = recorder.acks[0];
        assert_eq!((ack.newly_acked, ack.newly_lost, ack.lost_ranges), (3000, 3000, 2));
        assert_eq!(
            (ack.inflight_before, ack.inflight, ack.recovery),
            (10_000, 4000, RecoveryState::Recovery)
        );
        assert_eq!(recorder.losses[2].lost, 3000);
    }

    /// The order of quinn and noq: acknowledgements, their end, and then the losses.
    #[test]
    fn losses_may_follow_acknowledgements_in_an_event() {
        fn storable<T: Send + Sync + core::fmt::Debug + 'static>(_: &T) {}
        let mut control = SendController::new(CallRecorder::default(), SMSS as u32);
        let stamps = ten_sent(&mut control);
        let mut between_callbacks = Some(control.begin_ack(10 * SMSS));
        storable(&between_callbacks);
        assert!(size_of_val(&between_callbacks) <= 40);
        control.on_acked(between_callbacks.as_mut().unwrap(), at(50), SMSS, &stamps[4]);
        let mut event = between_callbacks.take().unwrap();
        control.on_lost(&mut event, at(50), 2 * SMSS, &stamps[0], true);
        control.enter_recovery(&mut event, at(50));
        control.finish_ack(event, &AckReport::at(at(50), 7 * SMSS));
        let recorder = control.controller();
        assert_eq!(recorder.calls[10..], ["lost", "recovery", "ack"]);
        let ack = recorder.acks[0];
        assert_eq!((ack.newly_acked, ack.newly_lost, ack.inflight_before), (1000, 2000, 10_000));
        assert_eq!(ack.recovery, RecoveryState::Recovery);
    }

    #[test]
    fn persistent_congestion_starts_over_like_a_timeout() {
        let config = Config { smss: SMSS as u32, ..Config::default() };
        let reno = ControllerSpec::parse("reno").unwrap().build(&config);
        let mut control = SendController::new(reno, config.smss);
        let stamps = ten_sent(&mut control);
        let mut event = control.begin_ack(10 * SMSS);
        control.on_acked(&mut event, at(500), SMSS, &stamps[9]);
        for (i, stamp) in stamps[..9].iter().enumerate() {
            control.on_lost(&mut event, at(500), SMSS, stamp, i == 0);
        }
        control.enter_recovery(&mut event, at(500));
        control.on_persistent_congestion(&mut event, at(500), 0);
        assert_eq!((control.window(), control.recovery()), (SMSS, RecoveryState::Loss));
        control.finish_ack(event, &AckReport::at(at(500), 0));
        assert_eq!(control.window(), 2 * SMSS, "slow start with what this ACK acknowledges");
    }

    #[test]
    fn new_packet_size_reaches_controller_and_prr() {
        let config = Config { smss: SMSS as u32, initial_cwnd: 10 * SMSS, ..Config::default() };
        let reno = ControllerSpec::parse("reno").unwrap().build(&config);
        let recovering = |mtu: Option<u32>| {
            let mut control = SendController::new(reno.clone(), config.smss);
            let stamps = ten_sent(&mut control);
            let mut event = control.begin_ack(10 * SMSS);
            control.on_lost(&mut event, at(50), 9 * SMSS, &stamps[0], true);
            control.enter_recovery(&mut event, at(50));
            if let Some(mtu) = mtu {
                control.on_mtu(mtu);
            }
            control.on_acked(&mut event, at(50), 100, &stamps[9]);
            control.finish_ack(event, &AckReport::at(at(50), 900));
            (control.window(), control.controller().cwnd())
        };
        // One packet may leave at the start of a recovery: of the new size.
        assert_eq!(recovering(None), (900 + SMSS, 5 * SMSS));
        // The window in bytes stays, in whole packets.
        assert_eq!(recovering(Some(1400)), (900 + 1400, 3 * 1400));
    }

    #[test]
    fn packets_of_an_old_path_do_not_count_on_the_new_one() {
        let spec = ControllerSpec::parse("bbr3").unwrap();
        let config = Config { smss: SMSS as u32, ..Config::default() };
        let mut control = SendController::new(spec.build(&config), config.smss);
        let old = ten_sent(&mut control);
        control.mark_app_limited(10 * SMSS);
        let mut event = control.begin_ack(10 * SMSS);
        control.on_acked(&mut event, at(50), SMSS, &old[0]);
        control.on_lost(&mut event, at(50), SMSS, &old[1], true);
        control.enter_recovery(&mut event, at(50));
        control.finish_ack(event, &AckReport::at(at(50), 8 * SMSS));

        let new_config = Config { smss: 500, initial_cwnd: 5000, ..config };
        control.on_path_change(at(60), spec.build(&new_config), new_config.smss);
        assert_eq!((control.delivered(), control.lost(), control.window()), (0, 0, 5000));
        assert_eq!((control.recovery(), control.ready(at(60))), (RecoveryState::Open, true));
        let new = control.on_sent(at(60), 500, 0, false);
        assert!(!new.app_limited);

        let mut event = control.begin_ack(500);
        control.on_acked(&mut event, at(61), SMSS, &old[9]);
        control.on_lost(&mut event, at(61), SMSS, &old[2], true);
        assert_eq!((event.newly_acked(), event.newly_lost()), (0, 0));
        let sample = control.finish_ack(event, &AckReport::at(at(61), 500));
        assert!(!sample.has_packet && sample.rate.is_none(), "{sample:?}");

        let mut event = control.begin_ack(500);
        control.on_acked(&mut event, at(160), 500, &new);
        let sample = control.finish_ack(event, &AckReport::at(at(160), 0));
        assert_eq!(sample.rate, Some(Rate::from_bytes_in(500, Span::from_millis(100))));
        assert_eq!((control.delivered(), control.lost()), (500, 0));
    }

    #[test]
    fn discarded_packets_do_not_prolong_an_application_limited_phase() {
        let limited = |discarded: u64| {
            let mut control = SendController::new(CallRecorder::default(), SMSS as u32);
            let stamps = ten_sent(&mut control);
            control.mark_app_limited(10 * SMSS);
            control.on_packet_discarded(discarded);
            let mut event = control.begin_ack(10 * SMSS);
            for stamp in &stamps[..6] {
                control.on_acked(&mut event, at(50), SMSS, stamp);
            }
            control.finish_ack(event, &AckReport::at(at(50), 4 * SMSS - discarded.min(4 * SMSS)));
            control.on_sent(at(51), SMSS, SMSS, false).app_limited
        };
        assert!(limited(0) && limited(4 * SMSS));
        assert!(!limited(5 * SMSS) && !limited(u64::MAX));
    }

    #[test]
    fn spurious_losses_end_recovery_and_its_window() {
        let mut control = SendController::new(CallRecorder::default(), SMSS as u32);
        let stamps = ten_sent(&mut control);
        let mut event = control.begin_ack(10 * SMSS);
        control.on_acked(&mut event, at(50), SMSS, &stamps[1]);
        control.on_lost(&mut event, at(50), SMSS, &stamps[0], true);
        control.enter_recovery(&mut event, at(50));
        control.finish_ack(event, &AckReport::at(at(50), 8 * SMSS));
        assert_eq!(control.window(), 9 * SMSS);
        control.undo(at(51), 8 * SMSS);
        assert_eq!((control.window(), control.recovery()), (10 * SMSS, RecoveryState::Open));
    }

    #[test]
    fn prr_reduces_the_window_until_recovery_ends() {
        let mut control = SendController::new(CallRecorder::default(), SMSS as u32);
        let stamps = ten_sent(&mut control);
        let mut event = control.begin_ack(10 * SMSS);
        control.on_acked(&mut event, at(50), SMSS, &stamps[1]);
        control.on_lost(&mut event, at(50), SMSS, &stamps[0], true);
        control.enter_recovery(&mut event, at(50));
        control.finish_ack(event, &AckReport { advanced: false, ..AckReport::at(at(50), 8 * SMSS) });
        // The retransmission that recovery starts with may leave, no more.
        assert_eq!(control.window(), 9 * SMSS);
        control.on_sent(at(50), SMSS, 8 * SMSS, true);
        for (i, stamp) in stamps.iter().enumerate().skip(2) {
            let mut event = control.begin_ack((11 - i as u64) * SMSS);
            control.on_acked(&mut event, at(50 + i as u64), SMSS, stamp);
            control.finish_ack(event, &AckReport::at(at(50 + i as u64), (10 - i as u64) * SMSS));
        }
        assert!(control.window() < 10 * SMSS);
        control.exit_recovery(at(90), 0);
        assert_eq!((control.window(), control.recovery()), (10 * SMSS, RecoveryState::Open));
    }

    /// Linux's CWR: the window falls with what is delivered, not at once, and ends where the
    /// controller is.
    #[test]
    fn ecn_mark_reduces_the_window_by_one_packet_per_two_delivered() {
        let config = Config { smss: SMSS as u32, initial_cwnd: 20 * SMSS, ..Config::default() };
        let mut control =
            SendController::new(ControllerSpec::parse("reno").unwrap().build(&config), SMSS as u32);
        let stamps: Vec<Stamp> = (0..20).map(|i| control.on_sent(at(0), SMSS, i * SMSS, false)).collect();
        let mut inflight = 20 * SMSS;
        let mut sent = 0;
        for (i, stamp) in stamps.iter().enumerate() {
            let mut event = control.begin_ack(inflight);
            control.on_acked(&mut event, at(50), SMSS, stamp);
            inflight -= SMSS;
            control.finish_ack(
                event,
                &AckReport { ce_count: u32::from(i == 0), ..AckReport::at(at(50), inflight) },
            );
            while inflight + SMSS <= control.window() {
                control.on_sent(at(50), SMSS, inflight, false);
                inflight += SMSS;
                sent += 1;
            }
            if i == 9 {
                assert_eq!((sent, control.recovery()), (5, RecoveryState::Open), "after half of the flight");
            }
        }
        assert_eq!((control.controller().cwnd(), sent), (10 * SMSS, 10));
    }

    #[test]
    fn the_next_ack_counts_ranges_lost_since_the_last_but_not_their_bytes() {
        let mut control = SendController::new(CallRecorder::default(), SMSS as u32);
        let stamps = ten_sent(&mut control);
        let mut losses = control.begin_losses(10 * SMSS);
        control.on_lost(&mut losses, at(300), SMSS, &stamps[0], true);
        control.enter_recovery_on_timer(losses, at(300), 9 * SMSS);
        assert_eq!(control.window(), 10 * SMSS, "one packet may leave");
        let mut event = control.begin_ack(9 * SMSS);
        control.on_acked(&mut event, at(301), SMSS, &stamps[1]);
        control.finish_ack(event, &AckReport::at(at(301), 8 * SMSS));
        let ack = control.controller().acks[0];
        assert_eq!((ack.newly_lost, ack.lost_ranges, ack.lost), (0, 1, 1000));
        let mut event = control.begin_ack(8 * SMSS);
        control.on_acked(&mut event, at(302), SMSS, &stamps[2]);
        control.finish_ack(event, &AckReport::at(at(302), 7 * SMSS));
        assert_eq!(control.controller().acks[1].lost_ranges, 0, "each is counted once");
    }

    #[test]
    fn lone_runt_counts_as_delayed_only_if_nothing_else_was_delivered() {
        let delayed = |others: bool| {
            let mut control = SendController::new(CallRecorder::default(), SMSS as u32);
            let first = control.on_sent(at(0), SMSS, 0, false);
            let runt = control.on_sent(at(0), 10, SMSS, false);
            let mut event = control.begin_ack(SMSS + 10);
            control.on_acked(&mut event, at(40), SMSS, &first);
            if others {
                control.finish_ack(event, &AckReport::at(at(40), 10));
                event = control.begin_ack(10);
            }
            control.on_acked(&mut event, at(80), 10, &runt);
            control.finish_ack(event, &AckReport { lone_runt: true, ..AckReport::at(at(80), 0) });
            control.controller().acks.last().is_some_and(|ack| ack.delayed)
        };
        assert!(delayed(false) && !delayed(true));
    }

    #[test]
    fn controllers_work_as_trait_objects_and_across_threads() {
        fn is_send<T: Send>(_: &T) {}
        let mut bbr = ControllerSpec::parse("bbr").unwrap().build(&Config::default());
        let mut recorder = CallRecorder::default();
        for cc in [&mut bbr as &mut dyn CongestionControl, &mut recorder] {
            let mut control = SendController::new(cc, SMSS as u32);
            ten_sent(&mut control);
            is_send(&control);
            assert!(control.ready(at(1000)) && control.window() > 0);
        }
    }
}
