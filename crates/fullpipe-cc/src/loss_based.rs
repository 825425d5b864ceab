//! What Linux's TCP does around a loss-based controller: counting in packets, slow start, the window's
//! reduction and its undoing, time-outs, restart after idle (`net/ipv4/tcp_input.c`, `tcp_cong.c`).
//!
//! A loss-based algorithm is a [`Growth`]: it says how the window grows on an ACK and where a loss
//! takes it. [`LossBased`] makes a controller of it.

use crate::control::{
    Ack, Config, CongestionControl, Lost, Recovery, RecoveryContext, RecoveryState, Sent, Snapshot,
};
use crate::pacer::GSO_MAX_BYTES;
use crate::packets::{PacketScale, saturate};
use fullpipe_units::{Rate, Span, Time};

/// The largest window: what a TCP window can express (2³⁰ bytes, RFC 7323 §2.3) in segments of 64 bytes.
pub const MAX_PACKETS: u32 = 1 << 24;

/// The slow-start threshold while there is none (`TCP_INFINITE_SSTHRESH`).
pub const NO_SSTHRESH: u32 = 0x7fff_ffff;

/// RFC 6298's time-out less the smoothed round-trip time, as the kernel bounds it from below.
const MIN_RTO: Span = Span::from_millis(200);

/// The retransmission time-out before any round-trip time is known (RFC 6298 §2.1).
const INITIAL_RTO: Span = Span::from_secs(1);

/// The sender's window and what it is judged by, in packets of one maximum segment size.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Congestion window, ≥ 1.
    pub cwnd: u32,
    /// Packets acknowledged since the window last grew in congestion avoidance.
    pub cwnd_count: u32,
    /// Slow-start threshold; [`NO_SSTHRESH`] while there is none.
    pub ssthresh: u32,
    /// The most the algorithm allows the window to be.
    pub clamp: u32,
    /// Smoothed round-trip time.
    pub srtt: Option<Span>,
    scale: PacketScale,
    initial_cwnd: u32,
    prior_cwnd: u32,
    /// `None` while there is nothing to undo.
    prior_ssthresh: Option<u32>,
    state: RecoveryState,
    /// The window was reduced for an ECN mark: until `marked_until` is delivered, marks and growth wait.
    marked: bool,
    marked_until: u64,
    /// Disorder that resolved without loss has been seen: the path reorders, so selective ACKs that
    /// leave a hole are progress all the same (`tcp_may_raise_cwnd`).
    reorders: bool,
    disorder: bool,
    /// Something was delivered since the last time-out.
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

    /// Where the sender is in loss recovery.
    pub fn state(&self) -> RecoveryState {
        self.state
    }

    /// Whether the window is below the slow-start threshold.
    #[inline]
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Whether the window was what limited sending, so that it may grow (`tcp_is_cwnd_limited`: in
    /// slow start it is enough that half of it was used).
    #[inline]
    pub fn is_limiting(&self, ack: &Ack) -> bool {
        ack.cwnd_limited
            || self.in_slow_start() && self.scale.bytes(self.cwnd) < ack.inflight_before.saturating_mul(2)
    }

    /// Slow start: a packet more for each of `acked`, up to the threshold. Returns those left over.
    /// RFC 5681 §3.1, Linux `tcp_slow_start`.
    #[inline]
    pub fn slow_start(&mut self, acked: u32) -> u32 {
        let cwnd = self.cwnd.saturating_add(acked).min(self.ssthresh);
        let left = acked - cwnd.saturating_sub(self.cwnd);
        self.cwnd = cwnd.min(self.clamp);
        left
    }

    /// Congestion avoidance: a packet more for each `per_increase` of the `acked` packets, counted
    /// across ACKs. RFC 5681 §3.1, Linux `tcp_cong_avoid_ai`.
    #[inline]
    pub fn additive_increase(&mut self, per_increase: u32, acked: u32) {
        let per_increase = per_increase.max(1);
        // Credit gathered when an increase was dearer is given out gently.
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
        let mut acked = acked;
        if self.in_slow_start() {
            acked = self.slow_start(acked);
            if acked == 0 {
                return;
            }
        }
        self.additive_increase(self.cwnd, acked);
    }

    /// The threshold to fall back to if the present state turns out harmless (`tcp_current_ssthresh`).
    fn current_ssthresh(&self) -> u32 {
        if self.state == RecoveryState::Recovery || self.marked {
            self.ssthresh
        } else {
            self.ssthresh.max((self.cwnd >> 1) + (self.cwnd >> 2))
        }
    }

    fn remember_for_undo(&mut self) {
        self.prior_ssthresh = Some(self.current_ssthresh());
        self.prior_cwnd = self.cwnd;
    }

    /// RFC 5681 §4.1, Linux `tcp_cwnd_restart`: idle for longer than a time-out, the window is halved
    /// for each time-out, not below the initial window.
    fn restart_after(&mut self, idle: Span) {
        let rto = self.srtt.map_or(INITIAL_RTO, |srtt| srtt + MIN_RTO);
        if idle <= rto {
            return;
        }
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

/// How a loss-based algorithm grows the window and where a loss takes it: the kernel's
/// `tcp_congestion_ops`.
pub trait Growth: Send {
    /// The first round-trip time is known, before the first packet (`init`).
    fn start(&mut self, _window: &mut Window, _srtt: Span) {}

    /// Data leaves after nothing was in flight; the last had left at `last` (`CA_EVENT_TX_START`).
    fn transmit_start(&mut self, _now: Time, _last: Time) {}

    /// An ACK newly acknowledged data, in any state (`pkts_acked`).
    fn on_acked(&mut self, _window: &mut Window, _ack: &Ack) {}

    /// An ACK newly acknowledged `acked` ≥ 1 packets and the window may grow (`cong_avoid`).
    fn grow(&mut self, window: &mut Window, ack: &Ack, acked: u32);

    /// The window to fall to on a loss, ≥ 2 packets (`ssthresh`).
    fn ssthresh(&mut self, window: &Window) -> u32;

    /// The state of loss recovery is now `state`, [`RecoveryState::Disorder`] among them (`set_state`).
    fn set_state(&mut self, _state: RecoveryState, _context: &RecoveryContext) {}

    /// Packets change from `old` to `new` bytes: remembered windows shall stay the same in bytes.
    fn rescale(&mut self, _old: u32, _new: u32) {}

    /// The name of the present phase of growth.
    fn phase(&self, window: &Window) -> &'static str {
        if window.in_slow_start() { "SlowStart" } else { "CongestionAvoidance" }
    }

    /// The least round-trip time it goes by.
    fn min_rtt(&self) -> Option<Span> {
        None
    }
}

/// A controller made of a [`Growth`].
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

    /// Reduces the window, to be undone if the cause turns out not to be one.
    fn reduce(&mut self) {
        self.window.remember_for_undo();
        self.window.cwnd_count = 0;
        self.window.ssthresh = self.growth.ssthresh(&self.window).max(2);
        // Where Proportional Rate Reduction arrives; senders without it fall at once (RFC 5681).
        self.window.cwnd = self.window.ssthresh;
    }

    /// An ECN mark counts as a loss, once a window (RFC 3168 §6.1.2).
    #[cold]
    fn on_marks(&mut self, ack: &Ack) {
        if ack.delivered >= self.window.marked_until {
            self.window.marked = false;
        }
        if ack.ce_count > 0 && self.window.state == RecoveryState::Open && !self.window.marked {
            self.reduce();
            self.window.prior_ssthresh = None;
            self.window.marked = true;
            self.window.marked_until = ack.delivered.saturating_add(ack.inflight);
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
        if sent.inflight == 0
            && let Some(last) = self.window.last_sent
        {
            if !sent.retransmit {
                self.window.restart_after(sent.now - last);
            }
            self.growth.transmit_start(sent.now, last);
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
            let context = RecoveryContext {
                now: ack.now,
                inflight: ack.inflight,
                delivered: ack.delivered,
                lost: ack.lost,
            };
            self.growth
                .set_state(if disorder { RecoveryState::Disorder } else { RecoveryState::Open }, &context);
        }
        w.disorder = disorder;
        if ack.ce_count > 0 || w.marked {
            self.on_marks(ack);
        }
        let w = &mut self.window;
        let held = w.state == RecoveryState::Recovery || w.marked || disorder && !w.reorders;
        if acked > 0 && !held {
            self.growth.grow(w, ack, acked);
        }
    }

    fn on_recovery(&mut self, event: Recovery, context: &RecoveryContext) {
        match event {
            Recovery::EnterFast => {
                if self.window.state == RecoveryState::Recovery {
                    return;
                }
                if !self.window.marked {
                    self.reduce();
                }
                self.window.marked = false;
                self.window.state = RecoveryState::Recovery;
            }
            Recovery::EnterRto => {
                // A window that was reduced already in this recovery is not reduced again, unless
                // there was progress since the last time-out (`tcp_enter_loss`).
                let w = &self.window;
                let again = match w.state {
                    RecoveryState::Open | RecoveryState::Disorder => true,
                    RecoveryState::Recovery => false,
                    RecoveryState::Loss => w.progress,
                };
                if again {
                    self.reduce();
                }
                let w = &mut self.window;
                w.cwnd = saturate(w.scale.count(context.inflight)).saturating_add(1).min(w.ssthresh.max(1));
                w.cwnd_count = 0;
                w.state = RecoveryState::Loss;
                w.progress = false;
                w.marked = false;
            }
            // What was before stays known: a late duplicate report can still show that it was for nothing
            // (`tcp_try_undo_dsack`).
            Recovery::Exit => self.window.state = RecoveryState::Open,
            Recovery::Spurious => {
                let w = &mut self.window;
                if let Some(prior) = w.prior_ssthresh.take() {
                    w.cwnd = w.cwnd.max(w.prior_cwnd);
                    w.ssthresh = w.ssthresh.max(prior);
                }
                w.state = RecoveryState::Open;
            }
        }
        self.window.disorder = false;
        self.growth.set_state(self.window.state, context);
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

    fn tell<G: Growth>(c: &mut LossBased<G>, event: Recovery) {
        c.on_recovery(event, &RecoveryContext { now: Time::ZERO, inflight: 0, delivered: 0, lost: 0 });
    }

    /// A duplicate report may come after the recovery that its segment was repaired in.
    #[test]
    fn a_late_duplicate_report_gives_window_and_threshold_back() {
        let mut c = LossBased::new(&CONFIG, RenoGrowth);
        tell(&mut c, Recovery::EnterFast);
        tell(&mut c, Recovery::Exit);
        assert_eq!((c.cwnd(), c.ssthresh()), (50_000, 50_000));
        tell(&mut c, Recovery::Spurious);
        assert_eq!((c.cwnd(), c.ssthresh()), (100_000, u64::MAX));
        // Once.
        tell(&mut c, Recovery::EnterFast);
        tell(&mut c, Recovery::Spurious);
        tell(&mut c, Recovery::Spurious);
        assert_eq!(c.cwnd(), 100_000);
    }

    #[test]
    fn growth_ends_where_a_tcp_window_does() {
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
