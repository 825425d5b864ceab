//! Downloads over HTTP and HTTPS as wget does them: to a file, to memory or to nowhere, resumed where they
//! broke off, checked against a SHA-256, and with a word afterwards on what limited them.

mod response;
mod url;

pub use url::{Scheme, Url};

use crate::diagnose::{ReceiverEvidence, diagnose_receiver};
use crate::iperf3::extension::hex;
use crate::sample::SocketSample;
use fullpipe_kernel::tcp_info::{PinError, TcpInfo};
use response::Body;
use sha2::{Digest, Sha256};
use socket2::{Domain, Socket, Type};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Redirects followed before a loop is assumed, as curl's default for `--max-redirs` is far higher and
/// browsers' is 20.
const MAX_REDIRECTS: usize = 20;
/// Read at once.
const PIECE: usize = 256 * 1024;

/// Where the bytes go.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// A file.
    File(PathBuf),
    /// Memory.
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
    /// Go on where the file ends.
    pub resume: bool,
    /// The expected SHA-256 of the whole, hexadecimal.
    pub sha256: Option<String>,
    /// Our socket's controller; it governs what we send, not what we get.
    pub controller: Option<String>,
    /// Our receive buffer, bytes.
    pub window: Option<u32>,
    /// Sent as `Authorization: Bearer`, to the first host only.
    pub token: Option<String>,
    /// For connecting and for every pause.
    pub timeout: Duration,
}

impl Request {
    /// A download to nowhere.
    pub fn new(url: impl Into<String>) -> Self {
        Request {
            url: url.into(),
            target: Target::Discard,
            resume: false,
            sha256: None,
            controller: None,
            window: None,
            token: None,
            timeout: Duration::from_secs(30),
        }
    }
}

/// Why a download did not come about or to its end.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// The address.
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
    /// The server does not speak HTTP/1.1.
    #[error("the server's answer is not HTTP: {0}")]
    NotHttp(String),
    /// It broke off.
    #[error("broke off after {bytes} bytes: {source}; `--resume` goes on from there")]
    Broken {
        /// So far, of the whole.
        bytes: u64,
        /// The reason.
        source: io::Error,
    },
    /// The file.
    #[error("cannot write {}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Our controller.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// The user interrupted.
    #[error("interrupted after {0} bytes; `--resume` goes on from there")]
    Interrupted(u64),
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
    /// Of a download to memory.
    pub content: Option<Vec<u8>>,
}

impl Download {
    /// Bits per second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.seconds.max(1e-9)
    }
}

/// Bytes over TCP, or over TLS over TCP.
trait Channel: Read + Write + Send {}
impl<T: Read + Write + Send> Channel for T {}

/// Where bytes end up, and their hash.
struct Sink {
    file: Option<(File, PathBuf)>,
    memory: Option<Vec<u8>>,
    hash: Option<Sha256>,
}

impl Sink {
    /// Opens the target. Gives it with the bytes that are there already.
    fn open(request: &Request) -> Result<(Sink, u64), GetError> {
        let mut sink =
            Sink { file: None, memory: None, hash: request.sha256.as_ref().map(|_| Sha256::new()) };
        let mut there = 0;
        match &request.target {
            Target::Discard => {}
            Target::Memory => sink.memory = Some(Vec::new()),
            Target::File(path) => {
                let failed = |source| GetError::File { path: path.clone(), source };
                let mut file = File::options()
                    .read(true)
                    .write(true)
                    .create(true)
                    .truncate(!request.resume)
                    .open(path)
                    .map_err(failed)?;
                if request.resume {
                    if let Some(hash) = &mut sink.hash {
                        let mut piece = vec![0; PIECE];
                        loop {
                            match file.read(&mut piece).map_err(failed)? {
                                0 => break,
                                n => hash.update(&piece[..n]),
                            }
                        }
                    }
                    there = file.seek(SeekFrom::End(0)).map_err(failed)?;
                }
                sink.file = Some((file, path.clone()));
            }
        }
        Ok((sink, there))
    }

    /// Forgets what was there: the server sends everything.
    fn restart(&mut self) -> Result<(), GetError> {
        if let Some((file, path)) = &mut self.file {
            let result = file.set_len(0).and_then(|()| file.rewind());
            result.map_err(|source| GetError::File { path: path.clone(), source })?;
        }
        if let Some(hash) = &mut self.hash {
            *hash = Sha256::new();
        }
        Ok(())
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), GetError> {
        if let Some((file, path)) = &mut self.file {
            file.write_all(bytes).map_err(|source| GetError::File { path: path.clone(), source })?;
        }
        if let Some(memory) = &mut self.memory {
            memory.extend_from_slice(bytes);
        }
        if let Some(hash) = &mut self.hash {
            hash.update(bytes);
        }
        Ok(())
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
    let mut url = Url::parse(&request.url).map_err(GetError::Url)?;
    let first_host = url.host.clone();
    let (mut sink, there) = Sink::open(request)?;
    for _ in 0..=MAX_REDIRECTS {
        let socket = connect(&url, request)?;
        let began = Instant::now();
        let mut channel = wrap(&url, Arc::clone(&socket))?;
        let token = request.token.as_deref().filter(|_| url.host == first_host);
        let head = request_head(&url, there, token);
        let broken = |source| GetError::Connect { host: url.host.clone(), source };
        channel.write_all(head.as_bytes()).and_then(|()| channel.flush()).map_err(broken)?;
        let (answer, rest) =
            response::read_head(&mut channel).map_err(|e| GetError::NotHttp(e.to_string()))?;
        let first_byte = began.elapsed().as_secs_f64();
        if matches!(answer.status, 301 | 302 | 303 | 307 | 308) {
            let location = answer.header("location").unwrap_or("").to_owned();
            url = url.join(&location).map_err(GetError::Url)?;
            continue;
        }
        let whole = there > 0 && answer.status == 416 && answer.complete_length() == Some(there);
        let resumed_at = match answer.status {
            206 if answer.range_start() == Some(there) => there,
            _ if whole => there,
            200 => {
                if there > 0 {
                    sink.restart()?;
                }
                0
            }
            status => {
                let mut said = String::new();
                let _ = Body::new(channel, rest, &answer).take(300).read_to_string(&mut said);
                let detail =
                    if said.trim().is_empty() { String::new() } else { format!(": {}", said.trim()) };
                return Err(GetError::Status { status, reason: answer.reason.clone(), detail });
            }
        };
        let mut transfer = Transfer {
            socket: &socket,
            began,
            first_byte,
            resumed_at,
            total: if whole { Some(there) } else { answer.length().map(|n| n + resumed_at) },
            bytes: 0,
            away: Duration::ZERO,
        };
        if !whole {
            let body = Body::new(channel, rest, &answer);
            transfer.run(body, &mut sink, interrupt, progress)?;
        }
        return Ok(transfer.finish(&url, request, sink, answer.header("x-fullpipe-controller")));
    }
    Err(GetError::Url(format!("{}: more than {MAX_REDIRECTS} redirects", request.url)))
}

/// The bytes on their way.
struct Transfer<'a> {
    socket: &'a TcpStream,
    began: Instant,
    first_byte: f64,
    resumed_at: u64,
    total: Option<u64>,
    bytes: u64,
    /// Time spent writing and hashing.
    away: Duration,
}

impl Transfer<'_> {
    fn run(
        &mut self,
        mut body: Body,
        sink: &mut Sink,
        interrupt: &AtomicBool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), GetError> {
        let mut piece = vec![0; PIECE];
        let mut told = Instant::now();
        loop {
            let so_far = self.resumed_at + self.bytes;
            if interrupt.load(Relaxed) {
                return Err(GetError::Interrupted(so_far));
            }
            match body.read(&mut piece) {
                Ok(0) => return Ok(()),
                Ok(n) => {
                    let arrived = Instant::now();
                    sink.take(&piece[..n])?;
                    self.away += arrived.elapsed();
                    self.bytes += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(GetError::Broken { bytes: so_far, source }),
            }
            if told.elapsed() > Duration::from_millis(200) {
                told = Instant::now();
                progress(Progress {
                    bytes: self.resumed_at + self.bytes,
                    total: self.total,
                    seconds: self.began.elapsed().as_secs_f64(),
                });
            }
        }
    }

    fn finish(self, url: &Url, request: &Request, sink: Sink, controller: Option<&str>) -> Download {
        let seconds = self.began.elapsed().as_secs_f64();
        let info = TcpInfo::of(&self.socket).ok();
        let socket = SocketSample::of(&self.socket).unwrap_or_default();
        let window = socket.rcv_wnd.or(info.map(|i| i.rcv_ssthresh.into())).unwrap_or(0);
        let rtt = if socket.rcv_rtt_us > 0 { socket.rcv_rtt_us } else { socket.rtt_us };
        let limit = diagnose_receiver(&ReceiverEvidence {
            seconds: seconds - self.first_byte,
            bytes: self.bytes,
            away: self.away.as_secs_f64(),
            window,
            rtt: socket.min_rtt_us.unwrap_or(rtt).min(rtt) as f64 / 1e6,
            out_of_order: socket.rcv_ooopack.unwrap_or(0),
        });
        let sha256 = sink.hash.map(|h| hex(&h.finalize()));
        let matches = request.sha256.as_ref().map(|expected| {
            sha256.as_deref().is_some_and(|found| found.eq_ignore_ascii_case(expected.trim()))
        });
        Download {
            url: url.to_string(),
            bytes: self.bytes,
            resumed_at: self.resumed_at,
            seconds,
            first_byte: self.first_byte,
            sha256,
            matches,
            controller: controller.map(str::to_owned),
            socket,
            limit,
            content: sink.memory,
        }
    }
}

fn request_head(url: &Url, from: u64, token: Option<&str>) -> String {
    let mut head = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: fullpipe/{}\r\nAccept: */*\r\nAccept-Encoding: identity\r\nConnection: close\r\n",
        url.target,
        url.authority(),
        env!("CARGO_PKG_VERSION"),
    );
    if from > 0 {
        head += &format!("Range: bytes={from}-\r\n");
    }
    if let Some(token) = token {
        head += &format!("Authorization: Bearer {token}\r\n");
    }
    head + "\r\n"
}

fn connect(url: &Url, request: &Request) -> Result<Arc<TcpStream>, GetError> {
    let failed = |source| GetError::Connect { host: url.host.clone(), source };
    let addresses = (url.host.as_str(), url.port).to_socket_addrs().map_err(failed)?;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "it has no address");
    for address in addresses {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).map_err(failed)?;
        if let Some(name) = &request.controller {
            fullpipe_kernel::tcp_info::pin(&socket, name)?;
        }
        if let Some(window) = request.window {
            // Before connecting, so that the window scale fits it.
            socket.set_recv_buffer_size(window as usize).map_err(failed)?;
        }
        match socket.connect_timeout(&address.into(), request.timeout) {
            Ok(()) => {
                let socket: TcpStream = socket.into();
                socket.set_read_timeout(Some(request.timeout)).map_err(failed)?;
                socket.set_write_timeout(Some(request.timeout)).map_err(failed)?;
                return Ok(Arc::new(socket));
            }
            Err(e) => last = e,
        }
    }
    Err(failed(last))
}

/// The socket itself, or TLS over it.
fn wrap(url: &Url, socket: Arc<TcpStream>) -> Result<Box<dyn Channel>, GetError> {
    match url.scheme {
        Scheme::Http => Ok(Box::new(Plain(socket))),
        #[cfg(feature = "https")]
        Scheme::Https => {
            let failed =
                |e: String| GetError::Connect { host: url.host.clone(), source: io::Error::other(e) };
            let roots = rustls::RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = rustls::ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .map_err(|e| failed(e.to_string()))?
                .with_root_certificates(roots)
                .with_no_client_auth();
            let name = rustls::pki_types::ServerName::try_from(url.host.clone())
                .map_err(|e| failed(e.to_string()))?;
            let session =
                rustls::ClientConnection::new(Arc::new(config), name).map_err(|e| failed(e.to_string()))?;
            Ok(Box::new(rustls::StreamOwned::new(session, Plain(socket))))
        }
        #[cfg(not(feature = "https"))]
        Scheme::Https => {
            Err(GetError::Url(format!("{url}: this fullpipe was built without HTTPS (feature `https`)")))
        }
    }
}

/// A shared socket that reads and writes.
struct Plain(Arc<TcpStream>);

impl Read for Plain {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&mut &*self.0).read(buffer)
    }
}

impl Write for Plain {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&mut &*self.0).write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
