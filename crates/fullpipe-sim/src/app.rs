//! The application at the sending end: when it writes.

use crate::sender::Sender;
use fullpipe_cc::{CongestionControl, Span, Time};
use fullpipe_experiment::scenario::{App, AppWrite};
use fullpipe_units::Bytes;

/// What an application writes to: a connection's sending end.
pub(crate) trait Stream {
    /// Adds `bytes` to what is to be sent.
    fn write(&mut self, bytes: u64);
    /// The application writes no more; with `truncate`, data not yet in the send buffer is
    /// discarded.
    fn close(&mut self, truncate: bool);
    /// Discards data that was written and not sent. Returns the bytes written that remain.
    fn forget_unsent(&mut self) -> u64;
    /// Whether everything written has been acknowledged.
    fn is_idle(&self) -> bool;
}

impl<C: CongestionControl> Stream for Sender<C> {
    #[inline]
    fn write(&mut self, bytes: u64) {
        self.write(bytes);
    }

    fn close(&mut self, truncate: bool) {
        self.close(truncate);
    }

    fn forget_unsent(&mut self) -> u64 {
        self.forget_unsent()
    }

    #[inline]
    fn is_idle(&self) -> bool {
        self.is_idle()
    }
}

/// The application at the sending end.
#[derive(Debug)]
pub(crate) struct Source {
    app: App,
    /// Bytes it may still write.
    left: u64,
    /// When it writes next.
    pub at: Time,
    /// Chunks are timed from the first, so that fractions of a nanosecond do not add up.
    started: Time,
    chunks: u64,
    /// The next burst is due and waits until the last one is delivered.
    waiting: bool,
    /// The burst or response that is not delivered yet.
    transfer: Option<Transfer>,
    written: u64,
    stopped: bool,
    /// The application that replaces this one at `at`.
    change: Option<App>,
}

/// A burst or a response in progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Transfer {
    /// When it was written or requested.
    pub began: Time,
    /// Stream length at its end.
    pub end: u64,
}

impl Source {
    /// An application that sends at most `size` bytes in all.
    pub fn new(app: App, size: Option<u64>) -> Self {
        let app = match app {
            // An application writes at most once per microsecond.
            App::Rate { rate, chunk } => {
                let least = rate.bytes_in(Span::from_micros(1)) + 1;
                App::Rate { rate, chunk: Bytes(chunk.0.max(least)) }
            }
            other => other,
        };
        Source {
            app,
            left: size.unwrap_or(u64::MAX),
            at: Time::NEVER,
            started: Time::ZERO,
            chunks: 0,
            waiting: false,
            transfer: None,
            written: 0,
            stopped: false,
            change: None,
        }
    }

    /// Replaces the application by `app` at `now`. Data that was written and not yet sent is
    /// discarded.
    pub fn change(&mut self, now: Time, app: App) {
        if !self.stopped {
            self.change = Some(app);
            self.at = now;
        }
    }

    /// The connection is established.
    pub fn start(&mut self, now: Time, sender: &mut impl Stream) {
        self.started = now;
        match self.app {
            App::Bulk => {
                let all = self.left;
                self.write(all, sender);
                if all != u64::MAX {
                    sender.close(false);
                }
            }
            App::Rate { .. } | App::Bursts { .. } => {
                self.at = now;
                self.on_time(now, sender);
            }
            App::Writes { ref writes } => {
                self.at = writes.first().map_or(Time::NEVER, |first| now + first.at);
                self.on_time(now, sender);
            }
            App::RequestResponse { .. } => {}
        }
    }

    fn write(&mut self, bytes: u64, sender: &mut impl Stream) {
        let bytes = bytes.min(self.left);
        if self.left != u64::MAX {
            self.left -= bytes;
        }
        self.written = self.written.saturating_add(bytes);
        sender.write(bytes);
        if self.left == 0 {
            self.stop(sender, false);
        }
    }

    /// Stops writing.
    pub fn stop(&mut self, sender: &mut impl Stream, truncate: bool) {
        self.stopped = true;
        self.waiting = false;
        self.at = Time::NEVER;
        sender.close(truncate);
    }

    /// Writes what is due at `now`.
    pub fn on_time(&mut self, now: Time, sender: &mut impl Stream) {
        if let Some(app) = self.change.take() {
            self.app = app;
            self.chunks = 0;
            self.waiting = false;
            self.transfer = None;
            self.at = Time::NEVER;
            self.written = sender.forget_unsent();
            self.start(now, sender);
            return;
        }
        while self.at <= now && !self.stopped {
            match self.app {
                App::Rate { rate, chunk } => {
                    self.chunks += 1;
                    self.at = self.started + rate.time_to_send(chunk.0.saturating_mul(self.chunks));
                    self.write(chunk.0, sender);
                }
                App::Bursts { size, every } => {
                    if sender.is_idle() {
                        self.burst(now, size.0, every, sender);
                    } else {
                        self.at = Time::NEVER;
                        self.waiting = true;
                    }
                }
                App::Writes { ref writes } => {
                    let (bytes, next) = AppWrite::nth_write(writes, self.chunks);
                    self.chunks += 1;
                    self.at = next.map_or(Time::NEVER, |at| self.started + at);
                    self.write(bytes, sender);
                    if next.is_none() && !self.stopped {
                        self.stop(sender, false);
                    }
                }
                App::Bulk | App::RequestResponse { .. } => self.at = Time::NEVER,
            }
        }
    }

    fn burst(&mut self, now: Time, size: u64, every: Span, sender: &mut impl Stream) {
        self.waiting = false;
        self.at = now + every;
        self.write(size, sender);
        self.transfer = Some(Transfer { began: now, end: self.written });
    }

    /// An ACK has been processed; returns whether the application wrote.
    #[inline]
    pub fn on_ack(&mut self, now: Time, sender: &mut impl Stream) -> bool {
        if !self.waiting || !sender.is_idle() {
            return false;
        }
        if let App::Bursts { size, every } = self.app {
            self.burst(now, size.0, every, sender);
        }
        true
    }

    /// The peer's request, sent at `requested`, has arrived: writes the response.
    pub fn respond(&mut self, requested: Time, sender: &mut impl Stream) {
        if let (App::RequestResponse { response, .. }, false) = (&self.app, self.stopped) {
            self.write(response.0, sender);
            self.transfer = Some(Transfer { began: requested, end: self.written });
        }
    }

    /// The transfer that is complete with `delivered` bytes, if one is.
    #[inline]
    pub fn on_delivered(&mut self, delivered: u64) -> Option<Transfer> {
        match self.transfer {
            Some(t) if delivered >= t.end => self.transfer.take(),
            _ => None,
        }
    }
}
