//! ACK aggregation: how many packets beyond the estimated bandwidth ACKs have delivered at once, so
//! that the window can bridge the silence between two of them.

use super::params::{ACK_EPOCH_RESET, BW_SCALE, EXTRA_ACKED_MAX_US, EXTRA_ACKED_ROUNDS, GAIN_SCALE};
use super::socket::{RateSample, Socket, stamp_us_delta};
use super::state::Bbr;

impl Bbr {
    /// `bbr_update_ack_aggregation`.
    #[inline]
    pub(super) fn update_ack_aggregation(&mut self, sk: &Socket, rs: &RateSample, bw: u32) {
        if self.params.extra_acked_gain == 0 || rs.acked_sacked == 0 || !rs.is_valid() {
            return;
        }
        if self.round_start {
            self.extra_acked_win_rtts = (self.extra_acked_win_rtts + 1).min(0x1f);
            if u32::from(self.extra_acked_win_rtts) >= EXTRA_ACKED_ROUNDS {
                self.extra_acked_win_rtts = 0;
                self.extra_acked_win_idx ^= 1;
                self.extra_acked[usize::from(self.extra_acked_win_idx & 1)] = 0;
            }
        }
        let epoch_us = stamp_us_delta(sk.delivered_mstamp, self.ack_epoch_mstamp);
        let mut expected = ((u64::from(bw) * u64::from(epoch_us)) >> BW_SCALE) as u32;
        let acked = self.ack_epoch_acked.wrapping_add(rs.acked_sacked);
        // Slower than expected, or too long a count: a new epoch starts with this ACK.
        if self.ack_epoch_acked <= expected || acked >= ACK_EPOCH_RESET {
            self.ack_epoch_acked = 0;
            self.ack_epoch_mstamp = sk.delivered_mstamp;
            expected = 0;
        }
        self.ack_epoch_acked = self.ack_epoch_acked.wrapping_add(rs.acked_sacked).min(0xf_ffff);
        let extra = self.ack_epoch_acked.wrapping_sub(expected).min(sk.snd_cwnd);
        let slot = &mut self.extra_acked[usize::from(self.extra_acked_win_idx & 1)];
        if extra > u32::from(*slot) {
            *slot = extra as u16;
        }
    }

    /// What the window provides for aggregation (`bbr_ack_aggregation_cwnd`).
    #[inline]
    pub(super) fn ack_aggregation_cwnd(&self, bw: u32) -> u32 {
        if self.params.extra_acked_gain == 0 || !self.full_bw_reached {
            return 0;
        }
        let most = ((u64::from(bw) * EXTRA_ACKED_MAX_US) >> BW_SCALE) as u32;
        let extra = u32::from(self.extra_acked[0].max(self.extra_acked[1]));
        (self.params.extra_acked_gain.wrapping_mul(extra) >> GAIN_SCALE).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Test;
    use super::super::params::BW_UNIT;
    use super::super::socket::RateSample;

    const RATE: u64 = BW_UNIT / 10;

    #[test]
    fn a_burst_of_acks_is_remembered_for_five_to_ten_rounds() {
        let mut t = Test::steady();
        let rs = t.sample(1, 10_000, RATE);
        t.main(&rs);
        // Five hundred at once where ten were expected.
        let rs = t.sample(500, 100, RATE);
        t.main(&rs);
        let burst = t.bbr.extra_acked[0].max(t.bbr.extra_acked[1]);
        assert!((485..=501).contains(&burst), "{burst}");
        assert_eq!(t.bbr.ack_aggregation_cwnd(t.bbr.estimated_bw()), u32::from(burst));
        let mut rounds = 0;
        while t.bbr.extra_acked[0].max(t.bbr.extra_acked[1]) == burst {
            let rs = t.sample(1, 10_000, RATE);
            t.main(&RateSample { prior_delivered: t.bbr.next_rtt_delivered, ..rs });
            rounds += 1;
        }
        assert!((5..=10).contains(&rounds), "{rounds}");
    }

    #[test]
    fn at_most_a_tenth_of_a_second_of_silence_is_bridged() {
        let mut t = Test::steady();
        t.bbr.extra_acked[0] = u16::MAX;
        let bw = t.bbr.estimated_bw();
        // A packet each 10 µs for 100 ms.
        assert_eq!(t.bbr.ack_aggregation_cwnd(bw), 9_999);
        t.bbr.full_bw_reached = false;
        assert_eq!(t.bbr.ack_aggregation_cwnd(bw), 0, "only once the pipe is full");
    }

    #[test]
    fn an_epoch_ends_when_acks_fall_behind_the_estimate() {
        let mut t = Test::steady();
        t.bbr.ack_epoch_acked = 50;
        t.bbr.ack_epoch_mstamp = t.sk.delivered_mstamp;
        let rs = t.sample(7, 1000, RATE);
        t.main(&rs);
        assert_eq!(t.bbr.ack_epoch_acked, 7);
        assert_eq!(t.bbr.ack_epoch_mstamp, t.sk.delivered_mstamp);
    }

    #[test]
    fn an_epoch_ends_at_two_to_the_twentieth_packets() {
        let mut t = Test::steady();
        t.bbr.ack_epoch_acked = (1 << 20) - 5;
        t.bbr.ack_epoch_mstamp = t.sk.delivered_mstamp;
        let rs = t.sample(5, 10, RATE);
        t.main(&rs);
        assert_eq!(t.bbr.ack_epoch_acked, 5);
    }
}
