//! The part of a test in which data move, and its results.

use super::stream::Stream;
use super::{Session, SessionError, direction, refuse};
use crate::control::ControlError;
use crate::iperf3::{MAX_RESULTS, Params, Protocol, Results, ServerError, State, extension};
use crate::server::Event;
use crate::transfer::{Budget, CpuClock, Mark, Measured};
use fullpipe_units::{Rate, Span};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A test may take this much longer than its seconds: the peer's clock starts later and its data queue.
const GRACE: Duration = Duration::from_secs(30);
/// A session without anything to do looks this often whether the server is stopping.
const LOOK: Duration = Duration::from_millis(250);
/// Data that is still on its way when a test bounded by bytes ends is waited for as long as it comes.
const DRAIN: Duration = Duration::from_secs(2);

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
                        // A stream that breaks leaves the test to the control connection and the idle limit.
                        let _ = stream.run(params, cap, budget, stop);
                    });
                if let Err(e) = spawned {
                    stop.store(true, Relaxed);
                    streams.iter().for_each(|s| s.lane.shut_down(false));
                    return (Err(refuse(ServerError::STREAM_ACCEPT, e.to_string())), Vec::new());
                }
            }
            let watched = Watch::new(self, params, streams, began).until_told(budget.as_ref());
            let end = marks(streams);
            stop.store(true, Relaxed);
            streams.iter().for_each(|s| s.lane.shut_down(abort));
            (watched, end)
        });
        let (from, seconds): (Vec<Mark>, f64) = measured?;
        self.exchange(params, streams, &Measured { from, end, seconds, cpu: cpu.percent() })
    }

    /// Exchanges results with the client. Gives what is logged of the test.
    fn exchange(
        &self,
        params: &Params,
        streams: &[Stream],
        measured: &Measured,
    ) -> Result<Event, SessionError> {
        let handshake = self.shared.config.limits.handshake;
        let lanes = streams.iter().map(|s| &s.lane);
        let controller = lanes.clone().find_map(|lane| lane.controller());
        let results =
            measured.results(lanes, params.server_sends(), params.protocol == Protocol::Tcp, controller);
        let sum = |sends| -> u64 {
            streams
                .iter()
                .zip(&results.streams)
                .filter(|(s, _)| s.lane.sends == sends)
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
        self.control.write_state(State::ExchangeResults, "asking for results")?;
        let theirs = self.control.read_text(MAX_RESULTS, "reading the results", handshake)?;
        Results::parse(&theirs).map_err(|e| refuse(ServerError::RESULTS, e.to_string()))?;
        self.control.write_text(&results.to_json(), "telling the results")?;
        self.control.write_state(State::DisplayResults, "telling the results")?;
        // iperf3 closes without a word when it is interrupted here; the test is complete all the same.
        let _ = self.control.read_state("waiting for the good-bye", handshake);
        Ok(event)
    }
}

/// A test that runs, as its server watches it.
struct Watch<'a> {
    session: &'a Session<'a>,
    params: &'a Params,
    streams: &'a [Stream],
    began: Instant,
    /// What the counters stood at when the omitted seconds were over, and when that was.
    from: Option<(Vec<Mark>, Instant)>,
    report_every: Option<Duration>,
    next_report: Option<Instant>,
    /// The bytes that have moved, and since when no more have.
    moved: (u64, Instant),
}

impl<'a> Watch<'a> {
    fn new(session: &'a Session<'a>, params: &'a Params, streams: &'a [Stream], began: Instant) -> Self {
        let report_every = params
            .extension
            .as_ref()
            .filter(|e| e.report_ms > 0 && params.server_sends() && params.protocol == Protocol::Tcp)
            .map(|e| Duration::from_millis(e.report_ms.max(10).into()));
        Watch {
            session,
            params,
            streams,
            began,
            from: (params.omit == 0).then(|| (vec![Mark::default(); streams.len()], began)),
            report_every,
            next_report: report_every.map(|every| began + every),
            moved: (0, began),
        }
    }

    /// Sees to the test until its client ends it. Gives what the counters stood at when the omitted seconds were over, and
    /// the seconds since.
    fn until_told(mut self, budget: Option<&Budget>) -> Result<(Vec<Mark>, f64), SessionError> {
        let doing = "waiting for the test's end";
        let control = self.session.control;
        while !control.readable(self.wait()).map_err(|e| ControlError::Io(doing, e))? {
            if self.session.shared.stopping() {
                return Err(SessionError::Stopping);
            }
            self.go_on(Instant::now())?;
        }
        self.session.told(doing)?;
        if let Some(bytes) = self.params.byte_budget().filter(|_| self.params.protocol == Protocol::Tcp) {
            if self.params.client_sends() {
                self.drain(false, bytes)?;
            }
            // The client may have its last bytes before the thread that wrote them has counted them.
            if budget.is_some_and(Budget::is_spent) {
                self.drain(true, bytes)?;
            }
        }
        let (marks, at) = self.from.unwrap_or_else(|| (marks(self.streams), Instant::now()));
        Ok((marks, at.elapsed().as_secs_f64()))
    }

    /// Waits for bytes that were sent before the test's end, by this end or to it, and are not counted yet; as long as the
    /// client's limits allow, like all that is waited for.
    fn drain(&mut self, sent: bool, expected: u64) -> Result<(), SessionError> {
        let moved = |streams: &[Stream]| -> u64 {
            streams.iter().filter(|s| s.lane.sends == sent).map(|s| s.lane.meter.bytes()).sum()
        };
        let (mut last, mut last_at) = (moved(self.streams), Instant::now());
        while last < expected && last_at.elapsed() < DRAIN {
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

    /// How long there is nothing to do.
    fn wait(&self) -> Duration {
        let omitting = self.from.is_none().then(|| self.omit_until());
        let due = [self.next_report, omitting].into_iter().flatten().min();
        due.map_or(LOOK, |due| due.saturating_duration_since(Instant::now())).min(LOOK)
    }

    /// Does what is due now, and holds the client to its limits.
    fn go_on(&mut self, now: Instant) -> Result<(), SessionError> {
        if self.from.is_none() && now >= self.omit_until() {
            self.from = Some((marks(self.streams), now));
        }
        if let (Some(at), Some(every)) = (self.next_report, self.report_every)
            && now >= at
        {
            self.next_report = Some((at + every).max(now));
            self.report()?;
        }
        self.check(now)
    }

    /// Refuses what goes beyond the limits.
    fn check(&mut self, now: Instant) -> Result<(), SessionError> {
        let (params, limits) = (self.params, &self.session.shared.config.limits);
        let total: u64 = self.streams.iter().map(|s| s.lane.meter.bytes()).sum();
        if total != self.moved.0 {
            self.moved = (total, now);
        }
        let (total, moved_at) = self.moved;
        if now - moved_at > limits.idle {
            return Err(refuse(ServerError::NO_DATA, format!("nothing moved for {:?}", limits.idle)));
        }
        if let Some(most) = limits.bytes
            && total > most.saturating_mul(if params.bidirectional { 2 } else { 1 })
        {
            return Err(refuse(ServerError::TOTAL_RATE, format!("more than {most} bytes")));
        }
        if params.protocol == Protocol::Udp
            && let Some(rate) = limits.rate
        {
            let came: u64 = self.streams.iter().filter(|s| !s.lane.sends).map(|s| s.lane.meter.bytes()).sum();
            if came > allowed_by_now(rate, now - self.began) {
                return Err(refuse(ServerError::TOTAL_RATE, format!("the client sends more than {rate}")));
            }
        }
        let bounded = params.byte_budget().is_some();
        let seconds = if bounded { limits.seconds } else { params.seconds + params.omit };
        if now > self.began + Duration::from_secs(seconds.into()) + GRACE {
            return Err(refuse(ServerError::DURATION_EXPIRED, "the client did not end its test"));
        }
        Ok(())
    }

    /// Tells a fullpipe client how its senders do.
    fn report(&self) -> Result<(), SessionError> {
        let senders = self.streams.iter().map(|s| &s.lane).filter(|lane| lane.sends);
        let sockets = senders.filter_map(|lane| lane.sample().map(|sample| (lane.id, sample))).collect();
        let report = extension::Report { seconds: self.began.elapsed().as_secs_f64(), sockets };
        Ok(self.session.control.write_extension(&json!(report), "reporting")?)
    }
}

fn marks(streams: &[Stream]) -> Vec<Mark> {
    streams.iter().map(|s| s.lane.mark()).collect()
}

/// What a client that keeps to `rate` can have sent: a tenth more, for a clock of its own, and what waited in
/// queues on the way, a second's worth.
fn allowed_by_now(rate: Rate, elapsed: Duration) -> u64 {
    let bytes = rate.bytes_in(Span::from_nanos(elapsed.as_nanos() as u64));
    bytes.saturating_add(bytes / 10).saturating_add(rate.as_bytes_per_sec())
}
