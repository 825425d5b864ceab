//! The bandwidth estimate: the largest delivery rate of the last ten rounds.

use super::params::BW_UNIT;
use super::socket::{RateSample, Socket, after};
use super::state::Bbr;

impl Bbr {
    /// Counts rounds and takes the ACK's rate into the filter (`bbr_update_bw`).
    #[inline]
    pub(super) fn update_bw(&mut self, sk: &Socket, rs: &RateSample, draw: &mut impl FnMut() -> u32) {
        self.round_start = false;
        if !rs.is_valid() {
            return;
        }
        if !after(self.next_rtt_delivered, rs.prior_delivered) {
            self.next_rtt_delivered = sk.delivered;
            self.rtt_cnt = self.rtt_cnt.wrapping_add(1);
            self.round_start = true;
            self.packet_conservation = false;
        }
        self.lt_bw_sampling(sk, rs, draw);
        let bw = rs.delivered as u64 * BW_UNIT / rs.interval_us as u64;
        // An application-limited sample shows what the application did, unless it shows more than is
        // known of the path.
        if !rs.is_app_limited || bw >= u64::from(self.max_bw()) {
            self.bw.running_max(self.params.bw_rounds, self.rtt_cnt, bw as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Test;
    use super::super::params::BW_UNIT;
    use super::super::socket::RateSample;

    #[test]
    fn a_round_ends_when_a_packet_sent_in_it_is_acknowledged() {
        let mut t = Test::new();
        let rs = t.sample(10, 10_000, BW_UNIT / 1000);
        t.main(&RateSample { prior_delivered: 0, ..rs });
        assert!(t.bbr.round_start);
        assert_eq!((t.bbr.rtt_cnt, t.bbr.next_rtt_delivered), (1, 10));
        let rs = t.sample(5, 1000, BW_UNIT / 1000);
        t.main(&RateSample { prior_delivered: 9, ..rs });
        assert!(!t.bbr.round_start);
        let rs = t.sample(5, 1000, BW_UNIT / 1000);
        t.main(&RateSample { prior_delivered: 10, ..rs });
        assert_eq!((t.bbr.rtt_cnt, t.bbr.next_rtt_delivered), (2, 20));
    }

    #[test]
    fn counts_may_wrap_around() {
        let mut t = Test::new();
        t.sk.delivered = u32::MAX - 4;
        t.bbr.next_rtt_delivered = t.sk.delivered;
        t.sk.delivered = 5;
        let rs = RateSample { prior_delivered: u32::MAX - 4, ..t.sample(0, 1000, BW_UNIT / 1000) };
        t.main(&rs);
        assert_eq!(t.bbr.next_rtt_delivered, 5);
    }

    #[test]
    fn the_estimate_is_the_largest_rate_of_ten_rounds() {
        let mut t = Test::new();
        let rs = t.round(BW_UNIT / 10);
        t.main(&rs);
        let best = t.bbr.max_bw();
        for _ in 0..10 {
            let rs = t.round(BW_UNIT / 20);
            t.main(&rs);
            assert_eq!(t.bbr.max_bw(), best);
        }
        let rs = t.round(BW_UNIT / 20);
        t.main(&rs);
        assert!(t.bbr.max_bw() < best * 6 / 10);
    }

    #[test]
    fn an_application_limited_sample_counts_only_if_it_shows_more() {
        let mut t = Test::new();
        let rs = t.round(BW_UNIT / 10);
        t.main(&rs);
        let best = t.bbr.max_bw();
        for _ in 0..20 {
            let rs = t.round(BW_UNIT / 20);
            t.main(&RateSample { is_app_limited: true, ..rs });
        }
        assert_eq!(t.bbr.max_bw(), best, "rounds pass, the estimate stays");
        let rs = t.round(BW_UNIT / 5);
        t.main(&RateSample { is_app_limited: true, ..rs });
        assert!(t.bbr.max_bw() > best);
    }

    #[test]
    fn an_ack_without_a_sample_changes_no_estimate() {
        let mut t = Test::new();
        let rs = t.round(BW_UNIT / 10);
        t.main(&RateSample { interval_us: -1, ..rs });
        t.main(&RateSample { delivered: -1, ..rs });
        assert_eq!((t.bbr.max_bw(), t.bbr.rtt_cnt), (0, 0));
    }
}
