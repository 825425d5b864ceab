//! The application at the sending end: when it writes.

use fullpipe_experiment::scenario::{App, AppWrite};
use fullpipe_units::{Span, Time};

/// The application at the sending end.
#[derive(Debug)]
pub(crate) struct Source {
    app: App,
    /// Bytes that it may still write.
    left: u64,
    /// Bytes to write that the socket has not accepted yet.
    pending: u64,
    /// When it writes next by its own schedule.
    at: Time,
    started: Time,
    chunks: u64,
    /// Bytes of the current request that have arrived.
    asked: u64,
    /// Bytes written so far, including those that the socket has not accepted yet.
    total: u64,
}

/// A transfer of the application: a burst or a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Transfer {
    /// When it began.
    pub(crate) began: Time,
    /// Stream length at its end.
    pub(crate) end: u64,
}

/// Shortest interval between writes: larger chunks at longer intervals give the same rate.
const LEAST_PERIOD: Span = Span::from_micros(200);

impl Source {
    /// An application that writes at most `size` bytes.
    pub(crate) fn new(app: App, size: Option<u64>) -> Self {
        let left = size.unwrap_or(u64::MAX);
        Source { app, left, pending: 0, at: Time::NEVER, started: Time::ZERO, chunks: 0, asked: 0, total: 0 }
    }

    /// The connection is established.
    pub(crate) fn start(&mut self, now: Time) {
        self.started = now;
        match self.app {
            App::Bulk => self.want(u64::MAX),
            App::Rate { .. } | App::Bursts { .. } => self.at = now,
            App::Writes { ref writes } => {
                self.at = writes.first().map_or(Time::NEVER, |first| now + first.at);
            }
            App::RequestResponse { .. } => {}
        }
    }

    fn want(&mut self, bytes: u64) {
        let bytes = bytes.min(self.left);
        if self.left != u64::MAX {
            self.left -= bytes;
        }
        self.pending = self.pending.saturating_add(bytes);
        self.total = self.total.saturating_add(bytes);
    }

    /// When [`on_time`](Self::on_time) is due.
    pub(crate) fn at(&self) -> Time {
        self.at
    }

    /// Writes what is due. `idle` is whether all data written has been acknowledged.
    pub(crate) fn on_time(&mut self, now: Time, idle: bool) -> Option<Transfer> {
        while self.at <= now {
            match self.app {
                App::Rate { rate, chunk } => {
                    // All chunks of the shortest interval at once, counted from the start so that rounding
                    // errors do not add up.
                    let elapsed = (now + LEAST_PERIOD).since(self.started);
                    let due = (rate.bytes_in(elapsed) / chunk.0).max(self.chunks + 1);
                    self.want((due - self.chunks).saturating_mul(chunk.0));
                    self.chunks = due;
                    self.at = self.started + rate.time_to_send(chunk.0.saturating_mul(due));
                }
                App::Bursts { size, every } => {
                    if !idle {
                        return None;
                    }
                    self.want(size.0);
                    self.at = now + every;
                    return Some(Transfer { began: now, end: self.total });
                }
                App::Writes { ref writes } => {
                    let (bytes, next) = AppWrite::nth_write(writes, self.chunks);
                    self.chunks += 1;
                    self.at = next.map_or(Time::NEVER, |at| self.started + at);
                    self.want(bytes);
                    if next.is_none() {
                        self.left = 0;
                    }
                }
                App::Bulk | App::RequestResponse { .. } => self.at = Time::NEVER,
            }
            if self.left == 0 {
                self.at = Time::NEVER;
            }
        }
        None
    }

    /// The peer sent `bytes` of requests.
    pub(crate) fn on_question(&mut self, bytes: u64) {
        if let App::RequestResponse { request, response, .. } = self.app {
            self.asked += bytes;
            while self.asked >= request.0 {
                self.asked -= request.0;
                self.want(response.0);
            }
        }
    }

    /// Bytes to write now.
    pub(crate) fn pending(&self) -> u64 {
        self.pending
    }

    /// The socket accepted `bytes`.
    pub(crate) fn wrote(&mut self, bytes: u64) {
        if self.pending != u64::MAX {
            self.pending -= bytes;
        }
    }

    /// Whether it has written everything that it will write.
    pub(crate) fn is_done(&self) -> bool {
        self.left == 0 && self.pending == 0
    }

    /// Stops writing.
    pub(crate) fn stop(&mut self) {
        (self.left, self.pending, self.at) = (0, 0, Time::NEVER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::{Bytes, Rate};

    fn ms(n: u64) -> Time {
        Time::from_nanos(n * 1_000_000)
    }

    #[test]
    fn scripted_application_writes_at_its_times() {
        let write = |at, bytes| AppWrite { at: Span::from_millis(at), bytes: Bytes(bytes) };
        let script = vec![write(0, 100), write(50, 200), write(50, 300), write(80, 400)];
        let mut source = Source::new(App::Writes { writes: script }, None);
        source.start(ms(10));
        for (now, pending) in [(10, 100), (59, 100), (60, 600), (89, 600), (90, 1000), (500, 1000)] {
            source.on_time(ms(now), true);
            assert_eq!(source.pending(), pending, "{now}");
        }
        source.wrote(1000);
        assert!(source.is_done());
    }

    #[test]
    fn a_constant_rate_is_kept_however_late_the_clock_is() {
        let app = App::Rate { rate: Rate::from_bits_per_sec(8_000_000), chunk: Bytes(1000) };
        let mut source = Source::new(app, None);
        source.start(ms(0));
        for late in [0, 5, 100, 1000] {
            source.on_time(ms(late), true);
        }
        let wanted = source.pending();
        assert!((1_000_000..=1_002_000).contains(&wanted), "{wanted}");
    }

    #[test]
    fn a_burst_waits_for_the_one_before() {
        let app = App::Bursts { size: Bytes(5000), every: Span::from_millis(100) };
        let mut source = Source::new(app, Some(12_000));
        source.start(ms(0));
        assert_eq!(source.on_time(ms(0), true), Some(Transfer { began: ms(0), end: 5000 }));
        source.wrote(5000);
        assert_eq!(source.on_time(ms(100), false), None);
        assert_eq!(source.on_time(ms(130), true), Some(Transfer { began: ms(130), end: 10_000 }));
        assert_eq!(source.at(), ms(230));
        source.on_time(ms(230), true);
        assert_eq!(source.pending(), 7000, "the last burst is cut to the size of the flow");
        source.wrote(7000);
        assert!(source.is_done());
    }

    #[test]
    fn each_whole_question_is_answered() {
        let app = App::RequestResponse { request: Bytes(200), response: Bytes(10), think: Span::ZERO };
        let mut source = Source::new(app, None);
        source.start(ms(0));
        source.on_question(150);
        assert_eq!(source.pending(), 0);
        source.on_question(250);
        assert_eq!(source.pending(), 20);
    }

    #[test]
    fn bulk_never_runs_dry_unless_it_has_a_size() {
        let mut source = Source::new(App::Bulk, None);
        source.start(ms(0));
        source.wrote(1 << 40);
        assert_eq!(source.pending(), u64::MAX);
        let mut source = Source::new(App::Bulk, Some(10));
        source.start(ms(0));
        source.wrote(10);
        assert!(source.is_done());
    }
}
