//! Times during which a link is down.

use fullpipe_units::{Span, Time};
use serde::{Deserialize, Serialize};

use crate::build::LinkError;

/// A period during which the link is down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BlackoutSpec {
    /// Start, counted from the start of the run.
    pub at: Span,
    /// Duration.
    pub r#for: Span,
    /// Period with which it repeats (a satellite's handovers): longer than its duration, at least 1
    /// ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<Span>,
    /// Whether packets wait in the queue meanwhile, as on a radio link. Otherwise the queue keeps
    /// serving, and packets that leave it are lost.
    #[serde(default)]
    pub hold: bool,
}

/// Shortest period, which bounds the number of events.
const MIN_PERIOD: Span = Span::from_millis(1);

impl BlackoutSpec {
    fn check(&self) -> Result<(), LinkError> {
        match self.every {
            Some(every) if every <= self.r#for => {
                let reason = format!(
                    "it lasts {} and cannot come every {every}: the link would never be up",
                    self.r#for
                );
                Err(LinkError::new("every", reason))
            }
            Some(every) if every < MIN_PERIOD => {
                Err(LinkError::new("every", format!("{every} is too short: write at least {MIN_PERIOD}")))
            }
            _ => Ok(()),
        }
    }

    /// Start of the blackout at `time`, or of the next one.
    fn start_near(&self, time: Time) -> Option<Time> {
        let first = Time::ZERO + self.at;
        let passed = time.since(first);
        let start = match self.every {
            Some(every) => first + every * (passed.as_nanos() / every.as_nanos()),
            None => first,
        };
        if time < start + self.r#for {
            return Some(start);
        }
        self.every.map(|every| start + every)
    }

    fn is_down(&self, time: Time) -> bool {
        self.start_near(time).is_some_and(|start| start <= time)
    }

    /// The first start or end after `time`.
    fn next_edge(&self, time: Time) -> Time {
        match self.start_near(time) {
            Some(start) if start <= time => start + self.r#for,
            Some(start) => start,
            None => Time::NEVER,
        }
    }
}

/// Checks every blackout; errors name its index.
pub(crate) fn check(blackouts: &[BlackoutSpec]) -> Result<(), LinkError> {
    for (i, blackout) in blackouts.iter().enumerate() {
        blackout.check().map_err(|w| LinkError::new(format!("blackouts[{i}].{}", w.key), w.reason))?;
    }
    Ok(())
}

/// A link's blackouts of one kind.
pub(crate) struct Blackouts(Vec<BlackoutSpec>);

impl Blackouts {
    /// Selects the blackouts that hold packets, or those that lose them.
    pub fn with_hold(all: &[BlackoutSpec], hold: bool) -> Self {
        Blackouts(all.iter().filter(|blackout| blackout.hold == hold).copied().collect())
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub fn is_down(&self, time: Time) -> bool {
        !self.0.is_empty() && self.any_down(time)
    }

    #[inline(never)]
    fn any_down(&self, time: Time) -> bool {
        self.0.iter().any(|blackout| blackout.is_down(time))
    }

    pub fn next_edge(&self, time: Time) -> Time {
        self.0.iter().map(|blackout| blackout.next_edge(time)).min().unwrap_or(Time::NEVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    fn blackout(text: &str) -> Blackouts {
        let spec: BlackoutSpec = toml::from_str(text).unwrap();
        check(&[spec]).unwrap();
        Blackouts::with_hold(&[spec], spec.hold)
    }

    #[test]
    fn a_link_is_down_from_the_first_to_before_the_last_moment() {
        let b = blackout("at = '10ms'\nfor = '5ms'");
        assert_eq!([9, 10, 14, 15].map(|ms| b.is_down(at(ms))), [false, true, true, false]);
        assert_eq!([0, 10, 14, 15].map(|ms| b.next_edge(at(ms))), [at(10), at(15), at(15), Time::NEVER]);
    }

    #[test]
    fn a_blackout_may_repeat() {
        let b = blackout("at = '10ms'\nfor = '5ms'\nevery = '100ms'");
        assert_eq!(
            [9, 10, 15, 109, 110, 114, 115].map(|ms| b.is_down(at(ms))),
            [false, true, false, false, true, true, false]
        );
        assert_eq!(b.next_edge(at(15)), at(110));
        assert_eq!(b.next_edge(at(1_000_012)), at(1_000_015));
    }

    #[test]
    fn a_link_that_would_never_be_up_is_refused() {
        let spec: BlackoutSpec = toml::from_str("at = 0\nfor = '5s'\nevery = '5s'").unwrap();
        let wrong = check(&[spec]).unwrap_err();
        assert_eq!(wrong.key, "blackouts[0].every");
        assert!(toml::from_str::<BlackoutSpec>("at = 0").unwrap_err().to_string().contains("`for`"));
    }

    proptest! {
        #[test]
        fn edges_are_where_the_state_changes(
            start in 0u64..50, length in 1u64..20, pause in 1u64..30, again: bool, from in 0u64..300,
        ) {
            let every = again.then_some(Span::from_nanos(length + pause));
            let spec = BlackoutSpec {
                at: Span::from_nanos(start), r#for: Span::from_nanos(length), every, hold: false,
            };
            let b = Blackouts::with_hold(&[spec], false);
            let state = |ns| b.is_down(Time::from_nanos(ns));
            let walked = (from + 1..400).find(|&ns| state(ns) != state(ns - 1));
            let edge = b.next_edge(Time::from_nanos(from));
            match walked {
                Some(ns) => prop_assert_eq!(edge, Time::from_nanos(ns)),
                None => prop_assert!(edge > Time::from_nanos(399)),
            }
        }
    }
}
