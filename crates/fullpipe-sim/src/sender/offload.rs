//! Segmentation offload as in Linux: data leaves in bursts of large segments, and a small burst is
//! deferred until the window opens further (`tcp_tso_autosize`, `tcp_cwnd_test`,
//! `tcp_tso_should_defer`).

use super::Sender;
use fullpipe_cc::pacer::{GSO_MAX_BYTES, autosize, rate_for_window};
use fullpipe_cc::{CongestionControl, Rate, Span, Time};

/// A free part of the window this large is always worth a burst (`tcp_tso_win_divisor`).
const WINDOW_DIVISOR: u64 = 3;

/// A sender that has been idle for longer does not defer.
const MAX_IDLE: Span = Span::from_millis(1);

/// The inputs of the decision to defer; amounts in payload bytes.
#[derive(Clone, Copy, Debug)]
struct DeferInput {
    /// The largest burst now.
    burst: u64,
    /// What window and receiver still allow, and the most that they allow to be outstanding.
    free: u64,
    window: u64,
    /// Data ready for this burst, and whether there is none after it.
    ready: u64,
    is_last: bool,
    /// Time since the latest departure, and since the first outstanding packet was sent.
    idle: Span,
    head: Option<Span>,
    srtt: Option<Span>,
}

impl DeferInput {
    /// `tcp_tso_should_defer()`: whether an ACK that allows more is near enough to wait for.
    fn should_defer(&self) -> bool {
        let worth_it = self.free >= self.burst
            || (!self.is_last && self.free >= self.ready)
            || self.free >= self.window / WINDOW_DIVISOR;
        let (Some(head), Some(srtt)) = (self.head, self.srtt) else { return false };
        !worth_it && self.idle <= MAX_IDLE && head >= srtt / 2
    }
}

impl<C: CongestionControl> Sender<C> {
    /// The largest burst now, in bytes: a millisecond at the pacing rate, or at the rate that an
    /// unpaced controller would be paced at; more for short RTTs.
    pub(super) fn largest_burst(&self) -> u64 {
        let control = &self.control;
        let unpaced = || {
            let srtt = self.rtt.srtt()?;
            let (ssthresh, outstanding) = (control.controller().ssthresh(), self.board.outstanding_bytes());
            Some(rate_for_window(self.window(), ssthresh, outstanding, srtt))
        };
        let rate = control.pacing_rate().or_else(unpaced).unwrap_or(Rate::MAX);
        // Only BBR v1 asks for single packets, on slow paths.
        let fewest = if control.send_quantum() < 2 * self.smss { 1 } else { 2 };
        autosize(rate, self.rtt.min(), self.smss as u32, fewest)
    }

    /// Whether to defer new data although a packet of it could be sent; sets `by_window` if it
    /// waits for the congestion window.
    pub(super) fn defers(&self, now: Time, burst: u64, by_window: &mut bool) -> bool {
        let (ready, una) = (self.unsent(), self.board.una_bytes());
        if self.recovering.is_recovering() || ready <= self.smss || self.closed && ready <= burst {
            return false;
        }
        let (window, inflight, sent) = (self.window(), self.board.inflight(), self.board.nxt_bytes());
        let (by_congestion, by_receiver) = (window.saturating_sub(inflight), self.edge.saturating_sub(sent));
        // Data is kept in buffers of this size; the rest of the first one is sent next.
        let buffer = GSO_MAX_BYTES / self.smss * self.smss;
        let rest = buffer - sent % buffer.max(1);
        let input = DeferInput {
            burst,
            free: by_congestion.min(by_receiver),
            window: window.min(self.edge.saturating_sub(una)),
            ready: ready.min(rest),
            is_last: ready <= rest,
            idle: now.since(self.control.next_departure()),
            head: self.board.head_sent_at().map(|sent_at| now.since(sent_at)),
            srtt: self.rtt.srtt(),
        };
        let defers = input.should_defer();
        *by_window |= defers && by_congestion < by_receiver && by_congestion <= input.ready;
        defers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two packets of a window of 34 are free, eight make a burst, and an ACK is due.
    const INPUT: DeferInput = DeferInput {
        burst: 8,
        free: 2,
        window: 34,
        ready: 40,
        is_last: false,
        idle: Span::ZERO,
        head: Some(Span::from_millis(4)),
        srtt: Some(Span::from_millis(4)),
    };

    #[test]
    fn a_small_burst_waits_for_an_imminent_ack() {
        assert!(INPUT.should_defer());
        assert!(DeferInput { free: 7, ..INPUT }.should_defer());
    }

    #[test]
    fn a_large_enough_burst_is_not_deferred() {
        assert!(!DeferInput { free: 8, ..INPUT }.should_defer(), "a whole burst");
        assert!(!DeferInput { window: 6, ..INPUT }.should_defer(), "a third of the window");
        assert!(!DeferInput { ready: 2, ..INPUT }.should_defer(), "the rest of a buffer");
        assert!(DeferInput { ready: 2, is_last: true, ..INPUT }.should_defer(), "which may still grow");
    }

    #[test]
    fn no_burst_is_deferred_for_long() {
        assert!(
            !DeferInput { idle: Span::from_micros(1001), ..INPUT }.should_defer(),
            "nothing left for a while"
        );
        assert!(
            !DeferInput { head: Some(Span::from_micros(1999)), ..INPUT }.should_defer(),
            "the ACK is far"
        );
        assert!(!DeferInput { head: None, ..INPUT }.should_defer(), "no ACK will come");
    }
}
