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
