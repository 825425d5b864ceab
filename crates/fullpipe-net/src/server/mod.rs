//! The measuring server: stock iperf3 clients, fullpipe clients, curl, wget and browsers,
//! concurrently on one port.
//!
//! The first bytes of a connection identify its protocol: an HTTP request line or a cookie. Each
//! connection has a thread; idle threads cost a few kilobytes, and threads that transfer data do
//! nothing else.

mod accounts;
mod admission;
mod confinement;
mod event;
mod http;
#[cfg(feature = "rpm")]
mod http2;
mod iperf2;
mod limits;
mod session;
mod throttle;
mod udp;
mod watch;

pub use admission::raise_descriptor_limit;
pub use event::Event;
#[cfg(feature = "rpm")]
pub use http2::Pem;
pub use limits::{Limits, MIN_BYTES_PER_SECOND, Network};

pub(crate) use crate::account::{Account, receive};

use crate::control::readable;
use crate::foreign;
use crate::iperf3::{COOKIE_LEN, Cookie};
use crate::transfer::{Grant, PACKET};
use accounts::Accounts;
use admission::Admission;
use fullpipe_kernel::tcp_info::{self, LINUX_CONTROLLERS, PinError};
use fullpipe_kernel::{facts, socket};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use nix::sys::socket::{setsockopt, sockopt};
use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};
use throttle::Throttle;

/// Configuration of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// Listen address; `None` for all, IPv6 and IPv4.
    pub address: Option<IpAddr>,
    /// Port; 0 for any free port.
    pub port: u16,
    /// Another port, where iperf 2 clients look for a server; 0 for any free port. Not opened if it is
    /// in use.
    pub iperf2_port: Option<u16>,
    /// Limits for clients.
    pub limits: Limits,
    /// The secret that clients must prove, if any.
    pub secret: Option<String>,
    /// Networks that may connect; empty for all.
    pub allow: Vec<Network>,
    /// Stop after the first test.
    pub one_off: bool,
    /// Default controller for sockets; `None` for the system default.
    pub controller: Option<String>,
    /// The certificate for TLS; `None` for one that is made on the spot.
    #[cfg(feature = "rpm")]
    pub certificate: Option<Pem>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            address: None,
            port: 5201,
            iperf2_port: None,
            limits: Limits::default(),
            secret: None,
            allow: Vec::new(),
            one_off: false,
            controller: None,
            #[cfg(feature = "rpm")]
            certificate: None,
        }
    }
}

/// A stream's connection.
struct Arrival {
    /// Position in the order of connecting.
    number: u64,
    socket: TcpStream,
    permit: admission::Permit,
    account: Option<Arc<Account>>,
}

/// A test that waits for its streams.
struct Waiting {
    sender: mpsc::Sender<Arrival>,
    /// Streams not yet connected.
    streams: usize,
    /// Echo connections.
    echoes: usize,
    /// Whether an excess stream was logged.
    logged: bool,
}

/// Connections, or datagrams, that are handled before the others and a stop get their turn.
const MAX_PER_TURN: usize = 64;

/// Maximum echo connections per test: a client has one.
const MAX_ECHOES: usize = 2;

/// State shared by all threads.
struct Shared {
    config: Config,
    address: SocketAddr,
    log: Box<dyn Fn(&Event) + Send + Sync>,
    stop: Arc<AtomicBool>,
    wake: EventFd,
    admission: Arc<Admission>,
    /// Tests and HTTP transfers.
    clients: Arc<Admission>,
    /// The traffic of each address, with a maximum rate.
    accounts: Option<Accounts>,
    finished: AtomicU64,
    /// Limits repeated log lines.
    throttle: Mutex<Throttle>,
    /// Tests by cookie.
    waiting: Mutex<HashMap<Cookie, Waiting>>,
    /// Tests that wait for UDP hellos, in order.
    udp_waiting: Mutex<Vec<udp::Waiting>>,
    /// Tests of iperf 2 that may get more connections.
    iperf2: Mutex<Vec<Arc<iperf2::Test>>>,
    /// Places for those over UDP, whose addresses may be forged.
    iperf2_udp: Arc<Admission>,
    /// The latest sender sockets, by transfer.
    transfers: Mutex<http::Transfers>,
    /// Controllers that the kernel was asked to load.
    tried: Mutex<HashSet<String>>,
    /// To the thread of connections with TLS.
    #[cfg(feature = "rpm")]
    tls: http2::Entrance,
}

impl Shared {
    fn stopping(&self) -> bool {
        self.stop.load(SeqCst)
    }

    fn log(&self, event: Event) {
        let passed = lock(&self.throttle).pass(event, Instant::now());
        if let Some(event) = passed {
            (self.log)(&event);
        }
    }

    /// Sets the controller that a client asks for. For each unregistered one of Linux the kernel may
    /// load its module once: it starts a program as root for that, also for names that nothing has.
    fn pin(&self, socket: &impl AsFd, name: &str) -> Result<(), PinError> {
        let available = facts::available_controllers().unwrap_or_default();
        let is_known = LINUX_CONTROLLERS.contains(&name);
        // Where /proc is missing, names of Linux are tried each time.
        let is_registered = available.iter().any(|c| c == name) || available.is_empty() && is_known;
        if is_registered || is_known && lock(&self.tried).insert(name.to_owned()) {
            return tcp_info::pin(socket, name);
        }
        tcp_info::check_name(name)?;
        Err(PinError::Unknown { name: name.to_owned(), available })
    }

    /// The ports that iperf 2 clients listen on by default: those that they connect to.
    fn connect_back_ports(&self) -> [u16; 2] {
        [self.address.port(), self.config.iperf2_port.unwrap_or(crate::iperf2::PORT)]
    }

    /// The account of an address, if the rate is limited.
    fn account(&self, ip: IpAddr) -> Option<Arc<Account>> {
        self.accounts.as_ref().map(|accounts| accounts.account(ip))
    }

    /// The bytes that a test or transfer must transfer over each idle timeout.
    fn min_bytes(&self) -> u64 {
        self.config.limits.min_bytes(self.clients.max_per_address())
    }

    /// Why a test or transfer that transferred `bytes` over an idle timeout is ended, if it is.
    fn too_slow(&self, bytes: u64) -> Option<String> {
        limits::too_slow(bytes, self.min_bytes(), self.config.limits.idle)
    }

    /// Counts a finished test. A server of one test stops if the client was admitted: strangers do
    /// not end it.
    fn finish(&self, admitted: bool) {
        self.finished.fetch_add(1, SeqCst);
        if self.config.one_off && admitted {
            self.halt();
        }
    }

    fn halt(&self) {
        self.stop.store(true, SeqCst);
        let _ = self.wake.write(1);
    }
}

/// A panic in one client's thread must not block the others.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes read after a refusal, at most; also at most those of a second at the allowed rate.
const MAX_DRAINED: u64 = 4 << 20;

/// Stops sending, and reads and discards what the client still sends for up to a second: closing
/// with unread bytes would reset the connection, and the last message would be lost.
fn drain(shared: &Shared, socket: &TcpStream, account: Option<&Account>) {
    let _ = socket.shutdown(Shutdown::Write);
    let mut left = MAX_DRAINED;
    let mut rest = [0; 4096];
    let deadline = Instant::now() + Duration::from_secs(1);
    while left > 0
        && Instant::now() < deadline
        && !shared.stopping()
        && readable(socket, Duration::from_millis(200)).is_ok_and(|ready| ready)
    {
        let max = rest.len();
        let grant = match account {
            None => Some(Grant::unlimited(max)),
            Some(account) => {
                account.received.grant(max, PACKET, &mut || Instant::now() < deadline && !shared.stopping())
            }
        };
        let Some(grant) = grant else { return };
        let read = (&mut &*socket).read(&mut rest[..grant.bytes()]).unwrap_or(0);
        grant.transferred(read);
        if read == 0 {
            return;
        }
        left = left.saturating_sub(read as u64);
    }
}

/// A listening server.
pub struct Server {
    /// On the server's port, and on the port of iperf 2 if it was free.
    ports: Vec<(TcpListener, UdpSocket)>,
    /// What serves connections with TLS.
    #[cfg(feature = "rpm")]
    tls: http2::Service,
    shared: Arc<Shared>,
    /// Additional fields of the event `listening`.
    remarks: Vec<(&'static str, String)>,
}

/// Stops a server from another thread.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

impl Handle {
    /// Stops the server: it accepts no more clients, notifies the current ones, and returns.
    pub fn stop(&self) {
        self.0.halt();
    }

    /// Number of open connections.
    pub fn connections(&self) -> usize {
        self.0.admission.count()
    }

    /// Number of finished tests, successful or not.
    pub fn finished(&self) -> u64 {
        self.0.finished.load(SeqCst)
    }
}

impl Server {
    /// Binds the sockets. Every event is passed to `log` from the thread it occurred in.
    ///
    /// # Errors
    /// If the port is in use, sockets are not available, or the certificate is invalid.
    pub fn bind(mut config: Config, log: impl Fn(&Event) + Send + Sync + 'static) -> io::Result<Server> {
        let (listener, address) = match config.address {
            Some(ip) => listen(SocketAddr::new(ip, config.port))?,
            // Hosts without IPv6 still have IPv4.
            None => listen(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), config.port))
                .or_else(|_| listen(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), config.port)))?,
        };
        let mut ports = vec![(listener, udp::bind(address)?)];
        let second = config.iperf2_port.filter(|&port| port != address.port());
        ports.extend(second.and_then(|port| listen_if_free(SocketAddr::new(address.ip(), port))));
        if let Some((listener, _)) = ports.get(1) {
            config.iperf2_port = Some(listener.local_addr()?.port());
        }
        if let Some(name) = &config.controller {
            for (listener, _) in &ports {
                tcp_info::pin(listener, name).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
            }
        }
        let limits = &config.limits;
        let clients = Admission::of_clients(limits.clients);
        let iperf2_udp = Admission::of_clients(limits.clients.div_ceil(4));
        let stop = Arc::new(AtomicBool::new(false));
        #[cfg(feature = "rpm")]
        let (tls, entrance) = http2::Service::new(config.certificate.as_ref(), address)?;
        let accounts = limits.rate.map(|rate| Accounts::new(rate, Arc::clone(&stop)));
        let shared = Shared {
            admission: Admission::new(limits.connections, limits.connections_per_address),
            config,
            address,
            log: Box::new(log),
            accounts,
            stop,
            wake: EventFd::new()?,
            clients,
            finished: AtomicU64::new(0),
            throttle: Mutex::default(),
            waiting: Mutex::default(),
            udp_waiting: Mutex::default(),
            iperf2: Mutex::default(),
            iperf2_udp,
            transfers: Mutex::default(),
            tried: Mutex::default(),
            #[cfg(feature = "rpm")]
            tls: entrance,
        };
        Ok(Server {
            ports,
            #[cfg(feature = "rpm")]
            remarks: vec![("certificate_sha256", tls.fingerprint().to_owned())],
            #[cfg(feature = "rpm")]
            tls,
            #[cfg(not(feature = "rpm"))]
            remarks: Vec::new(),
            shared: Arc::new(shared),
        })
    }

    /// The listen address.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// The listen address on the port of iperf 2, if that was free.
    pub fn iperf2_address(&self) -> Option<SocketAddr> {
        self.ports.get(1).and_then(|(listener, _)| listener.local_addr().ok())
    }

    /// A handle for stopping the server.
    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.shared))
    }

    /// Serves until stopped, or until the first test is finished in one-off mode. Remaining clients
    /// get a few seconds to be notified.
    ///
    /// # Errors
    /// If the listening socket fails.
    pub fn run(self) -> io::Result<()> {
        let shared = &self.shared;
        let mut listening = Event::new("listening", None).with("address", shared.address.to_string());
        if let Some(address) = self.iperf2_address() {
            listening = listening.with("iperf2_address", address.to_string());
        }
        shared.log(
            self.remarks.iter().fold(listening, |event, (name, value)| event.with(name, value.as_str())),
        );
        #[cfg(feature = "rpm")]
        let tls = {
            let (tls, shared) = (self.tls, Arc::clone(shared));
            std::thread::Builder::new().spawn(move || tls.run(&shared))?
        };
        let served = accept_until_stopped(shared, &self.ports);
        shared.stop.store(true, SeqCst);
        #[cfg(feature = "rpm")]
        let _ = tls.join();
        served?;
        drop(self.ports);
        let deadline = Instant::now() + Duration::from_secs(5);
        while shared.admission.count() > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let left = shared.admission.count();
        shared.log(Event::new("stopped", None).with("connections_left", left));
        Ok(())
    }
}

/// Accepts connections and receives datagrams until the server stops.
fn accept_until_stopped(shared: &Arc<Shared>, ports: &[(TcpListener, UdpSocket)]) -> io::Result<()> {
    let mut sequence = 0;
    while !shared.stopping() {
        let mut fds = vec![PollFd::new(shared.wake.as_fd(), PollFlags::POLLIN)];
        for (listener, datagrams) in ports {
            fds.push(PollFd::new(listener.as_fd(), PollFlags::POLLIN));
            fds.push(PollFd::new(datagrams.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(false)).collect();
        for ((listener, datagrams), ready) in ports.iter().zip(ready[1..].chunks(2)) {
            if ready[0] {
                accept(shared, listener, &mut sequence);
            }
            if ready[1] {
                udp::receive(shared, datagrams);
            }
        }
    }
    Ok(())
}

/// Accepts pending connections.
fn accept(shared: &Arc<Shared>, listener: &TcpListener, sequence: &mut u64) {
    for _ in 0..MAX_PER_TURN {
        let (socket, peer) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
            Err(e) => {
                // The client has closed, or descriptors are exhausted and some will be released
                // soon.
                shared.log(Event::new("accept_failed", None).with("error", e.to_string()));
                if matches!(
                    Errno::try_from(e),
                    Ok(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM)
                ) {
                    std::thread::sleep(Duration::from_millis(50));
                }
                return;
            }
        };
        *sequence += 1;
        let number = *sequence;
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        // Strangers take neither a place nor an account.
        if !limits::allowed(&shared.config.allow, peer.ip()) {
            shared.log(Event::new("refused", Some(peer)).with("reason", "address not allowed"));
            continue;
        }
        // Excess connections are closed unread.
        let permit = match shared.admission.acquire(peer.ip()) {
            Ok(permit) => permit,
            Err(full) => {
                shared.log(Event::new("refused", Some(peer)).with("reason", full.reason()));
                continue;
            }
        };
        let serving = Arc::clone(shared);
        let spawned = std::thread::Builder::new().stack_size(256 * 1024).spawn(move || {
            let account = serving.account(peer.ip());
            connection(&serving, Arrival { number, socket, permit, account }, peer);
        });
        if let Err(e) = spawned {
            shared.log(Event::new("refused", Some(peer)).with("reason", e.to_string()));
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = socket::tcp(address)?;
    bind_to(&socket, address)?;
    let listener = socket::listen(socket)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Both sockets of a port, unless another process uses it. UDP addresses can be shared: only a
/// socket that does not share its own notices.
fn listen_if_free(address: SocketAddr) -> Option<(TcpListener, UdpSocket)> {
    let both = || {
        let (listener, address) = listen(address).ok()?;
        drop(UdpSocket::bind(address).ok()?);
        Some((listener, udp::bind(address).ok()?))
    };
    // A port that is free for TCP may be in use for UDP.
    let attempts = if address.port() == 0 { 20 } else { 1 };
    (0..attempts).find_map(|_| both())
}

/// Binds a socket to the server's address with address sharing; the unspecified IPv6 address
/// includes IPv4.
fn bind_to(socket: &impl AsFd, address: SocketAddr) -> io::Result<()> {
    setsockopt(socket, sockopt::ReuseAddr, &true)?;
    if address.is_ipv6() {
        setsockopt(socket, sockopt::Ipv6V6Only, &!address.ip().is_unspecified())?;
    }
    socket::bind(socket, address)
}

/// Serves one connection.
fn connection(shared: &Shared, arrival: Arrival, peer: SocketAddr) {
    let failed =
        |reason: String| shared.log(Event::new("connection_failed", Some(peer)).with("reason", reason));
    if let Err(e) = arrival.socket.set_nonblocking(false) {
        return failed(e.to_string());
    }
    let mut opening = [0; COOKIE_LEN];
    match read_opening(shared, &arrival, &mut opening) {
        Err(reason) => failed(reason),
        Ok(Opening::Iperf2(filled)) => iperf2::serve(shared, arrival, peer, &opening[..filled]),
        Ok(Opening::Http) => http::serve(shared, &arrival, peer, &opening[..4]),
        #[cfg(feature = "rpm")]
        Ok(Opening::Tls(filled)) => shared.tls.pass(arrival, peer, &opening[..filled]),
        Ok(Opening::Cookie) => match Cookie::parse(opening) {
            Ok(cookie) => match admit_stream(shared, &cookie, arrival) {
                Stream::Accepted => {}
                Stream::TooMany { logged: false } => {
                    let event = Event::new("stream_refused", Some(peer)).with("cookie", cookie.to_string());
                    shared.log(event.with("reason", "more streams than the test has; not logged again"));
                }
                Stream::TooMany { logged: true } => {}
                Stream::NewTest(arrival) => session::serve(shared, arrival, peer, cookie),
            },
            Err(_) if opening[COOKIE_LEN - 1] == crate::iperf3::extension::ECHO_MARK => {
                opening[COOKIE_LEN - 1] = 0;
                let cookie = Cookie::parse(opening).ok().filter(|cookie| take_echo(shared, cookie));
                match cookie {
                    Some(cookie) => {
                        session::echo(shared, &arrival, &cookie);
                        if let Some(test) = lock(&shared.waiting).get_mut(&cookie) {
                            // It may be another test, with the same cookie.
                            test.echoes = test.echoes.saturating_sub(1);
                        }
                    }
                    None => failed("echo connection without a test, or too many".to_owned()),
                }
            }
            Err(e) => failed(e.to_string()),
        },
    }
}

/// The result of admitting a connection that opened with a cookie.
enum Stream {
    /// Passed to its test.
    Accepted,
    /// The test has all its streams; the connection is closed. Logged once per test.
    TooMany { logged: bool },
    /// The connection begins a new test.
    NewTest(Arrival),
}

/// Passes a stream to its test.
fn admit_stream(shared: &Shared, cookie: &Cookie, arrival: Arrival) -> Stream {
    let mut waiting = lock(&shared.waiting);
    let Some(test) = waiting.get_mut(cookie) else { return Stream::NewTest(arrival) };
    if test.streams == 0 {
        return Stream::TooMany { logged: std::mem::replace(&mut test.logged, true) };
    }
    test.streams -= 1;
    // The session notices missing streams.
    let _ = test.sender.send(arrival);
    Stream::Accepted
}

/// Reserves an echo connection of a test, if it has one left.
fn take_echo(shared: &Shared, cookie: &Cookie) -> bool {
    lock(&shared.waiting).get_mut(cookie).filter(|test| test.echoes < MAX_ECHOES).is_some_and(|test| {
        test.echoes += 1;
        true
    })
}

enum Opening {
    Http,
    /// With this many bytes read.
    Iperf2(usize),
    /// With this many bytes read.
    #[cfg(feature = "rpm")]
    Tls(usize),
    Cookie,
}

/// The type of a TLS record with a handshake message (RFC 8446 section 5.1).
#[cfg(feature = "rpm")]
const TLS_HANDSHAKE: u8 = 0x16;

/// Reads four bytes, which distinguish HTTP and iperf 2 from iperf3, and then the rest of a cookie.
fn read_opening(
    shared: &Shared,
    arrival: &Arrival,
    opening: &mut [u8; COOKIE_LEN],
) -> Result<Opening, String> {
    let mut deadline = Instant::now() + shared.config.limits.handshake;
    let mut filled = 0;
    loop {
        let wanted = if filled < 4 { 4 } else { COOKIE_LEN };
        if filled >= 4 && http::is_http(&opening[..4]) {
            return Ok(Opening::Http);
        }
        match foreign::protocol(&opening[..filled]) {
            Some("iperf 2") if filled >= 4 => return Ok(Opening::Iperf2(filled)),
            #[cfg(feature = "rpm")]
            Some("TLS") if opening[0] == TLS_HANDSHAKE && filled >= 4 => return Ok(Opening::Tls(filled)),
            #[cfg(feature = "rpm")]
            Some("HTTP/2") => {
                return Err("the client speaks HTTP/2 without TLS: use https://".to_owned());
            }
            #[cfg(not(feature = "rpm"))]
            Some("TLS") if filled < COOKIE_LEN => {
                return Err("the client speaks TLS: use http://, this port is not encrypted".to_owned());
            }
            Some(name) if filled < COOKIE_LEN && name != "iperf 2" => {
                return Err(format!(
                    "the client speaks {name}: this port takes HTTP/1.1, iperf3 and iperf 2"
                ));
            }
            _ => {}
        }
        if filled == COOKIE_LEN {
            return Ok(Opening::Cookie);
        }
        read_more(shared, arrival, &mut opening[..wanted], &mut filled, &mut deadline)?;
    }
}

/// Reads more of a client's first bytes, or waits for them for up to a second.
fn read_more(
    shared: &Shared,
    arrival: &Arrival,
    buffer: &mut [u8],
    filled: &mut usize,
    deadline: &mut Instant,
) -> Result<(), String> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(format!("timed out after {filled} bytes ({:?})", shared.config.limits.handshake));
    }
    if shared.stopping() {
        return Err("the server is stopping".to_owned());
    }
    let socket = &arrival.socket;
    if !readable(socket, left.min(Duration::from_secs(1))).map_err(|e| e.to_string())? {
        return Ok(());
    }
    match receive(arrival.account.as_deref(), socket, &mut buffer[*filled..], deadline) {
        Ok(0) => Err(format!("closed after {filled} bytes")),
        Ok(n) => {
            *filled += n;
            Ok(())
        }
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(()),
        Err(e) => Err(e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::Rate;

    #[test]
    fn an_address_that_is_not_allowed_takes_no_account() {
        let limits = Limits { rate: Some(Rate::from_bytes_per_sec(1000)), ..Limits::default() };
        let config = Config {
            address: Some(Ipv4Addr::LOCALHOST.into()),
            port: 0,
            limits,
            allow: vec!["192.0.2.0/24".parse().unwrap()],
            ..Config::default()
        };
        let (refused, refusals) = mpsc::channel();
        let log = Mutex::new(refused);
        let server = Server::bind(config, move |event| {
            if event.kind == "refused" {
                let _ = lock(&log).send(event.clone());
            }
        })
        .unwrap();
        let (address, handle) = (server.address(), server.handle());
        let thread = std::thread::spawn(move || server.run().unwrap());
        let mut stranger = TcpStream::connect(address).unwrap();
        let refusal = refusals.recv().unwrap();
        assert_eq!(refusal.to_json()["reason"], "address not allowed");
        assert!(matches!(stranger.read(&mut [0]), Ok(0) | Err(_)));
        assert_eq!(handle.0.accounts.as_ref().unwrap().count(), 0);
        handle.stop();
        thread.join().unwrap();
    }
}
