//! Segmentation offload, as Linux sends with it: data leaves in bursts of a device's large segments, and what would make a small
//! one waits for more of the window (`tcp_tso_autosize`, `tcp_cwnd_test`, `tcp_tso_should_defer`).

use super::Sender;
use fullpipe_cc::pacer::{GSO_MAX_BYTES, autosize, rate_for_window};
use fullpipe_cc::{CongestionControl, Rate, Span, Time};

/// Of the window or the receiver's, this part is always worth a burst (`tcp_tso_win_divisor`).
const WINDOW_DIVISOR: u64 = 3;

/// Who has sent nothing for longer does not wait.
const RECENT: Span = Span::from_millis(1);

/// What a decision to wait is made by; all in payload bytes.
#[derive(Clone, Copy, Debug)]
struct Moment {
    /// The largest burst now.
    burst: u64,
    /// What window and receiver still let leave, and what they let be outstanding in all.
    free: u64,
    window: u64,
    /// What lies ready for this burst, and whether nothing lies behind it.
    ready: u64,
    is_last: bool,
    /// Since the latest departure, and since the first packet that is outstanding left.
    idle: Span,
    head: Option<Span>,
    srtt: Option<Span>,
}

impl Moment {
    /// `tcp_tso_should_defer()`: an ACK that lets more leave is near enough to wait for.
    fn should_defer(&self) -> bool {
        let worth_it = self.free >= self.burst
            || (!self.is_last && self.free >= self.ready)
            || self.free >= self.window / WINDOW_DIVISOR;
        let (Some(head), Some(srtt)) = (self.head, self.srtt) else { return false };
        !worth_it && self.idle <= RECENT && head >= srtt / 2
    }
}

impl<C: CongestionControl> Sender<C> {
    /// The largest burst now, in bytes: a millisecond's worth at the pacing rate, or at the rate that an unpaced controller would be
    /// paced at, more for close peers.
    pub(super) fn largest_burst(&self) -> u64 {
        let connection = &self.connection;
        let unpaced = || {
            let srtt = self.rtt.srtt()?;
            let (ssthresh, outstanding) =
                (connection.controller().ssthresh(), self.board.outstanding_bytes());
            Some(rate_for_window(self.window(), ssthresh, outstanding, srtt))
        };
        let rate = connection.pacing_rate().or_else(unpaced).unwrap_or(Rate::MAX);
        // BBR v1 alone asks for single packets, on slow paths.
        let fewest = if connection.send_quantum() < 2 * self.smss { 1 } else { 2 };
        autosize(rate, self.rtt.min(), self.smss as u32, fewest)
    }

    /// Whether new data waits, although a packet of it could leave; `by_window` if the window is what it waits for.
    pub(super) fn defers(&self, now: Time, burst: u64, by_window: &mut bool) -> bool {
        let (ready, una) = (self.unsent(), self.board.una_bytes());
        if self.recovering.is_recovering() || ready <= self.smss || self.closed && ready <= burst {
            return false;
        }
        let (window, inflight, sent) = (self.window(), self.board.inflight(), self.board.nxt_bytes());
        let (by_congestion, by_receiver) = (window.saturating_sub(inflight), self.edge.saturating_sub(sent));
        // The application's data is kept in buffers of so much; the rest of one is what leaves next.
        let buffer = GSO_MAX_BYTES / self.smss * self.smss;
        let rest = buffer - sent % buffer.max(1);
        let moment = Moment {
            burst,
            free: by_congestion.min(by_receiver),
            window: window.min(self.edge.saturating_sub(una)),
            ready: ready.min(rest),
            is_last: ready <= rest,
            idle: now.since(self.connection.next_departure()),
            head: self.board.head_sent_at().map(|sent_at| now.since(sent_at)),
            srtt: self.rtt.srtt(),
        };
        let defers = moment.should_defer();
        *by_window |= defers && by_congestion < by_receiver && by_congestion <= moment.ready;
        defers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two packets of a window of 34 are free, eight make a burst, and an ACK is due.
    const MOMENT: Moment = Moment {
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
    fn a_small_burst_waits_for_the_ack_that_is_near() {
        assert!(MOMENT.should_defer());
        assert!(Moment { free: 7, ..MOMENT }.should_defer());
    }

    #[test]
    fn what_is_worth_it_does_not_wait() {
        assert!(!Moment { free: 8, ..MOMENT }.should_defer(), "a whole burst");
        assert!(!Moment { window: 6, ..MOMENT }.should_defer(), "a third of the window");
        assert!(!Moment { ready: 2, ..MOMENT }.should_defer(), "the rest of a buffer");
        assert!(Moment { ready: 2, is_last: true, ..MOMENT }.should_defer(), "which may still grow");
    }

    #[test]
    fn nothing_waits_long() {
        assert!(
            !Moment { idle: Span::from_micros(1001), ..MOMENT }.should_defer(),
            "nothing left for a while"
        );
        assert!(!Moment { head: Some(Span::from_micros(1999)), ..MOMENT }.should_defer(), "the ACK is far");
        assert!(!Moment { head: None, ..MOMENT }.should_defer(), "no ACK will come");
    }
}
