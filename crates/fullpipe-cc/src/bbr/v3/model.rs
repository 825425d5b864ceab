//! What the flow believes of the path: bandwidth, round-trip propagation time, safe inflight
//! (draft § Network Path Model Parameters, § Updating Network Path Model Parameters).

use super::{Bbr3, INFINITY, Now};
use crate::{Gain, Span, Time};

#[derive(Clone, Debug)]
pub(super) struct Model {
    /// Best delivery rate of the previous and of the current bandwidth-probing cycle, bytes/s.
    max_bw_slots: [u64; 2],
    /// `bw`: the lesser of `max_bw` and `bw_shortterm`, bytes/s.
    pub(super) bw: u64,
    pub(super) bw_shortterm: u64,
    /// Nanoseconds; infinite before the first sample.
    pub(super) min_rtt: u64,
    pub(super) min_rtt_stamp: Time,
    pub(super) inflight_longterm: u64,
    pub(super) inflight_shortterm: u64,
    pub(super) round_count: u64,
    pub(super) round_start: bool,
    next_round_delivered: u64,
}

impl Default for Model {
    fn default() -> Self {
        Model {
            max_bw_slots: [0; 2],
            bw: 0,
            bw_shortterm: INFINITY,
            min_rtt: INFINITY,
            min_rtt_stamp: Time::ZERO,
            inflight_longterm: INFINITY,
            inflight_shortterm: INFINITY,
            round_count: 0,
            round_start: false,
            next_round_delivered: 0,
        }
    }
}

impl Model {
    /// `max_bw` in bytes/s: the maximum over the last two cycles.
    pub(super) fn max_bw(&self) -> u64 {
        self.max_bw_slots[0].max(self.max_bw_slots[1])
    }

    /// `AdvanceMaxBwFilter()`: the next cycle begins, and the one before the current is forgotten.
    pub(super) fn advance_max_bw_filter(&mut self) {
        if self.max_bw_slots[1] != 0 {
            self.max_bw_slots = [self.max_bw_slots[1], 0];
        }
    }

    /// `StartRound()`.
    pub(super) fn start_round(&mut self, delivered: u64) {
        self.next_round_delivered = delivered;
    }

    /// `ResetShortTermModel()`.
    pub(super) fn reset_short_term(&mut self) {
        self.bw_shortterm = INFINITY;
        self.inflight_shortterm = INFINITY;
    }
}

impl Bbr3 {
    /// `UpdateRound()`.
    fn update_round(&mut self, now: &Now) {
        let model = &mut self.model;
        model.round_start = now.sample.prior_delivered >= model.next_round_delivered;
        if model.round_start {
            model.start_round(now.delivered);
            model.round_count += 1;
            self.cycle.rounds_since_probe_up += 1;
        }
    }

    /// `UpdateMaxBw()`.
    pub(super) fn update_max_bw(&mut self, now: &Now) {
        self.update_round(now);
        let rate = now.delivery_rate;
        if rate > 0 && (rate >= self.model.max_bw() || !now.sample.app_limited) {
            let current = &mut self.model.max_bw_slots[1];
            *current = rate.max(*current);
        }
    }

    /// `BoundBWForModel()`.
    pub(super) fn bound_bw_for_model(&mut self) {
        self.model.bw = self.model.max_bw().min(self.model.bw_shortterm);
    }

    /// `UpdateMinRTT()`.
    pub(super) fn update_min_rtt(&mut self, now: Time, rtt: Option<Span>) {
        self.update_probe_rtt_min_delay(now, rtt);
        let expired = now > self.model.min_rtt_stamp + self.params.min_rtt_filter();
        if self.probe_rtt.min_delay < self.model.min_rtt || expired {
            self.model.min_rtt = self.probe_rtt.min_delay;
            self.model.min_rtt_stamp = self.probe_rtt.min_stamp;
        }
    }

    /// `BDPMultiple(gain)` for a bandwidth in bytes/s, in bytes.
    pub(super) fn bdp_multiple(&self, bw: u64, gain: Gain) -> u64 {
        if self.model.min_rtt == INFINITY {
            return self.initial_cwnd;
        }
        gain.apply(bdp(bw, self.model.min_rtt))
    }
}

/// `bw`·`rtt` in bytes; saturates.
fn bdp(bw: u64, rtt_ns: u64) -> u64 {
    crate::Rate::from_bytes_per_sec(bw).bytes_in(Span::from_nanos(rtt_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_max_filter_remembers_this_cycle_and_the_last() {
        let mut m = Model { max_bw_slots: [0, 100], ..Model::default() };
        m.advance_max_bw_filter();
        m.max_bw_slots[1] = 60;
        assert_eq!(m.max_bw(), 100);
        m.advance_max_bw_filter();
        assert_eq!(m.max_bw(), 60);
    }

    #[test]
    fn a_cycle_without_a_sample_forgets_nothing() {
        let mut m = Model { max_bw_slots: [0, 100], ..Model::default() };
        for _ in 0..5 {
            m.advance_max_bw_filter();
        }
        assert_eq!(m.max_bw(), 100);
    }
}
