//! Evidence of what limited the sender, by intervals.

use fullpipe_units::{Span, Time};

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
#[derive(Clone, Copy, Debug, Default)]
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

impl Window {
    fn add(&mut self, other: &Window) {
        for (mine, more) in self.blocked.iter_mut().zip(other.blocked) {
            *mine += more;
        }
        self.observed += other.observed;
        self.sent = self.sent.saturating_add(other.sent);
        self.delivered = self.delivered.saturating_add(other.delivered);
        self.paced += other.paced;
        self.paced_time += other.paced_time;
        self.rtt_ms = match (self.rtt_ms, other.rtt_ms) {
            (a, 0.0) => a,
            (0.0, b) => b,
            (a, b) => a.min(b),
        };
    }
}

/// Windows of equal length, twice as long whenever there would be too many.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    from: Time,
    width: Span,
    most: usize,
    windows: Vec<Window>,
    now: Time,
}

impl Windows {
    pub(super) fn new(from: Time, most: usize) -> Self {
        Windows { from, width: Span::from_millis(5), most: most.max(2), windows: Vec::new(), now: from }
    }

    pub(super) fn width(&self) -> Span {
        self.width
    }

    pub(super) fn all(&self) -> &[Window] {
        &self.windows
    }

    /// The window of a time, with room for it.
    fn at(&mut self, at: Time) -> usize {
        loop {
            let index = at.since(self.from).as_nanos() / self.width.as_nanos().max(1);
            if index < self.most as u64 {
                let index = index as usize;
                if self.windows.len() <= index {
                    self.windows.resize(index + 1, Window::default());
                }
                return index;
            }
            self.width = self.width + self.width;
            self.windows = self
                .windows
                .chunks(2)
                .map(|pair| {
                    let mut both = Window::default();
                    pair.iter().for_each(|w| both.add(w));
                    both
                })
                .collect();
        }
    }

    /// Until `now`, `block` was the case, and the pacing rate was `pacing_bps`.
    pub(super) fn pass(&mut self, now: Time, block: Block, pacing_bps: Option<f64>) {
        // Makes room first: the width stays the same then.
        self.at(now);
        while self.now < now {
            let index = self.at(self.now);
            let end = self.from + self.width * (index as u64 + 1);
            let until = end.min(now);
            let passed = until.since(self.now).as_nanos();
            self.now = until;
            let Some(window) = self.windows.get_mut(index) else { return };
            window.observed += passed;
            let blocked = match block {
                Block::None => None,
                Block::Application => Some(0),
                Block::FlowControl => Some(1),
                Block::Window => Some(2),
                Block::Pacer => Some(3),
            };
            if let Some(time) = blocked.and_then(|i| window.blocked.get_mut(i)) {
                *time += passed;
            }
            if let Some(bps) = pacing_bps {
                window.paced += bps / 8.0 * passed as f64 / 1e9;
                window.paced_time += passed;
            }
        }
    }

    fn current(&mut self) -> Option<&mut Window> {
        let index = self.at(self.now);
        self.windows.get_mut(index)
    }

    pub(super) fn add_sent(&mut self, bytes: u64) {
        if let Some(window) = self.current() {
            window.sent = window.sent.saturating_add(bytes);
        }
    }

    pub(super) fn add_delivered(&mut self, bytes: u64) {
        if let Some(window) = self.current() {
            window.delivered = window.delivered.saturating_add(bytes);
        }
    }

    pub(super) fn add_rtt(&mut self, ms: f64) {
        if let Some(window) = self.current() {
            window.rtt_ms = if window.rtt_ms > 0.0 { window.rtt_ms.min(ms) } else { ms };
        }
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
        assert!(windows.all().len() <= 16);
        let sum = |of: fn(&Window) -> u64| windows.all().iter().map(of).sum::<u64>();
        assert_eq!(sum(|w| w.observed), now + 1_000_000_000_000);
        assert_eq!(sum(|w| w.blocked[3]), 1_000_000_000_000);
        assert_eq!(sum(|w| w.blocked[0]) + sum(|w| w.blocked[2]), now);
        let paced: f64 = windows.all().iter().map(|w| w.paced).sum();
        assert!((paced / (now as f64 / 1e3) - 1.0).abs() < 1e-9, "{paced}");
    }
}
