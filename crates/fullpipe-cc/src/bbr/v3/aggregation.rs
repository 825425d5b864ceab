//! The ACK-aggregation estimate: data acknowledged beyond expectation (draft § BBR.extra_acked).

use super::volume::{Bytes, delivered_in};
use super::{Bbr3, Now, Variant};
use crate::minmax::MinMax;
use crate::{Span, Time};

#[derive(Clone, Debug)]
pub(super) struct Aggregation {
    /// `extra_acked_interval_start`.
    pub(super) interval_start: Time,
    /// `extra_acked_delivered`.
    pub(super) delivered: Bytes,
    /// `extra_acked_filter`.
    filter: MinMax<Bytes>,
    /// Linux's filter: two slots of rounds.
    slots: [Bytes; 2],
    slot_rounds: u32,
}

impl Default for Aggregation {
    fn default() -> Self {
        Aggregation {
            interval_start: Time::ZERO,
            delivered: Bytes::ZERO,
            filter: MinMax::new(0, Bytes::ZERO),
            slots: [Bytes::ZERO; 2],
            slot_rounds: 0,
        }
    }
}

impl Bbr3 {
    /// `extra_acked`; in Linux at most 100 ms of bandwidth.
    pub(super) fn extra_acked(&self) -> Bytes {
        match self.variant {
            Variant::Draft | Variant::Letter => self.aggregation.filter.get(),
            Variant::Linux => {
                let [current, last] = self.aggregation.slots;
                current.max(last).min(delivered_in(self.model.bw, Span::from_millis(100)))
            }
        }
    }

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
        if self.variant == Variant::Linux {
            // Two slots of five rounds; of one round until the pipe is full.
            if self.model.round_start {
                aggregation.slot_rounds += 1;
                if aggregation.slot_rounds >= if self.full_pipe.reached { 5 } else { 1 } {
                    aggregation.slot_rounds = 0;
                    aggregation.slots = [Bytes::ZERO, aggregation.slots[0]];
                }
            }
            aggregation.slots[0] = aggregation.slots[0].max(extra);
            return;
        }
        let window = if self.full_pipe.reached { self.params.extra_acked_rounds } else { 1 };
        aggregation.filter.running_max(window, self.model.round_count as u32, extra);
    }
}
