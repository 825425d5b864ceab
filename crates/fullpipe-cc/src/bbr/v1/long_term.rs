//! Long-term sampling: two consecutive lossy intervals with the same delivery rate indicate a
//! policer, whose rate is then used directly (Flach et al., "An Internet-Wide Analysis of Traffic
//! Policing", SIGCOMM 2016).

use super::params::{
    BW_UNIT, GAIN_SCALE, GAIN_UNIT, LT_BW_DIFF, LT_BW_MAX_ROUNDS, LT_BW_RATIO, LT_INTERVAL_ROUNDS,
    LT_LOSS_THRESH,
};
use super::socket::{RateSample, Socket};
use super::state::{Bbr, Mode};

impl Bbr {
    /// `bbr_reset_lt_bw_sampling_interval`.
    fn reset_lt_bw_sampling_interval(&mut self, sk: &Socket) {
        self.lt_last_stamp = (sk.delivered_mstamp / 1000) as u32;
        self.lt_last_delivered = sk.delivered;
        self.lt_last_lost = sk.lost;
        self.lt_rtt_cnt = 0;
    }

    /// `bbr_reset_lt_bw_sampling`.
    pub(super) fn reset_lt_bw_sampling(&mut self, sk: &Socket) {
        self.lt_bw = 0;
        self.lt_use_bw = false;
        self.lt_is_sampling = false;
        self.reset_lt_bw_sampling_interval(sk);
    }

    /// An interval gave `bw`: does it agree with the one before? (`bbr_lt_bw_interval_done`)
    fn lt_bw_interval_done(&mut self, sk: &Socket, bw: u32) {
        if self.lt_bw != 0 {
            let diff = (bw.wrapping_sub(self.lt_bw) as i32).wrapping_abs() as u32;
            if diff.wrapping_mul(GAIN_UNIT) <= LT_BW_RATIO.wrapping_mul(self.lt_bw)
                || self.rate_bytes_per_sec(sk, u64::from(diff), GAIN_UNIT) <= LT_BW_DIFF
            {
                self.lt_bw = bw.wrapping_add(self.lt_bw) >> 1;
                self.lt_use_bw = true;
                self.pacing_gain = GAIN_UNIT;
                self.lt_rtt_cnt = 0;
                return;
            }
        }
        self.lt_bw = bw;
        self.reset_lt_bw_sampling_interval(sk);
    }

    /// `bbr_lt_bw_sampling`.
    #[inline]
    pub(super) fn lt_bw_sampling(&mut self, sk: &Socket, rs: &RateSample, draw: &mut impl FnMut() -> u32) {
        if !self.params.long_term {
            return;
        }
        if self.lt_use_bw {
            if self.mode == Mode::ProbeBw && self.round_start {
                self.lt_rtt_cnt = (self.lt_rtt_cnt + 1) & 0x7f;
                if u32::from(self.lt_rtt_cnt) >= LT_BW_MAX_ROUNDS {
                    self.reset_lt_bw_sampling(sk);
                    self.reset_probe_bw_mode(sk, draw);
                }
            }
            return;
        }
        // The first loss shows that the policer's tokens are exhausted: earlier rates are too high.
        if !self.lt_is_sampling {
            if rs.losses == 0 {
                return;
            }
            self.reset_lt_bw_sampling_interval(sk);
            self.lt_is_sampling = true;
        }
        if rs.is_app_limited {
            self.reset_lt_bw_sampling(sk);
            return;
        }
        if self.round_start {
            self.lt_rtt_cnt = (self.lt_rtt_cnt + 1) & 0x7f;
        }
        if u32::from(self.lt_rtt_cnt) < LT_INTERVAL_ROUNDS {
            return;
        }
        if u32::from(self.lt_rtt_cnt) > 4 * LT_INTERVAL_ROUNDS {
            self.reset_lt_bw_sampling(sk);
            return;
        }
        // End on a loss, when the tokens are exhausted again.
        if rs.losses == 0 {
            return;
        }
        self.end_lt_bw_interval(sk);
    }

    /// The second half of `bbr_lt_bw_sampling`: the interval may end here.
    fn end_lt_bw_interval(&mut self, sk: &Socket) {
        let lost = sk.lost.wrapping_sub(self.lt_last_lost);
        let delivered = sk.delivered.wrapping_sub(self.lt_last_delivered);
        if delivered == 0 || lost << GAIN_SCALE < LT_LOSS_THRESH.wrapping_mul(delivered) {
            return;
        }
        let ms = ((sk.delivered_mstamp / 1000) as u32).wrapping_sub(self.lt_last_stamp);
        if (ms as i32) < 1 {
            return;
        }
        if ms >= u32::MAX / 1000 {
            self.reset_lt_bw_sampling(sk);
            return;
        }
        let bw = u64::from(delivered) * BW_UNIT / u64::from(ms * 1000);
        self.lt_bw_interval_done(sk, bw as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Test;
    use super::super::params::BW_UNIT;
    use super::super::socket::RateSample;
    use super::super::state::Mode;

    /// Rounds of a policed flow: `delivered` packets a round trip of 10 ms, `lost` lost.
    fn lossy_rounds(t: &mut Test, rounds: u32, delivered: u32, lost: u32) {
        for _ in 0..rounds {
            t.sk.lost += lost;
            let rs = t.round(u64::from(delivered) * BW_UNIT / 10_000);
            t.main(&RateSample { losses: lost as i32, ..rs });
        }
    }

    #[test]
    fn two_lossy_intervals_of_the_same_rate_betray_a_policer() {
        let mut t = Test::steady();
        lossy_rounds(&mut t, 5, 100, 30);
        assert!(t.bbr.lt_is_sampling && t.bbr.lt_bw > 0 && !t.bbr.lt_use_bw);
        lossy_rounds(&mut t, 4, 105, 30);
        assert!(t.bbr.lt_use_bw);
        // About a hundred packets in 10 ms.
        let bw = t.bbr.estimated_bw() as f64 / BW_UNIT as f64 * 10_000.0;
        assert!((95.0..112.0).contains(&bw), "{bw}");
        assert_eq!(t.bbr.pacing_gain, 256);
    }

    #[test]
    fn intervals_of_different_rates_do_not() {
        let mut t = Test::steady();
        lossy_rounds(&mut t, 5, 100, 30);
        lossy_rounds(&mut t, 4, 200, 60);
        assert!(!t.bbr.lt_use_bw);
    }

    #[test]
    fn a_fifth_lost_is_needed() {
        let mut t = Test::steady();
        lossy_rounds(&mut t, 16, 100, 10);
        assert_eq!(t.bbr.lt_bw, 0);
        lossy_rounds(&mut t, 2, 100, 10);
        assert!(t.bbr.lt_rtt_cnt < 4, "after sixteen rounds sampling starts over");
    }

    #[test]
    fn an_application_limited_sample_starts_over() {
        let mut t = Test::steady();
        lossy_rounds(&mut t, 5, 100, 30);
        let rs = t.round(BW_UNIT / 100);
        t.main(&RateSample { is_app_limited: true, ..rs });
        assert!(!t.bbr.lt_is_sampling && t.bbr.lt_bw == 0);
    }

    #[test]
    fn the_policed_rate_is_left_after_48_rounds() {
        let mut t = Test::steady();
        while !t.bbr.lt_use_bw {
            lossy_rounds(&mut t, 1, 100, 30);
        }
        for round in 1..=48 {
            assert!(t.bbr.lt_use_bw, "round {round}");
            let rs = t.round(BW_UNIT / 100);
            t.main(&rs);
        }
        assert!(!t.bbr.lt_use_bw);
        assert_eq!((t.bbr.mode, t.bbr.cycle_idx), (Mode::ProbeBw, 0), "probing again");
    }

    #[test]
    fn spurious_losses_end_it() {
        let mut t = Test::steady();
        lossy_rounds(&mut t, 9, 100, 30);
        t.bbr.undo_cwnd(&t.sk);
        assert!(!t.bbr.lt_use_bw && t.bbr.lt_bw == 0);
    }

    #[test]
    fn it_can_be_turned_off() {
        let mut t = Test::steady();
        t.bbr.params.long_term = false;
        lossy_rounds(&mut t, 20, 100, 30);
        assert!(!t.bbr.lt_use_bw);
    }
}
