//! From bandwidth to pacing rate and batch size.

use super::params::{BW_SCALE, BW_UNIT, GAIN_SCALE, GAIN_UNIT, MIN_TSO_RATE};
use super::socket::Socket;
use super::state::Bbr;

impl Bbr {
    /// Largest recent delivery rate (`bbr_max_bw`).
    #[inline]
    pub fn max_bw(&self) -> u32 {
        self.bw.get()
    }

    /// The bandwidth estimate in use (`bbr_bw`).
    #[inline]
    pub fn estimated_bw(&self) -> u32 {
        if self.lt_use_bw { self.lt_bw } else { self.max_bw() }
    }

    /// `bw` with a gain and the pacing margin, in bytes/s. The order of multiplications and shifts
    /// is the kernel's (`bbr_rate_bytes_per_sec`): it determines rounding.
    #[inline]
    pub(super) fn rate_bytes_per_sec(&self, sk: &Socket, bw: u64, gain: u32) -> u64 {
        let per_us = bw.wrapping_mul(u64::from(sk.mss_cache)).wrapping_mul(u64::from(gain)) >> GAIN_SCALE;
        let percent = 100u64.wrapping_sub(u64::from(self.params.pacing_margin_percent));
        per_us.wrapping_mul(percent.wrapping_mul(1_000_000 / 100)) >> BW_SCALE
    }

    #[inline]
    fn bw_to_pacing_rate(&mut self, sk: &Socket, bw: u32, gain: u32) -> u64 {
        let key = (bw, gain, sk.mss_cache);
        if self.memo.rate.0 != key {
            self.memo.rate = (key, self.rate_bytes_per_sec(sk, u64::from(bw), gain));
        }
        self.memo.rate.1.min(sk.max_pacing_rate)
    }

    /// Paces the initial window over a round trip, a millisecond if none is known
    /// (`bbr_init_pacing_rate_from_rtt`).
    pub(super) fn init_pacing_rate_from_rtt(&mut self, sk: &mut Socket) {
        let rtt_us = if sk.srtt_us != 0 {
            self.has_seen_rtt = true;
            (sk.srtt_us >> 3).max(1)
        } else {
            1000
        };
        let bw = u64::from(sk.snd_cwnd) * BW_UNIT / u64::from(rtt_us);
        sk.pacing_rate = self.bw_to_pacing_rate(sk, bw as u32, self.params.startup_pacing_gain);
    }

    /// Never slower than before until the pipe is full (`bbr_set_pacing_rate`).
    #[inline]
    pub(super) fn set_pacing_rate(&mut self, sk: &mut Socket, bw: u32, gain: u32) {
        let rate = self.bw_to_pacing_rate(sk, bw, gain);
        if !self.has_seen_rtt && sk.srtt_us != 0 {
            self.init_pacing_rate_from_rtt(sk);
        }
        if self.full_bw_reached || rate > sk.pacing_rate {
            sk.pacing_rate = rate;
        }
    }

    /// Least segments of a batch (`bbr_min_tso_segs`).
    #[inline]
    pub fn min_tso_segs(sk: &Socket) -> u32 {
        if sk.pacing_rate < MIN_TSO_RATE { 1 } else { 2 }
    }

    /// Segments a batch is likely to have (`bbr_tso_segs_goal`).
    #[inline]
    pub(super) fn tso_segs_goal(&mut self, sk: &Socket) -> u32 {
        let key = (sk.pacing_rate, sk.mss_cache);
        if self.memo.tso_segs.0 != key {
            self.memo.tso_segs = (key, self.tso_segs(sk));
        }
        self.memo.tso_segs.1
    }

    fn tso_segs(&self, sk: &Socket) -> u32 {
        let bytes =
            (sk.pacing_rate >> self.params.pacing_shift).min(u64::from(self.params.gso_max_bytes)) as u32;
        (bytes / sk.mss_cache.max(1)).max(Self::min_tso_segs(sk)).min(0x7f)
    }

    /// Gains of the present state (`bbr_update_gains`).
    #[inline]
    pub(super) fn update_gains(&mut self) {
        use super::state::Mode;
        let p = &self.params;
        (self.pacing_gain, self.cwnd_gain) = match self.mode {
            Mode::Startup => (p.startup_pacing_gain, p.startup_cwnd_gain),
            Mode::Drain => (p.drain_gain, p.startup_cwnd_gain),
            Mode::ProbeBw if self.lt_use_bw => (GAIN_UNIT, p.cwnd_gain),
            Mode::ProbeBw => {
                (p.probe_gains.get(usize::from(self.cycle_idx)).copied().unwrap_or(GAIN_UNIT), p.cwnd_gain)
            }
            Mode::ProbeRtt => (GAIN_UNIT, GAIN_UNIT),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Test;
    use super::super::params::{BW_UNIT, GAIN_UNIT, Params};
    use super::super::state::{Bbr, Mode};

    /// 10 packets × 1448 bytes in 10 ms, times 739/256, less 1 %.
    #[test]
    fn the_first_rate_is_the_initial_window_per_round_trip_times_the_high_gain() {
        let t = Test::new();
        let exact = 10.0 * 1448.0 / 0.010 * 739.0 / 256.0 * 0.99;
        assert!((t.sk.pacing_rate as f64 / exact - 1.0).abs() < 1e-4, "{} of {exact}", t.sk.pacing_rate);
        assert!(t.bbr.has_seen_rtt);
    }

    #[test]
    fn startup_pacing_and_window_gains_are_independent() {
        let params =
            Params { startup_pacing_gain: 2 * GAIN_UNIT, startup_cwnd_gain: 3 * GAIN_UNIT, ..Params::LINUX };
        let mut t = Test::with(params);
        let exact = 10.0 * 1448.0 / 0.010 * 2.0 * 0.99;
        assert!((t.sk.pacing_rate as f64 / exact - 1.0).abs() < 1e-4, "{} of {exact}", t.sk.pacing_rate);
        t.bbr.update_gains();
        assert_eq!((t.bbr.pacing_gain, t.bbr.cwnd_gain), (2 * GAIN_UNIT, 3 * GAIN_UNIT));
        t.bbr.mode = Mode::Drain;
        t.bbr.update_gains();
        assert_eq!((t.bbr.pacing_gain, t.bbr.cwnd_gain), (params.drain_gain, 3 * GAIN_UNIT));
    }

    #[test]
    fn without_a_round_trip_time_a_millisecond_is_assumed_and_made_good_at_the_first() {
        let mut t = Test::new();
        let with_rtt = t.sk.pacing_rate;
        t.sk.srtt_us = 0;
        t.bbr.init(&mut t.sk);
        assert!(!t.bbr.has_seen_rtt);
        assert!(t.sk.pacing_rate.abs_diff(10 * with_rtt) < with_rtt / 1000);
        t.sk.srtt_us = 10_000 << 3;
        t.bbr.set_pacing_rate(&mut t.sk, 0, GAIN_UNIT);
        assert_eq!(t.sk.pacing_rate, with_rtt);
    }

    #[test]
    fn one_percent_of_the_bandwidth_is_left_unused() {
        let t = Test::steady();
        // A packet each 10 µs: 144.8 MB/s.
        let rate = t.bbr.rate_bytes_per_sec(&t.sk, BW_UNIT / 10, GAIN_UNIT);
        assert!((rate as f64 / (144_800_000.0 * 0.99) - 1.0).abs() < 1e-5, "{rate}");
    }

    #[test]
    fn the_rate_does_not_fall_before_the_pipe_is_full() {
        let mut t = Test::new();
        let before = t.sk.pacing_rate;
        t.bbr.set_pacing_rate(&mut t.sk, 1, GAIN_UNIT);
        assert_eq!(t.sk.pacing_rate, before);
        t.bbr.full_bw_reached = true;
        t.bbr.set_pacing_rate(&mut t.sk, 10_000, GAIN_UNIT);
        assert!(t.sk.pacing_rate < before);
    }

    #[test]
    fn the_socket_option_caps_the_rate() {
        let mut t = Test::steady();
        t.sk.max_pacing_rate = 1_000_000;
        t.bbr.set_pacing_rate(&mut t.sk, (BW_UNIT / 10) as u32, GAIN_UNIT);
        assert_eq!(t.sk.pacing_rate, 1_000_000);
    }

    #[test]
    fn a_batch_is_a_millisecond_of_segments_one_below_the_least_rate_and_at_most_127() {
        let mut t = Test::steady();
        for (rate, mss, segments) in [
            (149_999, 1448, 1),
            (150_000, 1448, 2),
            (14_480_000, 1448, 9),
            (u64::MAX, 1448, 45),
            (u64::MAX, 100, 127),
        ] {
            (t.sk.pacing_rate, t.sk.mss_cache) = (rate, mss);
            assert_eq!(t.bbr.tso_segs_goal(&t.sk), segments, "{rate} bytes/s of {mss}");
        }
        t.sk.pacing_rate = 149_999;
        assert_eq!(Bbr::min_tso_segs(&t.sk), 1);
    }

    #[test]
    fn gains_follow_the_state() {
        let mut t = Test::steady();
        for (mode, gains) in
            [(Mode::Startup, (739, 739)), (Mode::Drain, (88, 739)), (Mode::ProbeRtt, (256, 256))]
        {
            t.bbr.mode = mode;
            t.bbr.update_gains();
            assert_eq!((t.bbr.pacing_gain, t.bbr.cwnd_gain), gains);
        }
        t.bbr.mode = Mode::ProbeBw;
        for (idx, gain) in [320, 192, 256, 256, 256, 256, 256, 256].into_iter().enumerate() {
            t.bbr.cycle_idx = idx as u8;
            t.bbr.update_gains();
            assert_eq!((t.bbr.pacing_gain, t.bbr.cwnd_gain), (gain, 512));
            t.bbr.lt_use_bw = true;
            t.bbr.update_gains();
            assert_eq!(t.bbr.pacing_gain, 256, "a policer's rate is not probed");
            t.bbr.lt_use_bw = false;
        }
    }
}
