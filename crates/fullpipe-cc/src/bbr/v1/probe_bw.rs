//! PROBE_BW: eight phases, one pacing above the estimate to discover more bandwidth, one below it
//! to drain what that queued, six at it.

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

#[cfg(test)]
mod tests {
    use super::super::fixture::Test;
    use super::super::params::BW_UNIT;
    use super::super::socket::RateSample;

    const RATE: u64 = BW_UNIT / 10;

    #[test]
    fn the_cycle_never_starts_in_the_draining_phase() {
        let mut t = Test::steady();
        let starts: std::vec::Vec<u8> = (0..7)
            .map(|n| {
                t.bbr.reset_probe_bw_mode(&t.sk, &mut || n);
                t.bbr.cycle_idx
            })
            .collect();
        assert_eq!(starts, [0, 7, 6, 5, 4, 3, 2]);
    }

    #[test]
    fn a_cruising_phase_lasts_a_min_rtt() {
        let mut t = Test::steady();
        for (us, idx) in [(9_000, 2), (1_000, 2), (1, 3)] {
            let rs = t.sample(1, us, RATE);
            t.main(&rs);
            assert_eq!(t.bbr.cycle_idx, idx);
        }
    }

    #[test]
    fn the_probing_phase_lasts_until_inflight_has_risen_or_packets_are_lost() {
        let probing = || {
            let mut t = Test::steady();
            t.bbr.cycle_idx = 0;
            t.bbr.update_gains();
            t.sk.packets_in_flight = 1000;
            t
        };
        let mut t = probing();
        let rs = t.sample(1, 50_000, RATE);
        t.main(&rs);
        assert_eq!(t.bbr.cycle_idx, 0, "five round trips, inflight too low");
        let mut t = probing();
        let rs = t.sample(1, 50_000, RATE);
        t.main(&RateSample { losses: 1, ..rs });
        assert_eq!(t.bbr.cycle_idx, 1);
        let mut t = probing();
        t.sk.packets_in_flight = 1500;
        let rs = t.sample(1, 50_000, RATE);
        t.main(&rs);
        assert_eq!(t.bbr.cycle_idx, 1);
        let mut t = probing();
        t.sk.packets_in_flight = 1500;
        let rs = t.sample(1, 5_000, RATE);
        t.main(&rs);
        assert_eq!(t.bbr.cycle_idx, 0, "not before a round trip");
    }

    #[test]
    fn the_draining_phase_ends_early_when_the_queue_is_gone() {
        let draining = |inflight| {
            let mut t = Test::steady();
            t.bbr.cycle_idx = 1;
            t.bbr.update_gains();
            t.sk.packets_in_flight = inflight;
            let rs = t.sample(1, 1_000, RATE);
            t.main(&rs);
            t.bbr.cycle_idx
        };
        assert_eq!((draining(900), draining(1500)), (2, 1));
    }
}
