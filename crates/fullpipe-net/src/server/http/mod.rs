//! Plain HTTP/1.1 on the same port: downloads and uploads of any size for curl, wget and browsers.
//!
//! ```text
//! GET  /download?size=1g&cc=bbr    a body of so many bytes, sent by this controller; ranges work
//! PUT  /upload, POST /upload       takes any body and says how fast it came
//! GET  /transfer/ID                the sending socket of a download (its X-Fullpipe-Transfer), as JSON
//! GET  /                           this list; to browsers, a speed test (`speed`)
//! ```
//!
//! Byte `n` of every download is the same, so pieces fit together and checksums can be compared.

mod connection;
mod download;
mod speed;
mod upload;

pub(super) use download::Transfers;

use super::{Event, Place, Shared, lock};
use crate::http::{MessageError, RequestHead};
use connection::Connection;
use fullpipe_kernel::tcp_info;
use fullpipe_units::Rate;
use std::io;
use std::net::{SocketAddr, TcpStream};

/// Beyond this, a size cannot be meant.
const MAX_SIZE: u64 = 1 << 53;

/// Whether a connection that begins with these bytes speaks HTTP. Cookies have no capital letters.
pub(super) fn begins(opening: &[u8]) -> bool {
    [&b"GET "[..], b"HEAD", b"PUT ", b"POST", b"OPTI", b"DELE"].contains(&opening)
}

/// A request that is answered with an error.
#[derive(Debug)]
struct Refusal {
    status: &'static str,
    /// A field that this status has, with its line's end.
    field: String,
    why: String,
}

fn refusal(status: &'static str, why: impl Into<String>) -> Refusal {
    Refusal { status, field: String::new(), why: why.into() }
}

fn bad(why: impl Into<String>) -> Refusal {
    refusal("400 Bad Request", why)
}

impl From<MessageError> for Refusal {
    fn from(e: MessageError) -> Refusal {
        let status = match e {
            MessageError::Malformed(_) => "400 Bad Request",
            MessageError::Coding(_) => "501 Not Implemented",
            MessageError::Fields(_) => "431 Request Header Fields Too Large",
            MessageError::Expectation(_) => "417 Expectation Failed",
            MessageError::TooLarge(_) => "413 Content Too Large",
        };
        refusal(status, e.to_string())
    }
}

/// Why a request was not served.
enum Failed {
    Refused(Refusal),
    /// The client is gone, or was given up.
    Broken(io::Error),
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Failed {
        Failed::Refused(refusal)
    }
}

impl From<MessageError> for Failed {
    fn from(e: MessageError) -> Failed {
        Failed::Refused(e.into())
    }
}

impl From<io::Error> for Failed {
    fn from(e: io::Error) -> Failed {
        Failed::Broken(e)
    }
}

/// How a connection goes on.
enum Next {
    KeepAlive,
    Close,
}

/// Serves requests until the client has no more.
pub(super) fn serve(shared: &Shared, socket: &TcpStream, peer: SocketAddr, opening: &[u8]) {
    let log = |kind, reason: String| shared.log(Event::new(kind, Some(peer)).with("reason", reason));
    let mut connection = match Connection::new(shared, socket, peer, opening) {
        Ok(connection) => connection,
        Err(e) => return log("http_failed", e.to_string()),
    };
    loop {
        match connection.request() {
            Ok(Some(request)) => match answer(&mut connection, &request) {
                Ok(Next::KeepAlive) => {}
                Ok(Next::Close) => break,
                Err(e) => {
                    let event = Event::new("http_failed", Some(peer)).with("path", request.path);
                    return shared.log(event.with("reason", e.to_string()));
                }
            },
            Ok(None) => return,
            Err(refusal) => {
                let _ = connection.refuse(&refusal, true);
                log("http_failed", refusal.why);
                break;
            }
        }
    }
    connection.part();
}

fn answer(connection: &mut Connection<'_>, request: &RequestHead) -> io::Result<Next> {
    match route(connection, request) {
        Ok(next) => Ok(next),
        Err(Failed::Broken(e)) => Err(e),
        Err(Failed::Refused(refusal)) => {
            let event = Event::new("http_refused", Some(connection.peer)).with("path", request.path.clone());
            connection.shared.log(event.with("reason", refusal.why.clone()));
            connection.refuse(&refusal, request.method != "HEAD")?;
            Ok(Next::Close)
        }
    }
}

fn route(connection: &mut Connection<'_>, request: &RequestHead) -> Result<Next, Failed> {
    if !authorized(connection.shared, request) {
        let why = "this server wants `Authorization: Bearer SECRET`";
        let field = "WWW-Authenticate: Bearer\r\n".to_owned();
        let refused = Refusal { field, ..refusal("401 Unauthorized", why) };
        if !speed::is_asked_for(request) {
            return Err(refused.into());
        }
        let event = Event::new("http_refused", Some(connection.peer)).with("path", request.path.clone());
        connection.shared.log(event.with("reason", refused.why));
        return Ok(speed::serve(connection, request, refused.status, &refused.field)?);
    }
    match (request.method.as_str(), request.path.as_str()) {
        ("GET" | "HEAD", "/") if speed::is_asked_for(request) => {
            Ok(speed::serve(connection, request, "200 OK", "")?)
        }
        ("GET" | "HEAD", "/") => Ok(connection.text(request, "text/plain", HELP)?),
        ("GET" | "HEAD", "/download") => download::serve(connection, request),
        ("PUT" | "POST", "/upload") => upload::serve(connection, request),
        ("GET" | "HEAD", path) if path.starts_with("/transfer/") => {
            let id = &path["/transfer/".len()..];
            let transfers = lock(&connection.shared.transfers);
            let found = transfers.iter().find(|(i, _)| i == id).map(|(_, v)| v.to_string());
            drop(transfers);
            let json = found.ok_or_else(|| refusal("404 Not Found", "no such transfer, or too long ago"))?;
            Ok(connection.text(request, "application/json", &json)?)
        }
        ("GET" | "HEAD" | "PUT" | "POST", _) => {
            Err(refusal("404 Not Found", "see / for what there is").into())
        }
        _ => {
            let field = "Allow: GET, HEAD, PUT, POST\r\n".to_owned();
            let why = "GET, HEAD, PUT and POST are known";
            Err(Refusal { field, ..refusal("405 Method Not Allowed", why) }.into())
        }
    }
}

fn authorized(shared: &Shared, request: &RequestHead) -> bool {
    let Some(secret) = &shared.config.secret else { return true };
    let given = request.authorization.as_deref().and_then(|a| a.strip_prefix("Bearer ")).unwrap_or("");
    // Digests are compared, so that the time taken tells nothing of the secret.
    use sha2::{Digest, Sha256};
    Sha256::digest(given.trim()) == Sha256::digest(secret)
}

/// A place among the clients, and the controller asked for.
fn admit<'a>(connection: &Connection<'a>, request: &RequestHead) -> Result<Place<'a>, Refusal> {
    let shared = connection.shared;
    let place = Place::take(&shared.tests, shared.config.limits.clients)
        .ok_or_else(|| refusal("503 Service Unavailable", "too many clients; try again later"))?;
    if let Some(name) = request.parameter("cc") {
        tcp_info::pin(connection.socket, name).map_err(|e| bad(format!("cc: {e}")))?;
    }
    Ok(place)
}

/// The lower of what the client asks for and what the server allows.
fn rate(shared: &Shared, request: &RequestHead) -> Result<Option<Rate>, Refusal> {
    let asked = match request.parameter("rate") {
        Some(text) => Some(text.parse::<Rate>().map_err(|e| bad(format!("rate: {e}")))?),
        None => None,
    };
    if asked == Some(Rate::ZERO) {
        return Err(bad("rate: at least 8bit, a byte per second"));
    }
    Ok(asked.into_iter().chain(shared.config.limits.rate).min())
}

const HELP: &str = "fullpipe serve\n\n\
    GET  /download?size=1g&cc=bbr&rate=100mbit&time=30s   bytes, sent by that controller; all parameters optional\n\
    PUT  /upload, POST /upload                            any body; says how fast it came\n\
    GET  /transfer/ID                                     the sending socket of a download, by its X-Fullpipe-Transfer\n\n\
    A browser finds a speed test here. iperf3 -c and fullpipe test work against the same port.\n";
