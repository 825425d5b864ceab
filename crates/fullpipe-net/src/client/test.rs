//! The state machine of a test at the client, driven by the server's states.

use super::latency::Probes;
use super::stream::Stream;
use super::{ClientError, Config, Interval, Latency, Outcome, Sample, StreamOutcome, connect, iperf2};
use crate::control::{Control, ControlError, Ended, Wait};
use crate::iperf3::{
    Cookie, MAX_RESULTS, Malformed, Params, Protocol, Results, State, StreamResults, extension, stream_id,
};
use crate::sample::SocketSample;
use crate::transfer::{Measurement, Transport};
use fullpipe_kernel::tcp_info::TcpInfo;
use serde_json::json;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};

/// Timeout for each server step that does not wait for data, with all messages before it.
pub(super) const STEP_TIMEOUT: Duration = Duration::from_secs(20);
/// What a client waits for first.
pub(super) const ANSWER: &str = "waiting for the server's answer";
/// Maximum reports accepted outside the running phase.
const MAX_LATE_REPORTS: usize = 10_000;
/// Time from the end of a test in which reports may extend the wait for the results: a queue of
/// 1000 packets takes this long at 100 kbit/s.
const MAX_DRAIN_TIME: Duration = Duration::from_secs(120);

/// A test in progress.
pub(super) struct Test<'a> {
    pub(super) config: &'a Config,
    pub(super) interrupt: &'a AtomicBool,
    /// The connection of iperf3's messages; iperf 2 has none.
    control: Option<Control>,
    /// The version of an iperf 2 server.
    pub(super) iperf2: Option<String>,
    cookie: Cookie,
    peer: SocketAddr,
    pub(super) params: Params,
    pub(super) hello: Option<extension::Hello>,
    pub(super) probes: Option<Probes>,
    pub(super) streams: Vec<Arc<Stream>>,
    /// The server's sending sockets as last reported, by stream.
    pub(super) remote: HashMap<u64, SocketSample>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) intervals: Vec<Interval>,
    pub(super) samples: Vec<Sample>,
    pub(super) measured: Option<Measurement>,
    /// RTT of the control connection before any load.
    idle_rtt: Option<f64>,
    started: SystemTime,
    /// How long the server may take for its next step, and until when.
    timeout: Duration,
    deadline: Instant,
}

impl Drop for Test<'_> {
    fn drop(&mut self) {
        self.stop_streams();
    }
}

impl<'a> Test<'a> {
    pub(super) fn new(
        config: &'a Config,
        interrupt: &'a AtomicBool,
        control: Option<Control>,
        cookie: Cookie,
        peer: SocketAddr,
        params: Params,
    ) -> Self {
        Test {
            config,
            interrupt,
            control,
            iperf2: None,
            cookie,
            peer,
            params,
            hello: None,
            probes: None,
            streams: Vec::new(),
            remote: HashMap::new(),
            stop: Arc::new(AtomicBool::new(false)),
            intervals: Vec::new(),
            samples: Vec::new(),
            measured: None,
            idle_rtt: None,
            started: SystemTime::now(),
            timeout: STEP_TIMEOUT,
            deadline: Instant::now() + STEP_TIMEOUT,
        }
    }

    /// Follows the server's states until it has sent its results.
    pub(super) fn run(
        mut self,
        local: SocketAddr,
        asks: bool,
        progress: &mut dyn FnMut(&Interval),
    ) -> Result<Outcome, ClientError> {
        if asks {
            let rtt = TcpInfo::query(self.control()?.socket()).map_or(Duration::ZERO, |info| info.rtt.into());
            let silence = (iperf2::SILENCE.max(4 * rtt)).min(STEP_TIMEOUT);
            (self.timeout, self.deadline) = (silence, Instant::now() + silence);
        }
        let theirs = self.steps(progress);
        use ClientError::{Interrupted, Stalled, TooLong};
        if matches!(theirs, Err(Interrupted | Stalled(_) | TooLong(_))) {
            let _ = self.control()?.write_state(State::ClientTerminate, "giving up");
        }
        let theirs = theirs?;
        Ok(self.outcome(local, &theirs))
    }

    fn steps(&mut self, progress: &mut dyn FnMut(&Interval)) -> Result<Results, ClientError> {
        let doing = "waiting for the server's next step";
        let mut theirs = None;
        // The last of the steps that occur once and in order.
        let mut last = None;
        let mut reports = 0;
        // When the reports before the results must have arrived.
        let mut drained_by: Option<Instant> = None;
        loop {
            let state = self.next_state(doing, last.is_none())?;
            if let Some(step) = step(state) {
                if last.replace(step).is_some_and(|last| last >= step) {
                    return Err(ControlError::Unexpected(doing, state).into());
                }
                self.expect_progress();
            }
            match state {
                State::ParamExchange => {
                    if self.params.protocol == Protocol::Udp && !self.config.block_chosen {
                        self.params.block = connect::datagram_size(self.control()?.socket());
                    }
                    self.control()?.write_text(&self.params.to_json(), "sending parameters")?;
                }
                // Reports from the end of the test may still arrive, in limited number.
                State::Extension if reports < MAX_LATE_REPORTS => {
                    reports += 1;
                    self.extension()?;
                    // They are ahead of the results, in the queue of a slow path.
                    if let Some(drained_by) = drained_by {
                        self.expect_progress();
                        if drained_by < self.deadline {
                            (self.timeout, self.deadline) = (MAX_DRAIN_TIME, drained_by);
                        }
                    }
                }
                State::CreateStreams => {
                    self.create_streams()?;
                    self.expect_progress();
                }
                State::TestStart => {}
                State::TestRunning => {
                    self.transfer(progress)?;
                    self.control()?.write_state(State::TestEnd, "ending the test")?;
                    self.expect_progress();
                    drained_by = Some(Instant::now() + MAX_DRAIN_TIME);
                }
                State::ExchangeResults => {
                    self.stop_streams();
                    self.control()?.write_text(&self.results().to_json(), "sending results")?;
                    let doing = "reading the results";
                    self.expect_progress();
                    let text = self.control()?.read_text(MAX_RESULTS, doing, self.patience())?;
                    theirs = Some(Results::parse(&text).map_err(|e| ControlError::Malformed(doing, e))?);
                }
                State::DisplayResults => {
                    let _ = self.control()?.write_state(State::IperfDone, "closing the test");
                    break;
                }
                State::AccessDenied => return Err(ClientError::Busy),
                State::ServerError => return Err(self.read_refusal()?),
                State::ServerTerminate => return Err(ClientError::Stopped),
                other => return Err(ControlError::Unexpected(doing, other).into()),
            }
        }
        Ok(theirs.ok_or_else(|| {
            ControlError::Malformed("ending", Malformed("the server ended the test without results".into()))
        })?)
    }

    pub(super) fn control(&self) -> Result<&Control, ClientError> {
        self.control.as_ref().ok_or(ClientError::Foreign(super::IPERF2))
    }

    /// Gives the server its time for the next step.
    pub(super) fn expect_progress(&mut self) {
        (self.timeout, self.deadline) = (STEP_TIMEOUT, Instant::now() + STEP_TIMEOUT);
    }

    /// How long a read of the server's messages waits.
    pub(super) fn patience(&self) -> Wait<'_> {
        Wait { deadline: self.deadline, ..Wait::until(self.timeout, self.interrupt) }
    }

    pub(super) fn read_refusal(&self) -> Result<ClientError, ClientError> {
        Ok(ClientError::Refused(self.control()?.read_error(self.patience())?))
    }

    /// Waits for the server's next state; can be interrupted. What is not an iperf3 server shows in
    /// the first.
    fn next_state(&self, doing: &'static str, is_first: bool) -> Result<State, ClientError> {
        let wait = self.patience();
        let late = |ended| match ended {
            Ended::Interrupted => ClientError::Interrupted,
            Ended::TimedOut if is_first => ClientError::Silent(self.timeout),
            Ended::TimedOut => ControlError::TimedOut(doing, self.timeout).into(),
        };
        let doing = if is_first { ANSWER } else { doing };
        while !self.control()?.readable(wait.slice().map_err(late)?)? {}
        if is_first && let Some(name) = self.control()?.foreign_protocol() {
            if name == super::IPERF2 {
                iperf2::end(self.control()?.socket())?;
            }
            return Err(ClientError::Foreign(name));
        }
        Ok(self.control()?.read_state(doing, wait)?)
    }

    /// Handles an extension message: the first is the server's hello, the others are reports.
    pub(super) fn extension(&mut self) -> Result<(), ClientError> {
        let doing = "reading an extension message";
        // None is expected without the extension, and only the hello before the streams exist.
        if self.params.extension.is_none() || (self.hello.is_some() && self.streams.is_empty()) {
            return Err(ControlError::Unexpected(doing, State::Extension).into());
        }
        let text = self.control()?.read_text(extension::MAX_MESSAGE, doing, self.patience())?;
        let malformed = |e: serde_json::Error| ControlError::Malformed(doing, Malformed(e.to_string()));
        if self.hello.is_some() {
            let report: extension::Report = serde_json::from_slice(&text).map_err(malformed)?;
            // Reports of unknown streams are ignored, so that a server cannot grow the map.
            for (id, sample) in report.sockets {
                if self.streams.iter().any(|s| s.endpoint.id == id) {
                    self.remote.insert(id, sample.printable());
                }
            }
            return Ok(());
        }
        let hello: extension::Hello = serde_json::from_slice(&text).map_err(malformed)?;
        let hello = hello.printable();
        if let Some(challenge) = &hello.challenge {
            let Some(secret) = &self.config.secret else { return Err(ClientError::SecretWanted) };
            let proof = extension::prove(secret, &self.cookie, challenge);
            self.control()?.write_text(&json!(proof), "proving the secret")?;
        }
        self.hello = Some(hello);
        Ok(())
    }

    fn create_streams(&mut self) -> Result<(), ClientError> {
        if self.hello.is_some() {
            let interrupt = self.interrupt;
            self.probes = connect::tcp(self.config, self.peer, None, interrupt).ok().and_then(|socket| {
                Probes::start(socket, &self.cookie, self.config.idle_probes, interrupt).ok()
            });
        }
        self.idle_rtt = TcpInfo::query(self.control()?.socket())
            .ok()
            .map(|i| i.min_rtt.unwrap_or(i.rtt).min(i.rtt).as_secs_f64());
        let directions: &[bool] = match (self.params.bidirectional, self.params.reverse) {
            (true, _) => &[true, false],
            (false, reverse) => &[!reverse],
        };
        for &sends in directions {
            for _ in 0..self.params.parallel {
                let transport = match self.params.protocol {
                    Protocol::Tcp => {
                        let socket =
                            connect::tcp(self.config, self.peer, Some(&self.params), self.interrupt)?;
                        io::Write::write_all(&mut &socket, self.cookie.as_bytes())
                            .map_err(ClientError::Stream)?;
                        Transport::Tcp(socket)
                    }
                    Protocol::Udp => {
                        Transport::Udp(connect::udp(self.config, self.peer, &self.params, self.interrupt)?)
                    }
                };
                let id = stream_id(self.streams.len());
                self.streams.push(Arc::new(Stream::new(id, sends, transport)));
            }
        }
        Ok(())
    }

    fn results(&self) -> Results {
        let Some(measured) = &self.measured else { return Results::default() };
        let endpoints = self.streams.iter().map(|s| &s.endpoint);
        let controller =
            endpoints.clone().filter(|endpoint| endpoint.sends).find_map(|endpoint| endpoint.controller());
        let over_tcp = self.params.protocol == Protocol::Tcp;
        measured.results(endpoints, self.params.client_sends(), over_tcp, controller)
    }

    pub(super) fn outcome(mut self, local: SocketAddr, theirs: &Results) -> Outcome {
        let ours = self.results();
        let last: Vec<Option<SocketSample>> = self
            .streams
            .iter()
            .map(|s| if s.endpoint.sends { s.last() } else { self.remote.get(&s.endpoint.id).cloned() })
            .collect();
        let streams = self
            .streams
            .iter()
            .zip(&ours.streams)
            .zip(last)
            .map(|((stream, mine), socket)| {
                let other = theirs.stream(mine.id);
                let (sent, received) = match stream.endpoint.sends {
                    true => (Some(mine), other),
                    false => (other, Some(mine)),
                };
                let seconds = |end: Option<&StreamResults>| {
                    end.map(|end| end.seconds).filter(|&s| s > 0.0).unwrap_or(mine.seconds)
                };
                let packets = |end: Option<&StreamResults>| end.map_or(0, |end| end.packets);
                StreamOutcome {
                    id: stream.endpoint.id,
                    sends: stream.endpoint.sends,
                    sent: sent.map(|end| end.bytes),
                    sent_seconds: seconds(sent),
                    received: received.map(|end| end.bytes),
                    received_seconds: seconds(received),
                    retransmits: sent.and_then(|end| end.retransmits),
                    controller: if stream.endpoint.sends {
                        ours.congestion_used.clone()
                    } else {
                        socket
                            .as_ref()
                            .map(|s| s.controller.clone())
                            .or_else(|| theirs.congestion_used.clone())
                    },
                    jitter: received.map_or(0.0, |end| end.jitter),
                    lost: received.map_or(0, |end| end.errors),
                    packets: packets(sent).max(packets(received)),
                    facts: stream.endpoint.facts(),
                    out_of_order: stream.endpoint.meter.out_of_order(),
                    socket,
                    receiver: if stream.endpoint.sends { None } else { stream.last() },
                }
            })
            .collect();
        let omit = f64::from(self.params.omit);
        let latency = match self.probes.take() {
            Some(probes) => probes.finish(),
            None => Latency::from_sockets(self.idle_rtt, self.samples.iter().filter(|s| s.seconds >= omit)),
        };
        // For bidirectional tests, that of the forward path.
        let receiver_controller = if self.params.client_sends() {
            theirs.congestion_used.clone()
        } else {
            self.streams.iter().find_map(|s| s.endpoint.controller())
        };
        Outcome {
            started: self.started,
            local,
            peer: self.peer,
            cookie: self.cookie.to_string(),
            params: self.params.clone(),
            server_rmem: self.hello.as_ref().and_then(|h| h.tcp_rmem.clone()),
            server_wmem: self.hello.as_ref().and_then(|h| h.tcp_wmem.clone()),
            server: self.hello.as_ref().map(|h| format!("fullpipe {}", h.version)),
            intervals: std::mem::take(&mut self.intervals),
            samples: std::mem::take(&mut self.samples),
            streams,
            latency,
            receiver_controller,
            cpu_local: ours.cpu,
            cpu_remote: self.control.is_some().then_some(theirs.cpu),
            iperf2: self.iperf2.clone(),
            server_output: theirs.server_output.clone(),
        }
    }
}

/// The order of the steps that a server takes exactly once.
fn step(state: State) -> Option<u8> {
    match state {
        State::ParamExchange => Some(1),
        State::CreateStreams => Some(2),
        State::TestStart => Some(3),
        State::TestRunning => Some(4),
        State::ExchangeResults => Some(5),
        State::DisplayResults => Some(6),
        _ => None,
    }
}
