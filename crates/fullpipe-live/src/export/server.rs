//! HTTP server for the metrics.

use super::family::Page;
use super::negotiation::{Form, negotiate};
use super::protobuf;
use fullpipe_kernel::local_name;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, WWW_AUTHENTICATE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, Semaphore};
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Maximum concurrent connections; further ones wait in the accept queue.
const MAX_SCRAPES: usize = 256;
/// Maximum concurrent connections of one address (an IPv6 /64). A further one replaces the oldest
/// of the same address, so that no address can block others, nor its own scraper.
const MAX_PER_ADDRESS: usize = 16;
/// Timeout for the TLS handshake, and for the request header.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for a whole scrape.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(20);
/// Delay after a failed accept, such as when no descriptors are left.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(200);

/// How long a rendered front page is served again.
const FRONT_PAGE_TTL: Duration = Duration::from_secs(30);

/// The pages currently served.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    metrics: Arc<RwLock<Metrics>>,
    front: Option<Arc<Front>>,
}

/// The HTML page at `/`, rendered on request.
struct Front {
    render: Box<dyn Fn() -> Vec<u8> + Send + Sync>,
    last: Mutex<Option<(Instant, Bytes)>>,
}

impl std::fmt::Debug for Front {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Front")
    }
}

impl Front {
    /// The page, rendered unless a fresh one is cached.
    fn get(&self) -> Bytes {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((at, page)) if at.elapsed() < FRONT_PAGE_TTL => page.clone(),
            _ => {
                let page = Bytes::from((self.render)());
                *last = Some((Instant::now(), page.clone()));
                page
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Metrics {
    protobuf: Bytes,
    openmetrics: Bytes,
    text: Bytes,
}

/// Access control and TLS.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// Bearer token that clients must present.
    pub token: Option<String>,
    /// Certificate and key for TLS.
    pub tls: Option<Tls>,
}

/// PEM files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tls {
    /// Certificate chain.
    pub certificate: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

/// An error when starting the server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Binding the address failed.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, io::Error),
    /// Loading the certificate or key failed.
    #[error("{}: {reason}", path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// Starting the runtime failed.
    #[error("cannot start the server: {0}")]
    Runtime(io::Error),
}

/// A listening server.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    token: Option<Arc<str>>,
    tls: Option<Arc<ServerConfig>>,
    stop: Arc<Notify>,
}

/// Stops a server from another thread.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<Notify>);

impl Stopper {
    /// Makes [`Server::run`] return.
    pub fn stop(&self) {
        // `notify_one` is remembered if nothing waits yet.
        self.0.notify_one();
    }
}

/// The tasks of each address, oldest first, with their numbers.
type TasksByAddress = HashMap<IpAddr, VecDeque<(u64, AbortHandle)>>;

/// The connections in progress, by address.
#[derive(Clone, Default)]
struct Connections(Arc<Mutex<TasksByAddress>>);

impl Connections {
    /// Registers a connection, and closes the oldest one of the same address if there are too many.
    fn add(&self, address: IpAddr, number: u64, task: AbortHandle) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = all.entry(address).or_default();
        own.push_back((number, task));
        if own.len() > MAX_PER_ADDRESS
            && let Some((_, oldest)) = own.pop_front()
        {
            oldest.abort();
        }
    }

    fn remove(&self, address: IpAddr, number: u64) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = all.get_mut(&address) {
            own.retain(|(other, _)| *other != number);
            if own.is_empty() {
                all.remove(&address);
            }
        }
    }
}

/// Removes a connection when its task ends, even by abortion.
struct Registration {
    connections: Connections,
    address: IpAddr,
    number: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.connections.remove(self.address, self.number);
    }
}

/// The address that connections are counted by: an IPv6 host usually has a whole /64.
fn counted_address(peer: SocketAddr) -> IpAddr {
    match peer.ip().to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from(u128::from(ip) >> 64 << 64).into(),
        ip => ip,
    }
}

impl Pages {
    /// Serves the HTML page that `render` returns at `/`: rendered on request in a blocking thread,
    /// at most twice a minute.
    pub fn with_front(self, render: impl Fn() -> Vec<u8> + Send + Sync + 'static) -> Pages {
        Pages { front: Some(Arc::new(Front { render: Box::new(render), last: Mutex::new(None) })), ..self }
    }

    /// Replaces the served metrics.
    pub fn publish(&self, page: Page) {
        let metrics = Metrics {
            protobuf: page.protobuf.into(),
            openmetrics: page.openmetrics.into(),
            text: page.text.into(),
        };
        *self.metrics.write().unwrap_or_else(PoisonError::into_inner) = metrics;
    }

    fn get(&self) -> Metrics {
        self.metrics.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Server {
    /// Listens on `address`.
    ///
    /// # Errors
    /// When the address is in use, or certificate and key cannot be read or do not match.
    pub fn bind(address: SocketAddr, settings: &Settings) -> Result<Server, ServerError> {
        let tls = settings.tls.as_ref().map(load_tls).transpose()?;
        let listener = TcpListener::bind(address).map_err(|e| ServerError::Listen(address, e))?;
        listener.set_nonblocking(true).map_err(ServerError::Runtime)?;
        Ok(Server { listener, token: settings.token.as_deref().map(Arc::from), tls, stop: Arc::default() })
    }

    /// The listening address.
    ///
    /// # Errors
    /// When the kernel does not report it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// A handle that stops this server.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.stop))
    }

    /// Serves until stopped; scrapes in progress are aborted then.
    ///
    /// # Errors
    /// When the runtime cannot be started.
    pub fn run(self, pages: &Pages) -> Result<(), ServerError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(ServerError::Runtime)?;
        let served = runtime.block_on(self.serve(pages));
        // A page that is being rendered is not waited for: its thread ends with the process.
        runtime.shutdown_background();
        served
    }

    async fn serve(self, pages: &Pages) -> Result<(), ServerError> {
        let listener = tokio::net::TcpListener::from_std(self.listener).map_err(ServerError::Runtime)?;
        let places = Arc::new(Semaphore::new(MAX_SCRAPES));
        let (connections, mut number) = (Connections::default(), 0u64);
        loop {
            // Reserve a place first: connections without one stay in the accept queue and use no descriptor.
            let accepted = async {
                let place = Arc::clone(&places).acquire_owned().await;
                (place, listener.accept().await)
            };
            let (place, accepted) = tokio::select! {
                () = self.stop.notified() => return Ok(()),
                accepted = accepted => accepted,
            };
            let Ok((stream, peer)) = accepted else {
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            };
            let (pages, token, tls) =
                (pages.clone(), self.token.clone(), self.tls.clone().map(TlsAcceptor::from));
            let address = counted_address(peer);
            let by_loopback = peer.ip().to_canonical().is_loopback();
            number += 1;
            let registration = Registration { connections: connections.clone(), address, number };
            let task = tokio::spawn(async move {
                let (_place, _registration) = (place, registration);
                // Errors on a scrape are visible to the scraper.
                let _ = tokio::time::timeout(SCRAPE_TIMEOUT, async move {
                    match tls {
                        None => serve_one(stream, pages, token, by_loopback).await,
                        Some(tls) => {
                            let handshake = tokio::time::timeout(HEADER_TIMEOUT, tls.accept(stream)).await;
                            if let Ok(Ok(stream)) = handshake {
                                serve_one(stream, pages, token, by_loopback).await;
                            }
                        }
                    }
                })
                .await;
            });
            connections.add(address, number, task.abort_handle());
        }
    }
}

/// One request per connection: the time between scrapes is too long to keep a connection open.
async fn serve_one(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    pages: Pages,
    token: Option<Arc<str>>,
    by_loopback: bool,
) {
    let answers = service_fn(move |request: Request<Incoming>| {
        let (path, token) = (request.uri().path(), token.as_deref());
        let mut answer = answer(request.method(), path, request.headers(), &pages, token, by_loopback);
        let is_front = request.uri().path() == "/" && answer.status() == StatusCode::OK;
        let front = pages.front.clone().filter(|_| is_front);
        async move {
            if let Some(front) = front
                && let Ok(page) = tokio::task::spawn_blocking(move || front.get()).await
            {
                *answer.body_mut() = Full::new(page);
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .keep_alive(false)
        // A scraper's header has some hundred bytes; the default buffer is 400 kB per connection.
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), answers);
    let _ = served.await;
}

fn answer(
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    pages: &Pages,
    token: Option<&str>,
    by_loopback: bool,
) -> Response<Full<Bytes>> {
    let plain = |status: StatusCode, text: &'static str| {
        let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
        *response.status_mut() = status;
        response
    };
    let with = |mut response: Response<Full<Bytes>>, name, value: &'static str| {
        response.headers_mut().insert(name, hyper::header::HeaderValue::from_static(value));
        response
    };
    // Without this a page of another site could make its own name resolve to this machine, and then
    // read the answers (DNS rebinding). Such a page does not know a token.
    let host = headers.get(HOST).map(|host| host.to_str().unwrap_or(""));
    if token.is_none() && by_loopback && !host.is_none_or(local_name::is_local) {
        return plain(StatusCode::MISDIRECTED_REQUEST, "use localhost or an address as Host\n");
    }
    if let Some(token) = token {
        let shown = headers.get(AUTHORIZATION).and_then(|v| v.as_bytes().strip_prefix(b"Bearer "));
        // Constant time, so that timing does not reveal a matching prefix.
        if !shown.is_some_and(|shown| bool::from(shown.ct_eq(token.as_bytes()))) {
            return with(
                plain(StatusCode::UNAUTHORIZED, "a bearer token is required\n"),
                WWW_AUTHENTICATE,
                "Bearer",
            );
        }
    }
    if ![Method::GET, Method::HEAD].contains(method) {
        return with(plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n"), ALLOW, "GET, HEAD");
    }
    let (body, kind) = match path {
        "/metrics" => {
            let metrics = pages.get();
            match negotiate(headers.get_all(ACCEPT).iter().filter_map(|v| v.to_str().ok())) {
                Form::Protobuf => (metrics.protobuf, protobuf::CONTENT_TYPE),
                Form::OpenMetrics => {
                    (metrics.openmetrics, "application/openmetrics-text; version=1.0.0; charset=utf-8")
                }
                Form::Text => (metrics.text, "text/plain; version=0.0.4; charset=utf-8"),
            }
        }
        "/" => {
            let page = b"<!doctype html><title>fullpipe</title><a href=\"/metrics\">metrics</a>\n";
            (Bytes::from_static(page), "text/html; charset=utf-8")
        }
        _ => return plain(StatusCode::NOT_FOUND, "metrics are at /metrics\n"),
    };
    with(Response::new(Full::new(body)), CONTENT_TYPE, kind)
}

fn load_tls(tls: &Tls) -> Result<Arc<ServerConfig>, ServerError> {
    let error = |path: &Path, e: &dyn std::fmt::Display| ServerError::Tls {
        path: path.to_owned(),
        reason: e.to_string(),
    };
    let (certificate, key) = (tls.certificate.as_path(), tls.key.as_path());
    let chain: Vec<_> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(|e| error(certificate, &format_args!("cannot read PEM certificates: {e}")))?;
    let private = PrivateKeyDer::from_pem_file(key)
        .map_err(|e| error(key, &format_args!("cannot read a PEM private key: {e}")))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| error(certificate, &e))?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|e| error(certificate, &format_args!("certificate and key do not match: {e}")))?;
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    fn running(settings: &Settings) -> (SocketAddr, Stopper, std::thread::JoinHandle<()>) {
        let server = Server::bind(([127, 0, 0, 1], 0).into(), settings).unwrap();
        let (address, stopper) = (server.address().unwrap(), server.stopper());
        let pages = Pages::default();
        pages.publish(Page {
            protobuf: b"packed".to_vec(),
            openmetrics: "open".to_owned(),
            text: "plain".to_owned(),
        });
        (address, stopper, std::thread::spawn(move || server.run(&pages).unwrap()))
    }

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn a_scraper_gets_the_requested_format() {
        let (address, stopper, thread) = running(&Settings::default());
        let get =
            |more: &str| ask(address, &format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\n{more}\r\n"));
        assert!(get("").ends_with("\r\n\r\nplain"));
        assert!(get("Accept: text/plain;q=0.5, application/openmetrics-text\r\n").ends_with("\r\n\r\nopen"));
        let packed = get("Accept: application/vnd.google.protobuf;encoding=delimited\r\n");
        assert!(packed.ends_with("\r\n\r\npacked") && packed.contains("MetricFamily"), "{packed}");
        assert!(ask(address, "HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").ends_with("\r\n\r\n"));
        assert!(ask(address, "GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n").starts_with("HTTP/1.1 404 "));
        assert!(
            ask(address, "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
                .starts_with("HTTP/1.1 405 ")
        );
        assert!(ask(address, "\x16\x03\x01 nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
        stopper.stop();
        thread.join().unwrap();
    }

    #[test]
    fn the_front_page_is_rendered_on_request_for_authorised_clients_only() {
        let settings = Settings { token: Some("secret".to_owned()), tls: None };
        let server = Server::bind(([127, 0, 0, 1], 0).into(), &settings).unwrap();
        let (address, stopper) = (server.address().unwrap(), server.stopper());
        let renderings = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let count = Arc::clone(&renderings);
        let pages = Pages::default().with_front(move || {
            let nth = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            format!("page {nth}").into_bytes()
        });
        let thread = std::thread::spawn(move || server.run(&pages).unwrap());
        let get = |path: &str, more: &str| {
            ask(address, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n"))
        };
        let token = "Authorization: Bearer secret\r\n";
        assert!(
            get("/", "").starts_with("HTTP/1.1 401 ") && get("/metrics", token).starts_with("HTTP/1.1 200 ")
        );
        assert_eq!(renderings.load(std::sync::atomic::Ordering::Relaxed), 0);
        for _ in 0..3 {
            let answer = get("/", token);
            assert!(answer.contains("text/html") && answer.ends_with("page 0"), "{answer}");
        }
        stopper.stop();
        thread.join().unwrap();
    }

    #[test]
    fn names_of_other_sites_are_refused_by_loopback() {
        let (address, stopper, thread) = running(&Settings::default());
        let get = |host: &str| ask(address, &format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        for host in ["evil.example", "evil.example:9411", "localhost.evil.example"] {
            let answer = get(host);
            assert!(answer.starts_with("HTTP/1.1 421 ") && !answer.contains("plain\n"), "{answer}");
        }
        for host in ["localhost", "127.0.0.1:9411", "[::1]:9411"] {
            assert!(get(host).ends_with("\r\n\r\nplain"), "{host}");
        }
        assert!(ask(address, "GET /metrics HTTP/1.0\r\n\r\n").ends_with("plain"), "an old scraper");
        stopper.stop();
        thread.join().unwrap();
    }

    #[test]
    fn rendering_a_page_does_not_delay_shutdown() {
        let server = Server::bind(([127, 0, 0, 1], 0).into(), &Settings::default()).unwrap();
        let (address, stopper) = (server.address().unwrap(), server.stopper());
        let (begun, rendering) = std::sync::mpsc::channel();
        let pages = Pages::default().with_front(move || {
            begun.send(()).unwrap();
            std::thread::sleep(std::time::Duration::from_secs(60));
            Vec::new()
        });
        let thread = std::thread::spawn(move || server.run(&pages).unwrap());
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        rendering.recv().unwrap();
        let asked = Instant::now();
        stopper.stop();
        thread.join().unwrap();
        assert!(asked.elapsed() < std::time::Duration::from_secs(2), "{:?}", asked.elapsed());
    }

    #[test]
    fn missing_or_wrong_tokens_are_rejected() {
        let settings = Settings { token: Some("secret".to_owned()), tls: None };
        let (address, stopper, thread) = running(&settings);
        let get =
            |token: &str| ask(address, &format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\n{token}\r\n"));
        for wrong in ["", "Authorization: Bearer secre\r\n", "Authorization: secret\r\n"] {
            let answer = get(wrong);
            assert!(answer.starts_with("HTTP/1.1 401 ") && !answer.contains("plain"), "{answer}");
        }
        assert!(get("Authorization: Bearer secret\r\n").ends_with("plain"));
        // A client with the token may use any name, such as that of a reverse proxy.
        let named = |token: &str| {
            ask(address, &format!("GET /metrics HTTP/1.1\r\nHost: proxy.example\r\n{token}\r\n"))
        };
        assert!(named("").starts_with("HTTP/1.1 401 "));
        assert!(named("Authorization: Bearer secret\r\n").ends_with("plain"));
        stopper.stop();
        thread.join().unwrap();
    }

    #[test]
    fn an_address_cannot_hold_the_places_of_others() {
        let (address, stopper, thread) = running(&Settings::default());
        // Far more than there are places, and none ever sends a request.
        let idle: Vec<_> = (0..600).map(|_| TcpStream::connect(address).unwrap()).collect();
        let began = Instant::now();
        let answer = ask(address, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(answer.ends_with("plain"), "{answer}");
        assert!(began.elapsed() < HEADER_TIMEOUT / 2, "{:?}", began.elapsed());
        drop(idle);
        stopper.stop();
        thread.join().unwrap();
    }

    #[test]
    fn connections_are_counted_by_host() {
        let counted = |peer: &str| counted_address(peer.parse().unwrap()).to_string();
        assert_eq!(counted("[2001:db8:1:2:3:4:5:6]:7"), "2001:db8:1:2::");
        assert_eq!(counted("[::ffff:192.0.2.1]:7"), "192.0.2.1");
    }

    #[test]
    fn idle_connections_do_not_block_a_scraper() {
        let (address, stopper, thread) = running(&Settings::default());
        let idle: Vec<_> = (0..300).map(|_| TcpStream::connect(address).unwrap()).collect();
        // More than there are places: the scrape waits until they time out.
        let answer = ask(address, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(answer.ends_with("plain"), "{answer}");
        drop(idle);
        stopper.stop();
        thread.join().unwrap();
    }
}
