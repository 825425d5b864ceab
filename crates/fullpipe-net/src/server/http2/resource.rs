//! The resources of a responsiveness test (draft-ietf-ippm-responsiveness section 5).

use super::connection::Connection;
use crate::server::admission::Permit;
use crate::server::http::{CROSS_SITE, MISDIRECTED, UNAUTHORIZED, is_authorized, is_misdirected};
use crate::server::{Event, http};
use crate::transfer::noise;
use bytes::Bytes;
use fullpipe_kernel::tcp_info;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use hyper::header::{HeaderName, WWW_AUTHENTICATE};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::json;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use url::form_urlencoded;

/// Size of the large resource; the draft demands at least 8 GB.
const LARGE: u64 = 1 << 43;
/// The kind of everything that is only transferred.
const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// The field of plain HTTP with the same meaning.
const CONTROLLER: HeaderName = HeaderName::from_static("x-fullpipe-controller");

const INDEX: &str = "fullpipe serve, resources of a responsiveness test\n\n\
    GET  /.well-known/nq?cc=bbr   their addresses, with this controller; `cc` is optional\n\
    GET  /small                   one byte\n\
    GET  /large?cc=bbr            data without end\n\
    POST /upload?cc=bbr           accepts any body and reports its rate\n\n\
    fullpipe rpm measures with them. http:// has downloads and uploads of any size.\n";

/// The body of a response.
pub(super) enum Content {
    Whole(Option<Bytes>),
    Data(Data),
}

impl Content {
    fn text(text: impl Into<String>) -> Content {
        Content::Whole(Some(Bytes::from(text.into())).filter(|text| !text.is_empty()))
    }
}

/// Data without end.
pub(super) struct Data {
    transfer: Transfer,
    left: u64,
    at: usize,
}

impl Body for Content {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let data = match &mut *self {
            Content::Whole(bytes) => return Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Content::Data(data) => data,
        };
        if data.left == 0 {
            return Poll::Ready(None);
        }
        if let Err(e) = data.transfer.check_time() {
            return Poll::Ready(Some(Err(e)));
        }
        let content = noise();
        let block = data.transfer.connection.socket.unsent.block();
        let length = block.min(content.len() - data.at).min(usize::try_from(data.left).unwrap_or(block));
        let block = Bytes::from_static(&content[data.at..data.at + length]);
        data.at = (data.at + length) % content.len();
        data.left -= length as u64;
        data.transfer.sent(length as u64);
        Poll::Ready(Some(Ok(Frame::data(block))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Content::Whole(bytes) => bytes.is_none(),
            Content::Data(data) => data.left == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match self {
            Content::Whole(bytes) => bytes.as_ref().map_or(0, |bytes| bytes.len() as u64),
            Content::Data(data) => data.left,
        })
    }
}

/// A transfer: it holds a place, and is logged when it ends, however it does.
struct Transfer {
    connection: Arc<Connection>,
    kind: &'static str,
    began: Instant,
    bytes: u64,
    error: Option<String>,
    _permit: Permit,
}

impl Transfer {
    fn begin(connection: &Arc<Connection>, kind: &'static str) -> Result<Transfer, Refusal> {
        let permit = connection.shared.clients.acquire(connection.peer.ip()).map_err(|full| {
            let why = format!("{}; try again later", full.clients_reason());
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why)
        })?;
        connection.begin();
        let (connection, began) = (Arc::clone(connection), Instant::now());
        Ok(Transfer { connection, kind, began, bytes: 0, error: None, _permit: permit })
    }

    fn sent(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.connection.socket.body_sent.fetch_add(bytes, Relaxed);
    }

    fn received(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.connection.socket.body_received.fetch_add(bytes, Relaxed);
    }

    fn until(&self) -> Instant {
        self.began + Duration::from_secs(self.connection.shared.config.limits.seconds.into())
    }

    /// Fails once the time limit has passed.
    fn check_time(&mut self) -> io::Result<()> {
        if Instant::now() <= self.until() {
            return Ok(());
        }
        let why = "the time limit was exceeded";
        self.error = Some(why.to_owned());
        Err(io::Error::new(io::ErrorKind::TimedOut, why))
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        let connection = &self.connection;
        connection.finish();
        let controller = tcp_info::controller(&connection.socket.tcp).unwrap_or_default();
        let event = Event::new(self.kind, Some(connection.peer))
            .with("path", if self.kind == "download" { "/large" } else { "/upload" })
            .with("bytes", self.bytes)
            .with("seconds", self.began.elapsed().as_secs_f64())
            .with("controller", controller);
        connection.shared.log(match &self.error {
            Some(error) => event.with("error", error.as_str()),
            None => event,
        });
        connection.shared.finish(true);
    }
}

/// An error response.
struct Refusal {
    status: StatusCode,
    field: Option<(HeaderName, HeaderValue)>,
    why: String,
}

impl Refusal {
    fn new(status: StatusCode, why: impl Into<String>) -> Refusal {
        Refusal { status, field: None, why: why.into() }
    }

    fn with(status: StatusCode, name: HeaderName, value: &'static str, why: &str) -> Refusal {
        Refusal { field: Some((name, HeaderValue::from_static(value))), ..Refusal::new(status, why) }
    }
}

/// Answers a request.
pub(super) async fn answer(
    connection: Arc<Connection>,
    request: Request<Incoming>,
) -> Result<Response<Content>, Infallible> {
    connection.count_request();
    let path = request.uri().path().to_owned();
    let is_head = request.method() == Method::HEAD;
    let mut response = match route(&connection, request).await {
        Ok(response) => response,
        Err(refusal) => {
            let event = Event::new("http_refused", Some(connection.peer)).with("path", path);
            connection.shared.log(event.with("reason", refusal.why.as_str()));
            let mut response = respond(TEXT, Content::text(refusal.why + "\n"));
            *response.status_mut() = refusal.status;
            response.headers_mut().extend(refusal.field.map(|(name, value)| (Some(name), value)));
            response
        }
    };
    if is_head {
        *response.body_mut() = Content::Whole(None);
    }
    Ok(response)
}

fn respond(kind: HeaderValue, content: Content) -> Response<Content> {
    let mut response = Response::new(content);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

async fn route(
    connection: &Arc<Connection>,
    request: Request<Incoming>,
) -> Result<Response<Content>, Refusal> {
    let host = authority(&request);
    check_access(connection, request.headers(), host.as_deref())?;
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let reads = matches!(method, Method::GET | Method::HEAD);
    let writes = matches!(method, Method::POST | Method::PUT);
    match path.as_str() {
        "/" | "/.well-known/nq" | "/small" | "/large" if !reads => {
            Err(Refusal::with(StatusCode::METHOD_NOT_ALLOWED, ALLOW, "GET, HEAD", "only GET and HEAD"))
        }
        "/upload" if !writes => {
            Err(Refusal::with(StatusCode::METHOD_NOT_ALLOWED, ALLOW, "POST, PUT", "only POST and PUT"))
        }
        "/" => Ok(respond(TEXT, Content::text(INDEX))),
        "/.well-known/nq" => {
            let controller = set_controller(connection, &request)?;
            let host = host.unwrap_or_else(|| connection.shared.address.to_string());
            Ok(respond(JSON, Content::text(configuration(&host, controller.as_deref()))))
        }
        "/small" => {
            set_controller(connection, &request)?;
            Ok(respond(OCTETS, Content::Whole(Some(Bytes::from_static(&noise()[..1])))))
        }
        "/large" => {
            set_controller(connection, &request)?;
            let left = connection.shared.config.limits.bytes.unwrap_or(LARGE).min(LARGE);
            if method == Method::HEAD {
                return Ok(respond(OCTETS, Content::Whole(None)));
            }
            let transfer = Transfer::begin(connection, "download")?;
            let mut response = respond(OCTETS, Content::Data(Data { transfer, left, at: 0 }));
            response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            let controller = tcp_info::controller(&connection.socket.tcp).ok();
            if let Some(controller) = controller.and_then(|name| HeaderValue::try_from(name).ok()) {
                response.headers_mut().insert(CONTROLLER, controller);
            }
            Ok(response)
        }
        "/upload" => {
            set_controller(connection, &request)?;
            upload(connection, request.into_body()).await
        }
        _ => {
            let why = "not found; see / for a list, and http:// for downloads and uploads of any size";
            Err(Refusal::new(StatusCode::NOT_FOUND, why))
        }
    }
}

/// The host and port that the client asked for.
fn authority(request: &Request<Incoming>) -> Option<String> {
    let field = || request.headers().get(HOST).map(|host| String::from_utf8_lossy(host.as_bytes()).into());
    request.uri().authority().map(|authority| authority.as_str().to_owned()).or_else(field)
}

/// Refuses what plain HTTP refuses, too.
fn check_access(connection: &Connection, headers: &HeaderMap, host: Option<&str>) -> Result<(), Refusal> {
    let shared = &connection.shared;
    if is_misdirected(shared, connection.peer, host) {
        return Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, MISDIRECTED));
    }
    let authorization = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    if !is_authorized(shared, authorization) {
        return Err(Refusal::with(StatusCode::UNAUTHORIZED, WWW_AUTHENTICATE, "Bearer", UNAUTHORIZED));
    }
    let mut fields: Vec<httparse::Header<'_>> = headers
        .iter()
        .filter(|(name, _)| *name != HOST)
        .map(|(name, value)| httparse::Header { name: name.as_str(), value: value.as_bytes() })
        .collect();
    fields.extend(host.map(|host| httparse::Header { name: "host", value: host.as_bytes() }));
    match crate::http::is_cross_site(&fields) {
        Ok(false) => Ok(()),
        Ok(true) => Err(Refusal::new(StatusCode::FORBIDDEN, CROSS_SITE)),
        Err(e) => Err(Refusal::new(StatusCode::BAD_REQUEST, e.to_string())),
    }
}

/// Sets the controller that a request names, for the whole connection.
fn set_controller(connection: &Connection, request: &Request<Incoming>) -> Result<Option<String>, Refusal> {
    let bad = |why: String| Refusal::new(StatusCode::BAD_REQUEST, why);
    let mut controller = None;
    for (name, value) in form_urlencoded::parse(request.uri().query().unwrap_or("").as_bytes()) {
        if name != "cc" {
            let name: String = name.chars().take(40).collect();
            return Err(bad(format!("unknown parameter {name:?}; there is cc")));
        }
        let shared = &connection.shared;
        shared.pin(&connection.socket.tcp, &value).map_err(|e| bad(format!("cc: {e}")))?;
        controller = Some(value.into_owned());
    }
    Ok(controller)
}

/// The configuration object (draft section 5.1), also with the names of earlier drafts, which
/// goresponsiveness and older clients need.
fn configuration(host: &str, controller: Option<&str>) -> String {
    let query = controller.map_or(String::new(), |name| format!("?cc={name}"));
    let url = |path| format!("https://{host}{path}{query}");
    let object = json!({
        "version": 1,
        "urls": {
            "large_download_url": url("/large"),
            "small_download_url": url("/small"),
            "upload_url": url("/upload"),
            "large_https_download_url": url("/large"),
            "small_https_download_url": url("/small"),
            "https_upload_url": url("/upload"),
        },
    });
    format!("{object}\n")
}

/// Receives and discards a body.
async fn upload(connection: &Arc<Connection>, mut body: Incoming) -> Result<Response<Content>, Refusal> {
    let max = connection.shared.config.limits.bytes.unwrap_or(http::MAX_SIZE);
    let mut transfer = Transfer::begin(connection, "upload")?;
    connection.socket.has_upload.store(true, Relaxed);
    let until = transfer.until();
    loop {
        let refused = match tokio::time::timeout_at(until.into(), body.frame()).await {
            Err(_) => Refusal::new(StatusCode::REQUEST_TIMEOUT, "the time limit was exceeded"),
            Ok(None) => break,
            Ok(Some(Err(e))) => {
                // The client ends the upload of a test so: not a failure.
                let mut response = respond(TEXT, Content::text(format!("the upload ended: {e}\n")));
                *response.status_mut() = StatusCode::BAD_REQUEST;
                return Ok(response);
            }
            Ok(Some(Ok(frame))) => {
                transfer.received(frame.data_ref().map_or(0, |data| data.len() as u64));
                if transfer.bytes <= max {
                    continue;
                }
                Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, format!("at most {max} bytes"))
            }
        };
        transfer.error = Some(refused.why.clone());
        return Err(refused);
    }
    let (bytes, seconds) = (transfer.bytes, transfer.began.elapsed().as_secs_f64());
    let rate = bytes as f64 * 8.0 / seconds.max(1e-9);
    let answer = json!({"bytes": bytes, "seconds": seconds, "bits_per_second": rate});
    Ok(respond(JSON, Content::text(format!("{answer}\n"))))
}
