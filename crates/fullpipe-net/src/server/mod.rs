//! The measuring server: stock iperf3 clients, ours, curl, wget and browsers, on one port and all at once.
//!
//! A connection's first bytes tell what it is: an HTTP request line, or a cookie. Each connection has a
//! thread; a thread that waits costs some kilobytes, and the threads that move data do nothing else.

mod admission;
mod confinement;
mod event;
mod http;
mod limits;
mod session;
mod throttle;
mod udp;

pub use admission::raise_descriptor_limit;
pub use event::Event;
pub use limits::{Limits, Network};

use crate::control::readable;
use crate::iperf3::{COOKIE_LEN, Cookie};
use admission::Admission;
use fullpipe_kernel::socket;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use nix::sys::socket::{setsockopt, sockopt};
use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};
use throttle::Throttle;

/// How a server is to behave.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address to listen on; `None` listens on all, IPv6 and IPv4.
    pub address: Option<IpAddr>,
    /// The port; 0 takes a free one.
    pub port: u16,
    /// What clients may do.
    pub limits: Limits,
    /// Clients must know this.
    pub secret: Option<String>,
    /// Networks that may connect; empty allows all.
    pub allow: Vec<Network>,
    /// End after the first test.
    pub one_off: bool,
    /// The controller of sockets whose client does not ask for one; `None` leaves the system's.
    pub controller: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            address: None,
            port: 5201,
            limits: Limits::default(),
            secret: None,
            allow: Vec::new(),
            one_off: false,
            controller: None,
        }
    }
}

/// A stream's connection.
struct Arrival {
    /// Its place in the order of connecting.
    number: u64,
    socket: TcpStream,
    place: admission::Place,
}

/// A test that lets its streams in.
struct Waiting {
    way_in: mpsc::Sender<Arrival>,
    /// Streams that are still to come.
    streams: usize,
    /// Connections that echo probes.
    echoes: usize,
    /// Whether a stream too many was told of.
    told: bool,
}

/// Probing connections of one test at once: a client has one.
const MAX_ECHOES: usize = 2;

/// What the threads share.
struct Shared {
    config: Config,
    address: SocketAddr,
    log: Box<dyn Fn(&Event) + Send + Sync>,
    stop: AtomicBool,
    wake: EventFd,
    admission: Arc<Admission>,
    tests: AtomicUsize,
    finished: AtomicU64,
    /// What has been logged lately.
    throttle: Mutex<Throttle>,
    /// Tests by cookie.
    waiting: Mutex<HashMap<Cookie, Waiting>>,
    /// Tests that wait for UDP hellos, in order.
    udp_waiting: Mutex<Vec<udp::Waiting>>,
    /// Senders' last words, by transfer.
    transfers: Mutex<http::Transfers>,
}

impl Shared {
    fn stopping(&self) -> bool {
        self.stop.load(SeqCst)
    }

    fn log(&self, event: Event) {
        let told = lock(&self.throttle).pass(event, Instant::now());
        if let Some(event) = told {
            (self.log)(&event);
        }
    }

    /// A test is over.
    fn finish(&self) {
        self.finished.fetch_add(1, SeqCst);
        if self.config.one_off {
            self.halt();
        }
    }

    fn halt(&self) {
        self.stop.store(true, SeqCst);
        let _ = self.wake.write(1);
    }
}

/// A panic in one client's thread must not lock the others out.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts something as long as it lives.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    /// `None` when there are `most` already.
    fn take(counter: &'a AtomicUsize, most: usize) -> Option<Self> {
        counter.fetch_update(SeqCst, SeqCst, |n| (n < most).then_some(n + 1)).ok().map(|_| Place(counter))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    datagrams: UdpSocket,
    shared: Arc<Shared>,
    /// What the event `listening` tells besides.
    remarks: Vec<(&'static str, String)>,
}

/// Ends a server from another thread.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

impl Handle {
    /// Tells the server to end: it takes no more clients, tells the ones it has, and returns.
    pub fn stop(&self) {
        self.0.halt();
    }

    /// Connections being served now.
    pub fn connections(&self) -> usize {
        self.0.admission.count()
    }

    /// Tests finished so far, well or not.
    pub fn finished(&self) -> u64 {
        self.0.finished.load(SeqCst)
    }
}

impl Server {
    /// Starts to listen. Every event is handed to `log`, from the thread it happened in.
    ///
    /// # Errors
    /// When the port is taken, or the system lacks sockets.
    pub fn bind(config: Config, log: impl Fn(&Event) + Send + Sync + 'static) -> io::Result<Server> {
        let (listener, address) = match config.address {
            Some(ip) => listen(SocketAddr::new(ip, config.port))?,
            // A machine without IPv6 still has IPv4.
            None => listen(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), config.port))
                .or_else(|_| listen(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), config.port)))?,
        };
        if let Some(name) = &config.controller {
            fullpipe_kernel::tcp_info::pin(&listener, name)
                .map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        }
        let datagrams = udp::bind(address)?;
        let limits = &config.limits;
        let shared = Shared {
            admission: Admission::new(limits.connections, limits.connections_per_address),
            config,
            address,
            log: Box::new(log),
            stop: AtomicBool::new(false),
            wake: EventFd::new()?,
            tests: AtomicUsize::new(0),
            finished: AtomicU64::new(0),
            throttle: Mutex::default(),
            waiting: Mutex::default(),
            udp_waiting: Mutex::default(),
            transfers: Mutex::default(),
        };
        Ok(Server { listener, datagrams, shared: Arc::new(shared), remarks: Vec::new() })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// For ending it from another thread.
    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.shared))
    }

    /// Serves until stopped, or until the first test is over in one-off mode. Gives the clients that are left
    /// a few seconds to hear of it.
    ///
    /// # Errors
    /// When the listening socket fails.
    pub fn run(self) -> io::Result<()> {
        let shared = &self.shared;
        let listening = Event::new("listening", None).with("address", shared.address.to_string());
        shared
            .log(self.remarks.iter().fold(listening, |event, (name, said)| event.with(name, said.as_str())));
        let mut sequence = 0;
        while !shared.stopping() {
            let mut fds = [
                PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.datagrams.as_fd(), PollFlags::POLLIN),
                PollFd::new(shared.wake.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
            let ready = |fd: &PollFd| fd.any().unwrap_or(false);
            if ready(&fds[0]) {
                self.accept(&mut sequence);
            }
            if ready(&fds[1]) {
                udp::hello(shared, &self.datagrams);
            }
        }
        drop(self.listener);
        let deadline = Instant::now() + Duration::from_secs(5);
        while shared.admission.count() > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let left = shared.admission.count();
        shared.log(Event::new("stopped", None).with("connections_left", left));
        Ok(())
    }

    /// Takes what waits at the listener.
    fn accept(&self, sequence: &mut u64) {
        loop {
            let (socket, peer) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) => {
                    // The client is gone already, or descriptors have run out: some are given back soon.
                    self.shared.log(Event::new("accept_failed", None).with("error", e.to_string()));
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
            let (shared, number) = (Arc::clone(&self.shared), *sequence);
            let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
            // Connections beyond the bounds are closed unread.
            let place = match shared.admission.take(peer.ip()) {
                Ok(place) => place,
                Err(full) => {
                    shared.log(Event::new("refused", Some(peer)).with("reason", full.reason()));
                    continue;
                }
            };
            let spawned = std::thread::Builder::new()
                .stack_size(256 * 1024)
                .spawn(move || connection(&shared, Arrival { number, socket, place }, peer));
            if let Err(e) = spawned {
                self.shared.log(Event::new("refused", Some(peer)).with("reason", e.to_string()));
            }
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

/// Binds a socket to the server's address, which others may share. Of all addresses, those of IPv4 are part.
fn bind_to(socket: &impl AsFd, address: SocketAddr) -> io::Result<()> {
    setsockopt(socket, sockopt::ReuseAddr, &true)?;
    if address.is_ipv6() {
        setsockopt(socket, sockopt::Ipv6V6Only, &!address.ip().is_unspecified())?;
    }
    socket::bind(socket, address)
}

/// Serves one connection to its end.
fn connection(shared: &Shared, arrival: Arrival, peer: SocketAddr) {
    let failed =
        |reason: String| shared.log(Event::new("connection_failed", Some(peer)).with("reason", reason));
    if !limits::allowed(&shared.config.allow, peer.ip()) {
        shared.log(Event::new("refused", Some(peer)).with("reason", "address not allowed"));
        return;
    }
    if let Err(e) = arrival.socket.set_nonblocking(false) {
        return failed(e.to_string());
    }
    let mut opening = [0; COOKIE_LEN];
    match read_opening(shared, &arrival.socket, &mut opening) {
        Err(reason) => failed(reason),
        Ok(Opening::Http) => http::serve(shared, &arrival.socket, peer, &opening[..4]),
        Ok(Opening::Cookie) => match Cookie::parse(opening) {
            Ok(cookie) => match admit_stream(shared, &cookie, arrival) {
                Stream::Taken => {}
                Stream::TooMany { told: false } => {
                    let event = Event::new("stream_refused", Some(peer)).with("cookie", cookie.to_string());
                    shared.log(
                        event.with("reason", "more streams than the test has; further ones are not logged"),
                    );
                }
                Stream::TooMany { told: true } => {}
                Stream::OfNoTest(arrival) => session::serve(shared, arrival, peer, cookie),
            },
            Err(_) if opening[COOKIE_LEN - 1] == crate::iperf3::extension::ECHO_MARK => {
                opening[COOKIE_LEN - 1] = 0;
                let cookie = Cookie::parse(opening).ok().filter(|cookie| take_echo(shared, cookie));
                match cookie {
                    Some(cookie) => {
                        session::echo(shared, &arrival.socket, &cookie);
                        if let Some(test) = lock(&shared.waiting).get_mut(&cookie) {
                            test.echoes -= 1;
                        }
                    }
                    None => failed("an echo connection without a test, or one too many".to_owned()),
                }
            }
            Err(e) => failed(e.to_string()),
        },
    }
}

/// What became of a connection that opened with a cookie.
enum Stream {
    /// Its test has it.
    Taken,
    /// Its test has all its streams: this one is closed. Said once a test.
    TooMany { told: bool },
    /// It begins a test.
    OfNoTest(Arrival),
}

/// Gives a stream to its test.
fn admit_stream(shared: &Shared, cookie: &Cookie, arrival: Arrival) -> Stream {
    let mut waiting = lock(&shared.waiting);
    let Some(test) = waiting.get_mut(cookie) else { return Stream::OfNoTest(arrival) };
    if test.streams == 0 {
        return Stream::TooMany { told: std::mem::replace(&mut test.told, true) };
    }
    test.streams -= 1;
    // The session notices when one is missing.
    let _ = test.way_in.send(arrival);
    Stream::Taken
}

/// Whether a test has room for one more connection that echoes its probes.
fn take_echo(shared: &Shared, cookie: &Cookie) -> bool {
    lock(&shared.waiting).get_mut(cookie).filter(|test| test.echoes < MAX_ECHOES).is_some_and(|test| {
        test.echoes += 1;
        true
    })
}

enum Opening {
    Http,
    Cookie,
}

/// Reads four bytes, which tell HTTP from iperf3, and the rest of a cookie.
fn read_opening(
    shared: &Shared,
    socket: &TcpStream,
    opening: &mut [u8; COOKIE_LEN],
) -> Result<Opening, String> {
    let timeout = shared.config.limits.handshake;
    let deadline = Instant::now() + timeout;
    let mut filled = 0;
    loop {
        let wanted = if filled < 4 { 4 } else { COOKIE_LEN };
        if filled >= 4 && http::begins(&opening[..4]) {
            return Ok(Opening::Http);
        }
        if filled == COOKIE_LEN {
            return Ok(Opening::Cookie);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(format!("sent {filled} bytes and nothing more for {timeout:?}"));
        }
        if shared.stopping() {
            return Err("the server is stopping".to_owned());
        }
        match readable(socket, left.min(Duration::from_secs(1))) {
            Ok(false) => continue,
            Ok(true) => {}
            Err(e) => return Err(e.to_string()),
        }
        match (&mut &*socket).read(&mut opening[filled..wanted]) {
            Ok(0) => return Err(format!("closed after {filled} bytes")),
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.to_string()),
        }
    }
}
