//! HTTP server for the metrics.

use super::family::Page;
use super::negotiation::{Form, negotiate};
use super::protobuf;
use fullpipe_kernel::local_name;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ACCEPT, ALLOW, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
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
/// Maximum concurrent connections of one address (an IPv6 /64), so that no address can block others.
/// A further one replaces the oldest of the same address that has sent nothing, or else no complete
/// request header; without one, it is closed itself.
const MAX_PER_ADDRESS: usize = 16;
/// Maximum size of a file of certificates.
const MAX_CERTIFICATES: u64 = 1024 * 1024;
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
    ttl: Duration,
    /// The last page and its time. Locked while a page is rendered; requests wait for the lock, and
    /// an abandoned request stops waiting.
    last: Arc<tokio::sync::Mutex<Option<(Instant, Bytes)>>>,
}

impl std::fmt::Debug for Front {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Front")
    }
}

impl Front {
    /// The page, rendered in a blocking thread unless a fresh one is cached. If a request is abandoned
    /// during its rendering, the rendering completes and its page is cached.
    async fn get(self: Arc<Self>) -> Option<Bytes> {
        let mut last = Arc::clone(&self.last).lock_owned().await;
        if let Some((at, page)) = &*last
            && at.elapsed() < self.ttl
        {
            return Some(page.clone());
        }
        let rendering = tokio::task::spawn_blocking(move || {
            let page = Bytes::from((self.render)());
            *last = Some((Instant::now(), page.clone()));
            page
        });
        rendering.await.ok()
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

/// A connection in progress.
struct Open {
    number: u64,
    task: AbortHandle,
    /// Its socket, to see whether anything has arrived.
    socket: std::net::TcpStream,
    progress: Arc<Progress>,
}

/// What a connection has received.
#[derive(Default)]
struct Progress {
    anything: AtomicBool,
    /// A complete request header.
    request: AtomicBool,
}

impl Open {
    fn is_silent(&self) -> bool {
        // The socket does not block: an error means that nothing has arrived.
        !self.progress.anything.load(Relaxed) && self.socket.peek(&mut [0]).is_err()
    }

    fn has_request(&self) -> bool {
        self.progress.request.load(Relaxed)
    }
}

/// The connections in progress, by address, the oldest first.
#[derive(Clone, Default)]
struct Connections(Arc<Mutex<HashMap<IpAddr, VecDeque<Open>>>>);

impl Connections {
    /// Registers a connection; if there are too many of the same address, closes one of them.
    fn add(&self, address: IpAddr, open: Open) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = all.entry(address).or_default();
        own.push_back(open);
        if own.len() > MAX_PER_ADDRESS {
            let before = own.iter().take(MAX_PER_ADDRESS);
            let silent = before.clone().position(Open::is_silent);
            let excess = silent.or_else(|| before.clone().position(|open| !open.has_request()));
            if let Some(open) = own.remove(excess.unwrap_or(MAX_PER_ADDRESS)) {
                open.task.abort();
            }
        }
    }

    fn remove(&self, address: IpAddr, number: u64) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = all.get_mut(&address) {
            own.retain(|open| open.number != number);
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
        self.with_front_for(FRONT_PAGE_TTL, render)
    }

    /// As [`with_front`](Self::with_front); a page is cached for `ttl`.
    fn with_front_for(self, ttl: Duration, render: impl Fn() -> Vec<u8> + Send + Sync + 'static) -> Pages {
        Pages { front: Some(Arc::new(Front { render: Box::new(render), ttl, last: Arc::default() })), ..self }
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
            // A second descriptor of the socket, for the list.
            let Ok((stream, socket)) = with_second_descriptor(stream) else { continue };
            let (pages, token, tls) =
                (pages.clone(), self.token.clone(), self.tls.clone().map(TlsAcceptor::from));
            let progress = Arc::<Progress>::default();
            let reached = Arc::clone(&progress);
            let address = counted_address(peer);
            let by_loopback = peer.ip().to_canonical().is_loopback();
            number += 1;
            let registration = Registration { connections: connections.clone(), address, number };
            let task = tokio::spawn(async move {
                let (_place, _registration) = (place, registration);
                // Errors on a scrape are visible to the scraper.
                let _ = tokio::time::timeout(SCRAPE_TIMEOUT, async move {
                    let first = tokio::time::timeout(HEADER_TIMEOUT, stream.peek(&mut [0])).await;
                    if !matches!(first, Ok(Ok(1))) {
                        return;
                    }
                    reached.anything.store(true, Relaxed);
                    match tls {
                        None => serve_one(stream, pages, token, by_loopback, reached).await,
                        Some(tls) => {
                            let handshake = tokio::time::timeout(HEADER_TIMEOUT, tls.accept(stream)).await;
                            if let Ok(Ok(stream)) = handshake {
                                serve_one(stream, pages, token, by_loopback, reached).await;
                            }
                        }
                    }
                })
                .await;
            });
            connections.add(address, Open { number, task: task.abort_handle(), socket, progress });
            // Under a flood of connections, requests that have arrived are read between them.
            tokio::task::yield_now().await;
        }
    }
}

fn with_second_descriptor(
    stream: tokio::net::TcpStream,
) -> io::Result<(tokio::net::TcpStream, std::net::TcpStream)> {
    let stream = stream.into_std()?;
    let second = stream.try_clone()?;
    Ok((tokio::net::TcpStream::from_std(stream)?, second))
}

/// One request per connection: the time between scrapes is too long to keep a connection open.
async fn serve_one(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    pages: Pages,
    token: Option<Arc<str>>,
    by_loopback: bool,
    progress: Arc<Progress>,
) {
    let answers = service_fn(move |request: Request<Incoming>| {
        progress.request.store(true, Relaxed);
        let (path, token) = (request.uri().path(), token.as_deref());
        let mut answer = answer(request.method(), path, request.headers(), &pages, token, by_loopback);
        let is_front = request.uri().path() == "/" && answer.status() == StatusCode::OK;
        let front = pages.front.clone().filter(|_| is_front);
        async move {
            if let Some(front) = front
                && let Some(page) = front.get().await
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
    // Pages of other sites can neither include the answer as a picture or script, nor have it guessed
    // to be one.
    let answer = with(Response::new(Full::new(body)), CONTENT_TYPE, kind);
    let answer = with(answer, X_CONTENT_TYPE_OPTIONS, "nosniff");
    with(answer, HeaderName::from_static("cross-origin-resource-policy"), "same-origin")
}

fn load_tls(tls: &Tls) -> Result<Arc<ServerConfig>, ServerError> {
    let error = |path: &Path, e: &dyn std::fmt::Display| ServerError::Tls {
        path: path.to_owned(),
        reason: e.to_string(),
    };
    let (certificate, key) = (tls.certificate.as_path(), tls.key.as_path());
    let pem = fullpipe_files::read_bounded(certificate, MAX_CERTIFICATES)
        .map_err(|e| error(certificate, &format_args!("cannot read PEM certificates: {e}")))?;
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|e| error(certificate, &format_args!("cannot read PEM certificates: {e}")))?;
    let pem = fullpipe_files::read_secret(key)
        .map_err(|e| error(key, &format_args!("cannot read a PEM private key: {e}")))?;
    let private = PrivateKeyDer::from_pem_slice(&pem)
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
    use std::sync::mpsc;

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
        let plain = get("");
        assert!(plain.ends_with("\r\n\r\nplain"));
        for field in ["cross-origin-resource-policy: same-origin", "x-content-type-options: nosniff"] {
            assert!(plain.contains(field), "other sites cannot include it: {plain}");
        }
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
            std::thread::sleep(std::time::Duration::from_secs(300));
            Vec::new()
        });
        let thread = std::thread::spawn(move || server.run(&pages).unwrap());
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        rendering.recv().unwrap();
        let asked = Instant::now();
        stopper.stop();
        thread.join().unwrap();
        assert!(asked.elapsed() < std::time::Duration::from_secs(30), "{:?}", asked.elapsed());
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
        let answer = ask(address, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(answer.ends_with("plain"), "{answer}");
        let is_open = |stream: &&TcpStream| {
            stream.set_nonblocking(true).unwrap();
            stream.peek(&mut [0]).is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
        };
        let open = idle.iter().filter(is_open).count();
        assert!(open <= MAX_PER_ADDRESS, "{open} places are held");
        stopper.stop();
        thread.join().unwrap();
    }

    #[test]
    fn a_request_that_has_arrived_survives_further_connections_of_its_address() {
        let (address, stopper, thread) = running(&Settings::default());
        for request in ["GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET /metrics HTTP/1.1\r\n"] {
            // The scrapers are the oldest connections, and a full share of them.
            let mut scrapers: Vec<_> =
                (0..MAX_PER_ADDRESS - 1).map(|_| TcpStream::connect(address).unwrap()).collect();
            for scraper in &mut scrapers {
                scraper.write_all(request.as_bytes()).unwrap();
            }
            let idle: Vec<_> = (0..200).map(|_| TcpStream::connect(address).unwrap()).collect();
            for scraper in &mut scrapers {
                if !request.ends_with("\r\n\r\n") {
                    scraper.write_all(b"Host: localhost\r\n\r\n").unwrap();
                }
                let mut answer = String::new();
                scraper.read_to_string(&mut answer).unwrap();
                assert!(answer.ends_with("plain"), "{answer}");
            }
            drop(idle);
        }
        stopper.stop();
        thread.join().unwrap();
    }

    const FRONT: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

    /// A server that reports each rendering of its front page and completes it when `go` is signalled.
    struct Gated {
        address: SocketAddr,
        stopper: Stopper,
        thread: std::thread::JoinHandle<()>,
        rendering: mpsc::Receiver<()>,
        go: mpsc::Sender<()>,
    }

    fn gated(ttl: Duration) -> Gated {
        let server = Server::bind(([127, 0, 0, 1], 0).into(), &Settings::default()).unwrap();
        let (address, stopper) = (server.address().unwrap(), server.stopper());
        let (begun, rendering) = mpsc::channel();
        let (go, gate) = mpsc::channel();
        let gate = Mutex::new(gate);
        let pages = Pages::default().with_front_for(ttl, move || {
            begun.send(()).unwrap();
            gate.lock().unwrap().recv().unwrap();
            b"rendered".to_vec()
        });
        let thread = std::thread::spawn(move || server.run(&pages).unwrap());
        Gated { address, stopper, thread, rendering, go }
    }

    #[test]
    fn a_scrape_in_progress_survives_further_connections_of_its_address() {
        let Gated { address, stopper, thread, rendering, go } = gated(FRONT_PAGE_TTL);
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(FRONT).unwrap();
        rendering.recv().unwrap();
        let mut others: Vec<_> = (0..200).map(|_| TcpStream::connect(address).unwrap()).collect();
        // When the last one is answered, all were accepted.
        others.last_mut().unwrap().write_all(b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        others.last_mut().unwrap().read_to_string(&mut String::new()).unwrap();
        go.send(()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("rendered"), "{answer}");
        drop(others);
        stopper.stop();
        thread.join().unwrap();
    }

    #[test]
    fn abandoned_requests_do_not_queue_for_rendering() {
        // Without a cache, each request that is still wanted is rendered.
        let Gated { address, stopper, thread, rendering, go } = gated(Duration::ZERO);
        let mut first = TcpStream::connect(address).unwrap();
        first.write_all(FRONT).unwrap();
        rendering.recv().unwrap();
        let request = |_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(FRONT).unwrap();
            stream
        };
        // All wait when a later request is answered.
        let waiting = || ask(address, "GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let abandoned: Vec<_> = (0..10).map(request).collect();
        waiting();
        for mut stream in abandoned {
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            // The server has noticed that its client is gone.
            assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
        }
        let mut last = request(0);
        waiting();
        let mut renderings = 1;
        go.send(()).unwrap();
        let mut answer = String::new();
        first.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("rendered"), "{answer}");
        std::thread::scope(|s| {
            let answered = s.spawn(|| {
                let mut answer = String::new();
                last.read_to_string(&mut answer).unwrap();
                answer
            });
            while !answered.is_finished() {
                if rendering.recv_timeout(Duration::from_millis(10)).is_ok() {
                    renderings += 1;
                    go.send(()).unwrap();
                }
            }
            assert!(answered.join().unwrap().ends_with("rendered"));
        });
        assert_eq!(renderings, 2);
        stopper.stop();
        thread.join().unwrap();
    }

    #[test]
    fn tls_files_are_regular_bounded_and_the_key_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let (certificate, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
        let pem = |kind: &str| format!("-----BEGIN {kind}-----\nMAA=\n-----END {kind}-----\n");
        std::fs::write(&certificate, pem("CERTIFICATE")).unwrap();
        std::fs::write(&key, pem("PRIVATE KEY")).unwrap();
        let error = |certificate: &Path, key: &Path| {
            load_tls(&Tls { certificate: certificate.to_owned(), key: key.to_owned() })
                .unwrap_err()
                .to_string()
        };
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o644)).unwrap();
        assert!(error(&certificate, &key).contains("chmod 600"), "{}", error(&certificate, &key));
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
        assert!(error(&certificate, &key).contains("do not match"), "{}", error(&certificate, &key));
        let fifo = dir.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        for other in [Path::new("/dev/zero"), &fifo] {
            assert!(error(&certificate, other).contains("not a regular file"));
            assert!(error(other, &key).contains("not a regular file"));
        }
    }

    #[test]
    fn connections_are_counted_by_host() {
        let counted = |peer: &str| counted_address(peer.parse().unwrap()).to_string();
        assert_eq!(counted("[2001:db8:1:2:3:4:5:6]:7"), "2001:db8:1:2::");
        assert_eq!(counted("[::ffff:192.0.2.1]:7"), "192.0.2.1");
    }
}
