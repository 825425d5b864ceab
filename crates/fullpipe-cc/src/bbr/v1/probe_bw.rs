//! PROBE_BW: eight phases, one pacing above the estimate to discover more bandwidth, one below it to
//! drain what that queued, six at it.

use super::params::{CYCLE_LEN, CYCLE_RAND, GAIN_UNIT};
use super::socket::{RateSample, Socket, stamp_us_delta};
use super::state::{Bbr, Mode};

impl Bbr {
    /// Whether the present phase is over (`bbr_is_next_cycle_phase`).
    #[inline]
    fn is_next_cycle_phase(&mut self, sk: &Socket, rs: &RateSample) -> bool {
        let is_full_length = stamp_us_delta(sk.delivered_mstamp, self.cycle_mstamp) > self.min_rtt_us;
        if self.pacing_gain == GAIN_UNIT {
            return is_full_length;
        }
        let inflight = self.packets_in_net_at_edt(sk, rs.prior_in_flight);
        if self.pacing_gain > GAIN_UNIT {
            // Until inflight has risen by the gain, which takes long on short paths; no longer when
            // packets are lost, for the path may not hold as much.
            return is_full_length
                && (rs.losses != 0 || inflight >= self.inflight(sk, self.max_bw(), self.pacing_gain));
        }
        is_full_length || inflight <= self.inflight(sk, self.max_bw(), GAIN_UNIT)
    }

    fn advance_cycle_phase(&mut self, sk: &Socket) {
        self.cycle_idx = (self.cycle_idx + 1) & (CYCLE_LEN - 1) as u8;
        self.cycle_mstamp = sk.delivered_mstamp;
    }

    /// `bbr_update_cycle_phase`.
    #[inline]
    pub(super) fn update_cycle_phase(&mut self, sk: &Socket, rs: &RateSample) {
        if self.mode == Mode::ProbeBw && self.is_next_cycle_phase(sk, rs) {
            self.advance_cycle_phase(sk);
        }
    }

    /// Enters the cycle at a random phase but the draining one (`bbr_reset_probe_bw_mode`).
    pub(super) fn reset_probe_bw_mode(&mut self, sk: &Socket, draw: &mut impl FnMut() -> u32) {
        self.mode = Mode::ProbeBw;
        self.cycle_idx = (CYCLE_LEN - 1 - draw().min(CYCLE_RAND - 1)) as u8;
        self.advance_cycle_phase(sk);
    }

    /// After PROBE_RTT or idle, to where the pipe says (`bbr_reset_mode`).
    pub(super) fn reset_mode(&mut self, sk: &Socket, draw: &mut impl FnMut() -> u32) {
        if self.full_bw_reached {
            self.reset_probe_bw_mode(sk, draw);
        } else {
            self.mode = Mode::Startup;
        }
    }
}
