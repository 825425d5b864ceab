//! STARTUP's end: the pipe is full when three rounds bring no quarter more bandwidth; then DRAIN
//! empties the queue that ramping up has built.

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

#[cfg(test)]
mod tests {
    use super::super::fixture::Test;
    use super::super::params::BW_UNIT;
    use super::super::socket::RateSample;
    use super::super::state::Mode;

    #[test]
    fn three_rounds_without_a_quarter_more_bandwidth_fill_the_pipe() {
        let mut t = Test::new();
        let mut bw = BW_UNIT / 100;
        for _ in 0..5 {
            let rs = t.round(bw);
            t.main(&rs);
            bw = bw * 13 / 10;
        }
        assert_eq!(t.bbr.full_bw_cnt, 0);
        t.sk.packets_in_flight = 100_000;
        for round in 1..=3 {
            bw = bw * 105 / 100;
            let rs = t.round(t.bbr.max_bw().into());
            t.main(&rs);
            assert_eq!(t.bbr.full_bw_reached, round == 3, "round {round}");
        }
        assert_eq!(t.bbr.mode, Mode::Drain);
        assert_eq!(t.bbr.pacing_gain, 88);
    }

    #[test]
    fn application_limited_rounds_do_not_count() {
        let mut t = Test::new();
        for _ in 0..20 {
            let rs = t.round(BW_UNIT / 100);
            t.main(&RateSample { is_app_limited: true, ..rs });
        }
        assert!(!t.bbr.full_bw_reached);
    }

    #[test]
    fn drain_ends_when_inflight_is_down_to_the_bandwidth_delay_product() {
        let mut t = Test::steady();
        t.bbr.mode = Mode::Drain;
        let target = t.bbr.inflight(&t.sk, t.bbr.max_bw(), 256);
        t.sk.packets_in_flight = target + 1;
        t.bbr.check_drain(&mut t.sk, &mut || 0);
        assert_eq!(t.bbr.mode, Mode::Drain);
        t.sk.packets_in_flight = target;
        t.bbr.check_drain(&mut t.sk, &mut || 0);
        assert_eq!(t.bbr.mode, Mode::ProbeBw);
    }

    #[test]
    fn paced_backlog_is_not_in_the_network() {
        let mut t = Test::steady();
        t.bbr.mode = Mode::Drain;
        t.bbr.update_gains();
        let target = t.bbr.inflight(&t.sk, t.bbr.max_bw(), 256);
        // The next departure in 1 ms: a hundred packets more will have been delivered by then.
        t.sk.packets_in_flight = target + 99;
        t.sk.tcp_wstamp_ns = t.sk.tcp_clock_cache + 1_000_100;
        t.bbr.check_drain(&mut t.sk, &mut || 0);
        assert_eq!(t.bbr.mode, Mode::ProbeBw);
    }
}
