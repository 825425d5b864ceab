//! Round trips by timestamps (RFC 7323): from a value's first passing to its first echo. Works on pure
//! acknowledgments too, and is not confused by retransmissions.

use crate::sequence::later;
use fullpipe_units::{Span, Time};
use std::collections::VecDeque;

/// Values that wait for their echo. One that never comes (the peer's packets are not in the capture) must not grow it.
const WAITING: usize = 1 << 14;

/// Timestamps of one end on their way to be echoed.
#[derive(Clone, Debug, Default)]
pub(super) struct Echoes {
    waiting: VecDeque<(u32, Time)>,
    newest: Option<u32>,
}

impl Echoes {
    /// `value` passes at `at`.
    #[inline]
    pub(super) fn passes(&mut self, value: u32, at: Time) {
        if self.newest.is_some_and(|n| !later(value, n)) {
            return;
        }
        self.newest = Some(value);
        if self.waiting.len() == WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back((value, at));
    }

    /// The echo of `value` passes at `at`: how long that took, the first time.
    #[inline]
    pub(super) fn echoed(&mut self, value: u32, at: Time) -> Option<Span> {
        while let Some(&(waiting, since)) = self.waiting.front() {
            if later(waiting, value) {
                return None;
            }
            self.waiting.pop_front();
            if waiting == value {
                return Some(at.since(since));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_passing_and_the_first_echo_count() {
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        let mut e = Echoes::default();
        for (value, ms) in [(7, 0), (7, 1), (8, 2), (9, 3)] {
            e.passes(value, at(ms));
        }
        assert_eq!(e.echoed(7, at(40)), Some(Span::from_millis(40)));
        assert_eq!(e.echoed(7, at(41)), None);
        assert_eq!(e.echoed(9, at(43)), Some(Span::from_millis(40)));
        assert_eq!(e.echoed(8, at(44)), None);
    }
}
