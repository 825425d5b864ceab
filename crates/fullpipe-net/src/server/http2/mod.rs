//! HTTP/2 and HTTP/1.1 with TLS on the same port: the resources of a responsiveness test
//! (draft-ietf-ippm-responsiveness section 5).
//!
//! ```text
//! GET  /.well-known/nq?cc=bbr      the configuration object, with this controller in its URLs
//! GET  /small                      one byte
//! GET  /large?cc=bbr               data without end, sent by this controller
//! POST /upload                     takes any body and says how fast it came
//! GET  /                           this list
//! ```
//!
//! All connections share one thread, because a test opens hundreds of short ones and may leave
//! thousands idle. Each has a task, and so has each request.

mod certificate;
mod connection;
mod resource;
mod stream;

pub use certificate::Pem;

use super::{Arrival, Shared};
use certificate::Identity;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_rustls::TlsAcceptor;

/// Interval for noticing that the server stops.
const STOP_INTERVAL: Duration = Duration::from_millis(100);

/// A connection that begins with TLS.
struct Handover {
    arrival: Arrival,
    peer: SocketAddr,
    /// The bytes that were read to recognise it.
    opening: Vec<u8>,
}

/// Passes connections to the thread that serves them.
#[derive(Debug)]
pub(super) struct Entrance(UnboundedSender<Handover>);

impl Entrance {
    /// Passes on a connection that began with `opening`. Without a thread it is closed.
    pub fn pass(&self, arrival: Arrival, peer: SocketAddr, opening: &[u8]) {
        let _ = self.0.send(Handover { arrival, peer, opening: opening.to_vec() });
    }
}

impl std::fmt::Debug for Handover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handover({})", self.peer)
    }
}

/// What serves the connections, made before the process confines itself.
pub(super) struct Service {
    runtime: Runtime,
    arrivals: UnboundedReceiver<Handover>,
    acceptor: TlsAcceptor,
    /// SHA-256 of the certificate, in hexadecimal digits.
    fingerprint: String,
}

impl Service {
    /// Prepares the service, with a certificate made on the spot if none is given.
    pub fn new(pem: Option<&Pem>, address: SocketAddr) -> io::Result<(Service, Entrance)> {
        let identity = match pem {
            Some(pem) => Identity::load(pem)?,
            None => Identity::make(address)?,
        };
        let fingerprint = identity.fingerprint();
        let acceptor = TlsAcceptor::from(Arc::new(identity.config()?));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let (sender, arrivals) = unbounded_channel();
        Ok((Service { runtime, arrivals, acceptor, fingerprint }, Entrance(sender)))
    }

    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Serves until the server stops. Connections that are left are closed then.
    pub fn run(mut self, shared: &Arc<Shared>) {
        let (acceptor, arrivals) = (&self.acceptor, &mut self.arrivals);
        self.runtime.block_on(async {
            let mut interval = tokio::time::interval(STOP_INTERVAL);
            while !shared.stopping() {
                tokio::select! {
                    Some(handover) = arrivals.recv() => {
                        tokio::spawn(connection::serve(Arc::clone(shared), acceptor.clone(), handover));
                    }
                    _ = interval.tick() => {}
                }
            }
        });
    }
}
