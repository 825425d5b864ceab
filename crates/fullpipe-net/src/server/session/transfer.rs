//! The data phase of a test and its results.

use super::stream::{self, Stream};
use super::{Session, SessionError, direction, refuse};
use crate::control::{ControlError, extension as extension_message};
use crate::iperf3::{Params, Protocol, Results, ServerError, State, extension, max_results};
use crate::server::watch::Watch;
use crate::server::{Event, Limits};
use crate::transfer::{Allowance, Budget, Counters, CpuClock, Measurement, is_excess};
use serde_json::json;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Poll interval of an idle session.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum pause while waiting for data in flight at the end of a test bounded by bytes.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// With a maximum rate, reports use at most the inverse of this share of it, unless the reports of
/// other tests of the address do.
const REPORTS_SHARE: u64 = 100;
/// No report is sent if the client's address is behind its rate by more than this.
const MAX_REPORTS_BEHIND: Duration = Duration::from_millis(250);

impl Session<'_> {
    pub(super) fn transfer(&self, params: &Params, streams: &[Stream]) -> Result<Event, SessionError> {
        let limits = &self.shared.config.limits;
        let stop = AtomicBool::new(false);
        let budgets = Budgets::new(params, limits);
        let excess = OnceLock::new();
        let abort = params.extension.as_ref().is_some_and(|e| e.abort);
        let cpu = CpuClock::start();
        self.control.write_state(State::TestStart, "starting")?;
        self.control.write_state(State::TestRunning, "starting")?;
        let began = Instant::now();
        let (measured, end) = std::thread::scope(|scope| {
            for stream in streams {
                let (stop, excess, allowance) = (&stop, &excess, self.allowance(&budgets, stream));
                let spawned =
                    std::thread::Builder::new().stack_size(256 * 1024).spawn_scoped(scope, move || {
                        // Another failure is handled by the control connection and the idle
                        // timeout.
                        if let Err(e) = stream.run(params, allowance, stop)
                            && is_excess(&e)
                        {
                            let _ = excess.set(e.to_string());
                        }
                    });
                if let Err(e) = spawned {
                    stop.store(true, Relaxed);
                    streams.iter().for_each(|s| s.endpoint.shut_down(false));
                    return (Err(refuse(ServerError::STREAM_ACCEPT, e.to_string())), Vec::new());
                }
            }
            let monitored = Monitor::new(self, params, streams, &excess, began).run(budgets.sent.as_ref());
            let end = counters(streams);
            stop.store(true, Relaxed);
            streams.iter().for_each(|s| s.endpoint.shut_down(abort));
            (monitored, end)
        });
        let (from, seconds): (Vec<Counters>, f64) = measured?;
        self.exchange(params, streams, &Measurement { from, end, seconds, cpu: cpu.percent() })
    }

    /// What a stream may transfer.
    fn allowance<'a>(&'a self, budgets: &'a Budgets, stream: &Stream) -> Allowance<'a> {
        let account = self.control.account();
        if stream.endpoint.sends {
            Allowance { bucket: account.map(|account| &account.sent), budget: budgets.sent.as_ref() }
        } else {
            Allowance { bucket: account.map(|account| &account.received), budget: budgets.received.as_ref() }
        }
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
        let theirs = self.control.read_text(max_results(streams.len()), "reading the results", handshake)?;
        Results::parse(&theirs).map_err(|e| refuse(ServerError::RESULTS, e.to_string()))?;
        // With the results a client may start its next test, which must find the place free.
        drop(self.place.take());
        self.control.write_text(&results.to_json(), "sending the results")?;
        self.control.write_state(State::DisplayResults, "sending the results")?;
        // An interrupted iperf3 closes here; the test is complete anyway.
        let _ = self.control.read_state("waiting for the client to finish", handshake);
        Ok(event)
    }
}

/// The bytes of a test in each direction.
struct Budgets {
    sent: Option<Budget>,
    received: Option<Budget>,
}

impl Budgets {
    fn new(params: &Params, limits: &Limits) -> Budgets {
        let limit = limits.bytes.map(|max| match params.protocol {
            Protocol::Tcp => Budget::limit(max),
            Protocol::Udp => Budget::limit_in_blocks(max, params.block.into()),
        });
        // A requested number of bytes is at most the limit, but iperf3 sends whole blocks: as many
        // as its streams have may follow. TCP leaves them in its buffers; datagrams arrive anyway.
        let block = if stream::sends_whole_blocks(params) { params.block.into() } else { 0 };
        let sent = params.byte_budget().map(|bytes| Budget::new(bytes).in_blocks(block)).or(limit);
        let received = limits.bytes.map(|max| match (params.byte_budget(), params.protocol) {
            (None, _) => Budget::limit(max),
            (Some(_), Protocol::Tcp) => Budget::new(max),
            (Some(_), Protocol::Udp) => {
                let blocks = u64::from(params.block) * u64::from(params.parallel);
                Budget::limit(max.saturating_add(blocks))
            }
        });
        Budgets { sent, received }
    }
}

/// Monitors a running test at the server.
struct Monitor<'a> {
    session: &'a Session<'a>,
    params: &'a Params,
    streams: &'a [Stream],
    /// How a stream exceeded its allowance.
    excess: &'a OnceLock<String>,
    began: Instant,
    /// Counters at the end of the omitted seconds, and its time.
    from: Option<(Vec<Counters>, Instant)>,
    report_every: Option<Duration>,
    next_report: Option<Instant>,
    watch: Watch,
}

impl<'a> Monitor<'a> {
    fn new(
        session: &'a Session<'a>,
        params: &'a Params,
        streams: &'a [Stream],
        excess: &'a OnceLock<String>,
        began: Instant,
    ) -> Self {
        let report_every = params
            .extension
            .as_ref()
            .filter(|e| e.report_ms > 0 && params.server_sends() && params.protocol == Protocol::Tcp)
            .map(|e| Duration::from_millis(e.report_ms.max(10).into()));
        Monitor {
            session,
            params,
            streams,
            excess,
            began,
            from: (params.omit == 0).then(|| (vec![Counters::default(); streams.len()], began)),
            report_every,
            next_report: report_every.map(|every| began + every),
            watch: Watch::new(began),
        }
    }

    /// Monitors the test until the client ends it. Returns the counters at the end of the omitted
    /// seconds and the seconds from then to the end.
    fn run(mut self, budget: Option<&Budget>) -> Result<(Vec<Counters>, f64), SessionError> {
        let doing = "waiting for the test's end";
        let control = self.session.control;
        while !control.readable(self.wait()).map_err(|e| ControlError::Io(doing, e))? {
            if self.session.shared.stopping() {
                return Err(SessionError::Stopping);
            }
            self.advance(Instant::now())?;
        }
        // Reading the message may wait for the client's rate.
        let mut ended = Instant::now();
        self.session.read_end(doing)?;
        if let Some(bytes) = self.params.byte_budget().filter(|_| self.params.protocol == Protocol::Tcp) {
            if self.params.client_sends() {
                ended = self.drain(false, bytes)?.unwrap_or(ended);
            }
            // The client may have received its last bytes before the sending thread has counted
            // them.
            if budget.is_some_and(Budget::is_spent) {
                ended = self.drain(true, bytes)?.unwrap_or(ended);
            }
        }
        let (counters, at) = self.from.unwrap_or_else(|| (counters(self.streams), ended));
        Ok((counters, ended.saturating_duration_since(at).as_secs_f64()))
    }

    /// Waits for bytes sent before the end of the test, by either end, that are not counted yet,
    /// within the limits. Returns the time of the last of them.
    fn drain(&mut self, sent: bool, expected: u64) -> Result<Option<Instant>, SessionError> {
        let moved = |streams: &[Stream]| -> u64 {
            streams.iter().filter(|s| s.endpoint.sends == sent).map(|s| s.endpoint.meter.bytes()).sum()
        };
        let (mut last, mut last_at) = (moved(self.streams), Instant::now());
        let mut ended = None;
        while last < expected && last_at.elapsed() < DRAIN_TIMEOUT {
            if self.session.shared.stopping() {
                return Err(SessionError::Stopping);
            }
            self.check(Instant::now())?;
            std::thread::sleep(Duration::from_millis(5));
            let now = moved(self.streams);
            if now != last {
                (last, last_at) = (now, Instant::now());
                ended = Some(last_at);
            }
        }
        Ok(ended)
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
            let bytes = self.report()?;
            // On a slow path they leave the rate to the data.
            let account = self.session.control.account();
            let pause = account.map_or(0, |account| {
                account.sent.rate().time_to_send(bytes.saturating_mul(REPORTS_SHARE)).as_nanos()
            });
            self.next_report = Some((at + every).max(now + Duration::from_nanos(pause)));
        }
        self.check(now)
    }

    /// Enforces the limits.
    fn check(&mut self, now: Instant) -> Result<(), SessionError> {
        if let Some(how) = self.excess.get() {
            return Err(refuse(ServerError::TOTAL_RATE, how.clone()));
        }
        let shared = self.session.shared;
        let bounded = self.params.byte_budget().is_some();
        let seconds =
            if bounded { shared.config.limits.seconds } else { self.params.seconds + self.params.omit };
        let endpoints = || self.streams.iter().map(|s| &s.endpoint);
        self.watch.check(shared, endpoints, now, seconds).map_err(|(code, why)| refuse(code, why))
    }

    /// Reports the sending sockets to a fullpipe client, unless its address has no rate left, and
    /// returns the size of the report.
    fn report(&self) -> Result<u64, SessionError> {
        let senders = self.streams.iter().map(|s| &s.endpoint).filter(|endpoint| endpoint.sends);
        let sockets =
            senders.filter_map(|endpoint| endpoint.sample().map(|sample| (endpoint.id, sample))).collect();
        let report = extension::Report { seconds: self.began.elapsed().as_secs_f64(), sockets };
        let (control, message) = (self.session.control, extension_message(&json!(report)));
        if control.account().is_none_or(|account| account.sent.charge(message.len(), MAX_REPORTS_BEHIND)) {
            control.write_now(&message, "reporting")?;
        }
        Ok(message.len() as u64)
    }
}

fn counters(streams: &[Stream]) -> Vec<Counters> {
    streams.iter().map(|s| s.endpoint.counters()).collect()
}
