//! What Linux's TCP does around a loss-based controller: counting in packets, slow start, window
//! reduction and undo, timeouts, restart after idle (`net/ipv4/tcp_input.c`, `tcp_cong.c`).
//!
//! A loss-based algorithm is a [`Growth`]: it defines window growth and reduction.
//! [`LossBased`] turns it into a controller.

use crate::control::{
    Ack, Config, CongestionControl, Lost, Recovery, RecoveryContext, RecoveryState, Sent, Snapshot,
};
use crate::pacer::GSO_MAX_BYTES;
use crate::packets::{PacketScale, saturate};
use fullpipe_units::{Rate, Span, Time};

/// The largest window: what a TCP window can express (2³⁰ bytes, RFC 7323 §2.3) in segments of 64
/// bytes.
pub const MAX_PACKETS: u32 = 1 << 24;

/// The unset slow-start threshold (`TCP_INFINITE_SSTHRESH`).
pub const NO_SSTHRESH: u32 = 0x7fff_ffff;

/// Lower bound of the kernel's RTO beyond the smoothed round-trip time (RFC 6298).
const MIN_RTO: Span = Span::from_millis(200);

/// The retransmission timeout before the first round-trip time (RFC 6298 §2.1).
const INITIAL_RTO: Span = Span::from_secs(1);

/// The sender's window and related state, in packets of one maximum segment size.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Congestion window, ≥ 1.
    pub cwnd: u32,
    /// Packets acknowledged since the window last grew in congestion avoidance.
    pub cwnd_count: u32,
    /// Slow-start threshold; [`NO_SSTHRESH`] if not set.
    pub ssthresh: u32,
    /// Upper limit of the window.
    pub clamp: u32,
    /// Smoothed round-trip time.
    pub srtt: Option<Span>,
    scale: PacketScale,
    initial_cwnd: u32,
    prior_cwnd: u32,
    /// `None` if there is nothing to undo.
    prior_ssthresh: Option<u32>,
    state: RecoveryState,
    /// The window was reduced for an ECN mark: until `marked_until` is delivered, further marks are
    /// ignored and the window does not grow.
    marked: bool,
    marked_until: u64,
    /// Reordering was detected (disorder without loss), so ACKs with a hole still grow the window
    /// (`tcp_may_raise_cwnd`).
    reorders: bool,
    disorder: bool,
    /// Data was delivered since the last timeout.
    progress: bool,
    delivered: u64,
    acked_packets: u64,
    last_sent: Option<Time>,
}

impl Window {
    fn new(config: &Config) -> Self {
        let scale = PacketScale::new(config.smss);
        let initial_cwnd = saturate(scale.count(config.initial_cwnd)).clamp(1, MAX_PACKETS);
        Window {
            cwnd: initial_cwnd,
            cwnd_count: 0,
            ssthresh: NO_SSTHRESH,
            clamp: MAX_PACKETS,
            srtt: None,
            scale,
            initial_cwnd,
            prior_cwnd: 0,
            prior_ssthresh: None,
            state: RecoveryState::Open,
            marked: false,
            marked_until: 0,
            reorders: false,
            disorder: false,
            progress: true,
            delivered: 0,
            acked_packets: 0,
            last_sent: None,
        }
    }

    /// Maximum segment size in payload bytes.
    pub fn smss(&self) -> u32 {
        self.scale.smss()
    }

    /// The packet number at `bytes` of the byte stream.
    #[cfg(feature = "linux")]
    pub(crate) fn packet_at(&self, bytes: u64) -> u64 {
        self.scale.position(bytes)
    }

    /// The packets that hold `bytes` bytes.
    #[cfg(feature = "linux")]
    pub(crate) fn packets_in(&self, bytes: u64) -> u64 {
        self.scale.count(bytes)
    }

    /// The loss-recovery state.
    pub fn state(&self) -> RecoveryState {
        self.state
    }

    /// Whether the window is below the slow-start threshold.
    #[inline]
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Whether the window limited sending and may grow (`tcp_is_cwnd_limited`: in slow start, half
    /// of it in use is enough).
    #[inline]
    pub fn is_limiting(&self, ack: &Ack) -> bool {
        ack.cwnd_limited
            || self.in_slow_start() && self.scale.bytes(self.cwnd) < ack.inflight_before.saturating_mul(2)
    }

    /// Slow start: grows by one packet per acknowledged packet, up to the threshold. Returns the
    /// rest. RFC 5681 §3.1, Linux `tcp_slow_start`.
    #[inline]
    pub fn slow_start(&mut self, acked: u32) -> u32 {
        let cwnd = self.cwnd.saturating_add(acked).min(self.ssthresh);
        let left = acked - cwnd.saturating_sub(self.cwnd);
        self.cwnd = cwnd.min(self.clamp);
        left
    }

    /// Slow start, if the window is below the threshold. Returns what congestion avoidance may use
    /// of `acked`.
    #[inline]
    pub fn rest_of_slow_start(&mut self, acked: u32) -> u32 {
        if self.in_slow_start() { self.slow_start(acked) } else { acked }
    }

    /// Congestion avoidance: grows by one packet per `per_increase` acknowledged packets, counted
    /// across ACKs. RFC 5681 §3.1, Linux `tcp_cong_avoid_ai`.
    #[inline]
    pub fn additive_increase(&mut self, per_increase: u32, acked: u32) {
        let per_increase = per_increase.max(1);
        // Spend credit from a larger `per_increase` one packet at a time.
        if self.cwnd_count >= per_increase {
            self.cwnd_count = 0;
            self.cwnd = self.cwnd.saturating_add(1);
        }
        self.cwnd_count = self.cwnd_count.saturating_add(acked);
        if self.cwnd_count >= per_increase {
            let increase = self.cwnd_count / per_increase;
            self.cwnd_count -= increase * per_increase;
            self.cwnd = self.cwnd.saturating_add(increase);
        }
        self.cwnd = self.cwnd.min(self.clamp);
    }

    /// Reno's growth (`tcp_reno_cong_avoid`).
    #[inline]
    pub fn reno(&mut self, acked: u32) {
        let acked = self.rest_of_slow_start(acked);
        if acked == 0 {
            return;
        }
        self.additive_increase(self.cwnd, acked);
    }

    /// The threshold to restore after a spurious loss (`tcp_current_ssthresh`).
    fn current_ssthresh(&self) -> u32 {
        if self.state == RecoveryState::Recovery || self.marked {
            self.ssthresh
        } else {
            self.ssthresh.max((self.cwnd >> 1) + (self.cwnd >> 2))
        }
    }

    fn save_for_undo(&mut self) {
        self.prior_ssthresh = Some(self.current_ssthresh());
        self.prior_cwnd = self.cwnd;
    }

    /// The retransmission timeout.
    fn rto(&self) -> Span {
        self.srtt.map_or(INITIAL_RTO, |srtt| srtt + MIN_RTO)
    }

    /// RFC 5681 §4.1, Linux `tcp_cwnd_restart`: after an idle period longer than the RTO, halves
    /// the window once per RTO, down to the initial window.
    fn restart_after(&mut self, idle: Span) {
        let rto = self.rto();
        self.ssthresh = self.current_ssthresh();
        let floor = self.initial_cwnd.min(self.cwnd);
        let mut left = idle - rto;
        while !left.is_zero() && self.cwnd > floor {
            self.cwnd >>= 1;
            left -= rto;
        }
        self.cwnd = self.cwnd.max(floor);
        self.cwnd_count = 0;
    }
}

/// What else happens to a window: for an algorithm that implements more of the kernel's
/// `tcp_congestion_ops`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WindowEvent {
    /// Transmission starts with nothing in flight (`CA_EVENT_TX_START`).
    TransmitStart,
    /// An idle period longer than the RTO is about to shrink the window (`CA_EVENT_CWND_RESTART`).
    Restart,
    /// A timeout set the threshold; the window is still the one before it (`CA_EVENT_LOSS`).
    Timeout,
    /// The loss-recovery state changed. When a reduction starts, the threshold is set and the
    /// window is still the one before it.
    State(RecoveryState),
    /// The window is reduced for an ECN mark or because the algorithm backs off (`TCP_CA_CWR`). The
    /// threshold is set; the window is still the one before it.
    StateCwr,
    /// A reduction by fast recovery, a mark or a back-off is complete: the window is at the
    /// threshold (`CA_EVENT_COMPLETE_CWR`).
    ReductionComplete,
}

/// Window growth and reduction of a loss-based algorithm: the kernel's `tcp_congestion_ops`.
pub trait Growth: Send {
    /// The first round-trip time is known, before the first packet (`init`).
    fn start(&mut self, _window: &mut Window, _srtt: Span) {}

    /// Transmission starts with nothing in flight; `last` is the previous send time
    /// (`CA_EVENT_TX_START`).
    fn transmit_start(&mut self, _now: Time, _last: Time) {}

    /// An ACK newly acknowledged data, in any state (`pkts_acked`).
    fn on_acked(&mut self, _window: &mut Window, _ack: &Ack) {}

    /// An ACK newly acknowledged `acked` ≥ 1 packets and the window may grow (`cong_avoid`).
    fn grow(&mut self, window: &mut Window, ack: &Ack, acked: u32);

    /// The window after a loss, ≥ 2 packets (`ssthresh`).
    fn ssthresh(&mut self, window: &Window) -> u32;

    /// The loss-recovery state changed, including to [`RecoveryState::Disorder`] (`set_state`).
    fn set_state(&mut self, _state: RecoveryState, _context: &RecoveryContext) {}

    /// The window after a loss at the moment `context`; by default [`ssthresh`](Self::ssthresh).
    fn ssthresh_at(&mut self, window: &Window, _context: &RecoveryContext) -> u32 {
        self.ssthresh(window)
    }

    /// An event besides those above, for algorithms that use more of the kernel's interface.
    #[inline]
    fn on_event(&mut self, _window: &mut Window, _event: WindowEvent, _context: &RecoveryContext) {}

    /// Whether the last [`grow`](Self::grow) asked to reduce the window as for an ECN mark
    /// (`tcp_enter_cwr`).
    #[inline]
    fn backs_off(&mut self) -> bool {
        false
    }

    /// The window after a spurious loss, where `prior` is the one before the loss (`undo_cwnd`).
    fn undo_cwnd(&mut self, window: &Window, prior: u32) -> u32 {
        window.cwnd.max(prior)
    }

    /// The packet size changes from `old` to `new` bytes: scale saved windows to keep their bytes.
    fn rescale(&mut self, _old: u32, _new: u32) {}

    /// The name of the current growth phase.
    fn phase(&self, window: &Window) -> &'static str {
        if window.in_slow_start() { "SlowStart" } else { "CongestionAvoidance" }
    }

    /// The minimum round-trip time it uses, if any.
    fn min_rtt(&self) -> Option<Span> {
        None
    }
}

/// A controller built from a [`Growth`].
#[derive(Clone, Copy, Debug)]
pub struct LossBased<G> {
    window: Window,
    growth: G,
}

impl<G: Growth> LossBased<G> {
    /// A controller for a new connection.
    pub fn new(config: &Config, growth: G) -> Self {
        LossBased { window: Window::new(config), growth }
    }

    /// The window.
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// The algorithm.
    pub fn growth(&self) -> &G {
        &self.growth
    }

    /// Starts a reduction: sets the threshold and saves state to undo it.
    fn start_reduction(&mut self, context: &RecoveryContext) {
        self.window.save_for_undo();
        self.window.cwnd_count = 0;
        self.window.ssthresh = self.growth.ssthresh_at(&self.window, context).max(2);
    }

    /// Reduces the window to the threshold, the target of Proportional Rate Reduction; senders
    /// without it reduce immediately (RFC 5681).
    fn reduce(&mut self) {
        self.window.cwnd = self.window.ssthresh;
    }

    /// Reduces the window outside loss recovery (`tcp_enter_cwr`).
    #[cold]
    fn enter_cwr(&mut self, ack: &Ack) {
        let context = context_of(ack);
        self.start_reduction(&context);
        self.growth.on_event(&mut self.window, WindowEvent::StateCwr, &context);
        self.reduce();
        self.window.prior_ssthresh = None;
        self.window.marked = true;
        self.window.marked_until = ack.delivered.saturating_add(ack.inflight);
    }

    /// An ECN mark counts as a loss, once per window (RFC 3168 §6.1.2).
    #[cold]
    fn on_marks(&mut self, ack: &Ack) {
        if ack.delivered >= self.window.marked_until {
            if self.window.marked {
                let (w, context) = (&mut self.window, context_of(ack));
                self.growth.on_event(w, WindowEvent::ReductionComplete, &context);
                self.growth.on_event(w, WindowEvent::State(RecoveryState::Open), &context);
            }
            self.window.marked = false;
        }
        if ack.ce_count > 0 && self.window.state == RecoveryState::Open && !self.window.marked {
            self.enter_cwr(ack);
        }
    }
}

impl<G: Growth> CongestionControl for LossBased<G> {
    fn on_handshake(&mut self, _now: Time, rtt: Span) {
        self.window.srtt = Some(rtt);
        self.growth.start(&mut self.window, rtt);
    }

    #[inline]
    fn on_send(&mut self, sent: &Sent) {
        if let (0, Some(last)) = (sent.inflight, self.window.last_sent) {
            let delivered = self.window.delivered;
            let context = RecoveryContext { now: sent.now, inflight: 0, delivered, lost: 0 };
            let idle = sent.now - last;
            if !sent.retransmit && idle > self.window.rto() {
                self.growth.on_event(&mut self.window, WindowEvent::Restart, &context);
                self.window.restart_after(idle);
            }
            self.growth.transmit_start(sent.now, last);
            self.growth.on_event(&mut self.window, WindowEvent::TransmitStart, &context);
        }
        self.window.last_sent = Some(sent.now);
    }

    #[inline]
    fn on_lost(&mut self, _lost: &Lost) {}

    #[inline]
    fn on_ack(&mut self, ack: &Ack) {
        let w = &mut self.window;
        w.srtt = ack.srtt.or(w.srtt);
        w.delivered = ack.delivered;
        let position = w.scale.position(ack.delivered);
        let acked = saturate(position.saturating_sub(w.acked_packets));
        w.acked_packets = position;
        if ack.newly_acked > 0 {
            w.progress = true;
            self.growth.on_acked(w, ack);
        }
        let disorder = ack.recovery == RecoveryState::Disorder;
        w.reorders |= w.disorder && ack.recovery == RecoveryState::Open;
        if w.disorder != disorder && w.state == RecoveryState::Open {
            let context = context_of(ack);
            let state = if disorder { RecoveryState::Disorder } else { RecoveryState::Open };
            self.growth.set_state(state, &context);
            self.growth.on_event(w, WindowEvent::State(state), &context);
        }
        w.disorder = disorder;
        if ack.ce_count > 0 || w.marked {
            self.on_marks(ack);
        }
        let w = &mut self.window;
        let frozen = w.state == RecoveryState::Recovery || w.marked || disorder && !w.reorders;
        if acked > 0 && !frozen {
            self.growth.grow(w, ack, acked);
            if self.growth.backs_off() && w.state == RecoveryState::Open {
                self.enter_cwr(ack);
            }
        }
    }

    fn on_recovery(&mut self, event: Recovery, context: &RecoveryContext) {
        let before = self.window.state;
        match event {
            Recovery::EnterFast => {
                if self.window.state == RecoveryState::Recovery {
                    return;
                }
                let reduces = !self.window.marked;
                if reduces {
                    self.start_reduction(context);
                }
                let threshold = self.window.ssthresh;
                let entered = WindowEvent::State(RecoveryState::Recovery);
                self.growth.on_event(&mut self.window, entered, context);
                if reduces || self.window.ssthresh != threshold {
                    self.reduce();
                }
                self.window.marked = false;
                self.window.state = RecoveryState::Recovery;
            }
            Recovery::EnterRto => {
                // A window already reduced in this recovery is not reduced again, unless data was delivered
                // since the last timeout (`tcp_enter_loss`).
                let w = &self.window;
                let reduces = match w.state {
                    RecoveryState::Open | RecoveryState::Disorder => true,
                    RecoveryState::Recovery => false,
                    RecoveryState::Loss => w.progress,
                };
                if reduces {
                    self.start_reduction(context);
                    self.growth.on_event(&mut self.window, WindowEvent::Timeout, context);
                    self.reduce();
                }
                let w = &mut self.window;
                w.cwnd = saturate(w.scale.count(context.inflight)).saturating_add(1).min(w.ssthresh.max(1));
                w.cwnd_count = 0;
                w.state = RecoveryState::Loss;
                w.progress = false;
                w.marked = false;
            }
            // Undo state is kept: a late DSACK can still show that the recovery was spurious
            // (`tcp_try_undo_dsack`).
            Recovery::Exit => self.window.state = RecoveryState::Open,
            Recovery::Spurious => {
                let w = &mut self.window;
                if let Some(prior) = w.prior_ssthresh.take() {
                    w.cwnd = self.growth.undo_cwnd(w, w.prior_cwnd);
                    w.ssthresh = w.ssthresh.max(prior);
                }
                w.state = RecoveryState::Open;
            }
        }
        self.window.disorder = false;
        let state = self.window.state;
        self.growth.set_state(state, context);
        if event != Recovery::EnterFast {
            self.growth.on_event(&mut self.window, WindowEvent::State(state), context);
        }
        if (event, before) == (Recovery::Exit, RecoveryState::Recovery) {
            self.growth.on_event(&mut self.window, WindowEvent::ReductionComplete, context);
        }
    }

    fn on_mtu(&mut self, smss: u32) {
        let w = &mut self.window;
        let (old, new) = (w.scale.smss(), smss.max(1));
        w.scale.change(new, w.delivered);
        w.cwnd = rescaled(w.cwnd, old, new).max(1);
        w.prior_cwnd = rescaled(w.prior_cwnd, old, new);
        w.initial_cwnd = rescaled(w.initial_cwnd, old, new).max(1);
        if w.ssthresh < NO_SSTHRESH {
            w.ssthresh = rescaled(w.ssthresh, old, new).max(2);
        }
        w.cwnd_count = 0;
        self.growth.rescale(old, new);
    }

    #[inline]
    fn cwnd(&self) -> u64 {
        self.window.scale.bytes(self.window.cwnd)
    }

    #[inline]
    fn ssthresh(&self) -> u64 {
        match self.window.ssthresh {
            NO_SSTHRESH.. => u64::MAX,
            packets => self.window.scale.bytes(packets),
        }
    }

    #[inline]
    fn pacing_rate(&self) -> Option<Rate> {
        None
    }

    #[inline]
    fn claims_ecn(&self) -> bool {
        true
    }

    #[inline]
    fn in_cwr(&self) -> bool {
        self.window.marked
    }

    fn send_quantum(&self) -> u64 {
        let smss = u64::from(self.window.smss());
        (GSO_MAX_BYTES / smss).max(1) * smss
    }

    #[inline]
    fn state(&self) -> &'static str {
        match self.window.state {
            RecoveryState::Recovery => "Recovery",
            RecoveryState::Loss => "Loss",
            RecoveryState::Open | RecoveryState::Disorder => self.growth.phase(&self.window),
        }
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            state: self.state(),
            cwnd: self.cwnd(),
            ssthresh: Some(self.ssthresh()).filter(|&s| s != u64::MAX),
            min_rtt: self.growth.min_rtt(),
            ..Snapshot::default()
        }
    }
}

/// The connection after `ack`.
fn context_of(ack: &Ack) -> RecoveryContext {
    RecoveryContext { now: ack.now, inflight: ack.inflight, delivered: ack.delivered, lost: ack.lost }
}

/// A window of `packets` packets of `old` bytes, in packets of `new` bytes.
pub(crate) fn rescaled(packets: u32, old: u32, new: u32) -> u32 {
    saturate(u64::from(packets) * u64::from(old) / u64::from(new.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hybla::HyblaGrowth;
    use crate::reno::RenoGrowth;

    const CONFIG: Config =
        Config { smss: 1000, initial_cwnd: 100_000, seed: 1, selective_acks: true, paced: false };

    fn notify<G: Growth>(c: &mut LossBased<G>, event: Recovery) {
        c.on_recovery(event, &RecoveryContext { now: Time::ZERO, inflight: 0, delivered: 0, lost: 0 });
    }

    /// A DSACK may arrive after the recovery.
    #[test]
    fn late_dsack_restores_window_and_threshold() {
        let mut c = LossBased::new(&CONFIG, RenoGrowth);
        notify(&mut c, Recovery::EnterFast);
        notify(&mut c, Recovery::Exit);
        assert_eq!((c.cwnd(), c.ssthresh()), (50_000, 50_000));
        notify(&mut c, Recovery::Spurious);
        assert_eq!((c.cwnd(), c.ssthresh()), (100_000, u64::MAX));
        // Only once.
        notify(&mut c, Recovery::EnterFast);
        notify(&mut c, Recovery::Spurious);
        notify(&mut c, Recovery::Spurious);
        assert_eq!(c.cwnd(), 100_000);
    }

    #[test]
    fn growth_stops_at_the_largest_tcp_window() {
        let mut c = LossBased::new(&Config { initial_cwnd: u64::MAX, ..CONFIG }, HyblaGrowth::new(25));
        let mut delivered = 0;
        for _ in 0..100 {
            delivered += 1_000_000;
            c.on_ack(&Ack {
                newly_acked: 1_000_000,
                delivered,
                cwnd_limited: true,
                srtt: Some(Span::from_secs(2)),
                ..Ack::at(Time::ZERO)
            });
        }
        assert!(c.window().cwnd <= MAX_PACKETS, "{}", c.window().cwnd);
    }
}
