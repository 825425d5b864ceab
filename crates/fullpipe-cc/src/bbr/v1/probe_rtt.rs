//! min_rtt, and PROBE_RTT: when no sample has come down to the estimate for ten seconds, inflight is cut
//! to four packets for 200 ms and a round, so that flows drain the queue together and see the path.

use super::params::CWND_MIN_TARGET;
use super::socket::{CA_RECOVERY, RateSample, Socket, after};
use super::state::{Bbr, Mode};

impl Bbr {
    /// Remembers the window, to restore it after recovery or PROBE_RTT (`bbr_save_cwnd`).
    pub(super) fn save_cwnd(&mut self, sk: &Socket) {
        if self.prev_ca_state < CA_RECOVERY && self.mode != Mode::ProbeRtt {
            self.prior_cwnd = sk.snd_cwnd;
        } else {
            // Already cut: what was remembered is better.
            self.prior_cwnd = self.prior_cwnd.max(sk.snd_cwnd);
        }
    }

    /// `bbr_check_probe_rtt_done`.
    pub(super) fn check_probe_rtt_done(&mut self, sk: &mut Socket, draw: &mut impl FnMut() -> u32) {
        if self.probe_rtt_done_stamp == 0 || !after(sk.jiffies, self.probe_rtt_done_stamp) {
            return;
        }
        self.min_rtt_stamp = sk.jiffies;
        sk.snd_cwnd = sk.snd_cwnd.max(self.prior_cwnd);
        self.reset_mode(sk, draw);
    }

    /// `bbr_update_min_rtt`.
    #[inline]
    pub(super) fn update_min_rtt(
        &mut self,
        sk: &mut Socket,
        rs: &RateSample,
        draw: &mut impl FnMut() -> u32,
    ) {
        let window = self.params.min_rtt_window_s.wrapping_mul(self.params.hz);
        let filter_expired = after(sk.jiffies, self.min_rtt_stamp.wrapping_add(window));
        if rs.rtt_us >= 0 && (rs.rtt_us < i64::from(self.min_rtt_us) || filter_expired && !rs.is_ack_delayed)
        {
            self.min_rtt_us = rs.rtt_us as u32;
            self.min_rtt_stamp = sk.jiffies;
        }
        if self.params.probe_rtt_ms > 0 && filter_expired && !self.idle_restart && self.mode != Mode::ProbeRtt
        {
            self.mode = Mode::ProbeRtt;
            self.save_cwnd(sk);
            self.probe_rtt_done_stamp = 0;
        }
        if self.mode == Mode::ProbeRtt {
            self.stay_in_probe_rtt(sk, draw);
        }
        if rs.delivered > 0 {
            self.idle_restart = false;
        }
    }

    fn stay_in_probe_rtt(&mut self, sk: &mut Socket, draw: &mut impl FnMut() -> u32) {
        // Rates measured with so small a window say nothing of the path.
        sk.app_limited = sk.delivered.wrapping_add(sk.packets_in_flight).max(1);
        if self.probe_rtt_done_stamp == 0 {
            if sk.packets_in_flight <= CWND_MIN_TARGET {
                self.probe_rtt_done_stamp =
                    sk.jiffies.wrapping_add(self.params.ticks(self.params.probe_rtt_ms));
                self.probe_rtt_round_done = false;
                self.next_rtt_delivered = sk.delivered;
            }
            return;
        }
        if self.round_start {
            self.probe_rtt_round_done = true;
        }
        if self.probe_rtt_round_done {
            self.check_probe_rtt_done(sk, draw);
        }
    }
}
