//! How a sender behaved over time, in little memory: what tells one congestion controller from another.

use crate::sequence::later;
use fullpipe_units::{Span, Time};
use std::collections::VecDeque;

/// Steps of a course at most: 128 kB.
const MOST: usize = 4096;
/// Values that wait to be echoed: one a millisecond, on any path that TCP is used on. One that never is must not grow it.
const WAITING: usize = 1 << 12;

/// What happened in one stretch of time.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Step {
    /// Payload bytes seen, retransmissions included.
    pub(crate) sent: u32,
    /// Payload bytes that arrived, as far as this place knows.
    pub(crate) arrived: u32,
    /// Segments seen again, or that filled a hole late.
    pub(crate) again: u32,
    /// Most payload bytes sent and not known to have arrived.
    pub(crate) inflight: u32,
    /// The same as the sender's timestamps tell it: what it had sent beyond what it had been told.
    pub(crate) told: u32,
    /// Round-trip samples and their sum, in microseconds.
    pub(crate) samples: u32,
    pub(crate) rtt_sum: u64,
}

impl Step {
    /// Both as one stretch.
    pub(crate) fn and(self, later: &Step) -> Step {
        Step {
            sent: self.sent.saturating_add(later.sent),
            arrived: self.arrived.saturating_add(later.arrived),
            again: self.again.saturating_add(later.again),
            inflight: self.inflight.max(later.inflight),
            told: self.told.max(later.told),
            samples: self.samples.saturating_add(later.samples),
            rtt_sum: self.rtt_sum + later.rtt_sum,
        }
    }
}

/// Steps of a width that doubles when there are too many.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    start: Time,
    width: Span,
    steps: Vec<Step>,
    /// Timestamps of the receiver on their way to the sender, with the bytes that had arrived as each was first and last
    /// sent.
    waiting: VecDeque<(u32, u64, u64)>,
}

impl Course {
    pub(super) fn new(start: Time) -> Self {
        Course { start, width: Span::from_millis(1), steps: Vec::new(), waiting: VecDeque::new() }
    }

    #[inline]
    pub(super) fn at(&mut self, at: Time) -> &mut Step {
        let index = |width: Span| {
            usize::try_from(at.since(self.start).as_nanos() / width.as_nanos()).unwrap_or(usize::MAX)
        };
        let mut i = index(self.width);
        while i >= MOST {
            self.width = self.width * 2;
            self.steps = self.steps.chunks(2).map(|p| p[1..].iter().fold(p[0], Step::and)).collect();
            i = index(self.width);
        }
        if i >= self.steps.len() {
            self.steps.resize(i + 1, Step::default());
        }
        &mut self.steps[i]
    }

    /// An acknowledgment with the timestamp `value` passes as `arrived` bytes have arrived.
    #[inline]
    pub(super) fn answered(&mut self, value: u32, arrived: u64) {
        match self.waiting.back_mut() {
            Some((newest, _, last)) if *newest == value => *last = arrived,
            Some((newest, ..)) if !later(value, *newest) => {}
            _ => {
                if self.waiting.len() == WAITING {
                    self.waiting.pop_front();
                }
                self.waiting.push_back((value, arrived, arrived));
            }
        }
    }

    /// New data up to `sent` bytes passes and echoes `value`: gives what its sender had in flight as it left, at least.
    #[inline]
    pub(super) fn echoed(&mut self, at: Time, value: u32, sent: u64) -> u64 {
        while let Some(&(waiting, first, last)) = self.waiting.front() {
            if later(waiting, value) {
                return 0;
            }
            if waiting == value {
                let inflight = sent.saturating_sub(first.midpoint(last));
                let step = self.at(at);
                step.told = step.told.max(u32::try_from(inflight).unwrap_or(u32::MAX));
                return sent.saturating_sub(last);
            }
            self.waiting.pop_front();
        }
        0
    }

    /// Width of each step.
    pub(crate) fn width(&self) -> Span {
        self.width
    }

    /// All of them.
    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_tell_what_was_in_flight_as_data_left() {
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        let mut course = Course::new(Time::ZERO);
        course.answered(100, 1000);
        course.answered(105, 5000);
        course.answered(105, 7000);
        course.echoed(at(3), 100, 11_000);
        course.echoed(at(4), 105, 12_000);
        course.echoed(at(5), 100, 13_000);
        let told: Vec<u32> = course.steps().iter().map(|s| s.told).collect();
        assert_eq!(told, [0, 0, 0, 10_000, 6000]);
    }

    #[test]
    fn a_long_course_keeps_its_sums_in_wider_steps() {
        let mut course = Course::new(Time::ZERO);
        for s in 0..20 {
            course.at(Time::ZERO + Span::from_secs(s)).sent += 7;
        }
        assert_eq!(course.width(), Span::from_millis(8));
        assert!(course.steps().len() <= MOST);
        assert_eq!(course.steps().iter().map(|s| s.sent).sum::<u32>(), 140);
    }
}
