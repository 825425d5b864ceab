//! TLS for tests: a server with a known certificate, and a raw client of HTTP/2 frames.

use crate::common::{PATIENCE, Running};
use fullpipe_net::server::{Config, Pem};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// Base64 in PEM armour (RFC 7468).
fn pem(label: &str, der: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = format!("-----BEGIN {label}-----\n");
    for (i, group) in der.chunks(3).enumerate() {
        let bits =
            group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for digit in 0..4 {
            let index = bits >> (18 - 6 * digit) & 63;
            text.push(if digit <= group.len() { DIGITS[index as usize] as char } else { '=' });
        }
        if i % 16 == 15 {
            text.push('\n');
        }
    }
    format!("{text}\n-----END {label}-----\n")
}

/// A server with a certificate of its own, and how clients reach it.
pub struct Secured {
    pub server: Running,
    pub certificate: CertificateDer<'static>,
}

impl Secured {
    pub fn start(config: Config) -> Secured {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let certificate = made.cert.der().clone();
        let key = pem("PRIVATE KEY", &made.signing_key.serialize_der());
        let pem = Pem { certificate: pem("CERTIFICATE", &certificate).into(), key: key.into() };
        let server = Running::start(Config { certificate: Some(pem), ..config });
        Secured { server, certificate }
    }

    /// A connection that offers `alpn`.
    pub fn connect(&self, alpn: &str) -> Stream {
        connect(self.server.v4(), self.certificate.clone(), alpn)
    }
}

pub type Stream = StreamOwned<ClientConnection, TcpStream>;

/// A connection to a server with this certificate that offers `alpn`.
pub fn connect(address: SocketAddr, certificate: CertificateDer<'static>, alpn: &str) -> Stream {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.into()];
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    let name = "localhost".try_into().unwrap();
    let mut stream = StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), socket);
    stream.flush().unwrap();
    stream
}

/// The port of a server that sends `answer` after each TLS handshake, and then nothing more. It ends
/// with the test program.
pub fn silent_after(answer: &'static [u8]) -> u16 {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    config.alpn_protocols = vec![b"h2".into()];
    let (config, listener) = (Arc::new(config), TcpListener::bind("127.0.0.1:0").unwrap());
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for socket in listener.incoming().map_while(Result::ok) {
            let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), socket);
            let _ = stream.conn.complete_io(&mut stream.sock);
            let _ = stream.write_all(answer);
            open.push(stream);
        }
    });
    port
}

/// Frame types and flags (RFC 9113 section 6).
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A raw HTTP/2 client.
pub struct Raw {
    pub stream: Stream,
    received: Vec<u8>,
}

impl Raw {
    /// Connects and sends the preface with these settings, in pairs of identifier and value.
    pub fn connect(secured: &Secured, settings: &[(u16, u32)]) -> Raw {
        Raw::over(secured.connect("h2"), settings)
    }

    /// As [`connect`](Self::connect) over a connection.
    pub fn over(stream: Stream, settings: &[(u16, u32)]) -> Raw {
        let mut raw = Raw { stream, received: Vec::new() };
        let mut payload = Vec::new();
        for (identifier, value) in settings {
            payload.extend(identifier.to_be_bytes());
            payload.extend(value.to_be_bytes());
        }
        let mut opening = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        opening.extend(frame(SETTINGS, 0, 0, &payload));
        raw.stream.write_all(&opening).unwrap();
        raw.stream.flush().unwrap();
        raw
    }

    /// The header block of a request, with static names and literal values (RFC 7541).
    pub fn block(method: u8, path: &str) -> Vec<u8> {
        let mut block = vec![method, 0x87];
        for (name, value) in [(4, path), (1, "localhost")] {
            block.extend([name, value.len() as u8]);
            block.extend(value.bytes());
        }
        block
    }

    /// A request without a body.
    pub fn get(stream: u32, path: &str) -> Vec<u8> {
        frame(HEADERS, END_STREAM | END_HEADERS, stream, &Raw::block(0x82, path))
    }

    /// Sends; `false` once the server has closed the connection.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).and_then(|()| self.stream.flush()).is_ok()
    }

    /// Discards what has arrived; `false` once the server has closed the connection.
    pub fn discard(&mut self) -> bool {
        self.stream.sock.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        loop {
            match self.stream.read(&mut [0; 65_536]) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(e) => return matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            }
        }
    }

    /// The next frame: its type, flags, stream and payload; `None` at the end of the connection.
    pub fn frame(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        self.stream.sock.set_read_timeout(Some(PATIENCE)).unwrap();
        loop {
            let head: Option<&[u8; 9]> = self.received.first_chunk();
            if let Some(&[a, b, c, kind, flags, d, e, f, g]) = head {
                let length = u32::from_be_bytes([0, a, b, c]) as usize;
                if self.received.len() >= 9 + length {
                    let payload = self.received[9..9 + length].to_vec();
                    self.received.drain(..9 + length);
                    return Some((kind, flags, u32::from_be_bytes([d, e, f, g]), payload));
                }
            }
            let mut piece = [0; 65_536];
            match self.stream.read(&mut piece) {
                Ok(0) | Err(_) => return None,
                Ok(n) => self.received.extend_from_slice(&piece[..n]),
            }
        }
    }

    /// The body of the answer on a stream; `None` if the connection ends before.
    pub fn body(&mut self, stream: u32) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let (kind, flags, of, payload) = self.frame()?;
            if of == stream && kind == DATA {
                body.extend(payload);
            }
            if of == stream && kind <= HEADERS && flags & END_STREAM != 0 {
                return Some(body);
            }
        }
    }

    /// Waits until the server closes the connection.
    pub fn closed(&mut self) {
        while self.frame().is_some() {}
    }
}
