//! How a sender behaved over time, in little memory: what tells one congestion controller from another.

use super::receiving::{Acknowledgment, Receiver};
use super::timeline::{Stretch, Timeline};
use crate::sequence::later;
use fullpipe_sim::Receiving;
use fullpipe_units::Time;
use std::collections::VecDeque;

/// Steps of a course at most: 230 kB, where something else happens in each.
const MOST: usize = 4096;
/// Values that wait to be echoed: one a millisecond, on any path that TCP is used on. One that never is must not grow it.
const WAITING: usize = 1 << 12;

/// What happened in one stretch of time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Step {
    /// Payload bytes seen, retransmissions included.
    pub(crate) sent: u32,
    /// Payload bytes that arrived, as far as this place knows.
    pub(crate) arrived: u32,
    /// Segments seen again, or that filled a hole late.
    pub(crate) again: u32,
    /// Segments that were sent in it and did not arrive: where it is looked from the receiver, that would have arrived in it.
    pub(crate) lost: u32,
    /// Most payload bytes sent and not known to have arrived.
    pub(crate) inflight: u32,
    /// The same as the sender's timestamps tell it: what it had sent beyond what it had been told.
    pub(crate) told: u32,
    /// Round-trip samples and their sum, in microseconds.
    pub(crate) samples: u32,
    pub(crate) rtt_sum: u64,
}

impl Stretch for Step {
    const EMPTY: Step =
        Step { sent: 0, arrived: 0, again: 0, lost: 0, inflight: 0, told: 0, samples: 0, rtt_sum: 0 };

    fn and(self, later: &Step) -> Step {
        Step {
            sent: self.sent.saturating_add(later.sent),
            arrived: self.arrived.saturating_add(later.arrived),
            again: self.again.saturating_add(later.again),
            lost: self.lost.saturating_add(later.lost),
            inflight: self.inflight.max(later.inflight),
            told: self.told.max(later.told),
            samples: self.samples.saturating_add(later.samples),
            rtt_sum: self.rtt_sum + later.rtt_sum,
        }
    }
}

/// What was seen of one direction's sender.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    steps: Timeline<Step>,
    /// On their way to the sender.
    waiting: VecDeque<Waiting>,
    opening: Opening,
    full_window: u64,
    receiver: Receiver,
}

/// What a timestamp of the receiver came with as it was first sent: what its echo's sender knew at least.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Told {
    pub(super) at: Time,
    /// First byte that the receiver did not allow yet, and how many it allowed, if that is known.
    pub(super) window: Option<(u64, u64)>,
}

/// The data that was sent before anything was answered.
#[derive(Clone, Copy, Debug, Default)]
struct Opening {
    echo: Option<u32>,
    bytes: u64,
    over: bool,
}

/// A timestamp of the receiver on its way to the sender.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    value: u32,
    told: Told,
    /// The bytes that had arrived as it was first and last sent.
    first: u64,
    last: u64,
}

impl Course {
    pub(super) fn new(start: Time) -> Self {
        Course {
            steps: Timeline::new(start, MOST),
            waiting: VecDeque::new(),
            opening: Opening::default(),
            full_window: 0,
            receiver: Receiver::default(),
        }
    }

    #[inline]
    pub(super) fn at(&mut self, at: Time) -> &mut Step {
        self.steps.at(at)
    }

    /// An acknowledgment with the timestamp `value` passes and tells this, as `arrived` bytes have arrived.
    #[inline]
    pub(super) fn answered(&mut self, value: u32, told: Told, arrived: u64) {
        match self.waiting.back_mut() {
            Some(newest) if newest.value == value => newest.last = arrived,
            Some(newest) if !later(value, newest.value) => {}
            _ => {
                if self.waiting.len() == WAITING {
                    self.waiting.pop_front();
                }
                self.waiting.push_back(Waiting { value, told, first: arrived, last: arrived });
            }
        }
    }

    /// Data passes and echoes `value`: what its sender had been told.
    #[inline]
    pub(super) fn told(&mut self, value: u32) -> Option<Told> {
        self.waiting_for(value).map(|w| w.told)
    }

    #[inline]
    fn waiting_for(&mut self, value: u32) -> Option<Waiting> {
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

    /// New data up to `sent` bytes passes and echoes `value`: gives what its sender had in flight as it left, at least.
    #[inline]
    pub(super) fn echoed(&mut self, at: Time, value: u32, sent: u64) -> u64 {
        let Some(Waiting { first, last, .. }) = self.waiting_for(value) else { return 0 };
        let inflight = sent.saturating_sub(first.midpoint(last));
        let step = self.at(at);
        step.told = step.told.max(u32::try_from(inflight).unwrap_or(u32::MAX));
        sent.saturating_sub(last)
    }

    /// Data from byte `from` up to `to` passes, which echoes `echo`; `answered` if its sender is here and has had an answer.
    /// Elsewhere data left before any answer if it echoes what the very first did, and the first that left after one begins where
    /// those ended, however many of them were lost.
    #[inline]
    pub(super) fn opens(&mut self, from: u64, to: u64, echo: Option<u32>, answered: Option<bool>) {
        let opening = &mut self.opening;
        if opening.over {
            return;
        }
        if opening.bytes == 0 {
            opening.echo = echo;
        }
        opening.over = answered.unwrap_or(echo.is_none() || echo != opening.echo);
        opening.bytes = opening.bytes.max(if opening.over { from } else { to });
    }

    /// How much was sent before anything was answered, if that was seen.
    pub(crate) fn opening(&self) -> Option<u64> {
        Some(self.opening.bytes).filter(|bytes| self.opening.over && *bytes > 0)
    }

    /// The receiver's window is full at `bytes`.
    #[inline]
    pub(super) fn fills(&mut self, bytes: u64) {
        self.full_window = self.full_window.max(bytes);
    }

    /// The greatest window that was ever full.
    pub(crate) fn full_window(&self) -> Option<u64> {
        Some(self.full_window).filter(|bytes| *bytes > 0)
    }

    /// Its receiver acknowledges: see [`Receiver::acknowledges`].
    #[inline]
    pub(super) fn acknowledges(&mut self, a: Acknowledgment, mss: u32) {
        self.receiver.acknowledges(a, mss);
    }

    /// What its receiver did.
    pub(crate) fn receiving(&self) -> &[Receiving] {
        self.receiver.stretches()
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
    fn timestamps_tell_what_was_in_flight_as_data_left() {
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        let mut course = Course::new(Time::ZERO);
        let told = |ms| Told { at: at(ms), window: Some((20_000 + ms, 20_000)) };
        course.answered(100, told(0), 1000);
        course.answered(105, told(1), 5000);
        course.answered(105, told(2), 7000);
        assert_eq!(course.told(99), None);
        assert_eq!(course.told(100), Some(told(0)));
        course.echoed(at(3), 100, 11_000);
        course.echoed(at(4), 105, 12_000);
        course.echoed(at(5), 100, 13_000);
        let inflight: Vec<u32> = course.steps().all().map(|s| s.told).collect();
        assert_eq!(inflight, [0, 0, 0, 10_000, 6000]);
        assert_eq!(course.told(105), Some(told(1)));
    }

    #[test]
    fn what_left_before_any_answer_is_the_opening() {
        let mut here = Course::new(Time::ZERO);
        for (bytes, answered) in [(1000, false), (3000, false), (2000, false), (4000, true), (9000, false)] {
            here.opens(bytes - 1000, bytes, None, Some(answered));
        }
        assert_eq!(here.opening(), Some(3000));
        // The third and the last were lost, and came after what had been answered.
        let mut there = Course::new(Time::ZERO);
        for (bytes, echo) in [(1000, 7), (2000, 7), (4000, 7), (6000, 30), (3000, 50), (5000, 50)] {
            there.opens(bytes - 1000, bytes, Some(echo), None);
        }
        assert_eq!(there.opening(), Some(5000));
        let mut blind = Course::new(Time::ZERO);
        blind.opens(0, 1000, None, None);
        assert_eq!(blind.opening(), None);
    }

    #[test]
    fn a_long_course_keeps_its_sums_in_wider_steps() {
        let mut course = Course::new(Time::ZERO);
        for s in 0..20 {
            course.at(Time::ZERO + Span::from_secs(s)).sent += 7;
        }
        assert_eq!(course.steps().width(), Span::from_millis(8));
        assert!(course.steps().count() <= MOST);
        assert_eq!(course.steps().all().map(|s| s.sent).sum::<u32>(), 140);
    }
}
