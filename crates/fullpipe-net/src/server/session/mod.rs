//! One iperf3 test, from cookie to completion.

mod stream;
mod transfer;

use super::{Arrival, Event, Shared, Waiting, admission, drain, lock, receive, udp};
use crate::control::{Control, ControlError, readable};
use crate::diagnose::setting;
use crate::iperf3::{Cookie, MAX_PARAMS, Params, Protocol, ServerError, State, extension, stream_id};
use crate::transfer::{Endpoint, Transport};
use fullpipe_kernel::socket;
use serde_json::json;
use std::cell::Cell;
use std::collections::hash_map::Entry;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use stream::Stream;

/// Why a test failed.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error("{1}")]
    Refused(ServerError, String),
    #[error("the client terminated the test")]
    ClientTerminated,
    #[error("the server is stopping")]
    Stopping,
}

impl SessionError {
    /// The error number for a stock client.
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

/// Runs the test identified by `cookie`.
pub(super) fn serve(shared: &Shared, arrival: Arrival, peer: SocketAddr, cookie: Cookie) {
    let event = |kind| Event::new(kind, Some(peer));
    let control = match Control::new(arrival.socket) {
        Ok(control) => control.with_account(arrival.account),
        Err(e) => return shared.log(event("test_failed").with("reason", e.to_string())),
    };
    let place = match shared.clients.acquire(peer.ip()) {
        Ok(permit) => Cell::new(Some(permit)),
        Err(full) => {
            let _ = control.write_state(State::AccessDenied, "refusing a client");
            return shared.log(event("refused").with("reason", full.clients_reason()));
        }
    };
    let session = Session { shared, control: &control, peer, cookie, admitted: Cell::new(false), place };
    match session.run() {
        Ok(summary) => shared.log(summary),
        Err(e) => {
            match e.code() {
                Some(code) => control.refuse(code),
                None if matches!(e, SessionError::Stopping) => {
                    let _ = control.write_state(State::ServerTerminate, "stopping");
                }
                None => {}
            }
            drain(shared, control.socket(), control.account());
            shared.log(event("test_failed").with("reason", e.to_string()));
        }
    }
    shared.finish(session.admitted.get());
}

/// Echoes probes until the test or the client is gone.
pub(super) fn echo(shared: &Shared, arrival: &Arrival, cookie: &Cookie) {
    let (socket, account) = (&arrival.socket, arrival.account.as_deref());
    let began = Instant::now();
    let _ = socket.set_nodelay(true);
    let _ = socket.set_read_timeout(Some(Duration::from_secs(1)));
    let _ = socket.set_write_timeout(Some(Duration::from_secs(1)));
    let mut probe = [0; extension::PROBE_LEN];
    let mut filled = 0;
    while !shared.stopping() && lock(&shared.waiting).contains_key(cookie) {
        match readable(socket, Duration::from_secs(1)) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(_) => return,
        }
        // Waiting for the account must not end the connection: it has no deadline.
        match receive(account, socket, &mut probe[filled..], &mut Instant::now()) {
            Ok(0) => return,
            Ok(n) => filled += n,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => return,
        }
        if filled == probe.len() {
            if account.is_some_and(|account| !account.send_message(probe.len(), socket)) {
                return;
            }
            probe[8..].copy_from_slice(&(began.elapsed().as_nanos() as u64).to_be_bytes());
            if (&mut &*socket).write_all(&probe).is_err() {
                return;
            }
            filled = 0;
        }
    }
}

/// Registers a test's streams and probes until dropped.
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
    /// Whether the client has sent valid parameters, and the secret if one is required.
    admitted: Cell<bool>,
    /// One of the tests that may run at a time, until the results are sent.
    place: Cell<Option<admission::Permit>>,
}

impl Session<'_> {
    fn run(&self) -> Result<Event, SessionError> {
        let limits = &self.shared.config.limits;
        self.control.write_state(State::ParamExchange, "requesting parameters")?;
        let text = self.control.read_text(MAX_PARAMS, "reading the parameters", limits.handshake)?;
        let params = Params::parse(&text).map_err(|e| refuse(ServerError::PARAMS, e.to_string()))?;
        self.check(&params)?;
        self.handshake(&params)?;
        self.admitted.set(true);
        if params.protocol == Protocol::Udp && params.server_sends() {
            self.enable_keepalive();
        }
        // After the secret: the kernel may load a module.
        if let Some(name) = params.congestion.as_deref().filter(|_| params.server_sends()) {
            socket::tcp((Ipv4Addr::UNSPECIFIED, 0).into())
                .map_err(|e| e.to_string())
                .and_then(|s| self.shared.pin(&s, name).map_err(|e| e.to_string()))
                .map_err(|why| refuse(ServerError::CONGESTION, why))?;
        }

        let (sender, arrivals) = mpsc::channel();
        let test = Waiting {
            sender,
            streams: if params.protocol == Protocol::Tcp { params.streams() } else { 0 },
            echoes: 0,
            logged: false,
        };
        match lock(&self.shared.waiting).entry(self.cookie) {
            Entry::Vacant(slot) => drop(slot.insert(test)),
            Entry::Occupied(_) => return Err(refuse(ServerError::MESSAGE, "another test uses this cookie")),
        }
        let mut registration = Registration { shared: self.shared, cookie: self.cookie, udp: None };
        let streams = match params.protocol {
            Protocol::Tcp => {
                self.control.write_state(State::CreateStreams, "requesting streams")?;
                self.tcp_streams(&params, &arrivals)?
            }
            Protocol::Udp => {
                let (sender, arrivals) = mpsc::channel();
                let number = {
                    let mut waiting = lock(&self.shared.udp_waiting);
                    let number = waiting.iter().map(|test| test.number + 1).max().unwrap_or(0);
                    let (from, streams) = (self.peer.ip(), params.streams());
                    waiting.push(udp::Waiting { number, from, streams, sender });
                    number
                };
                registration.udp = Some(number);
                self.control.write_state(State::CreateStreams, "requesting streams")?;
                let sockets = self.collect_streams(params.streams(), &arrivals, |_| false)?;
                lock(&self.shared.udp_waiting).retain(|test| test.number != number);
                self.streams(
                    &params,
                    sockets.into_iter().map(|a| (Transport::Udp(a.socket), a.permit)).collect(),
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

    /// Enables TCP keepalive on the control connection. Sending datagrams succeeds without a client,
    /// so the idle timeout does not end such a test.
    fn enable_keepalive(&self) {
        let Keepalive { idle, interval, probes } = Keepalive::within(self.shared.config.limits.idle);
        // If this fails, such a test lasts as long as the client requested.
        let _ = socket::keep_alive(self.control.socket(), idle, interval, probes);
    }

    /// Refuses parameters that exceed the limits.
    fn check(&self, params: &Params) -> Result<(), SessionError> {
        let limits = &self.shared.config.limits;
        if params.seconds.saturating_add(params.omit) > limits.seconds {
            let why = format!("{} s requested, {} s allowed", params.seconds + params.omit, limits.seconds);
            return Err(refuse(ServerError::DURATION, why));
        }
        if params.parallel > limits.streams {
            let why = format!("{} streams requested, {} allowed", params.parallel, limits.streams);
            return Err(refuse(ServerError::STREAMS, why));
        }
        if let Some(rate) = limits.rate
            && params.rate.saturating_mul(params.parallel.into()) > rate.as_bits_per_sec()
        {
            let why = format!("{} bit/s × {} requested, {rate} allowed", params.rate, params.parallel);
            return Err(refuse(ServerError::TOTAL_RATE, why));
        }
        // TCP flow control limits a sender to what is read; a UDP sender is only limited by its own
        // rate.
        if let Some(rate) = limits.rate
            && params.protocol == Protocol::Udp
            && params.client_sends()
            && params.rate == 0
        {
            let why = format!("UDP without a rate limit requested, {rate} allowed");
            return Err(refuse(ServerError::TOTAL_RATE, why));
        }
        if let (Some(max), Some(asked)) = (limits.bytes, params.byte_budget())
            && asked > max
        {
            return Err(refuse(ServerError::PARAMS, format!("{asked} bytes requested, {max} allowed")));
        }
        Ok(())
    }

    /// Sends the hello to a fullpipe client and verifies its proof of the secret, if there is one.
    fn handshake(&self, params: &Params) -> Result<(), SessionError> {
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
        self.control.write_extension(&json!(hello), "sending the hello")?;
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

    /// Waits for the test's streams while the client is connected.
    fn collect_streams<T>(
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
                // The client sends nothing now unless it terminates.
                Err(_) if self.control.readable(Duration::ZERO).unwrap_or(true) => {
                    self.read_end("waiting for the streams")?;
                }
                // A closed stream also ends the test, so that the others are not held.
                Err(_) if arrived.iter().any(gone) => break,
                Err(_) => {}
            }
        }
        if arrived.iter().any(gone) {
            return Err(refuse(ServerError::STREAM_ACCEPT, "a stream was closed before the test began"));
        }
        Ok(arrived)
    }

    /// Reads a state where only an end of the test is valid.
    fn read_end(&self, doing: &'static str) -> Result<(), SessionError> {
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
        let mut arrived =
            self.collect_streams(params.streams(), arrivals, |arrival| stream::closed(&arrival.socket))?;
        // Cookies are read in any order; clients number streams in the order of connecting.
        arrived.sort_by_key(|arrival| arrival.number);
        for arrival in &arrived {
            stream::prepare(self.shared, &arrival.socket, params)
                .map_err(|e| refuse(ServerError::STREAM_ACCEPT, e.to_string()))?;
        }
        Ok(self.streams(params, arrived.into_iter().map(|a| (Transport::Tcp(a.socket), a.permit)).collect()))
    }

    /// Numbers the streams. For bidirectional tests, clients connect their sending streams first.
    fn streams(&self, params: &Params, transports: Vec<(Transport, admission::Permit)>) -> Vec<Stream> {
        let numbered = transports.into_iter().enumerate();
        numbered
            .map(|(index, (transport, permit))| {
                let sends =
                    if params.bidirectional { index >= params.parallel as usize } else { params.reverse };
                Stream { endpoint: Endpoint::new(stream_id(index), sends, transport), _permit: permit }
            })
            .collect()
    }
}

/// TCP keepalive, in seconds.
struct Keepalive {
    idle: u32,
    interval: u32,
    probes: u32,
}

impl Keepalive {
    /// Notices a lost peer within `timeout`, but not before 4 s. A test of datagrams may lose most
    /// packets by its own load, so there are as many probes as possible: one answer keeps the
    /// connection.
    fn within(timeout: Duration) -> Keepalive {
        /// Maximum of an option of the kernel (`MAX_TCP_KEEPIDLE`, `MAX_TCP_KEEPINTVL`).
        const MAX_SECONDS: u64 = 32_767;
        /// `MAX_TCP_KEEPCNT`.
        const MAX_PROBES: u64 = 127;
        let timeout = timeout.as_secs();
        let idle = (timeout / 4).clamp(1, MAX_SECONDS);
        let interval = (timeout / (MAX_PROBES + 1)).clamp(1, MAX_SECONDS);
        let probes = (timeout.saturating_sub(idle) / interval).clamp(3, MAX_PROBES);
        Keepalive { idle: idle as u32, interval: interval as u32, probes: probes as u32 }
    }
}

fn direction(params: &Params) -> &'static str {
    match (params.bidirectional, params.reverse) {
        (true, _) => "bidirectional",
        (_, true) => "reverse",
        _ => "forward",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keepalive_sends_many_probes_and_ends_within_the_timeout() {
        for (timeout, expected) in [
            (0, [1, 1, 3]),
            (8, [2, 1, 6]),
            (60, [15, 1, 45]),
            (3600, [900, 28, 96]),
            (u64::MAX, [32_767, 32_767, 127]),
        ] {
            let Keepalive { idle, interval, probes } = Keepalive::within(Duration::from_secs(timeout));
            assert_eq!([idle, interval, probes], expected, "{timeout} s");
            assert!(u64::from(idle + interval * probes) <= timeout.max(4), "{timeout} s");
        }
        // Of the probes in the default timeout, one is answered in 99 of 100 cases at 90 % loss.
        let default = Keepalive::within(crate::server::Limits::default().idle);
        assert!(0.9_f64.powi(default.probes as i32) < 0.01);
    }
}
