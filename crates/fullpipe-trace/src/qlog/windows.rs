//! Evidence of what limited the sender, by intervals.

use crate::connection::{Interval, Timeline};
use fullpipe_units::{Span, Time};

/// Shorter windows would show single packets.
const MIN_WIDTH: Span = Span::from_millis(5);

/// What the sender could not do at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Block {
    /// Nothing is known to hold it back.
    #[default]
    None,
    /// The application has no data.
    Application,
    /// The peer's flow control.
    FlowControl,
    /// The congestion window is full.
    Window,
    /// The log says that it waits for its pacer.
    Pacer,
}

/// Evidence of one interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// Time of each block, in nanoseconds: application, flow control, window, pacer.
    pub(super) blocked: [u64; 4],
    /// Time that the connection was observed.
    pub(super) observed: u64,
    pub(super) sent: u64,
    pub(super) delivered: u64,
    /// Bytes that the pacing rate allowed, and the time for which it was known.
    pub(super) paced: f64,
    pub(super) paced_time: u64,
    /// Minimum RTT in milliseconds; 0 without samples.
    pub(super) rtt_ms: f64,
}

impl Interval for Window {
    const EMPTY: Window = Window {
        blocked: [0; 4],
        observed: 0,
        sent: 0,
        delivered: 0,
        paced: 0.0,
        paced_time: 0,
        rtt_ms: 0.0,
    };

    fn merge(self, later: &Window) -> Window {
        Window {
            blocked: std::array::from_fn(|i| self.blocked[i] + later.blocked[i]),
            observed: self.observed + later.observed,
            sent: self.sent.saturating_add(later.sent),
            delivered: self.delivered.saturating_add(later.delivered),
            paced: self.paced + later.paced,
            paced_time: self.paced_time + later.paced_time,
            rtt_ms: match (self.rtt_ms, later.rtt_ms) {
                (a, 0.0) => a,
                (0.0, b) => b,
                (a, b) => a.min(b),
            },
        }
    }
}

/// Evidence over time.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    line: Timeline<Window>,
    now: Time,
}

impl Windows {
    pub(super) fn new(from: Time, most: usize) -> Self {
        Windows { line: Timeline::new(from, most), now: from }
    }

    /// The windows, and their width.
    pub(super) fn all(&self) -> (Span, Vec<Window>) {
        let each = MIN_WIDTH.as_nanos().div_ceil(self.line.width().as_nanos().max(1)).max(1);
        let windows = self.line.grouped(each as usize).into_iter().map(|(_, window)| window);
        (self.line.width() * each, windows.collect())
    }

    /// Until `now`, `block` was the case, and the pacing rate was `pacing_bps`.
    pub(super) fn pass(&mut self, now: Time, block: Block, pacing_bps: Option<f64>) {
        let blocked = match block {
            Block::None => None,
            Block::Application => Some(0),
            Block::FlowControl => Some(1),
            Block::Window => Some(2),
            Block::Pacer => Some(3),
        };
        self.line.add_time(self.now, now, |window, passed| {
            window.observed += passed.as_nanos();
            if let Some(time) = blocked.and_then(|i: usize| window.blocked.get_mut(i)) {
                *time += passed.as_nanos();
            }
            if let Some(bps) = pacing_bps {
                window.paced += bps / 8.0 * passed.as_secs_f64();
                window.paced_time += passed.as_nanos();
            }
        });
        self.now = self.now.max(now);
    }

    fn current(&mut self) -> &mut Window {
        self.line.at(self.now)
    }

    pub(super) fn add_sent(&mut self, bytes: u64) {
        let sent = &mut self.current().sent;
        *sent = sent.saturating_add(bytes);
    }

    pub(super) fn add_delivered(&mut self, bytes: u64) {
        let delivered = &mut self.current().delivered;
        *delivered = delivered.saturating_add(bytes);
    }

    pub(super) fn add_rtt(&mut self, ms: f64) {
        let rtt_ms = &mut self.current().rtt_ms;
        *rtt_ms = if *rtt_ms > 0.0 { rtt_ms.min(ms) } else { ms };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_conserved_however_long_it_is() {
        let mut windows = Windows::new(Time::ZERO, 16);
        let mut now = 0_u64;
        for i in 0..2000_u64 {
            now += i * 7_001;
            let block = if i % 2 == 0 { Block::Application } else { Block::Window };
            windows.pass(Time::from_nanos(now), block, Some(8e6));
        }
        windows.pass(Time::from_nanos(now + 1_000_000_000_000), Block::Pacer, None);
        let (_, windows) = windows.all();
        assert!(windows.len() <= 16);
        let sum = |of: fn(&Window) -> u64| windows.iter().map(of).sum::<u64>();
        assert_eq!(sum(|w| w.observed), now + 1_000_000_000_000);
        assert_eq!(sum(|w| w.blocked[3]), 1_000_000_000_000);
        assert_eq!(sum(|w| w.blocked[0]) + sum(|w| w.blocked[2]), now);
        let paced: f64 = windows.iter().map(|w| w.paced).sum();
        assert!((paced / (now as f64 / 1e3) - 1.0).abs() < 1e-9, "{paced}");
    }
}
