//! A simple receive window: a buffer that grows with the bytes that the application reads per round
//! trip, up to its limit (Linux `tcp_rcv_space_adjust`).

use fullpipe_cc::{Span, Time};

/// The initial window (`tcp_rmem[1]` as a window).
const INITIAL: u64 = 65_535;
/// The window of a receiver without a limit: the largest that TCP can express (RFC 7323 §2.3).
const UNLIMITED: u64 = 65_535 << 14;

#[derive(Debug)]
pub(crate) struct ReceiveWindow {
    smss: u64,
    window: u64,
    limit: u64,
    /// Bytes read in the last measured round trip.
    space: u64,
    measured_at: Time,
    measured_bytes: u64,
    edge: u64,
}

impl ReceiveWindow {
    /// A receiver with a buffer of at most `buffer` bytes. Half of it holds payload, the other half
    /// is overhead of the kernel's structures (`tcp_adv_win_scale` 1).
    pub fn new(smss: u32, buffer: Option<u64>) -> Self {
        let smss = u64::from(smss);
        let limit = buffer.map_or(UNLIMITED, |b| (b / 2).clamp(smss, UNLIMITED));
        let window = if buffer.is_some() { INITIAL.min(limit).max(smss) } else { UNLIMITED };
        ReceiveWindow {
            smss,
            window,
            limit,
            space: 10 * smss,
            measured_at: Time::ZERO,
            measured_bytes: 0,
            edge: window,
        }
    }

    /// The application has read `bytes` in all; `rtt` is the round-trip time.
    #[inline]
    pub fn on_read(&mut self, now: Time, bytes: u64, rtt: Option<Span>) {
        if self.window == self.limit {
            return;
        }
        let Some(rtt) = rtt else { return };
        if now.since(self.measured_at) < rtt {
            return;
        }
        let copied = bytes - self.measured_bytes;
        if copied > self.space {
            // Room for a sender that doubles its rate.
            let twice = 2 * copied + 16 * self.smss;
            let grow = u128::from(twice) * u128::from(copied - self.space) / u128::from(self.space.max(1));
            let wanted = u128::from(twice) + 2 * grow;
            let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
            self.window = self.window.max(wanted).min(self.limit);
            self.space = copied;
        }
        self.measured_at = now;
        self.measured_bytes = bytes;
    }

    /// The right edge to advertise when `next_bytes` have been received in order; it never moves
    /// back.
    #[inline]
    pub fn edge(&mut self, next_bytes: u64) -> u64 {
        self.edge = self.edge.max(next_bytes + self.window);
        self.edge
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_stays_ahead_of_a_sender_that_doubles_until_the_limit() {
        let mut w = ReceiveWindow::new(1448, Some(6 << 20));
        let rtt = Some(Span::from_millis(100));
        let (mut read, mut flight, mut now) = (0, 14_480u64, Time::ZERO);
        assert_eq!(w.edge(0), 65_535);
        while flight < 3 << 20 {
            let edge = w.edge(read);
            assert!(edge - read >= flight, "{flight} bytes in flight do not fit {}", edge - read);
            read += flight;
            now += Span::from_millis(101);
            w.on_read(now, read, rtt);
            flight *= 2;
        }
        assert_eq!(w.edge(read), read + (3 << 20));
    }

    #[test]
    fn a_slow_flow_keeps_the_initial_window() {
        let mut w = ReceiveWindow::new(1448, Some(6 << 20));
        for i in 1..100u64 {
            w.on_read(Time::ZERO + Span::from_millis(100 * i), 1448 * i, Some(Span::from_millis(50)));
        }
        assert_eq!(w.edge(0), 65_535);
    }

    #[test]
    fn the_smallest_buffer_allows_one_segment() {
        assert_eq!(ReceiveWindow::new(1448, Some(1)).edge(0), 1448);
    }
}
