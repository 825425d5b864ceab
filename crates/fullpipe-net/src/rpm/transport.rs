//! Connections of the client: TCP, TLS and HTTP/2, with the time of each.

use super::{RpmError, Trust};
use crate::printable;
use crate::unbuffered::{Unbuffered, Unsent};
use bytes::Bytes;
use fullpipe_kernel::{socket, tcp_info};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::net::TcpSocket;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, Error as TlsError, InvalidMessage, ProtocolVersion};
use url::Url;

/// Flow-control windows: TCP limits, not HTTP/2.
const WINDOW: u32 = 16 << 20;
/// Maximum bytes of a body in front of the flow control of its stream.
const MAX_SEND_BUFFER: usize = 64 * 1024;
/// Maximum size of a configuration object or an error text.
const MAX_TEXT: usize = 64 * 1024;

/// Where connections lead, and how they are made.
#[derive(Clone)]
pub(super) struct Target {
    pub address: SocketAddr,
    pub name: ServerName<'static>,
    pub tls: Arc<ClientConfig>,
    /// That of this host.
    pub controller: Option<String>,
    pub timeout: Duration,
    pub authorization: Option<HeaderValue>,
}

/// The host of a URL for messages and for connecting.
pub(super) fn host(url: &Url) -> String {
    url.host_str().unwrap_or("").trim_matches(['[', ']']).to_owned()
}

impl Target {
    pub fn new(
        url: &Url,
        address: SocketAddr,
        trust: &Trust,
        controller: Option<&str>,
        timeout: Duration,
        secret: Option<&str>,
    ) -> Result<Target, RpmError> {
        let name = ServerName::try_from(host(url)).map_err(|e| RpmError::Url(format!("{url}: {e}")))?;
        let tls = trust.config().map_err(|e| RpmError::System(io::Error::other(e)))?;
        let authorization = secret
            .map(|secret| HeaderValue::try_from(format!("Bearer {secret}")))
            .transpose()
            .map_err(|_| RpmError::Secret)?;
        Ok(Target { address, name, tls, controller: controller.map(str::to_owned), timeout, authorization })
    }

    /// Opens a connection.
    pub async fn connect(&self) -> Result<Connection, RpmError> {
        let opened = tokio::time::timeout(self.timeout, self.open()).await;
        opened.unwrap_or_else(|_| Err(self.failed(io::ErrorKind::TimedOut.into())))
    }

    fn failed(&self, source: io::Error) -> RpmError {
        RpmError::Connect { address: self.address, source }
    }

    /// Why there is no TLS.
    fn insecure(&self, source: io::Error) -> RpmError {
        let tls = source.get_ref().and_then(|e| e.downcast_ref::<TlsError>());
        match tls {
            // What it sent is not even a record.
            Some(TlsError::InvalidMessage(InvalidMessage::InvalidContentType)) => {
                RpmError::NoTls(self.address)
            }
            _ => self.failed(source),
        }
    }

    async fn open(&self) -> Result<Connection, RpmError> {
        let failed = |e| self.failed(e);
        let socket = socket::tcp(self.address).map_err(failed)?;
        if let Some(name) = &self.controller {
            tcp_info::pin(&socket, name)?;
        }
        socket.set_nonblocking(true).map_err(failed)?;
        socket.set_nodelay(true).map_err(failed)?;
        let unsent = Arc::new(Unsent::new(&socket));
        // Connections that end in the middle of a transfer leave neither data on the path nor metrics
        // in the kernel that would help later ones.
        socket::reset_on_close(&socket).map_err(failed)?;
        let descriptor = socket.as_fd().try_clone_to_owned().map_err(failed)?;
        let began = Instant::now();
        let tcp = TcpSocket::from_std_stream(socket).connect(self.address).await.map_err(failed)?;
        let connected = Instant::now();
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let stream = connector.connect(self.name.clone(), tcp).await.map_err(|e| self.insecure(e))?;
        let secured = Instant::now();
        let session = stream.get_ref().1;
        if session.alpn_protocol() != Some(b"h2") {
            return Err(RpmError::NoHttp2(self.address));
        }
        // TLS 1.3 takes one round trip, TLS 1.2 two.
        let rounds = if session.protocol_version() == Some(ProtocolVersion::TLSv1_3) { 1.0 } else { 2.0 };
        let http = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_send_buf_size(MAX_SEND_BUFFER)
            .handshake(TokioIo::new(Unbuffered(stream)))
            .await;
        let (sender, connection) = http.map_err(|e| failed(io::Error::other(e)))?;
        let driver = tokio::spawn(async move {
            // Its requests fail with the connection.
            let _ = connection.await;
        });
        Ok(Connection {
            sender,
            socket: descriptor,
            unsent,
            driver: driver.abort_handle(),
            tcp_ms: milliseconds(connected - began),
            tls_ms: milliseconds(secured - connected) / rounds,
        })
    }

    /// A request. No priorities, as the draft demands.
    pub fn request<B>(&self, method: Method, url: &Url, body: B) -> Result<Request<B>, RpmError> {
        let mut request = Request::builder()
            .version(Version::HTTP_2)
            .method(&method)
            .uri(url.as_str())
            .header(ACCEPT_ENCODING, "identity")
            .header(USER_AGENT, concat!("fullpipe/", env!("CARGO_PKG_VERSION")));
        if method == Method::POST {
            request = request.header(CONTENT_TYPE, "application/octet-stream");
        }
        if let Some(value) = &self.authorization {
            request = request.header(AUTHORIZATION, value);
        }
        request.body(body).map_err(|e| RpmError::Url(format!("{url}: {e}")))
    }
}

pub(super) fn milliseconds(span: Duration) -> f64 {
    span.as_secs_f64() * 1000.0
}

/// The body of requests: nothing, or data without end.
pub(super) enum Upload {
    Nothing,
    Endless {
        unsent: Arc<Unsent>,
        /// Counts what was given to HTTP.
        bytes: Arc<AtomicU64>,
    },
}

impl Body for Upload {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match &*self {
            Upload::Nothing => Poll::Ready(None),
            Upload::Endless { unsent, bytes } => {
                let block = Bytes::from_static(&crate::transfer::noise()[..unsent.block()]);
                bytes.fetch_add(block.len() as u64, Relaxed);
                Poll::Ready(Some(Ok(Frame::data(block))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Upload::Nothing)
    }
}

/// An open connection, closed on drop.
pub(super) struct Connection {
    pub sender: SendRequest<Upload>,
    pub socket: OwnedFd,
    pub unsent: Arc<Unsent>,
    driver: AbortHandle,
    pub tcp_ms: f64,
    /// Per round trip of the handshake.
    pub tls_ms: f64,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Sends a request and receives the whole answer.
pub(super) async fn exchange(
    sender: &mut SendRequest<Upload>,
    target: &Target,
    url: &Url,
) -> Result<Bytes, RpmError> {
    let request = target.request(Method::GET, url, Upload::Nothing)?;
    let response = sender.send_request(request).await.map_err(|e| RpmError::hyper(url, &e))?;
    let response = checked(url, response).await?;
    whole(url, response).await
}

/// A response if it is successful.
pub(super) async fn checked(url: &Url, response: Response<Incoming>) -> Result<Response<Incoming>, RpmError> {
    if response.status().is_success() {
        return Ok(response);
    }
    let status = response.status().as_u16();
    let text = whole(url, response).await.unwrap_or_default();
    let text: String = String::from_utf8_lossy(&text).trim().chars().take(200).collect();
    let text = printable::line(&text).into_owned();
    Err(RpmError::Status { url: url.to_string(), status, text })
}

async fn whole(url: &Url, response: Response<Incoming>) -> Result<Bytes, RpmError> {
    let body = http_body_util::Limited::new(response.into_body(), MAX_TEXT);
    let collected = body.collect().await.map_err(|e| RpmError::http(url, e.to_string()))?;
    Ok(collected.to_bytes())
}
