//! Scheduled changes; ramps are split into steps.

use fullpipe_units::{Fraction, Rate, Span, Time};

use crate::build::LinkError;
use crate::spec::{LinkSpec, ScheduledChange};

/// A change; `None` leaves a value as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Step {
    pub rate: Option<Rate>,
    pub delay: Option<Span>,
    pub loss: Option<Fraction>,
}

/// The pending changes.
pub(crate) struct Schedule {
    /// Latest first, so that the next one is at the end.
    steps: Vec<(Time, Step)>,
}

/// Most steps of a ramp, and the shortest step.
const MAX_STEPS: u64 = 100;
const MIN_STEP: Span = Span::from_millis(1);

impl Schedule {
    pub fn new(spec: &LinkSpec) -> Result<Self, LinkError> {
        let mut changes: Vec<(usize, &ScheduledChange)> = spec.schedule.iter().enumerate().collect();
        changes.sort_by_key(|(_, change)| change.at);
        let (mut rate, mut delay) = (spec.rate.unwrap_or(Rate::ZERO), spec.delay);
        let mut steps = Vec::new();
        for (n, &(i, change)) in changes.iter().enumerate() {
            let over = change.over.unwrap_or(Span::ZERO);
            if let Some((next, following)) = changes.get(n + 1)
                && !over.is_zero()
                && following.at < change.at + over
            {
                return Err(LinkError::new(
                    format!("schedule[{i}].over"),
                    format!("the ramp is not over when schedule[{next}] begins: shorten it"),
                ));
            }
            ramp(&mut steps, change, rate, delay);
            rate = change.rate.unwrap_or(rate);
            delay = change.delay.unwrap_or(delay);
        }
        steps.reverse();
        Ok(Schedule { steps })
    }

    /// Time of the next change.
    #[inline]
    pub fn next(&self) -> Time {
        self.steps.last().map_or(Time::NEVER, |(at, _)| *at)
    }

    /// Removes the next change.
    pub fn pop(&mut self) -> Option<(Time, Step)> {
        self.steps.pop()
    }
}

/// The steps of one change that starts from `rate` and `delay`.
fn ramp(steps: &mut Vec<(Time, Step)>, change: &ScheduledChange, rate: Rate, delay: Span) {
    let over = change.over.unwrap_or(Span::ZERO);
    let n = (over.as_nanos() / MIN_STEP.as_nanos()).clamp(1, MAX_STEPS);
    let start = Time::ZERO + change.at;
    let between = |from: u64, to: u64, i: u64| {
        let (from, to) = (i128::from(from), i128::from(to));
        (from + (to - from) * i128::from(i) / i128::from(n)) as u64
    };
    for i in 1..=n {
        let step = Step {
            rate: change.rate.map(|to| {
                Rate::from_bytes_per_sec(between(rate.as_bytes_per_sec(), to.as_bytes_per_sec(), i))
            }),
            delay: change.delay.map(|to| Span::from_nanos(between(delay.as_nanos(), to.as_nanos(), i))),
            // Loss jumps at the start of the ramp.
            loss: change.loss.filter(|_| i == 1),
        };
        steps.push((start + over.mul_div(i, n), step));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(text: &str) -> Result<Vec<(u64, Step)>, LinkError> {
        let mut schedule = Schedule::new(&toml::from_str(text).unwrap())?;
        let mut steps = Vec::new();
        while schedule.next() != Time::NEVER {
            let (at, step) = schedule.pop().unwrap();
            steps.push((at.as_nanos() / 1_000_000, step));
        }
        Ok(steps)
    }

    fn mbit(n: u64) -> Option<Rate> {
        Some(Rate::from_bits_per_sec(n * 1_000_000))
    }

    #[test]
    fn changes_are_applied_in_order_of_time() {
        let steps = schedule(
            "rate = '10mbit'\nschedule = [{ at = '40s', rate = '10mbit' }, \
             { at = '20s', rate = '20mbit', loss = '1%' }]",
        )
        .unwrap();
        let loss = Some(Fraction::from_billionths(10_000_000));
        assert_eq!(
            steps,
            [
                (20_000, Step { rate: mbit(20), loss, ..Step::default() }),
                (40_000, Step { rate: mbit(10), ..Step::default() })
            ]
        );
    }

    #[test]
    fn a_ramp_is_linear_and_ends_at_the_exact_value() {
        let steps = schedule(
            "rate = '10mbit'\ndelay = '10ms'\nschedule = \
             [{ at = '1s', over = '4ms', rate = '50mbit', delay = '2ms' }]",
        )
        .unwrap();
        let expected = [(20, 8), (30, 6), (40, 4), (50, 2)];
        for (i, (at, step)) in steps.iter().enumerate() {
            assert_eq!(*at, 1001 + i as u64);
            assert_eq!(step.rate, mbit(expected[i].0));
            assert_eq!(step.delay, Some(Span::from_millis(expected[i].1)));
        }
        assert_eq!(steps.len(), 4);
        let long = schedule("rate = 0\nschedule = [{ at = 0, over = '1h', rate = '1gbit' }]").unwrap();
        assert_eq!((long.len(), long[99].1.rate), (100, mbit(1000)));
    }

    #[test]
    fn ramps_do_not_overlap() {
        let wrong = schedule(
            "rate = '1mbit'\nschedule = [{ at = '9s', rate = '1mbit' }, \
             { at = '1s', over = '9s', rate = '2mbit' }]",
        )
        .unwrap_err();
        assert_eq!(wrong.key, "schedule[1].over");
        assert!(wrong.reason.contains("schedule[0]"));
    }
}
