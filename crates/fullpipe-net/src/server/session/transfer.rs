//! The data phase of a test and its results.

use super::stream::Stream;
use super::{Session, SessionError, direction, refuse};
use crate::control::ControlError;
use crate::iperf3::{MAX_RESULTS, Params, Protocol, Results, ServerError, State, extension};
use crate::server::Event;
use crate::transfer::{Budget, Counters, CpuClock, Measurement};
use fullpipe_units::{Rate, Span};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Grace time after a test's duration: the peer starts later and its data queues.
const END_GRACE: Duration = Duration::from_secs(30);
/// Poll interval of an idle session.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum pause while waiting for data in flight at the end of a test bounded by bytes.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

impl Session<'_> {
    pub(super) fn transfer(&self, params: &Params, streams: &[Stream]) -> Result<Event, SessionError> {
        let limits = &self.shared.config.limits;
        let stop = AtomicBool::new(false);
        let budget = params.byte_budget().map(Budget::new);
        let cap =
            limits.rate.map(|r| Rate::from_bytes_per_sec(r.as_bytes_per_sec() / u64::from(params.parallel)));
        let abort = params.extension.as_ref().is_some_and(|e| e.abort);
        let cpu = CpuClock::start();
        self.control.write_state(State::TestStart, "starting")?;
        self.control.write_state(State::TestRunning, "starting")?;
        let began = Instant::now();
        let (measured, end) = std::thread::scope(|scope| {
            for stream in streams {
                let (stop, budget) = (&stop, budget.as_ref());
                let spawned =
                    std::thread::Builder::new().stack_size(256 * 1024).spawn_scoped(scope, move || {
                        // A failed stream is handled by the control connection and the idle
                        // timeout.
                        let _ = stream.run(params, cap, budget, stop);
                    });
                if let Err(e) = spawned {
                    stop.store(true, Relaxed);
                    streams.iter().for_each(|s| s.endpoint.shut_down(false));
                    return (Err(refuse(ServerError::STREAM_ACCEPT, e.to_string())), Vec::new());
                }
            }
            let monitored = Monitor::new(self, params, streams, began).run(budget.as_ref());
            let end = counters(streams);
            stop.store(true, Relaxed);
            streams.iter().for_each(|s| s.endpoint.shut_down(abort));
            (monitored, end)
        });
        let (from, seconds): (Vec<Counters>, f64) = measured?;
        self.exchange(params, streams, &Measurement { from, end, seconds, cpu: cpu.percent() })
    }

    /// Exchanges results with the client and returns the event to log.
    fn exchange(
        &self,
        params: &Params,
        streams: &[Stream],
        measured: &Measurement,
    ) -> Result<Event, SessionError> {
        let handshake = self.shared.config.limits.handshake;
        let endpoints = streams.iter().map(|s| &s.endpoint);
        let controller = endpoints.clone().find_map(|endpoint| endpoint.controller());
        let results =
            measured.results(endpoints, params.server_sends(), params.protocol == Protocol::Tcp, controller);
        let sum = |sends| -> u64 {
            streams
                .iter()
                .zip(&results.streams)
                .filter(|(s, _)| s.endpoint.sends == sends)
                .map(|(_, m)| m.bytes)
                .sum()
        };
        let mut event = Event::new("test_finished", Some(self.peer))
            .with("cookie", self.cookie.to_string())
            .with("direction", direction(params))
            .with("streams", params.parallel)
            .with("seconds", measured.seconds)
            .with("sent", sum(true))
            .with("received", sum(false));
        if let Some(name) = &results.congestion_used {
            event = event.with("controller", name.clone());
        }
        let server_output = params.get_server_output.then(|| format!("{event}\n"));
        let results = Results { server_output, ..results };
        self.control.write_state(State::ExchangeResults, "requesting results")?;
        let theirs = self.control.read_text(MAX_RESULTS, "reading the results", handshake)?;
        Results::parse(&theirs).map_err(|e| refuse(ServerError::RESULTS, e.to_string()))?;
        self.control.write_text(&results.to_json(), "sending the results")?;
        self.control.write_state(State::DisplayResults, "sending the results")?;
        // An interrupted iperf3 closes here; the test is complete anyway.
        let _ = self.control.read_state("waiting for the client to finish", handshake);
        Ok(event)
    }
}

/// Monitors a running test at the server.
struct Monitor<'a> {
    session: &'a Session<'a>,
    params: &'a Params,
    streams: &'a [Stream],
    began: Instant,
    /// Counters at the end of the omitted seconds, and its time.
    from: Option<(Vec<Counters>, Instant)>,
    report_every: Option<Duration>,
    next_report: Option<Instant>,
    /// Bytes transferred, and the time of the last progress.
    moved: (u64, Instant),
}

impl<'a> Monitor<'a> {
    fn new(session: &'a Session<'a>, params: &'a Params, streams: &'a [Stream], began: Instant) -> Self {
        let report_every = params
            .extension
            .as_ref()
            .filter(|e| e.report_ms > 0 && params.server_sends() && params.protocol == Protocol::Tcp)
            .map(|e| Duration::from_millis(e.report_ms.max(10).into()));
        Monitor {
            session,
            params,
            streams,
            began,
            from: (params.omit == 0).then(|| (vec![Counters::default(); streams.len()], began)),
            report_every,
            next_report: report_every.map(|every| began + every),
            moved: (0, began),
        }
    }

    /// Monitors the test until the client ends it. Returns the counters at the end of the omitted
    /// seconds and the seconds since.
    fn run(mut self, budget: Option<&Budget>) -> Result<(Vec<Counters>, f64), SessionError> {
        let doing = "waiting for the test's end";
        let control = self.session.control;
        while !control.readable(self.wait()).map_err(|e| ControlError::Io(doing, e))? {
            if self.session.shared.stopping() {
                return Err(SessionError::Stopping);
            }
            self.advance(Instant::now())?;
        }
        self.session.read_end(doing)?;
        if let Some(bytes) = self.params.byte_budget().filter(|_| self.params.protocol == Protocol::Tcp) {
            if self.params.client_sends() {
                self.drain(false, bytes)?;
            }
            // The client may have received its last bytes before the sending thread has counted
            // them.
            if budget.is_some_and(Budget::is_spent) {
                self.drain(true, bytes)?;
            }
        }
        let (counters, at) = self.from.unwrap_or_else(|| (counters(self.streams), Instant::now()));
        Ok((counters, at.elapsed().as_secs_f64()))
    }

    /// Waits for bytes sent before the end of the test, by either end, that are not counted yet,
    /// within the limits.
    fn drain(&mut self, sent: bool, expected: u64) -> Result<(), SessionError> {
        let moved = |streams: &[Stream]| -> u64 {
            streams.iter().filter(|s| s.endpoint.sends == sent).map(|s| s.endpoint.meter.bytes()).sum()
        };
        let (mut last, mut last_at) = (moved(self.streams), Instant::now());
        while last < expected && last_at.elapsed() < DRAIN_TIMEOUT {
            if self.session.shared.stopping() {
                return Err(SessionError::Stopping);
            }
            self.check(Instant::now())?;
            std::thread::sleep(Duration::from_millis(5));
            let now = moved(self.streams);
            if now != last {
                (last, last_at) = (now, Instant::now());
            }
        }
        Ok(())
    }

    fn omit_until(&self) -> Instant {
        self.began + Duration::from_secs(self.params.omit.into())
    }

    /// Time until the next action.
    fn wait(&self) -> Duration {
        let omitting = self.from.is_none().then(|| self.omit_until());
        let due = [self.next_report, omitting].into_iter().flatten().min();
        due.map_or(POLL_INTERVAL, |due| due.saturating_duration_since(Instant::now())).min(POLL_INTERVAL)
    }

    /// Performs due actions and enforces the limits.
    fn advance(&mut self, now: Instant) -> Result<(), SessionError> {
        if self.from.is_none() && now >= self.omit_until() {
            self.from = Some((counters(self.streams), now));
        }
        if let (Some(at), Some(every)) = (self.next_report, self.report_every)
            && now >= at
        {
            self.next_report = Some((at + every).max(now));
            self.report()?;
        }
        self.check(now)
    }

    /// Enforces the limits.
    fn check(&mut self, now: Instant) -> Result<(), SessionError> {
        let (params, limits) = (self.params, &self.session.shared.config.limits);
        let total: u64 = self.streams.iter().map(|s| s.endpoint.meter.bytes()).sum();
        if total != self.moved.0 {
            self.moved = (total, now);
        }
        let (total, moved_at) = self.moved;
        if now - moved_at > limits.idle {
            return Err(refuse(ServerError::NO_DATA, format!("no progress for {:?}", limits.idle)));
        }
        if let Some(max) = limits.bytes
            && total > max.saturating_mul(if params.bidirectional { 2 } else { 1 })
        {
            return Err(refuse(ServerError::TOTAL_RATE, format!("more than {max} bytes")));
        }
        if params.protocol == Protocol::Udp
            && let Some(rate) = limits.rate
        {
            let came: u64 =
                self.streams.iter().filter(|s| !s.endpoint.sends).map(|s| s.endpoint.meter.bytes()).sum();
            if came > allowed_by_now(rate, now - self.began) {
                return Err(refuse(ServerError::TOTAL_RATE, format!("the client sends more than {rate}")));
            }
        }
        let bounded = params.byte_budget().is_some();
        let seconds = if bounded { limits.seconds } else { params.seconds + params.omit };
        if now > self.began + Duration::from_secs(seconds.into()) + END_GRACE {
            return Err(refuse(ServerError::DURATION_EXPIRED, "the client did not end the test"));
        }
        Ok(())
    }

    /// Reports the sending sockets to a fullpipe client.
    fn report(&self) -> Result<(), SessionError> {
        let senders = self.streams.iter().map(|s| &s.endpoint).filter(|endpoint| endpoint.sends);
        let sockets =
            senders.filter_map(|endpoint| endpoint.sample().map(|sample| (endpoint.id, sample))).collect();
        let report = extension::Report { seconds: self.began.elapsed().as_secs_f64(), sockets };
        Ok(self.session.control.write_extension(&json!(report), "reporting")?)
    }
}

fn counters(streams: &[Stream]) -> Vec<Counters> {
    streams.iter().map(|s| s.endpoint.counters()).collect()
}

/// The bytes a client at `rate` can have sent: a tenth more for its own clock, plus one second for
/// queues on the path.
fn allowed_by_now(rate: Rate, elapsed: Duration) -> u64 {
    let bytes = rate.bytes_in(Span::from_nanos(elapsed.as_nanos() as u64));
    bytes.saturating_add(bytes / 10).saturating_add(rate.as_bytes_per_sec())
}
