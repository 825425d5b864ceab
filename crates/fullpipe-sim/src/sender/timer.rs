//! The sender's single timer (`icsk_pending`): retransmission timeout (RFC 6298), tail loss probe
//! and reordering (RFC 8985 §7, §6.2).

use super::rto::{RTO_INITIAL, RTO_MAX, RTO_MIN};
use super::{Probe, Sender};
use crate::segment::Segment;
use fullpipe_cc::{CongestionControl, RecoveryState, Span, Time};
use fullpipe_experiment::recording::EventKind;

/// Shortest timer (`TCP_TIMEOUT_MIN_US`).
const TIMER_MIN: Span = Span::from_millis(2);

/// The purpose of the running timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Timer {
    Retransmission,
    LossProbe,
    Reordering,
}

impl<C: CongestionControl> Sender<C> {
    /// Sets the timer after progress: a tail loss probe if one may be needed, or the retransmission
    /// timer (`tcp_set_xmit_timer`).
    #[inline]
    pub(super) fn set_timer(&mut self, now: Time, advancing: bool) {
        if self.board.outstanding() == 0 {
            self.timer = None;
            self.timer_at = Time::NEVER;
        } else if !self.schedule_probe(now, advancing) {
            self.rearm_rto(now);
        }
    }

    /// `tcp_rearm_rto`.
    pub(super) fn rearm_rto(&mut self, now: Time) {
        let rto = self.rto();
        let at = match self.timer {
            Some(Timer::LossProbe | Timer::Reordering) => {
                (self.board.head_sent_at().unwrap_or(now) + rto).max(now + Span::from_micros(1))
            }
            _ => now + rto,
        };
        self.timer = Some(Timer::Retransmission);
        self.arm(now, at);
    }

    /// Sets the timer at `now` to expire at `at`, or when the timer wheel reaches it; at the latest
    /// after `RTO_MAX` (`tcp_reset_xmit_timer`).
    #[inline]
    fn arm(&mut self, now: Time, at: Time) {
        let at = at.min(now + RTO_MAX);
        #[cfg(test)]
        {
            self.rto_when_armed = self.rto();
        }
        self.timer_at = self.wheel.map_or(at, |wheel| wheel.expiry(now, at));
    }

    /// Sets the reordering timer to check at `at` whether segments in doubt are lost.
    pub(super) fn set_reordering_timer(&mut self, now: Time, at: Time) {
        self.arm(now, at.max(now) + TIMER_MIN);
    }

    /// `tcp_schedule_loss_probe`.
    #[inline]
    pub(super) fn schedule_probe(&mut self, now: Time, advancing: bool) -> bool {
        if self.board.outstanding() == 0 || self.recovering.state != RecoveryState::Open {
            return false;
        }
        let mut wait = match self.rtt.srtt() {
            None => RTO_INITIAL,
            Some(srtt) if self.board.outstanding() == 1 => srtt * 2 + RTO_MIN,
            Some(srtt) => srtt * 2 + TIMER_MIN,
        };
        wait += self.max_ack_delay;
        let rto = self.rto();
        let until_rto =
            if advancing { rto } else { (self.board.head_sent_at().unwrap_or(now) + rto).since(now) };
        if !until_rto.is_zero() {
            wait = wait.min(until_rto);
        }
        self.timer = Some(Timer::LossProbe);
        self.arm(now, now + wait);
        true
    }

    /// Processes the timers at `now`, except sending: the caller calls [`send`](Self::send) next.
    pub fn on_wake(&mut self, now: Time, out: &mut impl FnMut(Segment, bool)) {
        if self.paced_until <= now {
            self.paced_until = Time::NEVER;
        }
        if self.timer_at > now {
            return;
        }
        match self.timer {
            None => self.timer_at = Time::NEVER,
            Some(_) if self.board.outstanding() == 0 => {
                self.timer = None;
                self.timer_at = Time::NEVER;
            }
            Some(Timer::Reordering) => self.reordering_timeout(now),
            Some(Timer::LossProbe) => self.send_probe(now, out),
            Some(Timer::Retransmission) => self.on_rto(now, out),
        }
    }

    /// `tcp_send_loss_probe`: sends new data if there is some, else retransmits the last segment.
    fn send_probe(&mut self, now: Time, out: &mut impl FnMut(Segment, bool)) {
        self.check_app_limited();
        if self.probe.is_none() {
            let fits = self.board.nxt_bytes() + self.unsent().min(self.smss) <= self.edge;
            if self.unsent() > 0 && fits {
                self.send_new(now, out);
                self.probe = Some(Probe { high: self.board.nxt(), retransmission: false });
                self.record_event(now, EventKind::TailLossProbe, None);
            } else if let Some(seq) = self.board.last_unsacked() {
                self.retransmit(now, seq, out);
                self.probe = Some(Probe { high: self.board.nxt(), retransmission: true });
                self.record_event(now, EventKind::TailLossProbe, None);
            }
        }
        self.rearm_rto(now);
    }

    /// `tcp_retransmit_timer`.
    fn on_rto(&mut self, now: Time, out: &mut impl FnMut(Segment, bool)) {
        let waited = self.rto();
        self.check_app_limited();
        self.enter_loss(now);
        self.record_event(now, EventKind::RetransmissionTimeout, Some(waited.as_secs_f64()));
        self.rtt.back_off();
        self.retransmit(now, self.board.una(), out);
        self.timer = Some(Timer::Retransmission);
        self.arm(now, now + self.rto());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_cc::{Config, ControllerSpec};

    /// Two round trips of 138 s, after which a probe would be sent.
    #[test]
    fn timers_expire_within_the_longest_rto() {
        let cubic = ControllerSpec::parse("cubic").unwrap().build(&Config::default());
        let mut sender = Sender::new(cubic, 1448, None);
        let now = Time::ZERO + Span::from_secs(300);
        sender.arm(now, now + Span::from_secs(276));
        assert_eq!(sender.timer_at, now + RTO_MAX);
    }
}
