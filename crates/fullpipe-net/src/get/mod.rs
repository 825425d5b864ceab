//! Downloads over HTTP and HTTPS as wget does them: to a file, to memory or to nowhere, resumed where they
//! broke off, checked against a SHA-256, and with a word afterwards on what limited them.

mod address;
pub mod answer;
mod channel;
mod partial;
mod sink;
mod transfer;

pub use address::{address, file_name};
pub use sink::MAX_MEMORY;
pub use url::Url;

use crate::http::{Framing, MessageError, ResponseHead};
use crate::printable;
use crate::sample::SocketSample;
use address::{Credentials, authority, redirected, target};
use answer::Body;
use fullpipe_kernel::tcp_info::PinError;
use sink::Sink;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use transfer::Transfer;

/// Redirects followed before a loop is assumed, as curl's default for `--max-redirs` is far higher and
/// browsers' is 20.
const MAX_REDIRECTS: usize = 20;
/// Read at once.
const PIECE: usize = 256 * 1024;

/// Where the bytes go.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// A file. It appears under its name when it is whole.
    File(PathBuf),
    /// Standard output, as they come.
    Stdout,
    /// Memory, at most [`MAX_MEMORY`].
    Memory,
    /// Nowhere.
    Discard,
}

/// What to download, and how.
#[derive(Clone, Debug)]
pub struct Request {
    /// From where.
    pub url: String,
    /// To where.
    pub target: Target,
    /// Go on where the file ends, if the server still has the same.
    pub resume: bool,
    /// Replace what is there.
    pub force: bool,
    /// The expected SHA-256 of the whole, hexadecimal.
    pub sha256: Option<String>,
    /// Our socket's controller; it governs what we send, not what we get.
    pub controller: Option<String>,
    /// Our receive buffer, bytes.
    pub window: Option<u32>,
    /// Sent as `Authorization: Bearer`, to this URL's origin only.
    pub token: Option<String>,
    /// For finding the host, for connecting, for the answer's head and for every pause.
    pub timeout: Duration,
}

impl Request {
    /// A download to nowhere.
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

    /// What to say of bytes that came before a download broke off.
    fn hint(&self) -> &'static str {
        if matches!(self.target, Target::File(_)) { "; `--resume` goes on from there" } else { "" }
    }
}

/// Why a download did not come about or to its end. What a server said is printable.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// The address, or one that a server redirects to.
    #[error("{0}")]
    Url(String),
    /// No connection.
    #[error("cannot connect to {host}: {source}")]
    Connect {
        /// Whom.
        host: String,
        /// The reason.
        source: io::Error,
    },
    /// The server's answer is an error.
    #[error("the server answered {status} {reason}{detail}")]
    Status {
        /// HTTP's number.
        status: u16,
        /// HTTP's words.
        reason: String,
        /// What it said besides.
        detail: String,
    },
    /// The server does not speak HTTP/1.1, or not to the question.
    #[error("the server's answer is not HTTP: {0}")]
    NotHttp(String),
    /// It broke off.
    #[error("broke off after {bytes} bytes: {source}{hint}")]
    Broken {
        /// So far, of the whole.
        bytes: u64,
        /// The reason.
        source: io::Error,
        /// What to do.
        hint: &'static str,
    },
    /// The file.
    #[error("cannot write {}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Something is there already.
    #[error("{} is there already: {hint}", path.display())]
    Exists {
        /// Where.
        path: PathBuf,
        /// What to do.
        hint: &'static str,
    },
    /// The file cannot be gone on with.
    #[error(
        "{} cannot be gone on with: the server has another version or sends no parts; --force replaces it",
        path.display()
    )]
    Changed {
        /// Which.
        path: PathBuf,
    },
    /// More than memory is for.
    #[error("more than {MAX_MEMORY} bytes came for memory: write them to a file or --discard them")]
    Memory,
    /// Our controller.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// The user interrupted.
    #[error("interrupted after {bytes} bytes{hint}")]
    Interrupted {
        /// So far, of the whole.
        bytes: u64,
        /// What to do.
        hint: &'static str,
    },
}

/// How a running download does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Of the whole, with what was there before.
    pub bytes: u64,
    /// Of the whole, if the server says.
    pub total: Option<u64>,
    /// Since the first byte.
    pub seconds: f64,
}

/// A finished download.
#[derive(Clone, Debug)]
pub struct Download {
    /// After redirects.
    pub url: String,
    /// Bytes that came now.
    pub bytes: u64,
    /// Bytes that were there before.
    pub resumed_at: u64,
    /// From the request to the last byte, as wget and curl count.
    pub seconds: f64,
    /// Until the first byte of the answer.
    pub first_byte: f64,
    /// Of the whole, if it was asked for.
    pub sha256: Option<String>,
    /// Whether that is the expected one; `None` when none was expected.
    pub matches: Option<bool>,
    /// The sender's controller, from our servers.
    pub controller: Option<String>,
    /// Our socket at the end.
    pub socket: SocketSample,
    /// What limited it.
    pub limit: String,
    /// The file it is in: beside the one asked for when it is not the expected one.
    pub file: Option<PathBuf>,
    /// Of a download to memory.
    pub content: Option<Vec<u8>>,
}

impl Download {
    /// Bits per second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.seconds.max(1e-9)
    }
}

/// Downloads. `progress` hears several times a second.
///
/// # Errors
/// [`GetError`] says what went wrong and whether it can be resumed.
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
    // One more for an answer that makes us ask for all of it.
    for _ in 0..=MAX_REDIRECTS + 1 {
        let (socket, began, exchange) =
            ask(&url, request, credentials.told_to(&url), &sink.condition(), interrupt)
                .map_err(interrupted)?;
        let answer = &exchange.answer;
        let first_byte = began.elapsed().as_secs_f64();
        let (resumed_at, whole, part) = match judge(answer, &sink)? {
            Verdict::Elsewhere(location) => {
                url = redirected(&url, &location).map_err(GetError::Url)?;
                continue;
            }
            Verdict::AskForAll => {
                sink.start_anew()?;
                continue;
            }
            Verdict::Nothing => (sink.there(), true, None),
            Verdict::Rest { length, complete } => {
                sink.go_on(url.as_str(), answer, complete)?;
                (sink.there(), false, Some(length))
            }
            Verdict::All => {
                sink.begin(url.as_str(), answer, known_length(answer)?)?;
                (0, false, None)
            }
            Verdict::Error => return Err(interrupted(refused(exchange))),
        };
        let length = if whole { Some(0) } else { part.or(known_length(answer)?) };
        let controller = answer.field("x-fullpipe-controller").map(|c| printable::line(c).into_owned());
        let mut transfer = Transfer::new(&socket, began, first_byte, resumed_at, length, request.hint());
        if !whole {
            transfer.run(exchange.body()?, &mut sink, interrupt, progress)?;
        }
        return transfer.finish(url.as_str(), request, sink, controller);
    }
    Err(GetError::Url(format!("{}: more than {MAX_REDIRECTS} redirects", printable::line(&request.url))))
}

/// A head and the channel its body comes through.
struct Exchange<'a> {
    channel: Box<dyn channel::Channel + 'a>,
    answer: ResponseHead,
    rest: Vec<u8>,
}

impl<'a> Exchange<'a> {
    fn body(self) -> Result<Body<Box<dyn channel::Channel + 'a>>, GetError> {
        Body::new(self.channel, self.rest, &self.answer).map_err(not_http)
    }
}

fn not_http(e: MessageError) -> GetError {
    GetError::NotHttp(printable::line(&e.to_string()).into_owned())
}

/// Connects, asks, and reads the answer's head.
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
        "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: fullpipe/{}\r\nAccept: */*\r\nAccept-Encoding: identity\r\n\
         Connection: close\r\n{condition}{authorization}\r\n",
        target(url),
        authority(url),
        env!("CARGO_PKG_VERSION"),
    );
    let broken = |source| GetError::Connect { host: authority(url), source };
    channel.write_all(head.as_bytes()).and_then(|()| channel.flush()).map_err(broken)?;
    let (answer, rest) = answer::read_head(&mut channel, Instant::now() + request.timeout)
        .map_err(|e| GetError::NotHttp(printable::line(&e.to_string()).into_owned()))?;
    Ok((socket, began, Exchange { channel, answer, rest }))
}

/// What an answer means for what is there.
enum Verdict {
    /// It is somewhere else.
    Elsewhere(String),
    /// All of it comes.
    All,
    /// So many bytes come, the last that are missing.
    Rest { length: u64, complete: Option<u64> },
    /// What is there is all of it.
    Nothing,
    /// What is there is of another version.
    AskForAll,
    /// The server has nothing for us.
    Error,
}

fn judge(answer: &ResponseHead, sink: &Sink) -> Result<Verdict, GetError> {
    let wrong = |why: String| Err(GetError::NotHttp(why));
    let there = sink.there();
    let range = answer.content_range().map_err(not_http)?;
    match answer.status {
        301 | 302 | 303 | 307 | 308 => {
            Ok(Verdict::Elsewhere(answer.field("location").unwrap_or("").to_owned()))
        }
        200 => Ok(Verdict::All),
        206 if there == 0 => wrong("it sent a part (206) and all was asked for".to_owned()),
        206 => {
            let Some((range, (first, last))) = range.and_then(|r| r.part.map(|part| (r, part))) else {
                return wrong("it sent a part (206) without saying which".to_owned());
            };
            if first != there || range.complete.is_some_and(|n| last + 1 != n) {
                return wrong(format!(
                    "it sent bytes {first} to {last} and those from {there} on were asked for"
                ));
            }
            let length = last - first + 1;
            if !matches!(answer.framing().map_err(not_http)?, Framing::Length(n) if n != length) {
                return Ok(if other_version(answer, sink, range.complete) {
                    Verdict::AskForAll
                } else {
                    Verdict::Rest { length, complete: range.complete }
                });
            }
            wrong(format!("it announced bytes {first} to {last} and another length"))
        }
        416 if there > 0 => {
            let complete = range.and_then(|r| r.complete);
            let all = complete == Some(there) && !other_version(answer, sink, complete);
            Ok(if all { Verdict::Nothing } else { Verdict::AskForAll })
        }
        412 if there > 0 => Ok(Verdict::AskForAll),
        _ => Ok(Verdict::Error),
    }
}

/// Whether a server that answers for a part has another version than the one that is there. `If-Range` should
/// have kept it from that.
fn other_version(answer: &ResponseHead, sink: &Sink, complete: Option<u64>) -> bool {
    let Some(note) = sink.note() else { return false };
    let tag = note.validator.as_deref().filter(|v| v.starts_with('"'));
    let differs = |a: Option<&str>, b: Option<&str>| a.zip(b).is_some_and(|(a, b)| a != b);
    differs(tag, answer.field("etag")) || note.complete.zip(complete).is_some_and(|(a, b)| a != b)
}

fn known_length(answer: &ResponseHead) -> Result<Option<u64>, GetError> {
    Ok(match answer.framing().map_err(not_http)? {
        Framing::Length(n) => Some(n),
        Framing::Chunked | Framing::Open => None,
    })
}

/// What a server says that refuses.
fn refused(exchange: Exchange<'_>) -> GetError {
    let (status, reason) = (exchange.answer.status, printable::line(&exchange.answer.reason).into_owned());
    let mut said = Vec::new();
    if let Ok(body) = exchange.body() {
        let _ = body.take(300).read_to_end(&mut said);
    }
    let said = String::from_utf8_lossy(&said);
    let said = printable::line(said.trim());
    let detail = if said.is_empty() { String::new() } else { format!(": {said}") };
    GetError::Status { status, reason, detail }
}
