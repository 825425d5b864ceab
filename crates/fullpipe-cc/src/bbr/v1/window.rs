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

    /// Recovery's first round conserves packets, its end restores the window. Returns the window and
    /// whether it is final (`bbr_set_cwnd_to_recover_or_restore`).
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
