//! Downloads over HTTP and HTTPS like wget: to a file, to memory or discarded, resumable, verified
//! with SHA-256, with a diagnosis of what limited them.

mod address;
mod channel;
mod partial;
pub mod response;
mod sink;
mod transfer;

pub use address::{address, file_name};
pub use sink::MAX_MEMORY;
pub use url::Url;

use crate::http::{Framing, MessageError, ResponseHead};
use crate::printable;
use crate::sample::SocketSample;
use address::{Credentials, authority, redirected, target};
use fullpipe_kernel::tcp_info::PinError;
use response::Body;
use sink::Sink;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use transfer::Transfer;

/// Maximum redirects, as in browsers (curl allows more).
const MAX_REDIRECTS: usize = 20;
/// Bytes per read.
const PIECE: usize = 256 * 1024;

/// The destination of a download.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// A file, which gets its name when it is complete.
    File(PathBuf),
    /// Standard output, streamed.
    Stdout,
    /// Memory, at most [`MAX_MEMORY`].
    Memory,
    /// Discarded.
    Discard,
}

/// A download request.
#[derive(Clone, Debug)]
pub struct Request {
    /// URL.
    pub url: String,
    /// Destination.
    pub target: Target,
    /// Resume a partial file if the server still has the same version.
    pub resume: bool,
    /// Replace an existing file.
    pub force: bool,
    /// Expected SHA-256 of the complete file, hexadecimal.
    pub sha256: Option<String>,
    /// Congestion controller of the local socket; it affects only what is sent.
    pub controller: Option<String>,
    /// Local receive buffer, bytes.
    pub window: Option<u32>,
    /// Sent as `Authorization: Bearer`, to this URL's origin only.
    pub token: Option<String>,
    /// Timeout for resolving, connecting, the response head, and each pause.
    pub timeout: Duration,
}

impl Request {
    /// A download that is discarded.
    pub fn new(url: impl Into<String>) -> Self {
        Request {
            url: url.into(),
            target: Target::Discard,
            resume: false,
            force: false,
            sha256: None,
            controller: None,
            window: None,
            token: None,
            timeout: Duration::from_secs(30),
        }
    }

    /// A hint for downloads that were interrupted.
    fn hint(&self) -> &'static str {
        if matches!(self.target, Target::File(_)) { "; continue with --resume" } else { "" }
    }
}

/// Why a download failed. Text from the server is made printable.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// An invalid URL or redirect.
    #[error("{0}")]
    Url(String),
    /// No connection.
    #[error("cannot connect to {host}: {source}")]
    Connect {
        /// The host.
        host: String,
        /// The cause.
        source: io::Error,
    },
    /// The server returned an error status.
    #[error("the server answered {status} {reason}{detail}")]
    Status {
        /// Status code.
        status: u16,
        /// Reason phrase.
        reason: String,
        /// Beginning of the body.
        detail: String,
    },
    /// The response is not valid HTTP/1.1 or does not match the request.
    #[error("the server's response is not valid HTTP: {0}")]
    NotHttp(String),
    /// The transfer was interrupted.
    #[error("interrupted after {bytes} bytes: {source}{hint}")]
    Broken {
        /// Bytes of the file so far.
        bytes: u64,
        /// The cause.
        source: io::Error,
        /// What to do.
        hint: &'static str,
    },
    /// The file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file exists.
    #[error("{} exists: {hint}", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
        /// What to do.
        hint: &'static str,
    },
    /// The file cannot be resumed.
    #[error(
        "cannot resume {}: the server has another version or does not support ranges; replace it with \
            --force",
        path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The download exceeds the memory limit.
    #[error("download exceeds {MAX_MEMORY} bytes of memory: write it to a file or use --discard")]
    Memory,
    /// The local controller cannot be set.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// The user interrupted the download.
    #[error("interrupted after {bytes} bytes{hint}")]
    Interrupted {
        /// Bytes of the file so far.
        bytes: u64,
        /// What to do.
        hint: &'static str,
    },
}

/// Progress of a download.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Bytes of the file, including those from an earlier download.
    pub bytes: u64,
    /// Size of the file, if known.
    pub total: Option<u64>,
    /// Seconds since the request.
    pub seconds: f64,
}

/// A finished download.
#[derive(Clone, Debug)]
pub struct Download {
    /// URL after redirects.
    pub url: String,
    /// Bytes received by this download.
    pub bytes: u64,
    /// Bytes from an earlier download.
    pub resumed_at: u64,
    /// Seconds from the request to the last byte, as wget and curl count.
    pub seconds: f64,
    /// Seconds until the first byte of the response.
    pub first_byte: f64,
    /// SHA-256 of the file, if requested.
    pub sha256: Option<String>,
    /// Whether the SHA-256 matches; `None` if none was expected.
    pub matches: Option<bool>,
    /// The sender's controller, from fullpipe servers.
    pub controller: Option<String>,
    /// The local socket at the end.
    pub socket: SocketSample,
    /// What limited the download.
    pub limit: String,
    /// The file written: the `.part` file if the SHA-256 does not match.
    pub file: Option<PathBuf>,
    /// Contents of a download to memory.
    pub content: Option<Vec<u8>>,
}

impl Download {
    /// Rate, bit/s.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.seconds.max(1e-9)
    }
}

/// Downloads a URL. `progress` is called several times a second.
///
/// # Errors
/// [`GetError`] says what failed and whether it can be resumed.
pub fn get(
    request: &Request,
    interrupt: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Download, GetError> {
    let mut url = address(&request.url).map_err(GetError::Url)?;
    let mut credentials = Credentials::new(request.token.as_deref(), &url).map_err(GetError::Url)?;
    let mut sink = Sink::open(request)?;
    let interrupted = |e: GetError| {
        let bytes = 0;
        if interrupt.load(Relaxed) { GetError::Interrupted { bytes, hint: "" } } else { e }
    };
    // One extra attempt for a response that requires a full download.
    for _ in 0..=MAX_REDIRECTS + 1 {
        let (socket, began, exchange) =
            ask(&url, request, credentials.token_for(&url), &sink.condition(), interrupt)
                .map_err(interrupted)?;
        let response = &exchange.response;
        let first_byte = began.elapsed().as_secs_f64();
        let (resumed_at, whole, part) = match classify(response, &sink)? {
            Verdict::Redirect(location) => {
                url = redirected(&url, &location).map_err(GetError::Url)?;
                continue;
            }
            Verdict::Restart => {
                sink.restart()?;
                continue;
            }
            Verdict::Complete => (sink.existing_bytes(), true, None),
            Verdict::Rest { length, complete } => {
                sink.resume(url.as_str(), response, complete)?;
                (sink.existing_bytes(), false, Some(length))
            }
            Verdict::Whole => {
                sink.begin(url.as_str(), response, known_length(response)?)?;
                (0, false, None)
            }
            Verdict::Error => return Err(interrupted(refused(exchange))),
        };
        let length = if whole { Some(0) } else { part.or(known_length(response)?) };
        let controller = response.field("x-fullpipe-controller").map(|c| printable::line(c).into_owned());
        let mut transfer = Transfer::new(&socket, began, first_byte, resumed_at, length, request.hint());
        if !whole {
            transfer.run(exchange.body()?, &mut sink, interrupt, progress)?;
        }
        return transfer.finish(url.as_str(), request, sink, controller);
    }
    Err(GetError::Url(format!("{}: more than {MAX_REDIRECTS} redirects", printable::line(&request.url))))
}

/// A response head and the channel of its body.
struct Exchange<'a> {
    channel: Box<dyn channel::Channel + 'a>,
    response: ResponseHead,
    rest: Vec<u8>,
}

impl<'a> Exchange<'a> {
    fn body(self) -> Result<Body<Box<dyn channel::Channel + 'a>>, GetError> {
        Body::new(self.channel, self.rest, &self.response).map_err(not_http)
    }
}

fn not_http(e: MessageError) -> GetError {
    GetError::NotHttp(printable::line(&e.to_string()).into_owned())
}

/// Connects, sends the request and reads the response head.
fn ask<'a>(
    url: &Url,
    request: &Request,
    token: Option<&str>,
    condition: &str,
    interrupt: &'a AtomicBool,
) -> Result<(Arc<std::net::TcpStream>, Instant, Exchange<'a>), GetError> {
    let socket = channel::connect(url, request, interrupt)?;
    let began = Instant::now();
    let mut channel = channel::wrap(url, Arc::clone(&socket), request, interrupt)?;
    let authorization = token.map(|t| format!("Authorization: Bearer {t}\r\n")).unwrap_or_default();
    let head = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: fullpipe/{}\r\nAccept: */*\r\nAccept-Encoding: \
            identity\r\n\
         Connection: close\r\n{condition}{authorization}\r\n",
        target(url),
        authority(url),
        env!("CARGO_PKG_VERSION"),
    );
    let broken = |source| GetError::Connect { host: authority(url), source };
    channel.write_all(head.as_bytes()).and_then(|()| channel.flush()).map_err(broken)?;
    let (response, rest) = response::read_head(&mut channel, Instant::now() + request.timeout)
        .map_err(|e| GetError::NotHttp(printable::line(&e.to_string()).into_owned()))?;
    Ok((socket, began, Exchange { channel, response, rest }))
}

/// What a response means for an existing partial file.
enum Verdict {
    /// Redirected.
    Redirect(String),
    /// The complete file follows.
    Whole,
    /// The missing rest follows.
    Rest { length: u64, complete: Option<u64> },
    /// The existing file is complete.
    Complete,
    /// The existing file is of another version: download all of it.
    Restart,
    /// The server refused.
    Error,
}

fn classify(response: &ResponseHead, sink: &Sink) -> Result<Verdict, GetError> {
    let wrong = |why: String| Err(GetError::NotHttp(why));
    let existing = sink.existing_bytes();
    let range = response.content_range().map_err(not_http)?;
    match response.status {
        301 | 302 | 303 | 307 | 308 => {
            Ok(Verdict::Redirect(response.field("location").unwrap_or("").to_owned()))
        }
        200 => Ok(Verdict::Whole),
        206 if existing == 0 => wrong("it sent a partial response (206) to a full request".to_owned()),
        206 => {
            let Some((range, (first, last))) = range.and_then(|r| r.part.map(|part| (r, part))) else {
                return wrong("it sent a partial response (206) without Content-Range".to_owned());
            };
            if first != existing || range.complete.is_some_and(|n| last + 1 != n) {
                return wrong(format!("it sent bytes {first} to {last} instead of those from {existing} on"));
            }
            let length = last - first + 1;
            if !matches!(response.framing().map_err(not_http)?, Framing::Length(n) if n != length) {
                return Ok(if other_version(response, sink, range.complete) {
                    Verdict::Restart
                } else {
                    Verdict::Rest { length, complete: range.complete }
                });
            }
            wrong(format!("Content-Range {first} to {last} does not match Content-Length"))
        }
        416 if existing > 0 => {
            let complete = range.and_then(|r| r.complete);
            let all = complete == Some(existing) && !other_version(response, sink, complete);
            Ok(if all { Verdict::Complete } else { Verdict::Restart })
        }
        412 if existing > 0 => Ok(Verdict::Restart),
        _ => Ok(Verdict::Error),
    }
}

/// Whether a partial response is of another version than the existing part, which `If-Range` should
/// have prevented.
fn other_version(response: &ResponseHead, sink: &Sink, complete: Option<u64>) -> bool {
    let Some(note) = sink.note() else { return false };
    let tag = note.validator.as_deref().filter(|v| v.starts_with('"'));
    let differs = |a: Option<&str>, b: Option<&str>| a.zip(b).is_some_and(|(a, b)| a != b);
    differs(tag, response.field("etag")) || note.complete.zip(complete).is_some_and(|(a, b)| a != b)
}

fn known_length(response: &ResponseHead) -> Result<Option<u64>, GetError> {
    Ok(match response.framing().map_err(not_http)? {
        Framing::Length(n) => Some(n),
        Framing::Chunked | Framing::Open => None,
    })
}

/// The error of a refused request.
fn refused(exchange: Exchange<'_>) -> GetError {
    let (status, reason) =
        (exchange.response.status, printable::line(&exchange.response.reason).into_owned());
    let mut said = Vec::new();
    if let Ok(body) = exchange.body() {
        let _ = body.take(300).read_to_end(&mut said);
    }
    let said = String::from_utf8_lossy(&said);
    let said = printable::line(said.trim());
    let detail = if said.is_empty() { String::new() } else { format!(": {said}") };
    GetError::Status { status, reason, detail }
}
