//! The callbacks of `tcp_bbr.c`, in its order of operations.
//!
//! `draw` gives the random number that chooses the first phase of a gain cycle, 0 ≤ n < [`CYCLE_RAND`];
//! a callback draws at most once.
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

    /// The losses were none: returns the window to go on with (`bbr_undo_cwnd`).
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
            self.lt_bw_sampling(sk, &RateSample::of_losses(1), &mut draw);
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
            // No need for speed when the application has little to send.
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
