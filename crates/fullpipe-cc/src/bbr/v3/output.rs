//! Pacing rate, send quantum and window (draft § Updating Control Parameters).

use super::volume::Bytes;
use super::{Bbr3, Now, State};
use crate::{Gain, Rate, Span};

#[derive(Clone, Debug)]
pub(super) struct Output {
    pub(super) cwnd: Bytes,
    pub(super) pacing_rate: Rate,
    pub(super) send_quantum: Bytes,
    pub(super) pacing_gain: Gain,
    pub(super) cwnd_gain: Gain,
}

impl Default for Output {
    fn default() -> Self {
        Output {
            cwnd: Bytes::ZERO,
            pacing_rate: Rate::ZERO,
            send_quantum: Bytes::ZERO,
            pacing_gain: Gain::UNIT,
            cwnd_gain: Gain::UNIT,
        }
    }
}

impl Bbr3 {
    /// `MinPipeCwnd`.
    pub(super) fn min_pipe_cwnd(&self) -> Bytes {
        self.smss * u64::from(self.params.min_pipe_cwnd_packets)
    }

    /// `InitPacingRate()`.
    pub(super) fn init_pacing_rate(&mut self) {
        let rtt = self.srtt.filter(|rtt| !rtt.is_zero()).unwrap_or(Span::from_millis(1));
        let nominal = Rate::from_bytes_in(self.initial_cwnd.0, rtt);
        self.out.pacing_rate = nominal.scale(Gain::from_256ths(self.params.startup_pacing_gain));
        self.set_send_quantum();
    }

    /// `SetPacingRateWithGain()`.
    pub(super) fn set_pacing_rate_with_gain(&mut self, gain: Gain) {
        let rate = self.params.less_margin(self.model.bw.scale(gain));
        // Without a bandwidth estimate keep the initial rate.
        if self.model.bw > Rate::ZERO && (self.full_pipe.reached || rate > self.out.pacing_rate) {
            self.out.pacing_rate = rate.max(Rate::from_bytes_per_sec(1));
        }
    }

    /// `SetPacingRate()`.
    pub(super) fn set_pacing_rate(&mut self) {
        self.set_pacing_rate_with_gain(self.out.pacing_gain);
    }

    /// `SetSendQuantum()`: data sent in a millisecond, between 2 packets and 64 KiB.
    pub(super) fn set_send_quantum(&mut self) {
        let millisecond = Bytes(self.out.pacing_rate.as_bytes_per_sec() / 1000);
        self.out.send_quantum = millisecond.min(Bytes(64 * 1024)).max(self.smss * 2);
    }

    /// `Inflight(gain)` for a bandwidth of `bw`.
    pub(super) fn inflight(&self, bw: Rate, gain: Gain) -> Bytes {
        self.quantization_budget(self.bdp_multiple(bw, gain))
    }

    /// `QuantizationBudget()`, with TCP's offload budget of three send quanta.
    fn quantization_budget(&self, inflight_cap: Bytes) -> Bytes {
        let cap = inflight_cap.max(self.out.send_quantum * 3).max(self.min_pipe_cwnd());
        if self.state == State::ProbeBwUp { cap + self.smss * 2 } else { cap }
    }

    /// `UpdateMaxInflight()`.
    fn max_inflight(&self) -> Bytes {
        let cap = self.bdp_multiple(self.model.bw, self.out.cwnd_gain);
        self.quantization_budget(cap + self.extra_acked())
    }

    /// `SetCwnd()`.
    pub(super) fn set_cwnd(&mut self, now: &Now) {
        let max_inflight = self.max_inflight();
        let grown = self.out.cwnd + now.newly_acked;
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
            State::Startup | State::Drain => Bytes::INFINITE,
        };
        let cap = cap.min(self.model.inflight_shortterm).max(self.min_pipe_cwnd());
        self.out.cwnd = self.out.cwnd.min(cap);
    }
}
