//! STARTUP's end: the pipe is full when three rounds bring no quarter more bandwidth; then DRAIN empties
//! the queue that ramping up has built.

use super::params::{FULL_BW_ROUNDS, FULL_BW_THRESH, GAIN_SCALE, GAIN_UNIT};
use super::socket::{RateSample, Socket};
use super::state::{Bbr, Mode};

impl Bbr {
    /// `bbr_check_full_bw_reached`.
    #[inline]
    pub(super) fn check_full_bw_reached(&mut self, rs: &RateSample) {
        if self.full_bw_reached || !self.round_start || rs.is_app_limited {
            return;
        }
        let thresh = ((u64::from(self.full_bw) * u64::from(FULL_BW_THRESH)) >> GAIN_SCALE) as u32;
        if self.max_bw() >= thresh {
            self.full_bw = self.max_bw();
            self.full_bw_cnt = 0;
            return;
        }
        self.full_bw_cnt = (self.full_bw_cnt + 1) & 3;
        self.full_bw_reached = u32::from(self.full_bw_cnt) >= FULL_BW_ROUNDS;
    }

    /// `bbr_check_drain`.
    #[inline]
    pub(super) fn check_drain(&mut self, sk: &mut Socket, draw: &mut impl FnMut() -> u32) {
        if self.mode == Mode::Startup && self.full_bw_reached {
            self.mode = Mode::Drain;
            sk.snd_ssthresh = self.inflight(sk, self.max_bw(), GAIN_UNIT);
        }
        if self.mode == Mode::Drain
            && self.packets_in_net_at_edt(sk, sk.packets_in_flight)
                <= self.inflight(sk, self.max_bw(), GAIN_UNIT)
        {
            self.reset_probe_bw_mode(sk, draw);
        }
    }
}
