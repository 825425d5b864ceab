//! Long-term sampling: two consecutive lossy intervals with the same delivery rate betray a policer,
//! whose rate is then used as it is (Flach et al., "An Internet-Wide Analysis of Traffic Policing",
//! SIGCOMM 2016).

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
        // The first loss shows that the policer's tokens are gone: earlier rates are too high.
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
        // End on a loss: the tokens are gone again.
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
