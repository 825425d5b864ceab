//! ProbeRTT: periodically reduces inflight to measure the round-trip propagation time
//! (draft § ProbeRTT).

use super::probe_bw::AckPhase;
use super::volume::Bytes;
use super::{Bbr3, Now, State};
use crate::{Gain, Span, Time};

#[derive(Clone, Debug)]
pub(super) struct ProbeRtt {
    /// `probe_rtt_min_delay`; `None` before the first sample.
    pub(super) min_delay: Option<Span>,
    /// `probe_rtt_min_stamp`.
    pub(super) min_stamp: Time,
    /// `probe_rtt_expired`.
    expired: bool,
    /// `probe_rtt_done_stamp`, set once inflight is low enough.
    done_stamp: Option<Time>,
    /// `probe_rtt_round_done`.
    round_done: bool,
    /// Whether the last ACK was handled in ProbeRTT, including the one that ended it:
    /// `MarkConnectionAppLimited()`.
    pub(super) handled_ack: bool,
}

impl Default for ProbeRtt {
    fn default() -> Self {
        ProbeRtt {
            min_delay: None,
            min_stamp: Time::ZERO,
            expired: false,
            done_stamp: None,
            round_done: false,
            handled_ack: false,
        }
    }
}

impl Bbr3 {
    /// The first half of `UpdateMinRTT()`: updates the minimum delay of the interval.
    pub(super) fn update_probe_rtt_min_delay(&mut self, now: &Now, rtt: Option<Span>) {
        // In Linux a delayed ACK does not replace an expired minimum.
        let may_replace = !(self.is_linux() && now.delayed);
        let probe = &mut self.probe_rtt;
        probe.expired = now.time > probe.min_stamp + self.params.probe_rtt_interval();
        let replaces =
            |rtt: &Span| probe.expired && may_replace || probe.min_delay.is_none_or(|least| *rtt < least);
        if let Some(rtt) = rtt.filter(replaces) {
            probe.min_delay = Some(rtt);
            probe.min_stamp = now.time;
        }
    }

    /// `CheckProbeRTT()`.
    pub(super) fn check_probe_rtt(&mut self, now: &Now) {
        if self.state != State::ProbeRtt && self.probe_rtt.expired && !self.idle_restart {
            self.enter_probe_rtt();
            self.save_cwnd();
            self.probe_rtt.done_stamp = None;
            self.cycle.ack_phase = AckPhase::ProbeStopping;
            self.model.start_round(now.delivered);
        }
        if self.state == State::ProbeRtt {
            self.handle_probe_rtt(now);
        }
        if now.sample.delivered > 0 {
            self.idle_restart = false;
        }
    }

    /// `EnterProbeRTT()`.
    fn enter_probe_rtt(&mut self) {
        self.transition(State::ProbeRtt);
    }

    /// `HandleProbeRTT()`. The transport is asked to mark the connection application-limited by
    /// [`marks_app_limited`](crate::CongestionControl::marks_app_limited).
    fn handle_probe_rtt(&mut self, now: &Now) {
        self.probe_rtt.handled_ack = true;
        if self.probe_rtt.done_stamp.is_none() {
            if now.inflight <= self.probe_rtt_cwnd() {
                self.probe_rtt.done_stamp = Some(now.time + self.params.probe_rtt_duration());
                self.probe_rtt.round_done = false;
                self.model.start_round(now.delivered);
            }
        } else {
            if self.model.round_start {
                self.probe_rtt.round_done = true;
            }
            if self.probe_rtt.round_done {
                self.check_probe_rtt_done(now.time, now.delivered);
            }
        }
    }

    /// `CheckProbeRTTDone()`.
    pub(super) fn check_probe_rtt_done(&mut self, now: Time, delivered: Bytes) {
        if self.probe_rtt.done_stamp.is_some_and(|done| now > done) {
            self.probe_rtt.min_stamp = now;
            self.restore_cwnd();
            self.exit_probe_rtt(now, delivered);
        }
    }

    /// `ExitProbeRTT()`.
    fn exit_probe_rtt(&mut self, now: Time, delivered: Bytes) {
        self.model.reset_short_term();
        if self.full_pipe.reached {
            self.start_probe_bw_down(now, delivered);
            self.start_probe_bw_cruise();
        } else {
            self.enter_startup();
        }
    }

    /// `ProbeRTTCwnd()`.
    pub(super) fn probe_rtt_cwnd(&self) -> Bytes {
        self.bdp_multiple(self.model.bw, Gain::from_256ths(self.params.probe_rtt_cwnd_gain))
            .max(self.min_pipe_cwnd())
    }
}
