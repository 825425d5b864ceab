//! Tests of iperf 2 over TCP.
//!
//! Each connection has its own header. Those of a test with several are found by the client's
//! address and the header, and share the test's place and limits.

pub(super) mod udp;

use super::watch::Watch;
use super::{Arrival, Event, Shared, admission, drain, lock, read_more};
use crate::iperf2::{self, Amount, Header, Mode};
use crate::transfer::{
    Allowance, Budget, DEFAULT_SEND_BLOCK, Endpoint, Numbering, StreamOptions, Transport, is_excess,
};
use fullpipe_kernel::{socket, tcp_info};
use fullpipe_units::Rate;
use std::io::{self, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// Maximum time to a check of the limits; also how long a write blocks.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How long the connections of a test are awaited.
const MAX_GATHERING: Duration = Duration::from_secs(5);
/// How long connections back may be refused.
const MAX_REFUSAL: Duration = Duration::from_secs(5);
/// The beginning of a connection back: servers take the first four bytes for flags, and these have
/// none.
const NO_FLAGS: &[u8] = b"01234567890123456789012345678901";

/// A test, with all its connections.
pub(super) struct Test {
    from: IpAddr,
    header: Header,
    received: Option<Budget>,
    began: Instant,
    state: Mutex<State>,
    _permit: admission::Permit,
}

#[derive(Default)]
struct State {
    /// Connections so far, and those that are not finished.
    joined: u32,
    active: u32,
    moved: Moved,
    failed: Option<String>,
}

/// What connections transferred, and the longest time in each direction.
#[derive(Default)]
struct Moved {
    sent: u64,
    sent_seconds: f64,
    received: u64,
    received_seconds: f64,
    controller: Option<String>,
}

impl Moved {
    fn add(&mut self, other: Moved) {
        self.sent += other.sent;
        self.received += other.received;
        self.sent_seconds = self.sent_seconds.max(other.sent_seconds);
        self.received_seconds = self.received_seconds.max(other.received_seconds);
        self.controller = other.controller.or(self.controller.take());
    }
}

/// Serves a connection that began with `first`.
pub(super) fn serve(shared: &Shared, arrival: Arrival, peer: SocketAddr, first: &[u8]) {
    let refused = |arrival: &Arrival, reason: String| {
        shared.log(Event::new("refused", Some(peer)).with("client", "iperf 2").with("reason", reason));
        drain(shared, &arrival.socket, arrival.account.as_deref());
    };
    let (header, length) = match read_header(shared, &arrival, first) {
        Ok(read) => read,
        Err(reason) => return refused(&arrival, reason),
    };
    let test = match join(shared, peer, header) {
        Ok(test) => test,
        Err(reason) => return refused(&arrival, reason),
    };
    let result = Connection { shared, test: &test, arrival, peer }.run(length);
    let (moved, failed) = match result {
        Ok(moved) => (moved, None),
        Err((moved, why)) => (moved, Some(why)),
    };
    // A short test may end on some connections before the others arrive.
    while failed.is_none()
        && lock(&test.state).joined < test.header.threads
        && test.began.elapsed() < MAX_GATHERING
        && !shared.stopping()
    {
        std::thread::sleep(Duration::from_millis(20));
    }
    leave(shared, &test, peer, moved, failed);
}

/// Reads the rest of the header; also returns the number of bytes read.
fn read_header(shared: &Shared, arrival: &Arrival, first: &[u8]) -> Result<(Header, usize), String> {
    let Some(length) = iperf2::header_len(first) else { return Ok((Header::absent(), first.len())) };
    let mut bytes = vec![0; length.max(first.len())];
    bytes[..first.len()].copy_from_slice(first);
    let mut filled = first.len();
    let mut deadline = Instant::now() + shared.config.limits.handshake;
    while filled < bytes.len() {
        read_more(shared, arrival, &mut bytes, &mut filled, &mut deadline)?;
    }
    Ok((Header::parse(&bytes).map_err(|e| e.to_string())?, filled))
}

/// Why a test exceeds the limits, if it does.
fn excess(shared: &Shared, header: &Header) -> Option<String> {
    let limits = &shared.config.limits;
    if shared.config.secret.is_some() {
        return Some("this server requires a secret, which iperf 2 cannot prove".to_owned());
    }
    if header.threads > limits.streams {
        return Some(format!("{} connections requested, {} allowed", header.threads, limits.streams));
    }
    let connects_back = matches!(header.mode, Mode::Dual | Mode::TradeOff);
    if connects_back && !shared.connect_back_ports().contains(&header.port) {
        return Some(format!(
            "a connection back to port {} requested; only the server's own are allowed",
            header.port
        ));
    }
    match header.amount {
        Amount::Time(time) if time > Duration::from_secs(limits.seconds.into()) => {
            Some(format!("{} s requested, {} s allowed", time.as_secs_f64(), limits.seconds))
        }
        Amount::Bytes(each) => {
            let all = each.saturating_mul(header.threads.max(1).into());
            let max = limits.bytes.filter(|&max| all > max)?;
            Some(format!("{all} bytes requested, {max} allowed"))
        }
        Amount::Time(_) => None,
    }
}

/// Finds the test of a connection, or begins one.
fn join(shared: &Shared, peer: SocketAddr, header: Header) -> Result<Arc<Test>, String> {
    if let Some(why) = excess(shared, &header) {
        return Err(why);
    }
    let mut tests = lock(&shared.iperf2);
    let waiting = tests.iter().find(|test| {
        test.from == peer.ip() && test.header == header && lock(&test.state).joined < header.threads
    });
    if let Some(test) = waiting {
        let mut state = lock(&test.state);
        (state.joined, state.active) = (state.joined + 1, state.active + 1);
        return Ok(Arc::clone(test));
    }
    let permit = shared.clients.acquire(peer.ip()).map_err(|full| full.clients_reason().to_owned())?;
    let event = Event::new("test_started", Some(peer))
        .with("client", client(&header))
        .with("protocol", "tcp")
        .with("direction", header.mode.name())
        .with("streams", header.threads.max(1));
    shared.log(event);
    let test = Arc::new(Test {
        from: peer.ip(),
        header,
        received: shared.config.limits.bytes.map(Budget::limit),
        began: Instant::now(),
        state: Mutex::new(State { joined: 1, active: 1, ..State::default() }),
        _permit: permit,
    });
    tests.push(Arc::clone(&test));
    Ok(test)
}

fn client(header: &Header) -> String {
    header.version.as_ref().map_or("iperf 2".to_owned(), |version| format!("iperf {version}"))
}

/// Adds what a connection transferred; the last one reports the test.
fn leave(shared: &Shared, test: &Arc<Test>, peer: SocketAddr, moved: Moved, failed: Option<String>) {
    let mut tests = lock(&shared.iperf2);
    let mut state = lock(&test.state);
    state.active -= 1;
    state.moved.add(moved);
    state.failed = state.failed.take().or(failed);
    if state.active > 0 {
        return;
    }
    tests.retain(|other| !Arc::ptr_eq(other, test));
    drop(tests);
    let (moved, streams) = (std::mem::take(&mut state.moved), state.joined);
    let failed = state.failed.take();
    let kind = if failed.is_some() { "test_failed" } else { "test_finished" };
    let mut event = Event::new(kind, Some(peer))
        .with("client", client(&test.header))
        .with("direction", test.header.mode.name())
        .with("streams", streams)
        .with("sent", moved.sent)
        .with("received", moved.received);
    for (name, bytes, seconds) in [
        ("sent_report", moved.sent, moved.sent_seconds),
        ("received_report", moved.received, moved.received_seconds),
    ] {
        if seconds > 0.0 {
            event = event.with(name, iperf2::line(bytes, seconds));
        }
    }
    if let Some(controller) = moved.controller {
        event = event.with("controller", controller);
    }
    if let Some(reason) = failed {
        event = event.with("reason", reason);
    }
    shared.log(event);
    shared.finish(true);
}

/// One connection of a test.
struct Connection<'a> {
    shared: &'a Shared,
    test: &'a Test,
    arrival: Arrival,
    peer: SocketAddr,
}

/// A socket's directions at this end.
struct Lane {
    endpoint: Endpoint,
    /// Whether what is received counts: where the server sends, only the end is awaited.
    counts: bool,
}

/// The two directions of a socket.
fn lanes(socket: &TcpStream, sends: bool, receives: bool) -> io::Result<Vec<Lane>> {
    socket.set_write_timeout(Some(POLL_INTERVAL))?;
    let lane = |sends, counts| {
        let transport = Transport::Tcp(socket.try_clone()?);
        Ok::<_, io::Error>(Lane { endpoint: Endpoint::new(1, sends, transport), counts })
    };
    let mut lanes = vec![lane(false, receives)?];
    if sends {
        lanes.push(lane(true, true)?);
    }
    Ok(lanes)
}

/// Those of a connection back, whose beginning is sent.
fn lanes_back(socket: &TcpStream) -> io::Result<Vec<Lane>> {
    let lanes = lanes(socket, true, false)?;
    lanes.iter().filter(|l| l.endpoint.sends).for_each(|l| l.endpoint.meter.add_bytes(NO_FLAGS.len() as u64));
    Ok(lanes)
}

impl Connection<'_> {
    /// Transfers until both ends are done. `length` bytes are read already.
    fn run(&self, length: usize) -> Result<Moved, (Moved, String)> {
        let header = &self.test.header;
        let failed = |e: io::Error| (Moved::default(), e.to_string());
        let mode = header.mode;
        if header.wants_ack
            && self
                .arrival
                .account
                .as_ref()
                .is_none_or(|account| account.send_message(iperf2::ACK_LEN, &self.arrival.socket))
        {
            (&self.arrival.socket).write_all(&iperf2::ack()).map_err(failed)?;
        }
        let sends = matches!(mode, Mode::Reverse | Mode::FullDuplex);
        let mut all = lanes(&self.arrival.socket, sends, mode != Mode::Reverse).map_err(failed)?;
        all[0].endpoint.meter.add_bytes(length as u64);
        if let Some(budget) = &self.test.received {
            budget.charge(length).map_err(failed)?;
        }
        // The permit of the other connection is held to the end.
        let back = if mode == Mode::Dual {
            Some(self.connect_back().map_err(|e| (Moved::default(), e))?)
        } else {
            None
        };
        if let Some((socket, _)) = &back {
            all.extend(lanes_back(socket).map_err(failed)?);
        }
        let mut moved = self.transfer(&all)?;
        drop(all);
        if mode == Mode::TradeOff {
            // The client's sending connection ends first.
            let _ = self.arrival.socket.shutdown(Shutdown::Both);
            let connected = self.connect_back();
            let (socket, _permit) = match connected {
                Ok(connected) => connected,
                Err(why) => return Err((moved, why)),
            };
            match lanes_back(&socket) {
                Ok(lanes) => moved.add(self.transfer(&lanes).map_err(|(_, why)| (Moved::default(), why))?),
                Err(e) => return Err((moved, e.to_string())),
            }
        }
        Ok(moved)
    }

    /// Connects to the port that the client listens on, at its own address and one of this server's
    /// ports only: a proxy or an address translator could otherwise reach other services.
    fn connect_back(&self) -> Result<(TcpStream, admission::Permit), String> {
        let port = self.test.header.port;
        let shared = self.shared;
        let permit = shared.admission.acquire(self.peer.ip()).map_err(|full| full.reason().to_owned())?;
        let address = SocketAddr::new(self.peer.ip(), port);
        let connect = || -> io::Result<TcpStream> {
            let socket = socket::tcp(address)?;
            if let Some(name) = &shared.config.controller {
                tcp_info::pin(&socket, name).map_err(io::Error::other)?;
            }
            socket::start_connect(&socket, address)?;
            let deadline = Instant::now() + shared.config.limits.handshake;
            while !socket::is_connected(&socket, POLL_INTERVAL)? {
                if shared.stopping() || Instant::now() >= deadline {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            (&socket).write_all(NO_FLAGS)?;
            Ok(socket)
        };
        // The client may not listen yet.
        let began = Instant::now();
        loop {
            match connect() {
                Ok(socket) => return Ok((socket, permit)),
                Err(e)
                    if e.kind() == io::ErrorKind::ConnectionRefused
                        && began.elapsed() < MAX_REFUSAL
                        && !shared.stopping() =>
                {
                    std::thread::sleep(Duration::from_millis(50));
                }
                Err(e) => return Err(format!("cannot connect back to {address}: {e}")),
            }
        }
    }

    /// Runs the lanes until all have ended.
    fn transfer(&self, lanes: &[Lane]) -> Result<Moved, (Moved, String)> {
        let (shared, header) = (self.shared, &self.test.header);
        let account = self.arrival.account.as_deref();
        let options = StreamOptions {
            block: if header.block == 0 { DEFAULT_SEND_BLOCK } else { header.block as usize },
            whole_blocks: false,
            rate: (header.rate > 0).then(|| Rate::from_bits_per_sec(header.rate)),
            numbering: Numbering::Iperf2,
        };
        let (send_for, seconds) = match header.amount {
            Amount::Time(time) if !time.is_zero() => (Some(time), time.as_secs() as u32 + 1),
            _ => (None, shared.config.limits.seconds),
        };
        let sent = match header.amount {
            Amount::Bytes(bytes) => {
                let begun: u64 =
                    lanes.iter().map(|l| if l.endpoint.sends { l.endpoint.meter.bytes() } else { 0 }).sum();
                Some(Budget::new(bytes.saturating_sub(begun)))
            }
            Amount::Time(_) => shared.config.limits.bytes.map(Budget::limit),
        };
        let (stop, sent_all) = (AtomicBool::new(false), AtomicBool::new(false));
        let began = Instant::now();
        let mut ended = vec![0.0; lanes.len()];
        let result = std::thread::scope(|scope| {
            let (sender, results) = mpsc::channel();
            for (index, Lane { endpoint, .. }) in lanes.iter().enumerate() {
                let (sender, options) = (sender.clone(), &options);
                let allowance = if endpoint.sends {
                    Allowance { bucket: account.map(|account| &account.sent), budget: sent.as_ref() }
                } else {
                    let budget = self.test.received.as_ref();
                    Allowance { bucket: account.map(|account| &account.received), budget }
                };
                let until = if endpoint.sends { &sent_all } else { &stop };
                let run = move || {
                    let result = endpoint.run(options, allowance, until);
                    endpoint.finish_sending();
                    let _ = sender.send((index, result, began.elapsed().as_secs_f64()));
                };
                if let Err(e) = std::thread::Builder::new().stack_size(256 * 1024).spawn_scoped(scope, run) {
                    end(lanes, &[&stop, &sent_all]);
                    return Err(e.to_string());
                }
            }
            let mut watch = Watch::new(began);
            let mut left = lanes.len();
            let mut result = Ok(());
            while left > 0 {
                let due = send_for.filter(|_| !sent_all.load(Relaxed));
                let wait = due.map_or(POLL_INTERVAL, |due| due.saturating_sub(began.elapsed()));
                if let Ok((index, run, seconds)) = results.recv_timeout(wait.min(POLL_INTERVAL)) {
                    (left, ended[index]) = (left - 1, seconds);
                    // Any other failure is a client that ended early.
                    if let Err(e) = run
                        && is_excess(&e)
                        && result.is_ok()
                    {
                        result = Err(e.to_string());
                    }
                }
                if due.is_some_and(|due| began.elapsed() >= due) {
                    sent_all.store(true, Relaxed);
                }
                if result.is_ok() && left > 0 {
                    let endpoints = || lanes.iter().map(|lane| &lane.endpoint);
                    let watched = watch.check(shared, endpoints, Instant::now(), seconds);
                    result = watched.map_err(|(_, why)| why);
                    if shared.stopping() {
                        result = Err("the server is stopping".to_owned());
                    }
                }
                if result.is_err() {
                    end(lanes, &[&stop, &sent_all]);
                }
            }
            result
        });
        let mut moved = Moved::default();
        for (Lane { endpoint, .. }, &seconds) in lanes.iter().zip(&ended).filter(|(lane, _)| lane.counts) {
            if endpoint.sends {
                moved.sent += endpoint.progress();
                moved.sent_seconds = seconds;
                moved.controller = endpoint.controller();
            } else {
                moved.received += endpoint.meter.bytes();
                moved.received_seconds = seconds;
            }
        }
        match result {
            Ok(()) => Ok(moved),
            Err(why) => Err((moved, why)),
        }
    }
}

/// Ends all lanes at once.
fn end(lanes: &[Lane], stops: &[&AtomicBool]) {
    stops.iter().for_each(|stop| stop.store(true, Relaxed));
    lanes.iter().for_each(|lane| lane.endpoint.shut_down(false));
}
