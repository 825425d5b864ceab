//! The measuring client: one test against a stock iperf3 server or ours.

mod connect;
mod json;
mod latency;
mod outcome;
mod running;
mod stream;
pub mod table;
mod test;

pub use json::iperf3_json;
pub use latency::Latency;
pub use outcome::{Interval, Outcome, Sample, StreamInterval, StreamOutcome, Sum};

use crate::control::{Control, ControlError};
use crate::iperf3::{Cookie, Params, ServerError, extension};
use fullpipe_kernel::tcp_info::PinError;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use test::Test;

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

/// What to measure, and against whom.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name or address of the server.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Restricts the addresses tried.
    pub family: Option<Family>,
    /// The local address.
    pub bind: Option<IpAddr>,
    /// What to ask for.
    pub params: Params,
    /// Whether the user chose the block size; if not, TCP streams write large blocks.
    pub block_chosen: bool,
    /// How often [`Interval`]s come.
    pub interval: Duration,
    /// How often sockets are sampled for [`Outcome::samples`]; `None` for never.
    pub sample_every: Option<Duration>,
    /// Round trips of the idle path that are timed before the load, with a server of ours.
    pub idle_probes: usize,
    /// For each connection.
    pub connect_timeout: Duration,
    /// The server's, if it wants one.
    pub secret: Option<String>,
    /// Whether to offer our extensions. Without, even our own server behaves as a stock one.
    pub extensions: bool,
    /// Whether streams are reset instead of closed, at both ends if the server is ours: the kernel then
    /// caches no metrics of the path that would favour later tests.
    pub abort: bool,
}

impl Config {
    /// A test of 10 seconds against `host`.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Config {
            host: host.into(),
            port,
            family: None,
            bind: None,
            params: Params::default(),
            block_chosen: false,
            interval: Duration::from_secs(1),
            sample_every: Some(Duration::from_millis(100)),
            idle_probes: 10,
            connect_timeout: Duration::from_secs(10),
            secret: None,
            extensions: true,
            abort: false,
        }
    }
}

/// Why a test did not come about or to its end.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The name has no address of the family wanted.
    #[error("cannot find an address of `{host}`{family}: {source}")]
    Resolve {
        /// As given.
        host: String,
        /// " over IPv4" or so.
        family: &'static str,
        /// The resolver's reason.
        source: io::Error,
    },
    /// No connection.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// The last address tried.
        address: SocketAddr,
        /// The reason.
        source: io::Error,
    },
    /// A stream's socket could not be prepared or connected.
    #[error("cannot connect a stream: {0}")]
    Stream(io::Error),
    /// The controller cannot be had.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// The server serves someone else.
    #[error("the server is busy with another test, or does not want this client; try again later")]
    Busy,
    /// The server refused.
    #[error("the server refused: {}", .0.explain())]
    Refused(ServerError),
    /// The server went away in good order.
    #[error("the server was stopped")]
    Stopped,
    /// The server wants a secret and none was given.
    #[error("the server wants a secret: give it with --secret")]
    SecretWanted,
    /// The data stopped.
    #[error("no byte moved for {0:?}")]
    Stalled(Duration),
    /// The user interrupted.
    #[error("interrupted")]
    Interrupted,
    /// Talking failed.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The system lacks something.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// Runs one test. `progress` gets every interval as it ends; setting `interrupt` ends the test early, in
/// good order with the server.
///
/// # Errors
/// [`ClientError`] says at which step, and why.
pub fn run(
    config: &Config,
    interrupt: &AtomicBool,
    progress: &mut dyn FnMut(&Interval),
) -> Result<Outcome, ClientError> {
    let socket = connect::control(config)?;
    let (local, peer) = (socket.local_addr()?, socket.peer_addr()?);
    let mut params = config.params.clone();
    if config.extensions {
        params.extension = Some(extension::Request {
            version: 1,
            report_ms: config.interval.min(config.sample_every.unwrap_or(config.interval)).as_millis() as u32,
            abort: config.abort,
        });
    }
    let control = Control::new(socket)?;
    let cookie = Cookie::random()?;
    control.write(cookie.as_bytes(), "sending the cookie")?;
    Test::new(config, interrupt, control, cookie, peer, params).converse(local, progress)
}
