//! The path model: bandwidth, round-trip propagation time, safe inflight
//! (draft § Network Path Model Parameters, § Updating Network Path Model Parameters).

use super::volume::{Bytes, delivered_in};
use super::{Bbr3, Now};
use crate::{Gain, Rate, Span, Time};

#[derive(Clone, Debug)]
pub(super) struct Model {
    /// Best delivery rate of the previous and of the current bandwidth-probing cycle.
    max_bw_slots: [Rate; 2],
    /// `bw`: the lesser of `max_bw` and `bw_shortterm`.
    pub(super) bw: Rate,
    /// [`Rate::MAX`] for no bound.
    pub(super) bw_shortterm: Rate,
    /// `None` before the first sample.
    pub(super) min_rtt: Option<Span>,
    pub(super) min_rtt_stamp: Time,
    pub(super) inflight_longterm: Bytes,
    pub(super) inflight_shortterm: Bytes,
    pub(super) round_count: u64,
    pub(super) round_start: bool,
    next_round_delivered: Bytes,
}

impl Default for Model {
    fn default() -> Self {
        Model {
            max_bw_slots: [Rate::ZERO; 2],
            bw: Rate::ZERO,
            bw_shortterm: Rate::MAX,
            min_rtt: None,
            min_rtt_stamp: Time::ZERO,
            inflight_longterm: Bytes::INFINITE,
            inflight_shortterm: Bytes::INFINITE,
            round_count: 0,
            round_start: false,
            next_round_delivered: Bytes::ZERO,
        }
    }
}

impl Model {
    /// `max_bw`: the maximum over the last two cycles.
    pub(super) fn max_bw(&self) -> Rate {
        self.max_bw_slots[0].max(self.max_bw_slots[1])
    }

    /// `AdvanceMaxBwFilter()`: starts the next cycle and discards the one before the current.
    /// Without a sample in the current one only if `always` (decision 7).
    pub(super) fn advance_max_bw_filter(&mut self, always: bool) {
        if always || self.max_bw_slots[1] != Rate::ZERO {
            self.max_bw_slots = [self.max_bw_slots[1], Rate::ZERO];
        }
    }

    /// `StartRound()`.
    pub(super) fn start_round(&mut self, delivered: Bytes) {
        self.next_round_delivered = delivered;
    }

    /// `ResetShortTermModel()`.
    pub(super) fn reset_short_term(&mut self) {
        self.bw_shortterm = Rate::MAX;
        self.inflight_shortterm = Bytes::INFINITE;
    }
}

impl Bbr3 {
    /// `UpdateRound()`.
    fn update_round(&mut self, now: &Now) {
        let model = &mut self.model;
        model.round_start = now.prior_delivered() >= model.next_round_delivered;
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
        if rate > Rate::ZERO && (rate >= self.model.max_bw() || !now.sample.app_limited) {
            let current = &mut self.model.max_bw_slots[1];
            *current = rate.max(*current);
        }
    }

    /// `BoundBWForModel()`.
    pub(super) fn bound_bw_for_model(&mut self) {
        self.model.bw = self.model.max_bw().min(self.model.bw_shortterm);
    }

    /// `UpdateMinRTT()`.
    pub(super) fn update_min_rtt(&mut self, now: &Now, rtt: Option<Span>) {
        self.update_probe_rtt_min_delay(now, rtt);
        let expired = now.time > self.model.min_rtt_stamp + self.params.min_rtt_filter();
        let lower = match (self.probe_rtt.min_delay, self.model.min_rtt) {
            // In Linux an equal sample renews the stamp.
            (Some(delay), Some(min_rtt)) => delay < min_rtt || self.is_linux() && delay == min_rtt,
            (delay, _) => delay.is_some(),
        };
        if lower || expired {
            self.model.min_rtt = self.probe_rtt.min_delay;
            self.model.min_rtt_stamp = self.probe_rtt.min_stamp;
        }
    }

    /// `BDPMultiple(gain)` for a bandwidth of `bw`.
    pub(super) fn bdp_multiple(&self, bw: Rate, gain: Gain) -> Bytes {
        match self.model.min_rtt {
            Some(min_rtt) => delivered_in(bw, min_rtt).scale(gain),
            None => self.initial_cwnd,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn rate(bytes_per_sec: u64) -> Rate {
        Rate::from_bytes_per_sec(bytes_per_sec)
    }

    #[test]
    fn the_max_filter_remembers_this_cycle_and_the_last() {
        let mut m = Model { max_bw_slots: [Rate::ZERO, rate(100)], ..Model::default() };
        m.advance_max_bw_filter(false);
        m.max_bw_slots[1] = rate(60);
        assert_eq!(m.max_bw(), rate(100));
        m.advance_max_bw_filter(false);
        assert_eq!(m.max_bw(), rate(60));
    }

    #[test]
    fn a_cycle_without_a_sample_forgets_nothing() {
        let mut m = Model { max_bw_slots: [Rate::ZERO, rate(100)], ..Model::default() };
        for _ in 0..5 {
            m.advance_max_bw_filter(false);
        }
        assert_eq!(m.max_bw(), rate(100));
    }
}
