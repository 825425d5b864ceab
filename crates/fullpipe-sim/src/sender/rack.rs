//! The state of time-based loss detection: RACK (RFC 8985 §6, Linux `tcp_recovery.c`).
//! [`Scoreboard::detect`](super::scoreboard::Scoreboard::detect) applies it to the segments.

use super::scoreboard::{Entry, Transmission};
use fullpipe_cc::{Span, Time};

/// Duplicate ACKs that mean loss on a path that has never reordered (RFC 5681).
const DUP_THRESH: u64 = 3;
/// Recoveries for which a widened reordering window lasts (RFC 8985 §6.2 step 4).
const PERSIST: u32 = 16;
/// Segments of reordering beyond which the degree is not counted (`tcp_max_reordering`).
const MAX_REORDERING: u64 = 300;

#[derive(Clone, Debug)]
pub(crate) struct Rack {
    /// Transmission time and id of the newest segment known to have arrived.
    newest: Transmission,
    /// Its round trip.
    rtt: Span,
    /// Whether this ACK moved `newest` or delivered anything.
    advanced: bool,
    reordering_seen: bool,
    /// Degree of reordering in segments.
    reordering: u64,
    /// The reordering window in quarters of the minimum RTT.
    steps: u64,
    persist: u32,
    /// Bytes delivered when the window was last widened, which happens at most once per round trip.
    widened_at: u64,
    dsack: bool,
}

impl Default for Rack {
    fn default() -> Self {
        Rack {
            newest: Transmission::default(),
            rtt: Span::ZERO,
            advanced: false,
            reordering_seen: false,
            reordering: DUP_THRESH,
            steps: 1,
            persist: 0,
            widened_at: 0,
            dsack: false,
        }
    }
}

impl Rack {
    pub fn newest(&self) -> Transmission {
        self.newest
    }

    pub fn rtt(&self) -> Span {
        self.rtt
    }

    /// Whether anything was delivered since the last [`take_advanced`](Self::take_advanced).
    pub fn take_advanced(&mut self) -> bool {
        std::mem::take(&mut self.advanced)
    }

    /// A segment is newly delivered (`tcp_rack_advance`).
    #[inline]
    pub fn on_delivered(&mut self, now: Time, e: &Entry, min_rtt: Option<Span>) {
        let rtt = now.since(e.sent_at());
        // Shorter than the path's RTT: the ACK answers the original, not the retransmission.
        if e.was_retransmitted() && min_rtt.is_some_and(|min| rtt < min) {
            return;
        }
        self.advanced = true;
        self.rtt = rtt;
        if self.newest.is_before(e.sent()) {
            self.newest = e.sent();
        }
    }

    /// Segment `seq`, transmitted once, was reported after `fack − 1`
    /// (`tcp_check_sack_reordering`).
    pub fn on_reordered(&mut self, seq: u64, fack: u64) {
        self.reordering_seen = true;
        self.reordering = self.reordering.max((fack - seq).min(MAX_REORDERING));
    }

    /// The receiver reported a duplicate: a retransmission was spurious.
    pub fn on_dsack(&mut self) {
        self.dsack = true;
    }

    /// Widens the window once per round trip with duplicate reports (`tcp_rack_update_reo_wnd`).
    pub fn update_window(&mut self, prior_delivered: u64, delivered: u64) {
        if prior_delivered < self.widened_at {
            self.dsack = false;
        }
        if std::mem::take(&mut self.dsack) {
            self.steps = (self.steps + 1).min(255);
            self.widened_at = delivered;
            self.persist = PERSIST;
        } else if self.persist == 0 {
            self.steps = 1;
        }
    }

    /// A recovery has ended.
    pub fn on_recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
    }

    /// How much longer than a round trip a segment may take before it counts as lost
    /// (`tcp_rack_reo_wnd`).
    pub fn reordering_window(
        &self,
        min_rtt: Option<Span>,
        srtt: Option<Span>,
        recovering: bool,
        sacked: u64,
    ) -> Span {
        if !self.reordering_seen && (recovering || sacked >= self.reordering) {
            return Span::ZERO;
        }
        let quarter = min_rtt.unwrap_or(Span::ZERO) / 4;
        (quarter * self.steps).min(srtt.unwrap_or(Span::ZERO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Span = Span::from_millis;

    #[test]
    fn the_window_closes_at_three_sacks_until_reordering_is_seen() {
        let mut r = Rack::default();
        let window = |r: &Rack, recovering, sacked| {
            r.reordering_window(Some(MS(40)), Some(MS(50)), recovering, sacked)
        };
        assert_eq!(window(&r, false, 2), MS(10));
        assert_eq!(window(&r, false, 3), MS(0));
        assert_eq!(window(&r, true, 1), MS(0));
        r.on_reordered(5, 9);
        assert_eq!(window(&r, true, 9), MS(10));
    }

    #[test]
    fn duplicates_widen_the_window_once_a_round_trip_up_to_the_smoothed_rtt() {
        let mut r = Rack::default();
        r.on_reordered(5, 9);
        for round in 1..=20u64 {
            for _ in 0..5 {
                r.on_dsack();
                r.update_window((round - 1) * 1000, round * 1000);
            }
            let expected = MS(10 * (round + 1)).min(MS(50));
            assert_eq!(r.reordering_window(Some(MS(40)), Some(MS(50)), true, 9), expected);
        }
        for _ in 0..PERSIST {
            r.on_recovered();
        }
        r.update_window(1_000_000, 1_000_000);
        assert_eq!(r.reordering_window(Some(MS(40)), Some(MS(50)), true, 9), MS(10));
    }
}
