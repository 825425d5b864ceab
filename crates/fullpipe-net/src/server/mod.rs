//! The measuring server: stock iperf3 clients, ours, curl, wget and browsers, on one port and all at once.
//!
//! A connection's first bytes tell what it is: an HTTP request line, or a cookie. Each connection has a
//! thread; a thread that waits costs some kilobytes, and the threads that move data do nothing else.

mod event;
mod http;
mod limits;
mod session;
mod udp;

pub use event::Event;
pub use limits::{Limits, Network};

use crate::control::readable;
use crate::iperf3::{COOKIE_LEN, Cookie};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use socket2::{Domain, Socket, Type};
use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

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

/// A stream's connection, with its place in the order of connecting.
type Arrival = (u64, TcpStream);

/// What the threads share.
struct Shared {
    config: Config,
    address: SocketAddr,
    log: Box<dyn Fn(&Event) + Send + Sync>,
    stop: AtomicBool,
    wake: EventFd,
    connections: AtomicUsize,
    tests: AtomicUsize,
    finished: AtomicU64,
    /// Tests by cookie, with the way in for their streams.
    waiting: Mutex<HashMap<Cookie, mpsc::Sender<Arrival>>>,
    /// Tests that wait for UDP hellos, in order.
    udp_waiting: Mutex<Vec<(u64, IpAddr, mpsc::Sender<UdpSocket>)>>,
    /// Senders' last words, by transfer.
    transfers: Mutex<http::Transfers>,
}

impl Shared {
    fn stopping(&self) -> bool {
        self.stop.load(SeqCst)
    }

    fn log(&self, event: Event) {
        (self.log)(&event);
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
        self.0.connections.load(SeqCst)
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
        let shared = Shared {
            config,
            address,
            log: Box::new(log),
            stop: AtomicBool::new(false),
            wake: EventFd::new()?,
            connections: AtomicUsize::new(0),
            tests: AtomicUsize::new(0),
            finished: AtomicU64::new(0),
            waiting: Mutex::default(),
            udp_waiting: Mutex::default(),
            transfers: Mutex::default(),
        };
        Ok(Server { listener, datagrams, shared: Arc::new(shared) })
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
        shared.log(Event::new("listening", None).with("address", shared.address.to_string()));
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
        while shared.connections.load(SeqCst) > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let left = shared.connections.load(SeqCst);
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
                        e.raw_os_error(),
                        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
                    ) {
                        std::thread::sleep(Duration::from_millis(50));
                    }
                    return;
                }
            };
            *sequence += 1;
            let (shared, number) = (Arc::clone(&self.shared), *sequence);
            // Connections beyond the bound are closed unread.
            if shared.connections.fetch_add(1, SeqCst) >= shared.config.limits.connections {
                shared.connections.fetch_sub(1, SeqCst);
                shared.log(Event::new("refused", Some(peer)).with("reason", "too many connections"));
                continue;
            }
            let spawned = std::thread::Builder::new().stack_size(256 * 1024).spawn(move || {
                connection(&shared, number, socket, peer);
                shared.connections.fetch_sub(1, SeqCst);
            });
            if let Err(e) = spawned {
                self.shared.connections.fetch_sub(1, SeqCst);
                self.shared.log(Event::new("refused", Some(peer)).with("reason", e.to_string()));
            }
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.bind(&address.into())?;
    socket.listen(4096)?;
    let listener: TcpListener = socket.into();
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Serves one connection to its end.
fn connection(shared: &Shared, number: u64, socket: TcpStream, peer: SocketAddr) {
    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    let failed =
        |reason: String| shared.log(Event::new("connection_failed", Some(peer)).with("reason", reason));
    if !limits::allowed(&shared.config.allow, peer.ip()) {
        shared.log(Event::new("refused", Some(peer)).with("reason", "address not allowed"));
        return;
    }
    if let Err(e) = socket.set_nonblocking(false) {
        return failed(e.to_string());
    }
    let mut opening = [0; COOKIE_LEN];
    match read_opening(shared, &socket, &mut opening) {
        Err(reason) => failed(reason),
        Ok(Opening::Http) => http::serve(shared, socket, peer, &opening[..4]),
        Ok(Opening::Cookie) => match Cookie::parse(opening) {
            Ok(cookie) => {
                let way_in = lock(&shared.waiting).get(&cookie).cloned();
                match way_in {
                    // The session notices when one is missing; a stream too many is dropped.
                    Some(way_in) => drop(way_in.send((number, socket))),
                    None => session::serve(shared, socket, peer, cookie),
                }
            }
            Err(_) if opening[COOKIE_LEN - 1] == crate::iperf3::extension::ECHO_MARK => {
                opening[COOKIE_LEN - 1] = 0;
                match Cookie::parse(opening) {
                    Ok(cookie) if lock(&shared.waiting).contains_key(&cookie) => {
                        session::echo(shared, &socket, &cookie);
                    }
                    _ => failed("an echo connection without a test".to_owned()),
                }
            }
            Err(e) => failed(e.to_string()),
        },
    }
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
