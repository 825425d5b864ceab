//! The measuring client: one test against a stock iperf3 server or ours.

mod json;
mod latency;
mod outcome;
mod stream;
pub mod table;

pub use json::iperf3_json;
pub use latency::Latency;
pub(crate) use latency::quantile;
pub use outcome::{Interval, Outcome, Sample, StreamInterval, StreamOutcome, Sum};

use crate::control::{Control, ControlError};
use crate::iperf3::{
    Cookie, MAX_RESULTS, Malformed, Params, Protocol, Results, ServerError, State, StreamResults, extension,
    stream_id,
};
use crate::sample::SocketSample;
use crate::transfer::{Budget, CpuClock};
use fullpipe_kernel::tcp_info::{PinError, TcpInfo};
use latency::Probes;
use serde_json::json;
use socket2::{Domain, Protocol as Layer, Socket, Type};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use stream::{Carrier, Mark, Stream};

/// The server gets this long for each step that does not wait for data.
const STEP: Duration = Duration::from_secs(20);
/// Reports accepted while no test is running.
const MAX_LATE_REPORTS: usize = 10_000;
/// A waiting client looks this often whether the user has had enough.
const LOOK: Duration = Duration::from_millis(100);
/// A test bounded by bytes that moves none for this long is given up.
const STALLED: Duration = Duration::from_secs(30);

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

/// What to measure, and against whom.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name or address of the server.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Restricts the addresses tried.
    pub family: Option<Family>,
    /// The local address.
    pub bind: Option<IpAddr>,
    /// What to ask for.
    pub params: Params,
    /// Whether the user chose the block size; if not, TCP streams write large blocks.
    pub block_chosen: bool,
    /// How often [`Interval`]s come.
    pub interval: Duration,
    /// How often sockets are sampled for [`Outcome::samples`]; `None` for never.
    pub sample_every: Option<Duration>,
    /// For each connection.
    pub connect_timeout: Duration,
    /// The server's, if it wants one.
    pub secret: Option<String>,
    /// Whether to offer our extensions. Without, even our own server behaves as a stock one.
    pub extensions: bool,
    /// Whether streams are reset instead of closed, at both ends if the server is ours: the kernel then
    /// caches no metrics of the path that would favour later tests.
    pub abort: bool,
}

impl Config {
    /// A test of 10 seconds against `host`.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Config {
            host: host.into(),
            port,
            family: None,
            bind: None,
            params: Params::default(),
            block_chosen: false,
            interval: Duration::from_secs(1),
            sample_every: Some(Duration::from_millis(100)),
            connect_timeout: Duration::from_secs(10),
            secret: None,
            extensions: true,
            abort: false,
        }
    }
}

/// Why a test did not come about or to its end.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The name has no address of the family wanted.
    #[error("cannot find an address of `{host}`{family}: {source}")]
    Resolve {
        /// As given.
        host: String,
        /// " over IPv4" or so.
        family: &'static str,
        /// The resolver's reason.
        source: io::Error,
    },
    /// No connection.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// The last address tried.
        address: SocketAddr,
        /// The reason.
        source: io::Error,
    },
    /// A stream's socket could not be prepared or connected.
    #[error("cannot connect a stream: {0}")]
    Stream(io::Error),
    /// The controller cannot be had.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// The server serves someone else.
    #[error("the server is busy with another test, or does not want this client; try again later")]
    Busy,
    /// The server refused.
    #[error("the server refused: {}", .0.explain())]
    Refused(ServerError),
    /// The server went away in good order.
    #[error("the server was stopped")]
    Stopped,
    /// The server wants a secret and none was given.
    #[error("the server wants a secret: give it with --secret")]
    SecretWanted,
    /// The data stopped.
    #[error("no byte moved for {0:?}")]
    Stalled(Duration),
    /// The user interrupted.
    #[error("interrupted")]
    Interrupted,
    /// Talking failed.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The system lacks something.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// Runs one test. `progress` gets every interval as it ends; setting `interrupt` ends the test early, in
/// good order with the server.
///
/// # Errors
/// [`ClientError`] says at which step, and why.
pub fn run(
    config: &Config,
    interrupt: &AtomicBool,
    progress: &mut dyn FnMut(&Interval),
) -> Result<Outcome, ClientError> {
    let socket = connect_control(config)?;
    let (local, peer) = (socket.local_addr()?, socket.peer_addr()?);
    let mut params = config.params.clone();
    if config.extensions {
        params.extension = Some(extension::Request {
            version: 1,
            report_ms: config.interval.min(config.sample_every.unwrap_or(config.interval)).as_millis() as u32,
            abort: config.abort,
        });
    }
    let control = Control::new(socket)?;
    let cookie = Cookie::random()?;
    control.write(cookie.as_bytes(), "sending the cookie")?;
    let test = Test {
        config,
        interrupt,
        control,
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
    };
    test.converse(local, progress)
}

/// Seconds and marks of the measured part.
struct Measured {
    from: Vec<Mark>,
    end: Vec<Mark>,
    seconds: f64,
    cpu: [f64; 3],
}

struct Test<'a> {
    config: &'a Config,
    interrupt: &'a AtomicBool,
    control: Control,
    cookie: Cookie,
    peer: SocketAddr,
    params: Params,
    hello: Option<extension::Hello>,
    probes: Option<Probes>,
    streams: Vec<Arc<Stream>>,
    /// The server's senders as last reported, by stream.
    remote: HashMap<u64, SocketSample>,
    stop: Arc<AtomicBool>,
    intervals: Vec<Interval>,
    samples: Vec<Sample>,
    measured: Option<Measured>,
    /// From the control connection, before any load.
    idle_rtt: Option<f64>,
}

impl Drop for Test<'_> {
    fn drop(&mut self) {
        self.stop_streams();
    }
}

impl Test<'_> {
    fn converse(
        mut self,
        local: SocketAddr,
        progress: &mut dyn FnMut(&Interval),
    ) -> Result<Outcome, ClientError> {
        let doing = "waiting for the server's next step";
        let mut theirs = None;
        // Of the steps that come once and in this order, the last that came.
        let mut last = None;
        let mut reports = 0;
        loop {
            let state = self.next_state(doing)?;
            if let Some(step) = step(state)
                && last.replace(step).is_some_and(|last| last >= step)
            {
                return Err(ControlError::Unexpected(doing, state).into());
            }
            match state {
                State::ParamExchange => {
                    if self.params.protocol == Protocol::Udp && !self.config.block_chosen {
                        self.params.block = datagram_size(self.control.socket());
                    }
                    self.control.write_text(&self.params.to_json(), "sending parameters")?;
                }
                // Those of a test's end may still be on their way; not without end.
                State::Extension if reports < MAX_LATE_REPORTS => {
                    reports += 1;
                    self.extension()?;
                }
                State::CreateStreams => self.create_streams()?,
                State::TestStart => {}
                State::TestRunning => {
                    let result = self.transfer(progress);
                    if matches!(result, Err(ClientError::Interrupted | ClientError::Stalled(_))) {
                        let _ = self.control.write_state(State::ClientTerminate, "giving up");
                    }
                    result?;
                    self.control.write_state(State::TestEnd, "ending the test")?;
                }
                State::ExchangeResults => {
                    self.stop_streams();
                    self.control.write_text(&self.results().to_json(), "sending results")?;
                    let text = self.control.read_text(MAX_RESULTS, "reading the results", STEP)?;
                    theirs = Some(
                        Results::parse(&text)
                            .map_err(|e| ControlError::Malformed("reading the results", e))?,
                    );
                }
                State::DisplayResults => {
                    let _ = self.control.write_state(State::IperfDone, "saying good-bye");
                    break;
                }
                State::AccessDenied => return Err(ClientError::Busy),
                State::ServerError => return Err(self.refused()?),
                State::ServerTerminate => return Err(ClientError::Stopped),
                other => return Err(ControlError::Unexpected(doing, other).into()),
            }
        }
        let theirs = theirs.ok_or_else(|| {
            ControlError::Malformed("ending", Malformed("the server ended the test without results".into()))
        })?;
        Ok(self.outcome(local, &theirs))
    }

    fn refused(&self) -> Result<ClientError, ClientError> {
        Ok(ClientError::Refused(self.control.read_error(STEP)?))
    }

    /// What the server says next. Waiting for it can be interrupted.
    fn next_state(&self, doing: &'static str) -> Result<State, ClientError> {
        let deadline = Instant::now() + STEP;
        while !self.control.readable(LOOK)? {
            if self.interrupt.load(Relaxed) {
                let _ = self.control.write_state(State::ClientTerminate, "giving up");
                return Err(ClientError::Interrupted);
            }
            if Instant::now() >= deadline {
                return Err(ControlError::TimedOut(doing, STEP).into());
            }
        }
        Ok(self.control.read_state(doing, STEP)?)
    }

    /// The first extension message is the server's hello, the others are reports.
    fn extension(&mut self) -> Result<(), ClientError> {
        let doing = "reading an extension message";
        // Without ours, none comes; and none but the hello before the streams are there.
        if self.params.extension.is_none() || (self.hello.is_some() && self.streams.is_empty()) {
            return Err(ControlError::Unexpected(doing, State::Extension).into());
        }
        let text = self.control.read_text(extension::MAX_MESSAGE, doing, STEP)?;
        let malformed = |e: serde_json::Error| ControlError::Malformed(doing, Malformed(e.to_string()));
        if self.hello.is_some() {
            let report: extension::Report = serde_json::from_slice(&text).map_err(malformed)?;
            // Of streams there are not, nothing is kept: a server could make up any number.
            for (id, sample) in report.sockets {
                if self.streams.iter().any(|s| s.id == id) {
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
            self.control.write_text(&json!(proof), "proving the secret")?;
        }
        self.hello = Some(hello);
        Ok(())
    }

    fn create_streams(&mut self) -> Result<(), ClientError> {
        if self.hello.is_some() {
            self.probes = connect(self.config, self.peer, None)
                .ok()
                .and_then(|socket| Probes::start(socket.into(), &self.cookie).ok());
        }
        self.idle_rtt = TcpInfo::of(self.control.socket())
            .ok()
            .map(|i| i.min_rtt.unwrap_or(i.rtt).min(i.rtt).as_secs_f64());
        let directions: &[bool] = match (self.params.bidirectional, self.params.reverse) {
            (true, _) => &[true, false],
            (false, reverse) => &[!reverse],
        };
        for &sends in directions {
            for _ in 0..self.params.parallel {
                let carrier = match self.params.protocol {
                    Protocol::Tcp => {
                        let socket: TcpStream = connect(self.config, self.peer, Some(&self.params))?.into();
                        io::Write::write_all(&mut &socket, self.cookie.as_bytes())
                            .map_err(ClientError::Stream)?;
                        Carrier::Tcp(socket)
                    }
                    Protocol::Udp => Carrier::Udp(connect_udp(self.config, self.peer, &self.params)?),
                };
                let id = stream_id(self.streams.len());
                self.streams.push(Arc::new(Stream::new(id, sends, carrier)));
            }
        }
        Ok(())
    }

    /// Starts the streams and sees to them until the test is over.
    fn transfer(&mut self, progress: &mut dyn FnMut(&Interval)) -> Result<(), ClientError> {
        let budget = self.params.byte_budget().map(|b| Arc::new(Budget::new(b)));
        let cpu = CpuClock::start();
        let began = Instant::now();
        for stream in &self.streams {
            stream.start(&self.params, self.config.block_chosen, budget.clone(), &self.stop)?;
        }
        if let Some(probes) = &self.probes {
            probes.load(true);
        }
        let omit = Duration::from_secs(self.params.omit.into());
        let length = omit + Duration::from_secs(self.params.seconds.into());
        let mut from = (self.marks(), Duration::ZERO);
        let mut omitting = !omit.is_zero();
        let (mut previous, mut previous_at) = (self.marks(), Duration::ZERO);
        let mut next_interval = self.config.interval;
        let mut next_sample = self.config.sample_every;
        let (mut moved, mut moved_at) = (0, Duration::ZERO);
        loop {
            let now = began.elapsed();
            let over = match self.params.byte_budget() {
                Some(bytes) => self.complete(bytes),
                None => now >= length,
            };
            if omitting && now >= omit {
                omitting = false;
                from = (self.marks(), now);
                (previous, previous_at) = from.clone();
                next_interval = now + self.config.interval;
            }
            if next_sample.is_some_and(|at| now >= at) {
                next_sample = self.config.sample_every.map(|every| now + every);
                self.sample(now.as_secs_f64());
            }
            if now >= next_interval || (over && now > previous_at) {
                next_interval += self.config.interval;
                let marks = self.marks();
                let interval = self.interval(&previous, &marks, previous_at, now, omitting);
                (previous, previous_at) = (marks, now);
                progress(&interval);
                self.intervals.push(interval);
            }
            if over {
                let end = self.marks();
                let seconds = (began.elapsed() - from.1).as_secs_f64();
                self.measured = Some(Measured { from: from.0, end, seconds, cpu: cpu.percent() });
                return Ok(());
            }
            if self.interrupt.load(Relaxed) {
                return Err(ClientError::Interrupted);
            }
            let total: u64 = self.streams.iter().map(|s| s.progress()).sum();
            if total != moved {
                (moved, moved_at) = (total, now);
            } else if self.params.byte_budget().is_some() && now - moved_at > STALLED {
                return Err(ClientError::Stalled(STALLED));
            }
            let wait = if self.params.byte_budget().is_some() {
                // The end comes when the bytes are through, not when the clock says so.
                Duration::from_millis(2)
            } else {
                let due = [Some(length), next_sample, Some(next_interval), omitting.then_some(omit)];
                let due = due.into_iter().flatten().min().unwrap_or(length);
                due.saturating_sub(began.elapsed()).min(Duration::from_millis(100))
            };
            if self.control.readable(wait)? {
                match self.control.read_state("running", STEP)? {
                    State::Extension => self.extension()?,
                    State::ServerError => return Err(self.refused()?),
                    State::ServerTerminate => return Err(ClientError::Stopped),
                    other => return Err(ControlError::Unexpected("running", other).into()),
                }
            }
        }
    }

    /// Whether a test of `bytes` is through: acknowledged where we send, arrived where we receive.
    fn complete(&self, bytes: u64) -> bool {
        let sum = |sends: bool| -> Option<u64> {
            let mut streams = self.streams.iter().filter(|s| s.sends == sends).peekable();
            streams.peek()?;
            Some(streams.map(|s| s.progress()).sum())
        };
        [sum(true), sum(false)].into_iter().flatten().all(|moved| moved >= bytes)
    }

    fn marks(&self) -> Vec<Mark> {
        self.streams.iter().map(|s| s.mark()).collect()
    }

    /// The sending socket's state: ours, or the server's as last reported.
    fn sender(&self, stream: &Stream) -> (Option<SocketSample>, bool) {
        if stream.sends { (stream.sample(), false) } else { (self.remote.get(&stream.id).cloned(), true) }
    }

    fn sample(&mut self, seconds: f64) {
        for stream in &self.streams {
            let (socket, from_server) = self.sender(stream);
            let receiver = (!stream.sends).then(|| stream.sample()).flatten();
            let bytes = stream.mark().bytes;
            self.samples.push(Sample { seconds, stream: stream.id, bytes, socket, from_server, receiver });
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
            StreamInterval {
                id: stream.id,
                sends: stream.sends,
                bytes: to.bytes.saturating_sub(from.bytes),
                retransmits: match from_server {
                    true => None,
                    false => socket.as_ref().map(|_| to.retransmits.saturating_sub(from.retransmits)),
                },
                packets: to.packets.saturating_sub(from.packets),
                lost: to.lost.saturating_sub(from.lost),
                jitter: stream.meter.jitter(),
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

    fn stop_streams(&mut self) {
        self.stop.store(true, Relaxed);
        for stream in &self.streams {
            stream.end(self.config.abort);
        }
        if let Some(probes) = &self.probes {
            probes.load(false);
        }
    }

    fn results(&self) -> Results {
        let tcp_sender = self.params.client_sends() && self.params.protocol == Protocol::Tcp;
        let Some(measured) = &self.measured else { return Results::default() };
        let marks = measured.from.iter().zip(&measured.end);
        Results {
            cpu: measured.cpu,
            has_retransmits: self.params.client_sends().then_some(tcp_sender),
            congestion_used: self.streams.iter().find_map(|s| s.controller()),
            streams: self
                .streams
                .iter()
                .zip(marks)
                .map(|(stream, (from, end))| StreamResults {
                    id: stream.id,
                    bytes: end.bytes.saturating_sub(from.bytes),
                    retransmits: (stream.sends && tcp_sender)
                        .then(|| end.retransmits.saturating_sub(from.retransmits)),
                    jitter: stream.meter.jitter(),
                    errors: end.lost.saturating_sub(from.lost),
                    packets: end.packets.saturating_sub(from.packets),
                    seconds: measured.seconds,
                })
                .collect(),
            server_output: None,
        }
    }

    fn outcome(mut self, local: SocketAddr, theirs: &Results) -> Outcome {
        let ours = self.results();
        let last: Vec<Option<SocketSample>> = self
            .streams
            .iter()
            .map(|s| if s.sends { s.last() } else { self.remote.get(&s.id).cloned() })
            .collect();
        let streams = self
            .streams
            .iter()
            .zip(&ours.streams)
            .zip(last)
            .map(|((stream, mine), socket)| {
                let other = theirs.stream(mine.id).cloned().unwrap_or_default();
                let (sent, received) = if stream.sends { (mine, &other) } else { (&other, mine) };
                StreamOutcome {
                    id: stream.id,
                    sends: stream.sends,
                    sent: sent.bytes,
                    sent_seconds: positive(sent.seconds, mine.seconds),
                    received: received.bytes,
                    received_seconds: positive(received.seconds, mine.seconds),
                    retransmits: sent.retransmits,
                    controller: if stream.sends {
                        ours.congestion_used.clone()
                    } else {
                        socket
                            .as_ref()
                            .map(|s| s.controller.clone())
                            .or_else(|| theirs.congestion_used.clone())
                    },
                    jitter: received.jitter,
                    lost: received.errors,
                    packets: sent.packets.max(received.packets),
                    out_of_order: stream.meter.out_of_order(),
                    socket,
                    receiver: if stream.sends { None } else { stream.last() },
                }
            })
            .collect();
        let omit = f64::from(self.params.omit);
        let latency = match self.probes.take() {
            Some(probes) => probes.finish(),
            None => Latency::from_sockets(self.idle_rtt, self.samples.iter().filter(|s| s.seconds >= omit)),
        };
        Outcome {
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
            cpu_local: ours.cpu,
            cpu_remote: theirs.cpu,
            server_output: theirs.server_output.clone(),
        }
    }
}

/// The place of a step that a server takes once, among those it takes in order.
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

fn positive(seconds: f64, otherwise: f64) -> f64 {
    if seconds > 0.0 { seconds } else { otherwise }
}

/// A datagram that fits the path unfragmented, as iperf3 chooses it: the control connection's MSS.
fn datagram_size(control: &TcpStream) -> u32 {
    use crate::iperf3::{MAX_UDP_BLOCK, MIN_UDP_BLOCK};
    let mss = TcpInfo::of(control).map_or(1460, |i| i.snd_mss);
    mss.clamp(MIN_UDP_BLOCK as u32, MAX_UDP_BLOCK as u32)
}

fn connect_control(config: &Config) -> Result<TcpStream, ClientError> {
    let unresolved = |source| ClientError::Resolve {
        host: config.host.clone(),
        family: match config.family {
            None => "",
            Some(Family::V4) => " over IPv4",
            Some(Family::V6) => " over IPv6",
        },
        source,
    };
    let mut addresses: Vec<SocketAddr> =
        (config.host.as_str(), config.port).to_socket_addrs().map_err(unresolved)?.collect();
    addresses.retain(|a| match config.family {
        None => true,
        Some(Family::V4) => a.is_ipv4(),
        Some(Family::V6) => a.is_ipv6(),
    });
    let mut failed = unresolved(io::Error::new(io::ErrorKind::NotFound, "it has none of this kind"));
    for address in addresses {
        match connect(config, address, None) {
            Ok(socket) => return Ok(socket.into()),
            Err(ClientError::Stream(source)) => failed = ClientError::Connect { address, source },
            Err(e) => return Err(e),
        }
    }
    Err(failed)
}

/// A TCP connection; a stream's has the socket options its test asks for.
fn connect(config: &Config, address: SocketAddr, stream: Option<&Params>) -> Result<Socket, ClientError> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Layer::TCP))
        .map_err(ClientError::Stream)?;
    if let Some(name) = stream.and_then(|p| p.congestion.as_ref()) {
        fullpipe_kernel::tcp_info::pin(&socket, name)?;
    }
    let prepare = || -> io::Result<()> {
        if let Some(params) = stream {
            if params.window > 0 {
                socket.set_recv_buffer_size(params.window as usize)?;
                socket.set_send_buffer_size(params.window as usize)?;
            }
            if params.mss > 0 {
                socket.set_tcp_mss(params.mss)?;
            }
            socket.set_tcp_nodelay(params.no_delay)?;
            set_tos(&socket, params.tos);
            if config.abort {
                socket.set_read_timeout(Some(Duration::from_millis(250)))?;
                socket.set_write_timeout(Some(Duration::from_millis(250)))?;
            }
        }
        if let Some(ip) = config.bind {
            socket.bind(&SocketAddr::new(ip, 0).into())?;
        }
        socket.connect_timeout(&address.into(), config.connect_timeout)
    };
    prepare().map_err(ClientError::Stream)?;
    Ok(socket)
}

fn set_tos(socket: &Socket, tos: u8) {
    if tos > 0 {
        // Of the two, the one of the socket's family takes effect.
        let _ = (socket.set_tos_v4(tos.into()), socket.set_tclass_v6(tos.into()));
    }
}

/// A UDP socket that the server has answered on.
fn connect_udp(config: &Config, server: SocketAddr, params: &Params) -> Result<UdpSocket, ClientError> {
    use crate::iperf3::{HELLO, HELLO_REPLY, HELLO_REPLY_OLD};
    let exchange = || -> io::Result<UdpSocket> {
        let socket = Socket::new(Domain::for_address(server), Type::DGRAM, Some(Layer::UDP))?;
        let buffer = if params.window > 0 { params.window as usize } else { 4 * 1024 * 1024 };
        let _ = (socket.set_recv_buffer_size(buffer), socket.set_send_buffer_size(buffer));
        set_tos(&socket, params.tos);
        if let Some(ip) = config.bind {
            socket.bind(&SocketAddr::new(ip, 0).into())?;
        }
        socket.connect(&server.into())?;
        let socket: UdpSocket = socket.into();
        // Datagrams get lost; a server that has answered ignores a second hello.
        let mut datagram = vec![0; 65_536];
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        for _ in 0..5 {
            socket.send(&HELLO)?;
            let deadline = Instant::now() + Duration::from_secs(2);
            while Instant::now() < deadline {
                match socket.recv(&mut datagram) {
                    Ok(n) if datagram[..n] == HELLO_REPLY || datagram[..n] == HELLO_REPLY_OLD => {
                        return Ok(socket);
                    }
                    // Data of a test in reverse can overtake the answer.
                    Ok(_) => {}
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => break,
                    Err(e) => return Err(e),
                }
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "no answer over UDP: a firewall may drop it"))
    };
    exchange().map_err(ClientError::Stream)
}
