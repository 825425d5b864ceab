//! min_rtt, and PROBE_RTT: when no sample has come down to the estimate for ten seconds, inflight
//! is cut to four packets for 200 ms and a round, so that flows drain the queue together and see
//! the path.

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

#[cfg(test)]
mod tests {
    use super::super::fixture::Test;
    use super::super::params::{BW_UNIT, Params};
    use super::super::socket::RateSample;
    use super::super::state::Mode;

    const RATE: u64 = BW_UNIT / 10;

    /// Eleven seconds without a new min_rtt.
    fn expired() -> Test {
        let mut t = Test::steady();
        let rs = t.sample(1, 11_000_000, RATE);
        t.main(&RateSample { rtt_us: 15_000, is_ack_delayed: true, ..rs });
        t
    }

    #[test]
    fn a_lower_sample_is_the_new_min_rtt_at_once_a_higher_one_after_ten_seconds() {
        let mut t = Test::steady();
        let rs = t.sample(1, 1000, RATE);
        t.main(&RateSample { rtt_us: 9_000, ..rs });
        assert_eq!(t.bbr.min_rtt_us, 9_000);
        t.main(&RateSample { rtt_us: 12_000, ..rs });
        assert_eq!(t.bbr.min_rtt_us, 9_000);
        let rs = t.sample(1, 10_002_000, RATE);
        t.main(&RateSample { rtt_us: 12_000, ..rs });
        assert_eq!(t.bbr.min_rtt_us, 12_000);
    }

    #[test]
    fn a_delayed_ack_does_not_replace_an_expired_min_rtt() {
        assert_eq!(expired().bbr.min_rtt_us, 10_000);
    }

    #[test]
    fn an_expired_min_rtt_cuts_the_window_to_four_packets() {
        let t = expired();
        assert_eq!((t.bbr.mode, t.sk.snd_cwnd), (Mode::ProbeRtt, 4));
        assert_eq!(t.bbr.prior_cwnd, 2000);
        assert_eq!(t.sk.app_limited, t.sk.delivered + t.sk.packets_in_flight);
    }

    #[test]
    fn it_stays_200_ms_and_a_round_from_when_inflight_is_down() {
        let mut t = expired();
        let rs = t.sample(1, 50_000, RATE);
        t.main(&rs);
        assert_eq!(t.bbr.probe_rtt_done_stamp, 0, "still too much in flight");
        t.sk.packets_in_flight = 4;
        let rs = t.sample(1, 1000, RATE);
        t.main(&rs);
        let done = t.bbr.probe_rtt_done_stamp;
        assert_eq!(done, t.sk.jiffies + 200);
        // Over the time, but not yet a round.
        let rs = t.sample(1, 201_000, RATE);
        t.main(&RateSample { prior_delivered: t.bbr.next_rtt_delivered - 1, ..rs });
        assert_eq!(t.bbr.mode, Mode::ProbeRtt);
        let rs = t.sample(1, 1000, RATE);
        t.main(&RateSample { prior_delivered: t.bbr.next_rtt_delivered, ..rs });
        assert_eq!(t.bbr.mode, Mode::ProbeBw);
        assert_eq!(t.bbr.min_rtt_stamp, t.sk.jiffies);
        assert!(t.sk.snd_cwnd >= 2000, "restored: {}", t.sk.snd_cwnd);
    }

    #[test]
    fn before_the_pipe_is_full_it_returns_to_startup() {
        let mut t = expired();
        t.bbr.full_bw_reached = false;
        t.bbr.probe_rtt_done_stamp = t.sk.jiffies - 1;
        t.bbr.check_probe_rtt_done(&mut t.sk, &mut || 0);
        assert_eq!(t.bbr.mode, Mode::Startup);
    }

    #[test]
    fn a_connection_restarting_from_idle_does_not_probe() {
        let mut t = Test::steady();
        t.bbr.idle_restart = true;
        let rs = t.sample(1, 11_000_000, RATE);
        t.main(&RateSample { rtt_us: 15_000, ..rs });
        assert_eq!(t.bbr.mode, Mode::ProbeBw);
        assert_eq!(t.bbr.min_rtt_us, 15_000, "the idle time has drained the queue");
        assert!(!t.bbr.idle_restart);
    }

    #[test]
    fn the_time_is_kept_in_ticks() {
        let mut t = Test::with(Params { hz: 250, ..Params::LINUX });
        t.bbr.mode = Mode::ProbeRtt;
        t.sk.packets_in_flight = 0;
        t.bbr.update_min_rtt(&mut t.sk, &RateSample::with_losses(0), &mut || 0);
        assert_eq!(t.bbr.probe_rtt_done_stamp, t.sk.jiffies + 50);
    }
}
