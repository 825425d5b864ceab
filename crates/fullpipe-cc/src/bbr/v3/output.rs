//! Pacing rate, send quantum and window (draft § Updating Control Parameters).

use super::{Bbr3, Now, State};
use crate::{Gain, Rate, Span};

#[derive(Clone, Debug)]
pub(super) struct Output {
    pub(super) cwnd: u64,
    /// Bytes per second.
    pub(super) pacing_rate: u64,
    pub(super) send_quantum: u64,
    pub(super) pacing_gain: Gain,
    pub(super) cwnd_gain: Gain,
}

impl Default for Output {
    fn default() -> Self {
        Output { cwnd: 0, pacing_rate: 0, send_quantum: 0, pacing_gain: Gain::UNIT, cwnd_gain: Gain::UNIT }
    }
}

impl Output {
    /// The gains of a state, from the draft's summary table (decision 1).
    pub(super) fn set_gains(&mut self, pacing_256ths: u32, cwnd_256ths: u32) {
        self.pacing_gain = Gain::from_256ths(pacing_256ths);
        self.cwnd_gain = Gain::from_256ths(cwnd_256ths);
    }
}

impl Bbr3 {
    /// `MinPipeCwnd` in bytes.
    pub(super) fn min_pipe_cwnd(&self) -> u64 {
        u64::from(self.params.min_pipe_cwnd_packets) * self.smss
    }

    /// `InitPacingRate()`.
    pub(super) fn init_pacing_rate(&mut self) {
        let rtt = self.srtt.filter(|rtt| !rtt.is_zero()).unwrap_or(Span::from_millis(1));
        let nominal = Rate::from_bytes_in(self.initial_cwnd, rtt);
        self.out.pacing_rate =
            nominal.scale(Gain::from_256ths(self.params.startup_pacing_gain)).as_bytes_per_sec();
        self.set_send_quantum();
    }

    /// `SetPacingRateWithGain()`.
    pub(super) fn set_pacing_rate_with_gain(&mut self, gain: Gain) {
        let rate = self.params.less_margin(gain.apply(self.model.bw));
        // Without a bandwidth estimate there is nothing better than the initial rate.
        if self.model.bw > 0 && (self.full_pipe.reached || rate > self.out.pacing_rate) {
            self.out.pacing_rate = rate.max(1);
        }
    }

    /// `SetPacingRate()`.
    pub(super) fn set_pacing_rate(&mut self) {
        self.set_pacing_rate_with_gain(self.out.pacing_gain);
    }

    /// `SetSendQuantum()`: what leaves in a millisecond, between 2 packets and 64 KiB.
    pub(super) fn set_send_quantum(&mut self) {
        self.out.send_quantum = (self.out.pacing_rate / 1000).min(64 * 1024).max(2 * self.smss);
    }

    /// `Inflight(gain)` for a bandwidth in bytes/s.
    pub(super) fn inflight(&self, bw: u64, gain: Gain) -> u64 {
        self.quantization_budget(self.bdp_multiple(bw, gain))
    }

    /// `QuantizationBudget()`, with TCP's offload budget of three send quanta.
    fn quantization_budget(&self, inflight_cap: u64) -> u64 {
        let cap = inflight_cap.max(3 * self.out.send_quantum).max(self.min_pipe_cwnd());
        if self.state == State::ProbeBwUp { cap.saturating_add(2 * self.smss) } else { cap }
    }

    /// `UpdateMaxInflight()`.
    fn max_inflight(&self) -> u64 {
        let cap = self.bdp_multiple(self.model.bw, self.out.cwnd_gain);
        self.quantization_budget(cap.saturating_add(self.aggregation.extra_acked()))
    }

    /// `SetCwnd()`.
    pub(super) fn set_cwnd(&mut self, now: &Now) {
        let max_inflight = self.max_inflight();
        let grown = self.out.cwnd.saturating_add(now.newly_acked);
        if self.full_pipe.reached {
            self.out.cwnd = grown.min(max_inflight);
        } else if self.out.cwnd < max_inflight || now.delivered < self.initial_cwnd {
            self.out.cwnd = grown;
        }
        self.out.cwnd = self.out.cwnd.max(self.min_pipe_cwnd());
        if self.state == State::ProbeRtt {
            // `BoundCwndForProbeRTT()`.
            self.out.cwnd = self.out.cwnd.min(self.probe_rtt_cwnd());
        }
        self.bound_cwnd_for_model();
    }

    /// `BoundCwndForModel()`.
    fn bound_cwnd_for_model(&mut self) {
        let cap = match self.state {
            State::ProbeBwDown | State::ProbeBwRefill | State::ProbeBwUp => self.model.inflight_longterm,
            State::ProbeRtt | State::ProbeBwCruise => self.inflight_with_headroom(),
            State::Startup | State::Drain => super::INFINITY,
        };
        let cap = cap.min(self.model.inflight_shortterm).max(self.min_pipe_cwnd());
        self.out.cwnd = self.out.cwnd.min(cap);
    }
}
