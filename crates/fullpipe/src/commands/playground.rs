//! `fullpipe playground`: the simulator as a page, served to this machine's browser.

use crate::failure::Failure;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The page's file, in the packages' data directory and where `./x playground` builds it.
const NAME: &str = "playground.html";
/// A request head larger than this is refused.
const MAX_HEAD: usize = 8 * 1024;
/// A client that has not sent its request by then is disconnected.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// A client that has not read the page by then is disconnected.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Clients served at a time; a browser opens at most six connections to a site.
const MAX_CLIENTS: usize = 32;
/// Delay after a failed accept.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(200);

/// Serve the simulator as a browser page on a loopback address
///
/// Prints the page's URL and serves until interrupted. The page simulates in the browser and makes
/// no network requests. Browsers also open its file without a server:
/// /usr/share/fullpipe/playground.html in packages, or the one that `./x playground` builds.
#[derive(clap::Args)]
#[command(after_help = "Example: fullpipe playground --port 8080")]
pub struct Args {
    /// Port on 127.0.0.1 [default: a free one]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    port: u16,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let page = Arc::new(page()?);
        let listener = TcpListener::bind(("127.0.0.1", self.port)).map_err(|e| {
            Failure::usage(format!("cannot listen on 127.0.0.1:{}: {e}; choose another --port", self.port))
        })?;
        let address = listener.local_addr().map_err(Failure::usage)?;
        println!("http://{address}/");
        serve(&listener, &page, MAX_CLIENTS);
        Ok(())
    }
}

/// Serves the page; clients beyond `max` at a time are disconnected.
fn serve(listener: &TcpListener, page: &Arc<Vec<u8>>, max: usize) {
    // Each thread has a clone until it ends.
    let clients = Arc::new(());
    for client in listener.incoming() {
        let Ok(client) = client else {
            // Such as when no descriptors are left.
            std::thread::sleep(ACCEPT_RETRY_DELAY);
            continue;
        };
        if Arc::strong_count(&clients) > max {
            continue;
        }
        let (page, place) = (Arc::clone(page), Arc::clone(&clients));
        // Without a thread the client is disconnected.
        let _ = std::thread::Builder::new().stack_size(128 * 1024).spawn(move || {
            // A client may disconnect at any time.
            let _ = answer(client, &page);
            drop(place);
        });
    }
}

/// The page, beside the program as packages install it or in a build's target directory.
fn page() -> Result<Vec<u8>, Failure> {
    let program = std::env::current_exe().and_then(|exe| exe.canonicalize()).unwrap_or_default();
    for file in candidates(&program) {
        match std::fs::read(&file) {
            Ok(page) => return Ok(page),
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(Failure::Impossible(format!("cannot read {}: {e}", file.display()))),
        }
    }
    Err(Failure::Impossible(format!(
        "{NAME} is not installed\n  help: build it with `./x playground` in the source tree, \
         or install a package"
    )))
}

fn candidates(program: &Path) -> Vec<PathBuf> {
    let up = |levels: usize| program.ancestors().nth(levels).map(Path::to_owned).unwrap_or_default();
    vec![up(2).join("share/fullpipe").join(NAME), up(2).join("playground").join(NAME)]
}

fn answer(mut client: TcpStream, page: &[u8]) -> std::io::Result<()> {
    let deadline = Instant::now() + HEAD_TIMEOUT;
    let mut head = Vec::new();
    while !head.windows(4).any(|w| w == b"\r\n\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() > MAX_HEAD {
            return Ok(());
        }
        client.set_read_timeout(Some(left))?;
        let mut piece = [0; 1024];
        match client.read(&mut piece)? {
            0 => return Ok(()),
            n => head.extend_from_slice(&piece[..n]),
        }
    }
    let deadline = Instant::now() + PAGE_TIMEOUT;
    client.set_write_timeout(Some(PAGE_TIMEOUT))?;
    let is_page = head.starts_with(b"GET / ") || head.starts_with(b"GET /?");
    let (status, body) =
        if is_page { ("200 OK", page) } else { ("404 Not Found", &b"not found: the page is at /\n"[..]) };
    let kind = if is_page { "text/html; charset=utf-8" } else { "text/plain" };
    write!(
        client,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         X-Content-Type-Options: nosniff\r\n\
         Cross-Origin-Resource-Policy: same-origin\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    for piece in body.chunks(64 * 1024) {
        if Instant::now() >= deadline {
            return Err(ErrorKind::TimedOut.into());
        }
        client.write_all(piece)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_found_beside_an_installed_program_and_a_built_one() {
        let files = candidates(Path::new("/usr/bin/fullpipe"));
        assert!(files.contains(&PathBuf::from("/usr/share/fullpipe/playground.html")), "{files:?}");
        let files = candidates(Path::new("/src/target/release/fullpipe"));
        assert!(files.contains(&PathBuf::from("/src/target/playground/playground.html")), "{files:?}");
    }

    #[test]
    fn excess_clients_are_disconnected_and_the_next_ones_served() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // The thread ends with the process.
        std::thread::spawn(move || serve(&listener, &Arc::new(b"page".to_vec()), 2));
        let ask = || {
            let mut client = TcpStream::connect(address).unwrap();
            let _ = client.write_all(b"GET / HTTP/1.1\r\n\r\n");
            let mut answered = String::new();
            let _ = client.read_to_string(&mut answered);
            answered
        };
        let until = |expected: bool| {
            let deadline = Instant::now() + Duration::from_secs(60);
            while ask().ends_with("page") != expected {
                assert!(Instant::now() < deadline, "{expected}");
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        let silent = [TcpStream::connect(address).unwrap(), TcpStream::connect(address).unwrap()];
        until(false);
        drop(silent);
        until(true);
    }

    #[test]
    fn server_answers_the_page_only() {
        let ask = |request: &str| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            client.write_all(request.as_bytes()).unwrap();
            answer(listener.accept().unwrap().0, b"<!doctype html>").unwrap();
            let mut answered = String::new();
            client.read_to_string(&mut answered).unwrap();
            answered
        };
        let page = ask("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        assert!(
            page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with("\r\n\r\n<!doctype html>"),
            "{page}"
        );
        for other in ["GET /etc/passwd HTTP/1.1\r\n\r\n", "POST / HTTP/1.1\r\n\r\n", "nonsense\r\n\r\n"] {
            assert!(ask(other).starts_with("HTTP/1.1 404 "), "{other}");
        }
    }
}
