//! RTT samples from timestamps (RFC 7323): from the first packet with a value to its first echo.
//! Works for pure acknowledgments and despite retransmissions.

use crate::sequence::later;
use fullpipe_units::{Span, Time};
use std::collections::VecDeque;

/// Maximum number of values waiting for their echo. Bounded, as the packets of the peer may not be
/// in the capture.
const MAX_WAITING: usize = 1 << 14;

/// Timestamps of one end that wait for their echo.
#[derive(Clone, Debug, Default)]
pub(super) struct Echoes {
    waiting: VecDeque<(u32, Time)>,
    newest: Option<u32>,
}

impl Echoes {
    /// Bytes of memory, approximately.
    pub(super) fn memory(&self) -> usize {
        self.waiting.capacity() * size_of::<(u32, Time)>()
    }

    /// Records a packet with the timestamp `value`.
    #[inline]
    pub(super) fn sent(&mut self, value: u32, at: Time) {
        if self.newest.is_some_and(|n| !later(value, n)) {
            return;
        }
        self.newest = Some(value);
        if self.waiting.len() == MAX_WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back((value, at));
    }

    /// Records an echo of `value`. Returns the RTT for the first echo.
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
    fn only_the_first_packet_and_the_first_echo_count() {
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        let mut e = Echoes::default();
        for (value, ms) in [(7, 0), (7, 1), (8, 2), (9, 3)] {
            e.sent(value, at(ms));
        }
        assert_eq!(e.echoed(7, at(40)), Some(Span::from_millis(40)));
        assert_eq!(e.echoed(7, at(41)), None);
        assert_eq!(e.echoed(9, at(43)), Some(Span::from_millis(40)));
        assert_eq!(e.echoed(8, at(44)), None);
    }
}
