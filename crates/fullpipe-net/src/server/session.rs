//! One iperf3 test, from its cookie to its good-bye.

use super::{Arrival, Event, Place, Shared, Waiting, admission, lock, udp};
use crate::control::{Control, ControlError};
use crate::diagnose::setting;
use crate::iperf3::{
    Cookie, MAX_PARAMS, MAX_RESULTS, Params, Protocol, Results, ServerError, State, StreamResults, extension,
    stream_id,
};
use crate::sample::SocketSample;
use crate::transfer::{self, Budget, CpuClock, DEFAULT_SEND_BLOCK, Meter};
use fullpipe_kernel::tcp_info::{self, TcpInfo};
use fullpipe_units::{Rate, Span};
use serde_json::json;
use std::collections::hash_map::Entry;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A test may take this much longer than its seconds: the peer's clock starts later and its data queue.
const GRACE: Duration = Duration::from_secs(30);
/// A session without anything to do looks this often whether the server is stopping.
const LOOK: Duration = Duration::from_millis(250);
/// Data that is still on its way when a test bounded by bytes ends is waited for as long as it comes.
const DRAIN: Duration = Duration::from_secs(2);

/// Why a test ended early.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error("{1}")]
    Refused(ServerError, String),
    #[error("the client gave up")]
    ClientTerminated,
    #[error("the server is stopping")]
    Stopping,
}

impl SessionError {
    /// The numbers that tell a stock client.
    fn code(&self) -> Option<ServerError> {
        match self {
            SessionError::Refused(code, _) => Some(*code),
            SessionError::Control(ControlError::Malformed(..) | ControlError::Unexpected(..)) => {
                Some(ServerError::MESSAGE)
            }
            SessionError::Control(ControlError::TimedOut(..)) => Some(ServerError::NO_DATA),
            _ => None,
        }
    }
}

fn refuse(code: ServerError, why: impl Into<String>) -> SessionError {
    SessionError::Refused(code, why.into())
}

/// Runs the test that begins with `cookie`.
pub(super) fn serve(shared: &Shared, arrival: Arrival, peer: SocketAddr, cookie: Cookie) {
    let event = |kind| Event::new(kind, Some(peer));
    let control = match Control::new(arrival.socket) {
        Ok(control) => control,
        Err(e) => return shared.log(event("test_failed").with("reason", e.to_string())),
    };
    let Some(_place) = Place::take(&shared.tests, shared.config.limits.clients) else {
        let _ = control.write_state(State::AccessDenied, "turning a client away");
        return shared.log(event("refused").with("reason", "too many clients"));
    };
    match (Session { shared, control: &control, peer, cookie }).run() {
        Ok(summary) => shared.log(summary),
        Err(e) => {
            match e.code() {
                Some(code) => control.refuse(code),
                None if matches!(e, SessionError::Stopping) => {
                    let _ = control.write_state(State::ServerTerminate, "stopping");
                }
                None => {}
            }
            part(control.socket());
            shared.log(event("test_failed").with("reason", e.to_string()));
        }
    }
    shared.finish();
}

/// Closes so that the last words arrive: a close with unread bytes would reset the connection.
fn part(socket: &TcpStream) {
    let _ = socket.shutdown(Shutdown::Write);
    let _ = socket.set_read_timeout(Some(Duration::from_millis(200)));
    let mut rest = [0; 4096];
    let deadline = Instant::now() + Duration::from_secs(1);
    while Instant::now() < deadline && matches!((&mut &*socket).read(&mut rest), Ok(1..)) {}
}

/// Answers probes at once until the test or the client is gone.
pub(super) fn echo(shared: &Shared, socket: &TcpStream, cookie: &Cookie) {
    let began = Instant::now();
    let _ = socket.set_nodelay(true);
    let _ = socket.set_read_timeout(Some(Duration::from_secs(1)));
    let _ = socket.set_write_timeout(Some(Duration::from_secs(1)));
    let mut probe = [0; extension::PROBE_LEN];
    let mut filled = 0;
    while !shared.stopping() && lock(&shared.waiting).contains_key(cookie) {
        match (&mut &*socket).read(&mut probe[filled..]) {
            Ok(0) => return,
            Ok(n) => filled += n,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => return,
        }
        if filled == probe.len() {
            probe[8..].copy_from_slice(&(began.elapsed().as_nanos() as u64).to_be_bytes());
            if (&mut &*socket).write_all(&probe).is_err() {
                return;
            }
            filled = 0;
        }
    }
}

/// What carries a stream.
enum Carrier {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

/// One stream at this end.
struct Stream {
    id: u64,
    sends: bool,
    carrier: Carrier,
    meter: Meter,
    /// Given back when the socket is closed.
    _place: admission::Place,
}

/// What a stream's counters stood at.
#[derive(Clone, Copy, Default)]
struct Mark {
    bytes: u64,
    packets: u64,
    lost: u64,
    retransmits: u64,
}

impl Stream {
    fn info(&self) -> Option<TcpInfo> {
        match &self.carrier {
            Carrier::Tcp(socket) => TcpInfo::of(socket).ok(),
            Carrier::Udp(_) => None,
        }
    }

    /// A TCP sender's bytes are those that were acknowledged: what is queued was not carried.
    fn mark(&self) -> Mark {
        let unacked = match &self.carrier {
            Carrier::Tcp(socket) if self.sends => transfer::unacked(socket),
            _ => 0,
        };
        Mark {
            bytes: self.meter.bytes().saturating_sub(unacked),
            packets: self.meter.packets(),
            lost: self.meter.lost(),
            retransmits: self.info().map_or(0, |i| i.total_retrans.into()),
        }
    }

    /// Ends the stream's thread. With `abort` the close to come resets the connection: its FIN is not sent,
    /// so the thread ends by its time-out.
    fn shut_down(&self, abort: bool) {
        if let Carrier::Tcp(socket) = &self.carrier {
            if abort {
                let _ = socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO));
            } else {
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
    }

    fn run(
        &self,
        params: &Params,
        cap: Option<Rate>,
        budget: Option<&Budget>,
        stop: &AtomicBool,
    ) -> io::Result<()> {
        let asked = (params.rate > 0).then(|| Rate::from_bits_per_sec(params.rate));
        let rate = asked.into_iter().chain(cap).min();
        let wide = params.udp_counters_64bit;
        match (&self.carrier, self.sends) {
            (Carrier::Tcp(socket), true) => {
                // A client that says iperf3's default did not choose it.
                let chosen = params.block != crate::iperf3::DEFAULT_TCP_BLOCK;
                let block = if chosen { params.block as usize } else { DEFAULT_SEND_BLOCK };
                transfer::send(socket, block, rate, budget, &self.meter, stop)
            }
            (Carrier::Tcp(socket), false) => transfer::discard(socket, cap, &self.meter, stop),
            (Carrier::Udp(socket), true) => {
                transfer::send_datagrams(socket, params.block as usize, wide, rate, budget, &self.meter, stop)
            }
            (Carrier::Udp(socket), false) => transfer::receive_datagrams(socket, wide, &self.meter, stop),
        }
    }
}

/// Lets a test's streams and probes in as long as it lives.
struct Registration<'a> {
    shared: &'a Shared,
    cookie: Cookie,
    udp: Option<u64>,
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        lock(&self.shared.waiting).remove(&self.cookie);
        if let Some(number) = self.udp {
            lock(&self.shared.udp_waiting).retain(|test| test.number != number);
        }
    }
}

struct Session<'a> {
    shared: &'a Shared,
    control: &'a Control,
    peer: SocketAddr,
    cookie: Cookie,
}

impl Session<'_> {
    fn run(&self) -> Result<Event, SessionError> {
        let limits = &self.shared.config.limits;
        self.control.write_state(State::ParamExchange, "asking for parameters")?;
        let text = self.control.read_text(MAX_PARAMS, "reading the parameters", limits.handshake)?;
        let params = Params::parse(&text).map_err(|e| refuse(ServerError::PARAMS, e.to_string()))?;
        self.check(&params)?;
        self.greet(&params)?;

        let (way_in, arrivals) = mpsc::channel();
        let test = Waiting {
            way_in,
            streams: if params.protocol == Protocol::Tcp { params.streams() } else { 0 },
            echoes: 0,
            told: false,
        };
        match lock(&self.shared.waiting).entry(self.cookie) {
            Entry::Vacant(place) => drop(place.insert(test)),
            Entry::Occupied(_) => return Err(refuse(ServerError::MESSAGE, "another test has this cookie")),
        }
        let mut registration = Registration { shared: self.shared, cookie: self.cookie, udp: None };
        let streams = match params.protocol {
            Protocol::Tcp => {
                self.control.write_state(State::CreateStreams, "asking for streams")?;
                self.tcp_streams(&params, &arrivals)?
            }
            Protocol::Udp => {
                let (way_in, arrivals) = mpsc::channel();
                let number = {
                    let mut waiting = lock(&self.shared.udp_waiting);
                    let number = waiting.iter().map(|test| test.number + 1).max().unwrap_or(0);
                    let (from, streams) = (self.peer.ip(), params.streams());
                    waiting.push(udp::Waiting { number, from, streams, way_in });
                    number
                };
                registration.udp = Some(number);
                self.control.write_state(State::CreateStreams, "asking for streams")?;
                let sockets = self.gather(params.streams(), &arrivals, |_| false)?;
                lock(&self.shared.udp_waiting).retain(|test| test.number != number);
                self.streams(
                    &params,
                    sockets.into_iter().map(|a| (Carrier::Udp(a.socket), a.place)).collect(),
                )
            }
        };
        let event = Event::new("test_started", Some(self.peer))
            .with("cookie", self.cookie.to_string())
            .with("client", params.client_version.clone())
            .with("protocol", if params.protocol == Protocol::Tcp { "tcp" } else { "udp" })
            .with("direction", direction(&params))
            .with("streams", params.parallel);
        self.shared.log(event);
        self.transfer(&params, &streams)
    }

    /// Refuses what the limits do not allow.
    fn check(&self, params: &Params) -> Result<(), SessionError> {
        let limits = &self.shared.config.limits;
        if params.seconds.saturating_add(params.omit) > limits.seconds {
            let why = format!("{} s asked for, {} s allowed", params.seconds + params.omit, limits.seconds);
            return Err(refuse(ServerError::DURATION, why));
        }
        if params.parallel > limits.streams {
            let why = format!("{} streams asked for, {} allowed", params.parallel, limits.streams);
            return Err(refuse(ServerError::STREAMS, why));
        }
        if let Some(rate) = limits.rate
            && params.rate.saturating_mul(params.parallel.into()) > rate.as_bits_per_sec()
        {
            let why = format!("{} bit/s × {} asked for, {rate} allowed", params.rate, params.parallel);
            return Err(refuse(ServerError::TOTAL_RATE, why));
        }
        // TCP's flow control holds a sender to what is read; a UDP sender does what it says, or worse.
        if let Some(rate) = limits.rate
            && params.protocol == Protocol::Udp
            && params.client_sends()
            && params.rate == 0
        {
            let why = format!("UDP without a bound on its rate asked for, {rate} allowed");
            return Err(refuse(ServerError::TOTAL_RATE, why));
        }
        if let (Some(most), Some(asked)) = (limits.bytes, params.byte_budget())
            && asked > most
        {
            return Err(refuse(ServerError::PARAMS, format!("{asked} bytes asked for, {most} allowed")));
        }
        if let Some(name) = params.congestion.as_deref().filter(|_| params.server_sends()) {
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)
                .map_err(|e| e.to_string())
                .and_then(|s| tcp_info::pin(&s, name).map_err(|e| e.to_string()))
                .map_err(|why| refuse(ServerError::CONGESTION, why))?;
        }
        Ok(())
    }

    /// Says hello to a fullpipe client and has it prove the secret, if there is one.
    fn greet(&self, params: &Params) -> Result<(), SessionError> {
        let secret = self.shared.config.secret.as_deref();
        let no_secret = || refuse(ServerError::AUTHENTICATION, "the client did not prove the secret");
        if params.extension.is_none() {
            return if secret.is_some() { Err(no_secret()) } else { Ok(()) };
        }
        let challenge = match secret {
            Some(_) => {
                Some(Cookie::random().map_err(|e| refuse(ServerError::MESSAGE, e.to_string()))?.to_string())
            }
            None => None,
        };
        let hello = extension::Hello {
            version: env!("CARGO_PKG_VERSION").into(),
            challenge: challenge.clone(),
            tcp_rmem: setting("tcp_rmem"),
            tcp_wmem: setting("tcp_wmem"),
        };
        self.control.write_extension(&json!(hello), "saying hello")?;
        if let (Some(secret), Some(challenge)) = (secret, challenge) {
            let text =
                self.control.read_text(1024, "reading the proof", self.shared.config.limits.handshake)?;
            let proof: extension::Proof = serde_json::from_slice(&text).map_err(|_| no_secret())?;
            if !extension::verify(secret, &self.cookie, &challenge, &proof) {
                return Err(no_secret());
            }
        }
        Ok(())
    }

    /// Waits for the test's streams, as long as the client is there.
    fn gather<T>(
        &self,
        count: usize,
        arrivals: &mpsc::Receiver<T>,
        gone: fn(&T) -> bool,
    ) -> Result<Vec<T>, SessionError> {
        let deadline = Instant::now() + self.shared.config.limits.handshake;
        let mut arrived = Vec::with_capacity(count);
        while arrived.len() < count {
            match arrivals.recv_timeout(Duration::from_millis(50)) {
                Ok(one) => arrived.push(one),
                Err(_) if self.shared.stopping() => return Err(SessionError::Stopping),
                Err(_) if Instant::now() >= deadline => {
                    let why = format!("{} of {count} streams connected in time", arrived.len());
                    return Err(refuse(ServerError::STREAM_ACCEPT, why));
                }
                // The client has nothing to say now, unless it leaves.
                Err(_) if self.control.readable(Duration::ZERO).unwrap_or(true) => {
                    self.told("waiting for the streams")?;
                }
                // Nor does it want the test when it closes a stream: the others are not to be held meanwhile.
                Err(_) if arrived.iter().any(gone) => break,
                Err(_) => {}
            }
        }
        if arrived.iter().any(gone) {
            return Err(refuse(ServerError::STREAM_ACCEPT, "a stream was closed before the test began"));
        }
        Ok(arrived)
    }

    /// Reads a state where only an end can come.
    fn told(&self, doing: &'static str) -> Result<(), SessionError> {
        match self.control.read_state(doing, Duration::from_secs(1))? {
            State::TestEnd => Ok(()),
            State::ClientTerminate | State::IperfDone => Err(SessionError::ClientTerminated),
            other => Err(ControlError::Unexpected(doing, other).into()),
        }
    }

    fn tcp_streams(
        &self,
        params: &Params,
        arrivals: &mpsc::Receiver<Arrival>,
    ) -> Result<Vec<Stream>, SessionError> {
        let mut arrived = self.gather(params.streams(), arrivals, |arrival| closed(&arrival.socket))?;
        // Threads read the cookies in any order; the client numbers streams by the order of connecting.
        arrived.sort_by_key(|arrival| arrival.number);
        for arrival in &arrived {
            prepare(&arrival.socket, params)
                .map_err(|e| refuse(ServerError::STREAM_ACCEPT, e.to_string()))?;
        }
        Ok(self.streams(params, arrived.into_iter().map(|a| (Carrier::Tcp(a.socket), a.place)).collect()))
    }

    /// Numbers the streams. In both directions at once, the client connects those it sends on first.
    fn streams(&self, params: &Params, carriers: Vec<(Carrier, admission::Place)>) -> Vec<Stream> {
        let numbered = carriers.into_iter().enumerate();
        numbered
            .map(|(index, (carrier, place))| {
                let sends =
                    if params.bidirectional { index >= params.parallel as usize } else { params.reverse };
                Stream { id: stream_id(index), sends, carrier, meter: Meter::default(), _place: place }
            })
            .collect()
    }

    fn transfer(&self, params: &Params, streams: &[Stream]) -> Result<Event, SessionError> {
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
                    streams.iter().for_each(|s| s.shut_down(false));
                    return (Err(refuse(ServerError::STREAM_ACCEPT, e.to_string())), Vec::new());
                }
            }
            let watched = self.watch(params, streams, began);
            let end = streams.iter().map(Stream::mark).collect();
            stop.store(true, Relaxed);
            streams.iter().for_each(|s| s.shut_down(abort));
            (watched, end)
        });
        let (from, seconds): (Vec<Mark>, f64) = measured?;
        self.results(params, streams, &from, &end, seconds, cpu.percent())
    }

    /// Sees to a test until its client ends it. Gives what the counters stood at when the omitted seconds
    /// were over, and the seconds since.
    fn watch(
        &self,
        params: &Params,
        streams: &[Stream],
        began: Instant,
    ) -> Result<(Vec<Mark>, f64), SessionError> {
        let limits = &self.shared.config.limits;
        let omit_until = began + Duration::from_secs(params.omit.into());
        let bounded = params.byte_budget();
        let seconds = if bounded.is_some() { limits.seconds } else { params.seconds + params.omit };
        let deadline = began + Duration::from_secs(seconds.into()) + GRACE;
        let report_every = params
            .extension
            .as_ref()
            .filter(|e| e.report_ms > 0 && params.server_sends() && params.protocol == Protocol::Tcp)
            .map(|e| Duration::from_millis(e.report_ms.max(10).into()));
        let mut next_report = report_every.map(|every| began + every);
        let mut from = None;
        if params.omit == 0 {
            from = Some((vec![Mark::default(); streams.len()], began));
        }
        let (mut moved, mut moved_at) = (0, began);
        loop {
            let now = Instant::now();
            let due = [next_report, from.is_none().then_some(omit_until)].into_iter().flatten().min();
            let wait = due.map_or(LOOK, |d| d.saturating_duration_since(now)).min(LOOK);
            let spoke =
                self.control.readable(wait).map_err(|e| ControlError::Io("waiting for the test's end", e))?;
            if spoke {
                self.told("waiting for the test's end")?;
                break;
            }
            if self.shared.stopping() {
                return Err(SessionError::Stopping);
            }
            let now = Instant::now();
            if from.is_none() && now >= omit_until {
                from = Some((streams.iter().map(Stream::mark).collect(), now));
            }
            if let (Some(at), Some(every)) = (next_report, report_every)
                && now >= at
            {
                next_report = Some((at + every).max(now));
                self.report(streams, began)?;
            }
            let total: u64 = streams.iter().map(|s| s.meter.bytes()).sum();
            if total != moved {
                (moved, moved_at) = (total, now);
            }
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
                let came: u64 = streams.iter().filter(|s| !s.sends).map(|s| s.meter.bytes()).sum();
                if came > allowed_by_now(rate, now - began) {
                    return Err(refuse(
                        ServerError::TOTAL_RATE,
                        format!("the client sends more than {rate}"),
                    ));
                }
            }
            if now > deadline {
                return Err(refuse(ServerError::DURATION_EXPIRED, "the client did not end its test"));
            }
        }
        if let Some(bytes) = bounded.filter(|_| params.client_sends() && params.protocol == Protocol::Tcp) {
            drain(streams, bytes);
        }
        let (marks, at) =
            from.unwrap_or_else(|| (streams.iter().map(Stream::mark).collect(), Instant::now()));
        Ok((marks, at.elapsed().as_secs_f64()))
    }

    /// Tells a fullpipe client how its senders do.
    fn report(&self, streams: &[Stream], began: Instant) -> Result<(), SessionError> {
        let sockets = streams
            .iter()
            .filter(|s| s.sends)
            .filter_map(|s| match &s.carrier {
                Carrier::Tcp(socket) => SocketSample::of(socket).ok().map(|sample| (s.id, sample)),
                Carrier::Udp(_) => None,
            })
            .collect();
        let report = extension::Report { seconds: began.elapsed().as_secs_f64(), sockets };
        Ok(self.control.write_extension(&json!(report), "reporting")?)
    }

    fn results(
        &self,
        params: &Params,
        streams: &[Stream],
        from: &[Mark],
        end: &[Mark],
        seconds: f64,
        cpu: [f64; 3],
    ) -> Result<Event, SessionError> {
        let handshake = self.shared.config.limits.handshake;
        let tcp_sender = params.server_sends() && params.protocol == Protocol::Tcp;
        let controller = streams.iter().find_map(|s| match &s.carrier {
            Carrier::Tcp(socket) => tcp_info::controller(socket).ok(),
            Carrier::Udp(_) => None,
        });
        let measured: Vec<StreamResults> = streams
            .iter()
            .zip(from.iter().zip(end))
            .map(|(s, (from, end))| StreamResults {
                id: s.id,
                bytes: end.bytes.saturating_sub(from.bytes),
                retransmits: (s.sends && tcp_sender)
                    .then(|| end.retransmits.saturating_sub(from.retransmits)),
                jitter: s.meter.jitter(),
                errors: end.lost.saturating_sub(from.lost),
                packets: end.packets.saturating_sub(from.packets),
                seconds,
            })
            .collect();
        let sum = |sends| -> u64 {
            streams.iter().zip(&measured).filter(|(s, _)| s.sends == sends).map(|(_, m)| m.bytes).sum()
        };
        let (sent, received) = (sum(true), sum(false));
        let mut event = Event::new("test_finished", Some(self.peer))
            .with("cookie", self.cookie.to_string())
            .with("direction", direction(params))
            .with("streams", params.parallel)
            .with("seconds", seconds)
            .with("sent", sent)
            .with("received", received);
        if let Some(name) = &controller {
            event = event.with("controller", name.clone());
        }
        let results = Results {
            cpu,
            has_retransmits: params.server_sends().then_some(tcp_sender),
            congestion_used: controller,
            streams: measured,
            server_output: params.get_server_output.then(|| format!("{event}\n")),
        };
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

/// Whether the peer has closed this connection, or it broke.
fn closed(socket: &TcpStream) -> bool {
    use nix::sys::socket::{MsgFlags, recv};
    let peeked = recv(socket.as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT);
    !matches!(peeked, Ok(1..) | Err(nix::Error::EAGAIN | nix::Error::EINTR))
}

/// Waits for bytes that were sent before the test's end and are on their way.
fn drain(streams: &[Stream], expected: u64) {
    let received = || -> u64 { streams.iter().filter(|s| !s.sends).map(|s| s.meter.bytes()).sum() };
    let (mut last, mut last_at) = (received(), Instant::now());
    while last < expected && last_at.elapsed() < DRAIN {
        std::thread::sleep(Duration::from_millis(5));
        let now = received();
        if now != last {
            (last, last_at) = (now, Instant::now());
        }
    }
}

/// What a client that keeps to `rate` can have sent: a tenth more, for a clock of its own, and what waited in
/// queues on the way, a second's worth.
fn allowed_by_now(rate: Rate, elapsed: Duration) -> u64 {
    let bytes = rate.bytes_in(Span::from_nanos(elapsed.as_nanos() as u64));
    bytes.saturating_add(bytes / 10).saturating_add(rate.as_bytes_per_sec())
}

fn direction(params: &Params) -> &'static str {
    match (params.bidirectional, params.reverse) {
        (true, _) => "bidirectional",
        (_, true) => "reverse",
        _ => "forward",
    }
}

/// Sets what the client asked for on a stream's socket.
fn prepare(socket: &TcpStream, params: &Params) -> io::Result<()> {
    let options = socket2::SockRef::from(socket);
    if params.window > 0 {
        options.set_recv_buffer_size(params.window as usize)?;
        options.set_send_buffer_size(params.window as usize)?;
    }
    if params.no_delay {
        socket.set_nodelay(true)?;
    }
    if params.extension.as_ref().is_some_and(|e| e.abort) {
        socket.set_read_timeout(Some(LOOK))?;
        socket.set_write_timeout(Some(LOOK))?;
    }
    if params.mss > 0 {
        options.set_tcp_mss(params.mss)?;
    }
    if params.tos > 0 {
        // Of the two, the one of the socket's family takes effect.
        let _ = (options.set_tos_v4(params.tos.into()), options.set_tclass_v6(params.tos.into()));
    }
    if let Some(name) = &params.congestion {
        let pinned = tcp_info::pin(socket, name);
        // Only a sender needs it.
        if params.server_sends() {
            pinned.map_err(io::Error::other)?;
        }
    }
    Ok(())
}
