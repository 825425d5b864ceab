//! Plain HTTP/1.1 on the same port: downloads and uploads of any size for curl, wget and browsers.
//!
//! ```text
//! GET  /download?size=1g&cc=bbr    a body of so many bytes, sent by this controller; ranges work
//! PUT  /upload, POST /upload       takes any body and says how fast it came
//! GET  /transfer/ID                the sending socket of a download (its X-Fullpipe-Transfer), as JSON
//! GET  /                           this list; to browsers, a speed test (`speed`)
//! ```
//!
//! Byte `n` is the same in all downloads, so that parts fit together and checksums are comparable.

mod connection;
mod download;
mod speed;
mod upload;

pub(super) use download::Transfers;

use super::admission::Permit;
use super::{Arrival, Event, Shared, lock};
use crate::http::{MessageError, RequestHead};
use connection::Connection;
use fullpipe_kernel::local_name;
use fullpipe_units::Rate;
use std::io;
use std::net::SocketAddr;

/// Maximum size.
pub(super) const MAX_SIZE: u64 = 1 << 53;

/// Whether a connection that begins with these bytes is HTTP. Cookies have no capital letters.
pub(super) fn is_http(opening: &[u8]) -> bool {
    [&b"GET "[..], b"HEAD", b"PUT ", b"POST", b"OPTI", b"DELE"].contains(&opening)
}

/// An error response.
#[derive(Debug)]
struct Refusal {
    status: &'static str,
    /// A header field for this status, with its line end.
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

/// Why a request failed.
enum Failed {
    Refused(Refusal),
    /// The client closed the connection or was dropped.
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

/// How a connection continues.
enum Next {
    KeepAlive,
    Close,
}

/// Serves requests until the client closes.
pub(super) fn serve(shared: &Shared, arrival: &Arrival, peer: SocketAddr, opening: &[u8]) {
    let log = |kind, reason: String| shared.log(Event::new(kind, Some(peer)).with("reason", reason));
    let mut connection = match Connection::new(shared, arrival, peer, opening) {
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
    connection.close_gracefully();
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

/// Whether a request by loopback is for a name of another machine: a page of another site can make
/// its own name resolve to this machine, and then read the answers (DNS rebinding). Such a page does
/// not know a secret.
pub(super) fn is_misdirected(shared: &Shared, peer: SocketAddr, host: Option<&str>) -> bool {
    let is_open = shared.config.secret.is_none();
    is_open && peer.ip().to_canonical().is_loopback() && !host.is_none_or(local_name::is_local)
}

/// Why such a request is refused.
pub(super) const MISDIRECTED: &str =
    "this name does not belong to this machine; use localhost or an address as `Host`";

/// Why a request without the secret is refused.
pub(super) const UNAUTHORIZED: &str = "this server requires `Authorization: Bearer SECRET`";

/// Why a request of a page of another site is refused.
pub(super) const CROSS_SITE: &str = "pages of other sites may not use this server";

fn route(connection: &mut Connection<'_>, request: &RequestHead) -> Result<Next, Failed> {
    if is_misdirected(connection.shared, connection.peer, request.host.as_deref()) {
        return Err(refusal("421 Misdirected Request", MISDIRECTED).into());
    }
    if !is_authorized(connection.shared, request.authorization.as_deref()) {
        let field = "WWW-Authenticate: Bearer\r\n".to_owned();
        let refused = Refusal { field, ..refusal("401 Unauthorized", UNAUTHORIZED) };
        if !speed::is_requested(request) {
            return Err(refused.into());
        }
        let event = Event::new("http_refused", Some(connection.peer)).with("path", request.path.clone());
        connection.shared.log(event.with("reason", refused.why));
        return Ok(speed::serve(connection, request, refused.status, &refused.field)?);
    }
    if request.cross_site && request.path != "/" {
        return Err(refusal("403 Forbidden", CROSS_SITE).into());
    }
    match request.path.as_str() {
        "/download" => known_parameters(request, &["size", "cc", "rate", "time"])?,
        "/upload" => known_parameters(request, &["cc", "rate"])?,
        _ => {}
    }
    match (request.method.as_str(), request.path.as_str()) {
        ("GET" | "HEAD", "/") if speed::is_requested(request) => {
            Ok(speed::serve(connection, request, "200 OK", "")?)
        }
        ("GET" | "HEAD", "/") => Ok(connection.text(request, "text/plain", INDEX)?),
        ("GET" | "HEAD", "/download") => download::serve(connection, request),
        ("PUT" | "POST", "/upload") => upload::serve(connection, request),
        ("GET" | "HEAD", path) if path.starts_with("/transfer/") => {
            let id = &path["/transfer/".len()..];
            let transfers = lock(&connection.shared.transfers);
            let found = transfers.iter().find(|(i, _)| i == id).map(|(_, v)| v.to_string());
            drop(transfers);
            let json = found.ok_or_else(|| refusal("404 Not Found", "unknown or expired transfer"))?;
            Ok(connection.text(request, "application/json", &json)?)
        }
        ("GET" | "HEAD", "/.well-known/nq") => {
            let why = "responsiveness tests need TLS: use https:// (`fullpipe rpm`)";
            Err(refusal("404 Not Found", why).into())
        }
        ("GET" | "HEAD" | "PUT" | "POST", _) => {
            Err(refusal("404 Not Found", "not found; see / for a list").into())
        }
        _ => {
            let field = "Allow: GET, HEAD, PUT, POST\r\n".to_owned();
            let why = "only GET, HEAD, PUT and POST are supported";
            Err(Refusal { field, ..refusal("405 Method Not Allowed", why) }.into())
        }
    }
}

/// Whether the value of an `Authorization` field has the secret, if there is one.
pub(super) fn is_authorized(shared: &Shared, authorization: Option<&str>) -> bool {
    let Some(secret) = &shared.config.secret else { return true };
    let given = authorization.and_then(|a| a.strip_prefix("Bearer ")).unwrap_or("");
    // Compare digests, so that timing reveals nothing about the secret.
    use sha2::{Digest, Sha256};
    Sha256::digest(given.trim()) == Sha256::digest(secret)
}

/// Refuses other query parameters: one that is misspelled would be ignored.
fn known_parameters(request: &RequestHead, known: &[&str]) -> Result<(), Refusal> {
    match request.query.iter().find(|(name, _)| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some((name, _)) => {
            let name: String = name.chars().take(40).collect();
            let path = &request.path;
            Err(bad(format!("unknown parameter {name:?}; {path} has {}", known.join(", "))))
        }
    }
}

/// Acquires a client permit and sets the requested controller.
fn admit(connection: &Connection<'_>, request: &RequestHead) -> Result<Permit, Refusal> {
    let permit = connection.shared.clients.acquire(connection.peer.ip()).map_err(|full| {
        refusal("503 Service Unavailable", format!("{}; try again later", full.clients_reason()))
    })?;
    if let Some(name) = request.parameter("cc") {
        connection.shared.pin(connection.socket, name).map_err(|e| bad(format!("cc: {e}")))?;
    }
    Ok(permit)
}

/// The requested rate, which is at least twice the least rate of a transfer; the allowed rate is
/// that of the address.
fn rate(shared: &Shared, request: &RequestHead) -> Result<Option<Rate>, Refusal> {
    let asked = match request.parameter("rate") {
        Some(text) => Some(text.parse::<Rate>().map_err(|e| bad(format!("rate: {e}")))?),
        None => None,
    };
    let least = 2.0 * shared.min_bytes() as f64 / shared.config.limits.idle.as_secs_f64().max(1e-9);
    let least = Rate::from_bytes_per_sec(least.ceil().max(1.0) as u64);
    if asked.is_some_and(|asked| asked < least) {
        return Err(bad(format!("rate: at least {} bit/s", least.as_bits_per_sec())));
    }
    Ok(asked)
}

const INDEX: &str = "fullpipe serve\n\n\
    GET  /download?size=1g&cc=bbr&rate=100mbit&time=30s   bytes sent with this controller; all \
    parameters are optional\n\
    PUT  /upload, POST /upload                            accepts any body and reports its rate\n\
    GET  /transfer/ID                                     the sending socket of a download (see \
    X-Fullpipe-Transfer)\n\n\
    Browsers get a speed test at this address. iperf3 -c and fullpipe test use the same port.\n";
