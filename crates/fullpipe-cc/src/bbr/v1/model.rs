//! The callbacks of `tcp_bbr.c`, in its order of operations.
//!
//! `draw` gives the random number that chooses the first phase of a gain cycle, 0 ≤ n <
//! [`CYCLE_RAND`]; a callback draws at most once.
//!
//! [`CYCLE_RAND`]: super::CYCLE_RAND

use super::params::{BW_SCALE, GAIN_UNIT};
use super::socket::{CA_LOSS, CA_OPEN, RateSample, Socket};
use super::state::{Bbr, Mode};
use crate::loss_based::NO_SSTHRESH;
use crate::minmax::MinMax;

/// `struct tcp_bbr_info`: what `ss -i` shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Info {
    /// Bandwidth estimate in bytes/s.
    pub bw: u64,
    /// min_rtt in µs.
    pub min_rtt: u32,
    /// In 1/256.
    pub pacing_gain: u32,
    /// In 1/256.
    pub cwnd_gain: u32,
}

impl Bbr {
    /// A connection starts, or starts to use BBR (`bbr_init`).
    pub fn init(&mut self, sk: &mut Socket) {
        self.prior_cwnd = 0;
        sk.snd_ssthresh = NO_SSTHRESH;
        self.rtt_cnt = 0;
        self.next_rtt_delivered = sk.delivered;
        self.prev_ca_state = CA_OPEN;
        self.packet_conservation = false;
        self.probe_rtt_done_stamp = 0;
        self.probe_rtt_round_done = false;
        self.min_rtt_us = sk.min_rtt_us;
        self.min_rtt_stamp = sk.jiffies;
        self.bw = MinMax::new(self.rtt_cnt, 0);
        self.has_seen_rtt = false;
        self.init_pacing_rate_from_rtt(sk);
        self.round_start = false;
        self.idle_restart = false;
        self.full_bw_reached = false;
        self.full_bw = 0;
        self.full_bw_cnt = 0;
        self.cycle_mstamp = 0;
        self.cycle_idx = 0;
        self.reset_lt_bw_sampling(sk);
        self.mode = Mode::Startup;
        self.ack_epoch_mstamp = sk.tcp_mstamp;
        self.ack_epoch_acked = 0;
        self.extra_acked_win_rtts = 0;
        self.extra_acked_win_idx = 0;
        self.extra_acked = [0; 2];
    }

    /// An ACK was processed (`bbr_main`).
    #[inline]
    pub fn main(&mut self, sk: &mut Socket, rs: &RateSample, mut draw: impl FnMut() -> u32) {
        self.update_bw(sk, rs, &mut draw);
        // Nothing below changes the estimate.
        let bw = self.estimated_bw();
        self.update_ack_aggregation(sk, rs, bw);
        self.update_cycle_phase(sk, rs);
        self.check_full_bw_reached(rs);
        self.check_drain(sk, &mut draw);
        self.update_min_rtt(sk, rs, &mut draw);
        self.update_gains();
        self.set_pacing_rate(sk, bw, self.pacing_gain);
        self.set_cwnd(sk, rs, bw, self.cwnd_gain);
    }

    /// Recovery or a time-out begins: returns the slow-start threshold, which BBR does not change
    /// (`bbr_ssthresh`).
    pub fn ssthresh(&mut self, sk: &Socket) -> u32 {
        self.save_cwnd(sk);
        sk.snd_ssthresh
    }

    /// The losses were spurious: returns the window to continue with (`bbr_undo_cwnd`).
    pub fn undo_cwnd(&mut self, sk: &Socket) -> u32 {
        self.full_bw = 0;
        self.full_bw_cnt = 0;
        self.reset_lt_bw_sampling(sk);
        sk.snd_cwnd
    }

    /// The loss-recovery state becomes `state` (`bbr_set_state`).
    pub fn set_state(&mut self, sk: &Socket, state: u8, mut draw: impl FnMut() -> u32) {
        if state == CA_LOSS {
            self.prev_ca_state = CA_LOSS;
            self.full_bw = 0;
            self.round_start = true;
            self.lt_bw_sampling(sk, &RateSample::with_losses(1), &mut draw);
        }
    }

    /// Data leaves after nothing was in flight (`bbr_cwnd_event` with `CA_EVENT_TX_START`).
    pub fn transmit_start(&mut self, sk: &mut Socket, mut draw: impl FnMut() -> u32) {
        if sk.app_limited == 0 {
            return;
        }
        self.idle_restart = true;
        self.ack_epoch_mstamp = sk.tcp_mstamp;
        self.ack_epoch_acked = 0;
        match self.mode {
            // Pace at the estimate when the application has little to send.
            Mode::ProbeBw => self.set_pacing_rate(sk, self.estimated_bw(), GAIN_UNIT),
            Mode::ProbeRtt => self.check_probe_rtt_done(sk, &mut draw),
            Mode::Startup | Mode::Drain => {}
        }
    }

    /// Windows of send buffer to provide (`bbr_sndbuf_expand`).
    pub fn sndbuf_expand() -> u32 {
        3
    }

    /// `bbr_get_info`.
    pub fn info(&self, sk: &Socket) -> Info {
        let bw = u64::from(self.estimated_bw());
        Info {
            bw: bw.wrapping_mul(u64::from(sk.mss_cache)).wrapping_mul(1_000_000) >> BW_SCALE,
            min_rtt: self.min_rtt_us,
            pacing_gain: self.pacing_gain,
            cwnd_gain: self.cwnd_gain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Test;
    use super::super::params::BW_UNIT;
    use super::super::state::{KERNEL_SIZE, Mode};
    use super::*;

    #[test]
    fn a_transmission_after_idle_paces_at_the_estimate() {
        let mut t = Test::steady();
        t.bbr.pacing_gain = 320;
        t.sk.app_limited = 1;
        t.pass(1_000_000);
        t.bbr.transmit_start(&mut t.sk, || 0);
        assert!(t.bbr.idle_restart);
        assert_eq!((t.bbr.ack_epoch_mstamp, t.bbr.ack_epoch_acked), (t.sk.tcp_mstamp, 0));
        assert_eq!(t.sk.pacing_rate, t.bbr.rate_bytes_per_sec(&t.sk, BW_UNIT / 10, GAIN_UNIT));
    }

    #[test]
    fn without_the_application_limited_mark_it_is_no_restart() {
        let mut t = Test::steady();
        let before = t.bbr;
        t.bbr.transmit_start(&mut t.sk, || 0);
        assert_eq!(t.bbr, before);
    }

    #[test]
    fn idle_time_in_probe_rtt_may_have_ended_it() {
        let mut t = Test::steady();
        t.bbr.mode = Mode::ProbeRtt;
        t.bbr.probe_rtt_done_stamp = t.sk.jiffies + 200;
        t.sk.app_limited = 1;
        t.pass(200_000);
        t.bbr.transmit_start(&mut t.sk, || 0);
        assert_eq!(t.bbr.mode, Mode::ProbeRtt);
        t.pass(1_000);
        t.bbr.transmit_start(&mut t.sk, || 3);
        assert_eq!((t.bbr.mode, t.bbr.cycle_idx), (Mode::ProbeBw, 5));
    }

    #[test]
    fn undoing_restarts_the_search_for_a_full_pipe() {
        let mut t = Test::new();
        (t.bbr.full_bw, t.bbr.full_bw_cnt) = (1000, 2);
        assert_eq!(t.bbr.undo_cwnd(&t.sk), t.sk.snd_cwnd);
        assert_eq!((t.bbr.full_bw, t.bbr.full_bw_cnt), (0, 0));
    }

    #[test]
    fn the_threshold_is_left_alone() {
        let mut t = Test::steady();
        t.sk.snd_ssthresh = 123;
        assert_eq!(t.bbr.ssthresh(&t.sk), 123);
    }

    #[test]
    fn a_second_reduction_keeps_the_better_window() {
        let mut t = Test::steady();
        t.bbr.ssthresh(&t.sk);
        t.bbr.prev_ca_state = crate::bbr::v1::CA_RECOVERY;
        t.sk.snd_cwnd = 10;
        t.bbr.ssthresh(&t.sk);
        assert_eq!(t.bbr.prior_cwnd, 2000);
    }

    #[test]
    fn the_info_is_in_bytes_per_second() {
        let t = Test::steady();
        let info = t.bbr.info(&t.sk);
        assert!((info.bw as f64 / 144_800_000.0 - 1.0).abs() < 1e-5);
        assert_eq!((info.min_rtt, info.pacing_gain, info.cwnd_gain), (10_000, 256, 512));
        assert_eq!(Bbr::sndbuf_expand(), 3);
    }

    /// A replay can take any recorded state, continue, and be compared byte by byte.
    #[test]
    fn model_restored_from_kernel_bytes_continues_identically() {
        let mut a = Test::steady();
        for i in 0..500 {
            let rs = a.sample(3, 37 + i % 50, BW_UNIT / 20);
            a.main(&rs);
            let bytes: [u8; KERNEL_SIZE] = a.bbr.to_kernel();
            let mut b = Test { bbr: Bbr::from_kernel(&bytes, a.bbr.params).unwrap(), sk: a.sk, draw: 0 };
            let rs = a.sample(2, 20, BW_UNIT / 15);
            (b.sk.delivered, b.sk.delivered_mstamp) = (a.sk.delivered, a.sk.delivered_mstamp);
            (b.sk.tcp_mstamp, b.sk.tcp_clock_cache) = (a.sk.tcp_mstamp, a.sk.tcp_clock_cache);
            b.sk.jiffies = a.sk.jiffies;
            a.main(&rs);
            b.main(&rs);
            assert_eq!((a.bbr.to_kernel(), a.sk), (b.bbr.to_kernel(), b.sk));
        }
    }
}
