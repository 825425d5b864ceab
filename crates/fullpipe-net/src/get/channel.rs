//! The connection of a download. All waits are polled several times a second for a user interrupt.

use super::address::{authority, host_and_port};
use super::{GetError, Request};
use fullpipe_kernel::{socket, tcp_info};
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use url::Url;

/// Interval for checking for interrupts and deadlines.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A byte stream over TCP or TLS.
pub(super) trait Channel: Read + Write {}
impl<T: Read + Write> Channel for T {}

/// Connects to the host of `url`.
pub(super) fn connect(
    url: &Url,
    request: &Request,
    interrupt: &AtomicBool,
) -> Result<Arc<TcpStream>, GetError> {
    let failed = |source| GetError::Connect { host: authority(url), source };
    let deadline = Instant::now() + request.timeout;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in resolve(host_and_port(url), deadline, interrupt).map_err(failed)? {
        let socket = socket::tcp(address).map_err(failed)?;
        if let Some(name) = &request.controller {
            tcp_info::pin(&socket, name)?;
        }
        if let Some(window) = request.window {
            // Before connecting, so that the window scale fits.
            setsockopt(&socket, sockopt::RcvBuf, &(window as usize)).map_err(|e| failed(e.into()))?;
        }
        match connect_address(&socket, address, request.timeout, interrupt) {
            Ok(()) => {
                socket.set_read_timeout(Some(POLL_INTERVAL)).map_err(failed)?;
                socket.set_write_timeout(Some(POLL_INTERVAL)).map_err(failed)?;
                return Ok(Arc::new(socket));
            }
            Err(e) => last = e,
        }
    }
    Err(failed(last))
}

/// Resolves a host. The resolver cannot be interrupted, so it is left behind in its thread.
fn resolve(
    host: (String, u16),
    deadline: Instant,
    interrupt: &AtomicBool,
) -> io::Result<impl Iterator<Item = SocketAddr> + use<>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::Builder::new().spawn(move || {
        let addresses = (host.0.as_str(), host.1).to_socket_addrs();
        let _ = sender.send(addresses);
    })?;
    loop {
        match receiver.recv_timeout(POLL_INTERVAL) {
            Ok(addresses) => return addresses,
            Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("the resolver failed")),
            Err(RecvTimeoutError::Timeout) => check_wait(deadline, interrupt)?,
        }
    }
}

fn connect_address(
    socket: &TcpStream,
    address: SocketAddr,
    timeout: Duration,
    interrupt: &AtomicBool,
) -> io::Result<()> {
    let deadline = Instant::now() + timeout;
    socket::start_connect(socket, address)?;
    while !socket::is_connected(socket, POLL_INTERVAL)? {
        check_wait(deadline, interrupt)?;
    }
    Ok(())
}

/// Fails if the wait was interrupted or timed out.
fn check_wait(deadline: Instant, interrupt: &AtomicBool) -> io::Result<()> {
    if interrupt.load(Relaxed) {
        return Err(io::Error::other("interrupted"));
    }
    if Instant::now() >= deadline {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "timed out"));
    }
    Ok(())
}

/// The plain socket, or TLS on top of it.
pub(super) fn wrap<'a>(
    url: &Url,
    socket: Arc<TcpStream>,
    request: &Request,
    interrupt: &'a AtomicBool,
) -> Result<Box<dyn Channel + 'a>, GetError> {
    let plain = Plain { socket, pause: request.timeout, interrupt };
    if url.scheme() == "http" {
        return Ok(Box::new(plain));
    }
    tls(url, plain)
}

#[cfg(feature = "https")]
fn tls<'a>(url: &Url, plain: Plain<'a>) -> Result<Box<dyn Channel + 'a>, GetError> {
    let failed = |e: String| GetError::Connect { host: authority(url), source: io::Error::other(e) };
    let roots = rustls::RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| failed(e.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name =
        rustls::pki_types::ServerName::try_from(host_and_port(url).0).map_err(|e| failed(e.to_string()))?;
    let session = rustls::ClientConnection::new(Arc::new(config), name).map_err(|e| failed(e.to_string()))?;
    Ok(Box::new(rustls::StreamOwned::new(session, plain)))
}

#[cfg(not(feature = "https"))]
fn tls<'a>(url: &Url, _plain: Plain<'a>) -> Result<Box<dyn Channel + 'a>, GetError> {
    Err(GetError::Url(format!("{url}: HTTPS is not supported in this build (feature `https`)")))
}

/// A shared socket with a timeout for each pause and interrupt checks.
struct Plain<'a> {
    socket: Arc<TcpStream>,
    pause: Duration,
    interrupt: &'a AtomicBool,
}

impl Plain<'_> {
    fn retry_until_timeout(
        &self,
        mut once: impl FnMut(&TcpStream) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let deadline = Instant::now() + self.pause;
        loop {
            match once(&self.socket) {
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                    check_wait(deadline, self.interrupt)?;
                }
                done => return done,
            }
        }
    }
}

impl Read for Plain<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.retry_until_timeout(|mut socket| socket.read(buffer))
    }
}

impl Write for Plain<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.retry_until_timeout(|mut socket| socket.write(bytes))
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
