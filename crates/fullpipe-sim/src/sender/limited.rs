//! Whether the congestion window limits the sender (Linux `tcp_cwnd_validate`): a controller must
//! not grow a window that is not used (RFC 7661).

/// Keeps the result for a window's worth of segments.
#[derive(Debug, Default)]
pub(crate) struct CwndLimited {
    limited: bool,
    /// Most segments outstanding in the current window.
    max_outstanding: u64,
    /// The current window ends when this segment is acknowledged.
    window_end: u64,
}

impl CwndLimited {
    /// The sender has sent all it can; `stopped_by_window` if the window was the limit.
    #[inline]
    pub fn on_sent(&mut self, stopped_by_window: bool, outstanding: u64, una: u64, nxt: u64) {
        let fuller = !self.limited && outstanding > self.max_outstanding;
        if una >= self.window_end || stopped_by_window || fuller {
            self.limited = stopped_by_window;
            self.max_outstanding = outstanding;
            self.window_end = nxt;
        }
    }

    /// Whether the window limited sending in the last round trip.
    pub fn is_limited(&self) -> bool {
        self.limited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_limited_it_stays_so_for_a_window() {
        let mut c = CwndLimited::default();
        c.on_sent(true, 10, 0, 10);
        c.on_sent(false, 9, 5, 14);
        assert!(c.is_limited());
        c.on_sent(false, 4, 10, 14);
        assert!(!c.is_limited());
    }
}
