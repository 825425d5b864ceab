//! The ACK-aggregation estimate: data acknowledged beyond expectation (draft § BBR.extra_acked).

use super::volume::{Bytes, delivered_in};
use super::{Bbr3, Now};
use crate::Time;
use crate::minmax::MinMax;

#[derive(Clone, Debug)]
pub(super) struct Aggregation {
    /// `extra_acked_interval_start`.
    pub(super) interval_start: Time,
    /// `extra_acked_delivered`.
    pub(super) delivered: Bytes,
    /// `extra_acked_filter`.
    filter: MinMax<Bytes>,
}

impl Default for Aggregation {
    fn default() -> Self {
        Aggregation {
            interval_start: Time::ZERO,
            delivered: Bytes::ZERO,
            filter: MinMax::new(0, Bytes::ZERO),
        }
    }
}

impl Aggregation {
    /// `extra_acked`.
    pub(super) fn extra_acked(&self) -> Bytes {
        self.filter.get()
    }
}

impl Bbr3 {
    /// `UpdateACKAggregation()`.
    pub(super) fn update_ack_aggregation(&mut self, now: &Now) {
        let aggregation = &mut self.aggregation;
        let mut expected = delivered_in(self.model.bw, now.time.since(aggregation.interval_start));
        if aggregation.delivered <= expected {
            aggregation.delivered = Bytes::ZERO;
            aggregation.interval_start = now.time;
            expected = Bytes::ZERO;
        }
        aggregation.delivered += now.newly_acked;
        let extra = (aggregation.delivered - expected).min(self.out.cwnd);
        let window = if self.full_pipe.reached { self.params.extra_acked_rounds } else { 1 };
        aggregation.filter.running_max(window, self.model.round_count as u32, extra);
    }
}
