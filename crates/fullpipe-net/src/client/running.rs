//! The part of a test in which data move.

use super::stream::Stream;
use super::test::{STEP, Test};
use super::{ClientError, Interval, Sample, StreamInterval};
use crate::control::ControlError;
use crate::iperf3::State;
use crate::sample::SocketSample;
use crate::transfer::{Budget, CpuClock};
use crate::transfer::{Mark, Measured};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// A test bounded by bytes that moves none for this long is given up.
const STALLED: Duration = Duration::from_secs(30);

/// How far a running test has come; times are those since it began.
struct Course {
    /// What the streams had moved when the measured part began, and when that was.
    from: (Vec<Mark>, Duration),
    omitting: bool,
    /// The same, when the last interval ended.
    previous: (Vec<Mark>, Duration),
    next_interval: Duration,
    next_sample: Option<Duration>,
    /// The bytes that have moved, and since when no more have.
    moved: (u64, Duration),
}

impl Course {
    fn new(test: &Test<'_>) -> Self {
        let start = (test.marks(), Duration::ZERO);
        Course {
            from: start.clone(),
            omitting: test.params.omit > 0,
            previous: start,
            next_interval: test.config.interval,
            next_sample: test.config.sample_every,
            moved: (0, Duration::ZERO),
        }
    }
}

impl Test<'_> {
    /// Starts the streams and sees to them until the test is over.
    pub(super) fn transfer(&mut self, progress: &mut dyn FnMut(&Interval)) -> Result<(), ClientError> {
        let budget = self.params.byte_budget().map(|b| Arc::new(Budget::new(b)));
        let cpu = CpuClock::start();
        let began = Instant::now();
        for stream in &self.streams {
            stream.start(&self.params, self.config.block_chosen, budget.clone(), &self.stop)?;
        }
        if let Some(probes) = &self.probes {
            probes.load(true);
        }
        let mut course = Course::new(self);
        loop {
            let now = began.elapsed();
            let over = match self.params.byte_budget() {
                Some(bytes) => self.complete(bytes),
                None => now >= self.length(),
            };
            self.go_on(&mut course, now, over, progress);
            if over {
                let end = self.marks();
                let (from, from_at) = course.from;
                let seconds = (began.elapsed() - from_at).as_secs_f64();
                self.measured = Some(Measured { from, end, seconds, cpu: cpu.percent() });
                return Ok(());
            }
            if self.interrupt.load(Relaxed) {
                return Err(ClientError::Interrupted);
            }
            if self.is_stalled(&mut course, now) {
                return Err(ClientError::Stalled(STALLED));
            }
            let wait = self.wait(&course, began.elapsed());
            self.listen(wait)?;
        }
    }

    fn omit(&self) -> Duration {
        Duration::from_secs(self.params.omit.into())
    }

    /// Of a test that is not bounded by bytes.
    fn length(&self) -> Duration {
        self.omit() + Duration::from_secs(self.params.seconds.into())
    }

    /// Samples, ends the omitted part and tells intervals as they are due.
    fn go_on(&mut self, course: &mut Course, now: Duration, over: bool, progress: &mut dyn FnMut(&Interval)) {
        if course.omitting && now >= self.omit() {
            course.omitting = false;
            course.from = (self.marks(), now);
            course.previous = course.from.clone();
            course.next_interval = now + self.config.interval;
        }
        if course.next_sample.is_some_and(|at| now >= at) {
            course.next_sample = self.config.sample_every.map(|every| now + every);
            self.sample(now.as_secs_f64());
        }
        if now >= course.next_interval || (over && now > course.previous.1) {
            course.next_interval += self.config.interval;
            let marks = self.marks();
            let (previous, since) = &course.previous;
            let interval = self.interval(previous, &marks, *since, now, course.omitting);
            course.previous = (marks, now);
            progress(&interval);
            self.intervals.push(interval);
        }
    }

    /// Whether a test that only its bytes end gets no more of them.
    fn is_stalled(&self, course: &mut Course, now: Duration) -> bool {
        let total: u64 = self.streams.iter().map(|s| s.lane.progress()).sum();
        if total != course.moved.0 {
            course.moved = (total, now);
        }
        self.params.byte_budget().is_some() && now - course.moved.1 > STALLED
    }

    /// How long there is nothing to do.
    fn wait(&self, course: &Course, now: Duration) -> Duration {
        if self.params.byte_budget().is_some() {
            // The end comes when the bytes are through, not when the clock says so.
            return Duration::from_millis(2);
        }
        let omit = course.omitting.then(|| self.omit());
        let due = [Some(self.length()), course.next_sample, Some(course.next_interval), omit];
        let due = due.into_iter().flatten().min().unwrap_or_default();
        due.saturating_sub(now).min(Duration::from_millis(100))
    }

    /// Waits for what the server says meanwhile.
    fn listen(&mut self, wait: Duration) -> Result<(), ClientError> {
        if !self.control.readable(wait)? {
            return Ok(());
        }
        match self.control.read_state("running", STEP)? {
            State::Extension => self.extension(),
            State::ServerError => Err(self.refused()?),
            State::ServerTerminate => Err(ClientError::Stopped),
            other => Err(ControlError::Unexpected("running", other).into()),
        }
    }

    /// Whether a test of `bytes` is through: acknowledged where we send, arrived where we receive.
    fn complete(&self, bytes: u64) -> bool {
        let sum = |sends: bool| -> Option<u64> {
            let mut streams = self.streams.iter().filter(|s| s.lane.sends == sends).peekable();
            streams.peek()?;
            Some(streams.map(|s| s.lane.progress()).sum())
        };
        [sum(true), sum(false)].into_iter().flatten().all(|moved| moved >= bytes)
    }

    fn marks(&self) -> Vec<Mark> {
        self.streams.iter().map(|s| s.lane.mark()).collect()
    }

    /// The sending socket's state: ours, or the server's as last reported.
    fn sender(&self, stream: &Stream) -> (Option<SocketSample>, bool) {
        let lane = &stream.lane;
        if lane.sends { (lane.sample(), false) } else { (self.remote.get(&lane.id).cloned(), true) }
    }

    fn sample(&mut self, seconds: f64) {
        for stream in &self.streams {
            let (socket, from_server) = self.sender(stream);
            let lane = &stream.lane;
            let receiver = (!lane.sends).then(|| lane.sample()).flatten();
            let bytes = lane.mark().bytes;
            self.samples.push(Sample { seconds, stream: lane.id, bytes, socket, from_server, receiver });
        }
    }

    fn interval(
        &self,
        from: &[Mark],
        to: &[Mark],
        start: Duration,
        end: Duration,
        omitted: bool,
    ) -> Interval {
        let streams = self.streams.iter().zip(from.iter().zip(to)).map(|(stream, (from, to))| {
            let (socket, from_server) = self.sender(stream);
            let moved = to.since(*from);
            StreamInterval {
                id: stream.lane.id,
                sends: stream.lane.sends,
                bytes: moved.bytes,
                retransmits: socket.as_ref().filter(|_| !from_server).map(|_| moved.retransmits),
                packets: moved.packets,
                lost: moved.lost,
                jitter: stream.lane.meter.jitter(),
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
            probes.load(false);
        }
    }
}
