//! ProbeBW: down, cruise, refill, up, and round again (draft § ProbeBW).

use super::variant::Departure;
use super::volume::Bytes;
use super::{Bbr3, Now, State, Variant};
use crate::{Gain, Span, Time};

/// What arriving ACKs mean for bandwidth probing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum AckPhase {
    /// `ACKS_INIT`: no probe.
    #[default]
    Init,
    /// `ACKS_REFILLING`: sending at the estimate to fill the pipe.
    Refilling,
    /// `ACKS_PROBE_STARTING`: inflight rises to probe.
    ProbeStarting,
    /// `ACKS_PROBE_FEEDBACK`: feedback of the probe arrives.
    ProbeFeedback,
    /// `ACKS_PROBE_STOPPING`: the probe has ended, feedback is still arriving.
    ProbeStopping,
}

#[derive(Clone, Debug)]
pub(super) struct Cycle {
    pub(super) ack_phase: AckPhase,
    /// `is_bw_probe_sample`: the samples that arrive were sent while probing.
    pub(super) is_bw_probe_sample: bool,
    pub(super) prev_probe_too_high: bool,
    prev_probe_precautionary: bool,
    /// Whether the `max_bw` filter has advanced since DOWN was entered.
    filter_advanced: bool,
    pub(super) rounds_since_probe_up: u64,
    bw_probe_wait: Span,
    cycle_stamp: Time,
    bw_probe_up_rounds: u32,
    bw_probe_up_acked: Bytes,
    probe_up_acked_per_inc: Bytes,
}

impl Default for Cycle {
    fn default() -> Self {
        Cycle {
            ack_phase: AckPhase::Init,
            is_bw_probe_sample: false,
            prev_probe_too_high: false,
            prev_probe_precautionary: false,
            filter_advanced: false,
            rounds_since_probe_up: 0,
            bw_probe_wait: Span::ZERO,
            cycle_stamp: Time::ZERO,
            bw_probe_up_rounds: 0,
            bw_probe_up_acked: Bytes::ZERO,
            probe_up_acked_per_inc: Bytes::INFINITE,
        }
    }
}

impl Bbr3 {
    /// `EnterProbeBW()`.
    pub(super) fn enter_probe_bw(&mut self, now: Time, delivered: Bytes) {
        self.start_probe_bw_down(now, delivered);
    }

    /// `StartProbeBW_DOWN()`.
    pub(super) fn start_probe_bw_down(&mut self, now: Time, delivered: Bytes) {
        self.congestion.reset_signals();
        self.cycle.probe_up_acked_per_inc = Bytes::INFINITE;
        self.pick_probe_wait();
        self.cycle.cycle_stamp = now;
        self.cycle.filter_advanced = false;
        self.cycle.ack_phase = AckPhase::ProbeStopping;
        self.model.start_round(delivered);
        self.transition(State::ProbeBwDown);
    }

    /// `StartProbeBW_CRUISE()`.
    pub(super) fn start_probe_bw_cruise(&mut self) {
        self.leave_down();
        if self.is_linux() && self.model.inflight_shortterm != Bytes::INFINITE {
            let bound = self.model.inflight_shortterm.min(self.model.inflight_longterm);
            self.model.inflight_shortterm = bound;
        }
        self.transition(State::ProbeBwCruise);
    }

    /// `StartProbeBW_REFILL()`.
    pub(super) fn start_probe_bw_refill(&mut self, delivered: Bytes) {
        self.leave_down();
        self.model.reset_short_term();
        self.cycle.bw_probe_up_rounds = 0;
        self.cycle.bw_probe_up_acked = Bytes::ZERO;
        self.cycle.prev_probe_precautionary = false;
        self.cycle.ack_phase = AckPhase::Refilling;
        self.model.start_round(delivered);
        self.transition(State::ProbeBwRefill);
    }

    /// `StartProbeBW_UP()`.
    fn start_probe_bw_up(&mut self, now: &Now) {
        self.cycle.ack_phase = AckPhase::ProbeStarting;
        self.model.start_round(now.delivered);
        self.full_pipe.restart(now.delivery_rate);
        self.transition(State::ProbeBwUp);
        self.raise_inflight_longterm_slope();
    }

    /// `AdvanceMaxBwFilter()`; with `advance_on_leaving_down` at most once per cycle.
    fn advance_max_bw_filter(&mut self) {
        if !(self.cycle.filter_advanced && self.params.advance_on_leaving_down) {
            self.model.advance_max_bw_filter(self.is_as_drafted(Departure::MaxBwFilter));
            self.cycle.filter_advanced = true;
        }
    }

    /// DOWN may end before a round of it was measured.
    fn leave_down(&mut self) {
        if self.params.advance_on_leaving_down && self.state == State::ProbeBwDown {
            self.advance_max_bw_filter();
        }
    }

    /// `UpdateProbeBWCyclePhase()`.
    pub(super) fn update_probe_bw_cycle_phase(&mut self, now: &Now) {
        if !self.full_pipe.reached || self.adapt_long_term_model(now) {
            return;
        }
        match self.state {
            State::ProbeBwDown => {
                if !self.is_time_to_probe_bw(now) && self.is_time_to_cruise(now) {
                    self.start_probe_bw_cruise();
                }
            }
            State::ProbeBwCruise => {
                self.is_time_to_probe_bw(now);
            }
            State::ProbeBwRefill => {
                if self.model.round_start {
                    self.cycle.is_bw_probe_sample = true;
                    self.start_probe_bw_up(now);
                }
            }
            State::ProbeBwUp => {
                if self.is_time_to_go_down(now) {
                    self.cycle.prev_probe_too_high = false;
                    self.start_probe_bw_down(now.time, now.delivered);
                }
            }
            State::Startup | State::Drain | State::ProbeRtt => {}
        }
    }

    /// `AdaptLongTermModel()`: returns whether it made a transition.
    fn adapt_long_term_model(&mut self, now: &Now) -> bool {
        if self.cycle.ack_phase == AckPhase::ProbeStarting && self.model.round_start {
            self.cycle.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.cycle.ack_phase == AckPhase::ProbeStopping && self.model.round_start {
            self.cycle.is_bw_probe_sample = false;
            self.cycle.ack_phase = AckPhase::Init;
            if self.state.is_probe_bw() && !now.sample.app_limited {
                self.advance_max_bw_filter();
            }
            if self.state.is_probe_bw()
                && self.cycle.prev_probe_precautionary
                && !self.cycle.prev_probe_too_high
            {
                self.start_probe_bw_refill(now.delivered);
                return true;
            }
        }
        let is_too_high = self.is_inflight_too_high(&now.sample);
        // Linux also judges the loss when a packet is acknowledged.
        if self.is_linux() && is_too_high && self.cycle.is_bw_probe_sample {
            self.handle_inflight_too_high(
                now.tx_in_flight(),
                now.sample.app_limited,
                now.time,
                now.delivered,
            );
        }
        if !is_too_high && self.model.inflight_longterm != Bytes::INFINITE {
            self.model.inflight_longterm = self.model.inflight_longterm.max(now.tx_in_flight());
            if self.state == State::ProbeBwUp {
                self.probe_inflight_longterm_upward(now);
            }
        }
        false
    }

    /// `IsTimeToProbeBW()`: from DOWN or CRUISE to REFILL.
    fn is_time_to_probe_bw(&mut self, now: &Now) -> bool {
        let elapsed = now.time > self.cycle.cycle_stamp + self.cycle.bw_probe_wait;
        if elapsed || self.is_reno_coexistence_probe_time() {
            self.start_probe_bw_refill(now.delivered);
            return true;
        }
        false
    }

    /// `PickProbeWait()`.
    fn pick_probe_wait(&mut self) {
        self.cycle.rounds_since_probe_up = u64::from(self.random.below(2));
        let random =
            u64::from(self.random.below(self.params.probe_wait_random_ms.saturating_mul(1000).max(1)));
        let base = Span::from_millis(u64::from(self.params.probe_wait_base_ms));
        self.cycle.bw_probe_wait = base + Span::from_micros(random);
    }

    /// `IsRenoCoexistenceProbeTime()`: a Reno flow of this size would have grown by one BDP.
    fn is_reno_coexistence_probe_time(&self) -> bool {
        let target = self.target_inflight();
        // Decision 3.
        let as_drafted = self.is_as_drafted(Departure::RenoRounds);
        let reno_rounds = if as_drafted { target.0 } else { target.packets(self.smss) };
        self.cycle.rounds_since_probe_up >= reno_rounds.min(u64::from(self.params.probe_max_rounds))
    }

    /// `TargetInflight()`.
    pub(super) fn target_inflight(&self) -> Bytes {
        let bdp = match self.variant {
            Variant::Draft | Variant::Letter => self.bdp_multiple(self.model.bw, Gain::UNIT),
            Variant::Linux => self.inflight(self.model.bw, Gain::UNIT),
        };
        bdp.min(self.out.cwnd)
    }

    /// `IsTimeToCruise()`: from DOWN.
    fn is_time_to_cruise(&self, now: &Now) -> bool {
        now.inflight <= self.inflight_with_headroom()
            && now.inflight <= self.inflight(self.model.max_bw(), Gain::UNIT)
    }

    /// `IsTimeToGoDown()`: from UP.
    fn is_time_to_go_down(&mut self, now: &Now) -> bool {
        // Decision 11.
        let next_packet = now.inflight + now.newly_acked + self.smss;
        let is_reached = if self.is_as_drafted(Departure::ProbeUpEnd) {
            now.inflight >= self.model.inflight_longterm
        } else {
            next_packet > self.model.inflight_longterm
        };
        if self.cycle.prev_probe_too_high && is_reached {
            self.cycle.prev_probe_precautionary = true;
            return true;
        }
        if now.cwnd_limited && self.out.cwnd >= self.model.inflight_longterm {
            // The bandwidth is limited by inflight_longterm: a plateau says nothing about the path.
            self.full_pipe.restart(now.delivery_rate);
            return false;
        }
        self.full_pipe.now
    }

    /// `InflightWithHeadroom()`.
    pub(super) fn inflight_with_headroom(&self) -> Bytes {
        let longterm = self.model.inflight_longterm;
        if longterm == Bytes::INFINITE {
            return Bytes::INFINITE;
        }
        let headroom = self.params.headroom(longterm).max(self.smss);
        (longterm - headroom).max(self.min_pipe_cwnd())
    }

    /// `RaiseInflightLongtermSlope()`: doubles the slope each round.
    fn raise_inflight_longterm_slope(&mut self) {
        let growth_this_round = 1u64 << self.cycle.bw_probe_up_rounds;
        self.cycle.bw_probe_up_rounds =
            (self.cycle.bw_probe_up_rounds + 1).min(super::params::PROBE_UP_MAX_DOUBLINGS);
        self.cycle.probe_up_acked_per_inc = Bytes(self.out.cwnd.0 / growth_this_round).max(self.smss);
    }

    /// `ProbeInflightLongtermUpward()`.
    fn probe_inflight_longterm_upward(&mut self, now: &Now) {
        if !now.cwnd_limited || self.out.cwnd < self.model.inflight_longterm {
            return;
        }
        let cycle = &mut self.cycle;
        cycle.bw_probe_up_acked += now.newly_acked;
        if cycle.bw_probe_up_acked >= cycle.probe_up_acked_per_inc {
            let packets = cycle.bw_probe_up_acked.packets(cycle.probe_up_acked_per_inc);
            cycle.bw_probe_up_acked = cycle.bw_probe_up_acked - cycle.probe_up_acked_per_inc * packets;
            self.model.inflight_longterm += self.smss * packets;
        }
        if self.model.round_start {
            self.raise_inflight_longterm_slope();
        }
    }
}
