//! The behaviour of a sender over time in bounded memory, for the identification of its congestion
//! controller.

use super::receiving::{Acknowledgment, Receiver};
use super::spacing::Spacing;
use super::timeline::{Interval, Timeline};
use crate::sequence::later;
use fullpipe_sim::ReceiverBehaviour;
use fullpipe_units::Time;
use std::collections::VecDeque;

/// Maximum number of steps; 230 kB if all differ.
const MAX_STEPS: usize = 4096;
/// Maximum number of timestamps waiting for their echo: one per millisecond. Bounded, as some are
/// never echoed.
const MAX_WAITING: usize = 1 << 12;

/// Events of one interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Step {
    /// Payload bytes captured, retransmissions included.
    pub(crate) sent: u32,
    /// Payload bytes acknowledged.
    pub(crate) arrived: u32,
    /// Retransmitted segments, those that filled a hole late included.
    pub(crate) retransmitted: u32,
    /// Segments sent in this interval that were lost; at the receiver, those that should have
    /// arrived in it.
    pub(crate) lost: u32,
    /// Maximum of the payload bytes in flight.
    pub(crate) inflight: u32,
    /// Maximum of the bytes in flight at the sender, computed from the timestamps that it echoed.
    pub(crate) reported_inflight: u32,
    /// RTT samples and their sum in microseconds.
    pub(crate) samples: u32,
    pub(crate) rtt_sum: u64,
}

impl Interval for Step {
    const EMPTY: Step = Step {
        sent: 0,
        arrived: 0,
        retransmitted: 0,
        lost: 0,
        inflight: 0,
        reported_inflight: 0,
        samples: 0,
        rtt_sum: 0,
    };

    fn merge(self, later: &Step) -> Step {
        Step {
            sent: self.sent.saturating_add(later.sent),
            arrived: self.arrived.saturating_add(later.arrived),
            retransmitted: self.retransmitted.saturating_add(later.retransmitted),
            lost: self.lost.saturating_add(later.lost),
            inflight: self.inflight.max(later.inflight),
            reported_inflight: self.reported_inflight.max(later.reported_inflight),
            samples: self.samples.saturating_add(later.samples),
            rtt_sum: self.rtt_sum.saturating_add(later.rtt_sum),
        }
    }
}

/// The behaviour of the sender of one direction.
#[derive(Clone, Debug)]
pub(crate) struct Trajectory {
    steps: Timeline<Step>,
    /// Timestamps in transit to the sender.
    waiting: VecDeque<WaitingTimestamp>,
    opening: Opening,
    full_window: u64,
    receiver: Receiver,
    /// Spacing of the captured data, and of what the captured ACKs newly acknowledge.
    spacing: [Spacing; 2],
}

/// What the first acknowledgment with a timestamp contained: the minimum that the sender of its
/// echo knew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AckInfo {
    pub(super) at: Time,
    /// Right edge and size of the receive window, if known.
    pub(super) window: Option<(u64, u64)>,
}

/// The data sent before the first acknowledgment.
#[derive(Clone, Copy, Debug, Default)]
struct Opening {
    echo: Option<u32>,
    bytes: u64,
    complete: bool,
}

/// A timestamp of the receiver in transit to the sender.
#[derive(Clone, Copy, Debug)]
struct WaitingTimestamp {
    value: u32,
    info: AckInfo,
    /// Bytes that had arrived when it was first and last sent.
    first: u64,
    last: u64,
}

impl Trajectory {
    pub(super) fn new(start: Time) -> Self {
        Trajectory {
            steps: Timeline::new(start, MAX_STEPS),
            waiting: VecDeque::new(),
            opening: Opening::default(),
            full_window: 0,
            receiver: Receiver::default(),
            spacing: Default::default(),
        }
    }

    #[inline]
    pub(super) fn at(&mut self, at: Time) -> &mut Step {
        self.steps.at(at)
    }

    /// Records an acknowledgment with the timestamp `value` after `arrived` bytes.
    #[inline]
    pub(super) fn ack_passes(&mut self, value: u32, info: AckInfo, arrived: u64) {
        match self.waiting.back_mut() {
            Some(newest) if newest.value == value => newest.last = arrived,
            Some(newest) if !later(value, newest.value) => {}
            _ => {
                if self.waiting.len() == MAX_WAITING {
                    self.waiting.pop_front();
                }
                self.waiting.push_back(WaitingTimestamp { value, info, first: arrived, last: arrived });
            }
        }
    }

    /// What the sender knew when it echoed `value`.
    #[inline]
    pub(super) fn known_to_sender(&mut self, value: u32) -> Option<AckInfo> {
        self.waiting_for(value).map(|w| w.info)
    }

    #[inline]
    fn waiting_for(&mut self, value: u32) -> Option<WaitingTimestamp> {
        while let Some(&waiting) = self.waiting.front() {
            if later(waiting.value, value) {
                return None;
            }
            if waiting.value == value {
                return Some(waiting);
            }
            self.waiting.pop_front();
        }
        None
    }

    /// Records new data up to byte `sent` that echoes `value`. Returns the minimum of the data in
    /// flight when it was sent.
    #[inline]
    pub(super) fn data_echoes(&mut self, at: Time, value: u32, sent: u64) -> u64 {
        let Some(WaitingTimestamp { first, last, .. }) = self.waiting_for(value) else { return 0 };
        let inflight = sent.saturating_sub(first.midpoint(last));
        let step = self.at(at);
        step.reported_inflight = step.reported_inflight.max(u32::try_from(inflight).unwrap_or(u32::MAX));
        sent.saturating_sub(last)
    }

    /// Records the bytes `from..to` with the echo `echo`, to find the data sent before the first
    /// acknowledgment. `answered`: whether the sender had an acknowledgment, if captured at the
    /// sender. Elsewhere, data of the opening echoes the same timestamp as the first data; the
    /// first later data begins where the opening ended, even if parts of it were lost.
    #[inline]
    pub(super) fn track_opening(&mut self, from: u64, to: u64, echo: Option<u32>, answered: Option<bool>) {
        let opening = &mut self.opening;
        if opening.complete {
            return;
        }
        if opening.bytes == 0 {
            opening.echo = echo;
        }
        opening.complete = answered.unwrap_or(echo.is_none() || echo != opening.echo);
        opening.bytes = opening.bytes.max(if opening.complete { from } else { to });
    }

    /// Bytes sent before the first acknowledgment, if known.
    pub(crate) fn opening(&self) -> Option<u64> {
        Some(self.opening.bytes).filter(|bytes| self.opening.complete && *bytes > 0)
    }

    /// Records that a receive window of `bytes` was full.
    #[inline]
    pub(super) fn record_full_window(&mut self, bytes: u64) {
        self.full_window = self.full_window.max(bytes);
    }

    /// The largest receive window that was full.
    pub(crate) fn full_window(&self) -> Option<u64> {
        Some(self.full_window).filter(|bytes| *bytes > 0)
    }

    /// Records an acknowledgment of the receiver.
    #[inline]
    pub(super) fn receiver_acks(&mut self, a: Acknowledgment, mss: u32) {
        self.receiver.add_ack(a, mss);
    }

    /// Records that `bytes` were captured at `at`.
    #[inline]
    pub(super) fn data_passes(&mut self, at: Time, bytes: u64) {
        self.spacing[0].add(at, bytes);
    }

    /// Records that `bytes` were newly acknowledged at `at`.
    #[inline]
    pub(super) fn acknowledged(&mut self, at: Time, bytes: u64) {
        if bytes > 0 {
            self.spacing[1].add(at, bytes);
        }
    }

    /// Spacing of the arriving data, if captured at the sender (`sent_here`) as acknowledged.
    pub(crate) fn spacing(&self, sent_here: bool) -> &Spacing {
        &self.spacing[usize::from(sent_here)]
    }

    /// The behaviour of the receiver.
    pub(crate) fn receiving(&self) -> &[ReceiverBehaviour] {
        self.receiver.phases()
    }

    /// Bytes of memory, approximately.
    pub(crate) fn memory(&self) -> usize {
        self.steps.memory()
            + self.waiting.capacity() * size_of::<WaitingTimestamp>()
            + self.receiver.memory()
            + self.spacing.iter().map(Spacing::memory).sum::<usize>()
    }

    /// All steps.
    pub(crate) fn steps(&self) -> &Timeline<Step> {
        &self.steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::Span;

    #[test]
    fn timestamps_give_the_data_in_flight_at_the_sender() {
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        let mut trajectory = Trajectory::new(Time::ZERO);
        let info = |ms| AckInfo { at: at(ms), window: Some((20_000 + ms, 20_000)) };
        trajectory.ack_passes(100, info(0), 1000);
        trajectory.ack_passes(105, info(1), 5000);
        trajectory.ack_passes(105, info(2), 7000);
        assert_eq!(trajectory.known_to_sender(99), None);
        assert_eq!(trajectory.known_to_sender(100), Some(info(0)));
        trajectory.data_echoes(at(3), 100, 11_000);
        trajectory.data_echoes(at(4), 105, 12_000);
        trajectory.data_echoes(at(5), 100, 13_000);
        let inflight: Vec<u32> = trajectory.steps().all().map(|s| s.reported_inflight).collect();
        assert_eq!(inflight, [0, 0, 0, 10_000, 6000]);
        assert_eq!(trajectory.known_to_sender(105), Some(info(1)));
    }

    #[test]
    fn data_before_the_first_acknowledgment_is_the_opening() {
        let mut here = Trajectory::new(Time::ZERO);
        for (bytes, answered) in [(1000, false), (3000, false), (2000, false), (4000, true), (9000, false)] {
            here.track_opening(bytes - 1000, bytes, None, Some(answered));
        }
        assert_eq!(here.opening(), Some(3000));
        // The third and the last were lost and retransmitted after later data.
        let mut there = Trajectory::new(Time::ZERO);
        for (bytes, echo) in [(1000, 7), (2000, 7), (4000, 7), (6000, 30), (3000, 50), (5000, 50)] {
            there.track_opening(bytes - 1000, bytes, Some(echo), None);
        }
        assert_eq!(there.opening(), Some(5000));
        let mut blind = Trajectory::new(Time::ZERO);
        blind.track_opening(0, 1000, None, None);
        assert_eq!(blind.opening(), None);
    }

    #[test]
    fn long_trajectories_keep_their_sums_in_wider_steps() {
        let mut trajectory = Trajectory::new(Time::ZERO);
        for s in 0..20 {
            trajectory.at(Time::ZERO + Span::from_secs(s)).sent += 7;
        }
        assert_eq!(trajectory.steps().width(), Span::from_millis(8));
        assert!(trajectory.steps().count() <= MAX_STEPS);
        assert_eq!(trajectory.steps().all().map(|s| s.sent).sum::<u32>(), 140);
    }
}
