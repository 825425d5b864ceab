//! The data phase of a test.

use super::stream::Stream;
use super::test::Test;
use super::{ClientError, Interval, Sample, StreamInterval};
use crate::control::ControlError;
use crate::iperf3::{Params, State};
use crate::sample::SocketSample;
use crate::transfer::{Budget, CpuClock};
use crate::transfer::{Counters, Measurement};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// How long an iperf 2 server may send beyond the time of a test, as iperf 2 itself.
const SLOP: Duration = Duration::from_secs(2);
/// A test bounded by bytes is aborted after this long without progress.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes that count as progress (about 4 kbit/s over [`STALL_TIMEOUT`]): single bytes of a peer do not
/// prolong a test.
const MIN_PROGRESS: u64 = 16 * 1024;
/// A test bounded by bytes is aborted after this long.
const MAX_LENGTH: Duration = Duration::from_secs(86_400);
/// Maximum samples in memory. Beyond it, those of every second moment are dropped and the sampling
/// interval is doubled.
const MAX_SAMPLES: usize = 200_000;

/// The progress of a running test; times are since its start.
struct Progress {
    /// Counters at the start of the measured part, and its time.
    from: (Vec<Counters>, Duration),
    omitting: bool,
    /// Counters at the end of the last interval, and its time.
    previous: (Vec<Counters>, Duration),
    next_interval: Duration,
    next_sample: Option<Duration>,
    sample_every: Option<Duration>,
    /// Total bytes and time of the last progress.
    moved: (u64, Duration),
}

impl Progress {
    fn new(test: &Test<'_>) -> Self {
        let mut start = (test.counters(), Duration::ZERO);
        // The headers of iperf 2 count as data.
        start.0.iter_mut().for_each(|counters| counters.bytes = 0);
        Progress {
            from: start.clone(),
            omitting: test.params.omit > 0,
            previous: start,
            next_interval: test.config.interval,
            next_sample: test.config.sample_every,
            sample_every: test.config.sample_every,
            moved: (0, Duration::ZERO),
        }
    }
}

impl Test<'_> {
    /// Starts the streams and monitors them until the test ends.
    pub(super) fn transfer(&mut self, progress: &mut dyn FnMut(&Interval)) -> Result<(), ClientError> {
        // The headers of iperf 2 are part of the data.
        let begun: u64 = self.streams.iter().map(|s| s.endpoint.meter.bytes()).sum();
        let budget = self.params.byte_budget().map(|b| Arc::new(Budget::new(b.saturating_sub(begun))));
        let cpu = CpuClock::start();
        let began = Instant::now();
        // A stock server ignores the extension.
        let extension = self.params.extension.clone().filter(|_| self.hello.is_some());
        let params = Params { extension, ..self.params.clone() };
        for stream in &self.streams {
            let iperf2 = self.iperf2.is_some();
            stream.start(&params, self.config.block_chosen, iperf2, budget.clone(), &self.stop)?;
        }
        if let Some(probes) = &self.probes {
            probes.set_loaded(true);
        }
        let mut state = Progress::new(self);
        loop {
            let now = began.elapsed();
            let over = match self.params.byte_budget() {
                Some(bytes) => self.complete(bytes),
                None if self.iperf2.is_some() => self.is_over(now)?,
                None => now >= self.length(),
            };
            self.advance(&mut state, now, over, progress);
            if over {
                let end = self.counters();
                let (from, from_at) = state.from;
                let seconds = (began.elapsed() - from_at).as_secs_f64();
                self.measured = Some(Measurement { from, end, seconds, cpu: cpu.percent() });
                return Ok(());
            }
            if self.interrupt.load(Relaxed) {
                return Err(ClientError::Interrupted);
            }
            if self.params.byte_budget().is_some() {
                let total = self.streams.iter().map(|s| s.endpoint.progress()).sum();
                if is_stalled(&mut state.moved, total, least_progress(self.params.rate), now) {
                    return Err(ClientError::Stalled(STALL_TIMEOUT));
                }
                if now >= MAX_LENGTH {
                    return Err(ClientError::TooLong(MAX_LENGTH));
                }
            }
            let wait = self.wait(&state, began.elapsed());
            self.poll_control(wait)?;
        }
    }

    /// Whether a timed test of iperf 2 is over: a server that sends closes the connection.
    fn is_over(&self, now: Duration) -> Result<bool, ClientError> {
        let is_finished = self.streams.iter().any(|s| s.is_finished());
        if self.params.reverse {
            let all = self.streams.iter().all(|s| s.is_finished());
            return Ok(all || now >= self.length() + SLOP);
        }
        if is_finished && now < self.length() {
            return Err(ClientError::Closed);
        }
        Ok(now >= self.length())
    }

    fn omit(&self) -> Duration {
        Duration::from_secs(self.params.omit.into())
    }

    /// The duration of a test that is not bounded by bytes.
    fn length(&self) -> Duration {
        self.omit() + Duration::from_secs(self.params.seconds.into())
    }

    /// Takes samples, ends the omitted part and reports intervals when due.
    fn advance(
        &mut self,
        state: &mut Progress,
        now: Duration,
        over: bool,
        progress: &mut dyn FnMut(&Interval),
    ) {
        if state.omitting && now >= self.omit() {
            state.omitting = false;
            state.from = (self.counters(), now);
            state.previous = state.from.clone();
            state.next_interval = now + self.config.interval;
        }
        if state.next_sample.is_some_and(|at| now >= at) {
            self.sample(now.as_secs_f64());
            if self.samples.len() > MAX_SAMPLES {
                thin(&mut self.samples);
                state.sample_every = state.sample_every.map(|every| every * 2);
            }
            state.next_sample = state.sample_every.map(|every| now + every);
        }
        if now >= state.next_interval || (over && now > state.previous.1) {
            state.next_interval += self.config.interval;
            let counters = self.counters();
            let (previous, since) = &state.previous;
            let interval = self.interval(previous, &counters, *since, now, state.omitting);
            state.previous = (counters, now);
            progress(&interval);
            self.intervals.push(interval);
        }
    }

    /// Time until the next action.
    fn wait(&self, state: &Progress, now: Duration) -> Duration {
        if self.params.byte_budget().is_some() {
            // The end depends on bytes, not on the clock.
            return Duration::from_millis(2);
        }
        let omit = state.omitting.then(|| self.omit());
        let due = [Some(self.length()), state.next_sample, Some(state.next_interval), omit];
        let due = due.into_iter().flatten().min().unwrap_or_default();
        due.saturating_sub(now).min(Duration::from_millis(100))
    }

    /// Waits for messages of the server.
    fn poll_control(&mut self, wait: Duration) -> Result<(), ClientError> {
        if self.iperf2.is_some() {
            std::thread::sleep(wait.max(Duration::from_millis(2)));
            return Ok(());
        }
        if !self.control()?.readable(wait)? {
            return Ok(());
        }
        self.expect_progress();
        match self.control()?.read_state("running", self.patience())? {
            State::Extension => self.extension(),
            State::ServerError => Err(self.read_refusal()?),
            State::ServerTerminate => Err(ClientError::Stopped),
            other => Err(ControlError::Unexpected("running", other).into()),
        }
    }

    /// Whether a test of `bytes` is complete: acknowledged where this end sends, received where it
    /// receives.
    fn complete(&self, bytes: u64) -> bool {
        let sum = |sends: bool| -> Option<u64> {
            let mut streams = self.streams.iter().filter(|s| s.endpoint.sends == sends).peekable();
            streams.peek()?;
            Some(streams.map(|s| s.endpoint.progress()).sum())
        };
        [sum(true), sum(false)].into_iter().flatten().all(|moved| moved >= bytes)
    }

    fn counters(&self) -> Vec<Counters> {
        self.streams.iter().map(|s| s.endpoint.counters()).collect()
    }

    /// Counts again at the end.
    pub(super) fn refresh(&mut self) {
        let counters = self.counters();
        if let Some(measured) = &mut self.measured {
            measured.end = counters;
        }
    }

    /// The sending socket's state: local, or the server's as last reported.
    fn sender(&self, stream: &Stream) -> (Option<SocketSample>, bool) {
        let endpoint = &stream.endpoint;
        if endpoint.sends {
            (endpoint.sample(), false)
        } else {
            (self.remote.get(&endpoint.id).cloned(), true)
        }
    }

    fn sample(&mut self, seconds: f64) {
        for stream in &self.streams {
            let (socket, from_server) = self.sender(stream);
            let endpoint = &stream.endpoint;
            let receiver = (!endpoint.sends).then(|| endpoint.sample()).flatten();
            let bytes = endpoint.counters().bytes;
            self.samples.push(Sample { seconds, stream: endpoint.id, bytes, socket, from_server, receiver });
        }
    }

    fn interval(
        &self,
        from: &[Counters],
        to: &[Counters],
        start: Duration,
        end: Duration,
        omitted: bool,
    ) -> Interval {
        let streams = self.streams.iter().zip(from.iter().zip(to)).map(|(stream, (from, to))| {
            let (socket, from_server) = self.sender(stream);
            let moved = to.since(*from);
            StreamInterval {
                id: stream.endpoint.id,
                sends: stream.endpoint.sends,
                bytes: moved.bytes,
                retransmits: socket.as_ref().filter(|_| !from_server).map(|_| moved.retransmits),
                packets: moved.packets,
                lost: moved.lost,
                jitter: stream.endpoint.meter.jitter(),
                socket,
            }
        });
        Interval {
            start: start.as_secs_f64(),
            end: end.as_secs_f64(),
            omitted,
            streams: streams.collect(),
            probe_rtt: self.probes.as_ref().and_then(|p| p.median_since(end.saturating_sub(start))),
        }
    }

    pub(super) fn stop_streams(&mut self) {
        self.stop.store(true, Relaxed);
        for stream in &self.streams {
            stream.end(self.config.abort);
        }
        if let Some(probes) = &self.probes {
            probes.set_loaded(false);
        }
    }
}

/// Bytes that count as progress for a requested rate in bit/s (0: unlimited): at most half of what that
/// rate sends within [`STALL_TIMEOUT`].
fn least_progress(rate: u64) -> u64 {
    match rate {
        0 => MIN_PROGRESS,
        rate => (rate / 8).saturating_mul(STALL_TIMEOUT.as_secs() / 2).clamp(1, MIN_PROGRESS),
    }
}

/// Whether a transfer has stalled at `total` bytes. `moved` is the total and the time of the last
/// progress, and is updated.
fn is_stalled(moved: &mut (u64, Duration), total: u64, least: u64, now: Duration) -> bool {
    if total.saturating_sub(moved.0) >= least {
        *moved = (total, now);
    }
    now.saturating_sub(moved.1) > STALL_TIMEOUT
}

/// Drops the samples of every second moment.
fn thin(samples: &mut Vec<Sample>) {
    let (mut moment, mut last) = (0_usize, None);
    samples.retain(|sample| {
        if last.replace(sample.seconds).is_some_and(|last| last != sample.seconds) {
            moment += 1;
        }
        moment.is_multiple_of(2)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_bytes_do_not_keep_a_test_alive() {
        let second = Duration::from_secs(1);
        // One byte per second.
        let mut moved = (0, Duration::ZERO);
        let stalled = (1..100).find(|&n| is_stalled(&mut moved, n.into(), least_progress(0), second * n));
        assert_eq!(stalled, Some(31));
        // A slow path: 600 bytes per second.
        let mut moved = (0, Duration::ZERO);
        let stalled =
            (1..1000).find(|&n| is_stalled(&mut moved, u64::from(n) * 600, least_progress(0), second * n));
        assert_eq!(stalled, None);
        // A requested rate: 1 kbit/s.
        let mut moved = (0, Duration::ZERO);
        let stalled =
            (1..1000).find(|&n| is_stalled(&mut moved, u64::from(n) * 125, least_progress(1000), second * n));
        assert_eq!(stalled, None);
    }

    #[test]
    fn samples_of_every_second_moment_are_kept_with_all_streams() {
        let sample = |moment: u32, stream| Sample {
            seconds: f64::from(moment) / 10.0,
            stream,
            bytes: 0,
            socket: None,
            from_server: false,
            receiver: None,
        };
        let mut samples: Vec<Sample> = (0..5).flat_map(|m| [sample(m, 1), sample(m, 3)]).collect();
        thin(&mut samples);
        let kept: Vec<(f64, u64)> = samples.iter().map(|s| (s.seconds, s.stream)).collect();
        assert_eq!(kept, [(0.0, 1), (0.0, 3), (0.2, 1), (0.2, 3), (0.4, 1), (0.4, 3)]);
    }
}
