//! How much more than expected is acknowledged at once (draft § BBR.extra_acked).

use super::{Bbr3, Now};
use crate::minmax::MinMax;
use crate::{Rate, Time};

#[derive(Clone, Debug)]
pub(super) struct Aggregation {
    /// `extra_acked_interval_start`.
    pub(super) interval_start: Time,
    /// `extra_acked_delivered`.
    pub(super) delivered: u64,
    /// `extra_acked_filter`.
    filter: MinMax<u64>,
}

impl Default for Aggregation {
    fn default() -> Self {
        Aggregation { interval_start: Time::ZERO, delivered: 0, filter: MinMax::new(0, 0) }
    }
}

impl Aggregation {
    /// `extra_acked` in bytes.
    pub(super) fn extra_acked(&self) -> u64 {
        self.filter.get()
    }
}

impl Bbr3 {
    /// `UpdateACKAggregation()`.
    pub(super) fn update_ack_aggregation(&mut self, now: &Now) {
        let bw = Rate::from_bytes_per_sec(self.model.bw);
        let aggregation = &mut self.aggregation;
        let mut expected = bw.bytes_in(now.time.since(aggregation.interval_start));
        if aggregation.delivered <= expected {
            aggregation.delivered = 0;
            aggregation.interval_start = now.time;
            expected = 0;
        }
        aggregation.delivered = aggregation.delivered.saturating_add(now.newly_acked);
        let extra = aggregation.delivered.saturating_sub(expected).min(self.out.cwnd);
        let window = if self.full_pipe.reached { self.params.extra_acked_rounds } else { 1 };
        aggregation.filter.running_max(window, self.model.round_count as u32, extra);
    }
}
