//! Exact round-trip times and losses of the scenario's flows, measured by the emulator: `TCP_INFO`
//! has only a smoothed RTT.

use super::arrivals::Arrivals;
use fullpipe_experiment::recording::Histogram;
use fullpipe_units::{Span, Time};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The flows of a scenario by number; shared by both directions and the sampler.
#[derive(Clone, Default)]
pub(crate) struct Views(Arc<[Mutex<FlowView>]>);

impl Views {
    /// Views of `count` flows that have not sent yet.
    pub(crate) fn new(count: usize) -> Self {
        Views((0..count).map(|_| Mutex::default()).collect())
    }

    /// The view of flow `index`.
    pub(crate) fn flow(&self, index: usize) -> MutexGuard<'_, FlowView> {
        self.0[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One flow as seen from its sender's interface.
#[derive(Default)]
pub(crate) struct FlowView {
    /// Ends of frames sent for the first time, and when they came.
    sent: VecDeque<(u32, Time)>,
    /// The end of the newest data sent.
    high: Option<u32>,
    /// The latest round trip.
    pub(crate) last: Option<Span>,
    /// Round trips since the warm-up, nanoseconds.
    pub(crate) rtt: Histogram,
    /// Queueing delay of each data frame, in nanoseconds.
    pub(crate) queue: Histogram,
    /// Data segments that the path dropped.
    pub(crate) dropped: u64,
    arrivals: Arrivals,
}

/// Whether `a` comes after `b` in sequence space (RFC 9293 §3.4).
pub(super) fn after(a: u32, b: u32) -> bool {
    a != b && a.wrapping_sub(b) < 1 << 31
}

/// Frames that follow within this time are not timed: they would add no information.
const SPACING: Span = Span::from_micros(100);

impl FlowView {
    /// Data up to `end` left the sender at `at`.
    pub(crate) fn on_data(&mut self, end: u32, at: Time) {
        if self.high.is_some_and(|high| !after(end, high)) {
            return;
        }
        self.high = Some(end);
        if self.sent.back().is_none_or(|(_, last)| at.since(*last) >= SPACING) {
            self.sent.push_back((end, at));
        }
    }

    /// Data `start..end` reached the receiver.
    pub(super) fn on_arrival(&mut self, start: u32, end: u32) {
        self.arrivals.add(start, end);
    }

    /// Bytes of payload that have reached the receiver, each counted once, in whatever order they
    /// came.
    pub(crate) fn arrived(&self) -> u64 {
        self.arrivals.bytes()
    }

    /// An acknowledgement up to `highest` reached the sender at `at`.
    ///
    /// Every frame is timed when it, or anything newer, is first acknowledged. Retransmissions are
    /// not timed, so no sample is ambiguous (Karn), and loss does not hide the round trip.
    pub(crate) fn on_ack(&mut self, highest: u32, at: Time, measured: bool) {
        let mut newest = None;
        while let Some((_, sent)) = self.sent.pop_front_if(|(end, _)| !after(*end, highest)) {
            newest = Some(sent);
        }
        let Some(sent) = newest else { return };
        let rtt = at.since(sent);
        self.last = Some(rtt);
        if measured {
            self.rtt.add(rtt.as_nanos());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Time {
        Time::from_nanos(n * 1_000_000)
    }

    #[test]
    fn a_retransmission_does_not_blur_the_round_trip() {
        let mut flow = FlowView::default();
        flow.on_data(1000, ms(0));
        flow.on_data(2000, ms(10));
        // 0..1000 is lost; the SACK for 1000..2000 comes after 40 ms, the retransmission's ACK much later.
        flow.on_ack(2000, ms(50), true);
        assert_eq!(flow.last, Some(Span::from_millis(40)));
        flow.on_data(1000, ms(50));
        flow.on_ack(2000, ms(300), true);
        assert_eq!(flow.last, Some(Span::from_millis(40)));
        assert_eq!(flow.rtt.len(), 1);
    }

    #[test]
    fn sequence_numbers_wrap() {
        let mut flow = FlowView::default();
        flow.on_data(u32::MAX - 100, ms(0));
        flow.on_data(500, ms(1));
        flow.on_ack(500, ms(21), true);
        assert_eq!(flow.last, Some(Span::from_millis(20)));
    }
}
