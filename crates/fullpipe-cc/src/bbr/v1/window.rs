//! The congestion window: a multiple of the bandwidth-delay product, with room for batching.

use super::params::{BW_SCALE, BW_UNIT, CWND_MIN_TARGET, GAIN_SCALE, GAIN_UNIT, INIT_CWND};
use super::socket::{CA_RECOVERY, RateSample, Socket};
use super::state::{Bbr, Mode};

impl Bbr {
    /// ⌈bw · min_rtt · gain⌉ (`bbr_bdp`).
    #[inline]
    pub(super) fn bdp(&self, bw: u32, gain: u32) -> u32 {
        if self.min_rtt_us == u32::MAX {
            return INIT_CWND;
        }
        let w = u64::from(bw) * u64::from(self.min_rtt_us);
        let scaled = w.wrapping_mul(u64::from(gain)) >> GAIN_SCALE;
        (scaled.wrapping_add(BW_UNIT - 1) >> BW_SCALE) as u32
    }

    /// Room for a batch in each of queue, device and receiver, an even number of packets against
    /// delayed ACKs, and a little more while probing for bandwidth (`bbr_quantization_budget`).
    #[inline]
    pub(super) fn quantization_budget(&mut self, sk: &Socket, cwnd: u32) -> u32 {
        let cwnd = cwnd.wrapping_add(3 * self.tso_segs_goal(sk));
        let cwnd = cwnd.wrapping_add(1) & !1;
        if self.mode == Mode::ProbeBw && self.cycle_idx == 0 { cwnd.wrapping_add(2) } else { cwnd }
    }

    /// `bbr_inflight`.
    #[inline]
    pub(super) fn inflight(&mut self, sk: &Socket, bw: u32, gain: u32) -> u32 {
        self.quantization_budget(sk, self.bdp(bw, gain))
    }

    /// Of `inflight_now` packets, those that will be in the network when the next one departs: the
    /// pacer may have scheduled it for later (`bbr_packets_in_net_at_edt`).
    pub(super) fn packets_in_net_at_edt(&mut self, sk: &Socket, inflight_now: u32) -> u32 {
        let edt = sk.tcp_wstamp_ns.max(sk.tcp_clock_cache);
        let interval_us = (edt - sk.tcp_clock_cache) / 1000;
        let delivered = (u64::from(self.estimated_bw()).wrapping_mul(interval_us) >> BW_SCALE) as u32;
        let mut inflight = inflight_now;
        if self.pacing_gain > GAIN_UNIT {
            inflight = inflight.wrapping_add(self.tso_segs_goal(sk));
        }
        inflight.saturating_sub(delivered)
    }

    /// Recovery's first round conserves packets, its end restores the window. Returns the window
    /// and whether it is final (`bbr_set_cwnd_to_recover_or_restore`).
    #[inline]
    fn recover_or_restore(&mut self, sk: &Socket, rs: &RateSample, acked: u32) -> (u32, bool) {
        let (prev, state) = (self.prev_ca_state, sk.ca_state);
        let mut cwnd = sk.snd_cwnd;
        if prev == state && rs.losses <= 0 && !self.packet_conservation {
            return (cwnd, false);
        }
        if rs.losses > 0 {
            cwnd = (cwnd.wrapping_sub(rs.losses as u32) as i32).max(1) as u32;
        }
        let conserved = sk.packets_in_flight.wrapping_add(acked);
        if state == CA_RECOVERY && prev != CA_RECOVERY {
            self.packet_conservation = true;
            self.next_rtt_delivered = sk.delivered;
            cwnd = conserved;
        } else if prev >= CA_RECOVERY && state < CA_RECOVERY {
            cwnd = cwnd.max(self.prior_cwnd);
            self.packet_conservation = false;
        }
        self.prev_ca_state = state;
        if self.packet_conservation { (cwnd.max(conserved), true) } else { (cwnd, false) }
    }

    /// `bbr_set_cwnd`.
    #[inline]
    pub(super) fn set_cwnd(&mut self, sk: &mut Socket, rs: &RateSample, bw: u32, gain: u32) {
        let acked = rs.acked_sacked;
        let mut cwnd = sk.snd_cwnd;
        if acked != 0 {
            let conserving;
            (cwnd, conserving) = self.recover_or_restore(sk, rs, acked);
            if !conserving {
                let target = self.bdp(bw, gain).wrapping_add(self.ack_aggregation_cwnd(bw));
                let target = self.quantization_budget(sk, target);
                if self.full_bw_reached {
                    cwnd = cwnd.wrapping_add(acked).min(target);
                } else if cwnd < target || sk.delivered < INIT_CWND {
                    cwnd = cwnd.wrapping_add(acked);
                }
                cwnd = cwnd.max(CWND_MIN_TARGET);
            }
        }
        sk.snd_cwnd = cwnd.min(sk.snd_cwnd_clamp);
        if self.mode == Mode::ProbeRtt {
            sk.snd_cwnd = sk.snd_cwnd.min(CWND_MIN_TARGET);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Test;
    use super::super::params::BW_UNIT;
    use super::super::socket::{CA_LOSS, CA_OPEN, CA_RECOVERY, RateSample};
    use super::super::state::Mode;

    const RATE: u64 = BW_UNIT / 10;

    #[test]
    fn the_bandwidth_delay_product_rounds_up() {
        let t = Test::steady();
        // 2²⁴/10 rounded down over 10 000 µs: 999.99 packets.
        assert_eq!(t.bbr.bdp((BW_UNIT / 10) as u32, 256), 1000);
        assert_eq!(t.bbr.bdp((BW_UNIT / 10) as u32, 320), 1250);
        assert_eq!(t.bbr.bdp(1, 256), 1);
    }

    #[test]
    fn without_a_round_trip_time_it_is_the_initial_window() {
        let mut t = Test::steady();
        t.bbr.min_rtt_us = u32::MAX;
        assert_eq!(t.bbr.bdp(u32::MAX, 739), 10);
    }

    #[test]
    fn the_budget_adds_three_batches_and_an_even_end() {
        let mut t = Test::steady();
        t.sk.pacing_rate = 1_000_000; // batches of two
        assert_eq!(t.bbr.quantization_budget(&t.sk, 101), 108);
        assert_eq!(t.bbr.quantization_budget(&t.sk, 100), 106);
        t.bbr.cycle_idx = 0;
        assert_eq!(t.bbr.quantization_budget(&t.sk, 100), 108, "room to probe");
    }

    #[test]
    fn the_steady_window_is_two_bandwidth_delay_products_and_the_budget() {
        let mut t = Test::steady();
        for _ in 0..50 {
            let rs = t.sample(100, 1000, RATE);
            t.main(&rs);
        }
        let batches = 3 * t.bbr.tso_segs_goal(&t.sk);
        let extra = t.sk.snd_cwnd - 2000 - batches;
        // What an ACK of a hundred packets at once has added for aggregation, and the even end.
        assert!((0..=103).contains(&extra), "{extra}");
    }

    #[test]
    fn the_first_round_of_recovery_conserves_packets() {
        let mut t = Test::steady();
        t.bbr.ssthresh(&t.sk);
        assert_eq!(t.bbr.prior_cwnd, 2000);
        t.sk.ca_state = CA_RECOVERY;
        t.sk.packets_in_flight = 900;
        let rs = t.sample(2, 100, RATE);
        t.main(&RateSample { losses: 1, ..rs });
        assert!(t.bbr.packet_conservation);
        assert_eq!(t.sk.snd_cwnd, 902);
        // The next round may slow-start.
        let rs = t.sample(10, 10_000, RATE);
        t.main(&RateSample { prior_delivered: t.bbr.next_rtt_delivered, ..rs });
        assert!(!t.bbr.packet_conservation);
        assert_eq!(t.sk.snd_cwnd, 912);
        // The end restores the window.
        t.sk.ca_state = CA_OPEN;
        let rs = t.sample(1, 100, RATE);
        t.main(&rs);
        assert!(t.sk.snd_cwnd >= 2000);
    }

    #[test]
    fn after_a_time_out_the_window_grows_from_one_packet() {
        let mut t = Test::steady();
        t.bbr.ssthresh(&t.sk);
        t.sk.snd_cwnd = 1;
        t.bbr.set_state(&t.sk, CA_LOSS, || 0);
        t.sk.ca_state = CA_LOSS;
        t.sk.packets_in_flight = 0;
        let rs = t.sample(1, 100, RATE);
        t.main(&rs);
        assert_eq!(t.sk.snd_cwnd, 4, "the least window");
        assert_eq!(t.bbr.full_bw, 0);
    }

    #[test]
    fn startup_grows_without_regard_to_the_target_until_ten_packets_are_delivered() {
        let mut t = Test::new();
        t.bbr.min_rtt_us = 1;
        let rs = t.sample(5, 1000, 1);
        t.main(&rs);
        assert_eq!(t.sk.snd_cwnd, 15);
        let rs = t.sample(10, 1000, 1);
        t.main(&rs);
        assert_eq!(t.sk.snd_cwnd, 15, "the target is far below");
        assert_eq!(t.bbr.mode, Mode::Startup);
    }
}
