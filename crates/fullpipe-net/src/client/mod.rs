//! The measuring client: runs one test against a stock iperf3 or a fullpipe server.

mod connect;
mod iperf2;
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

/// Configuration of a test.
#[derive(Clone, Debug)]
pub struct Config {
    /// Host name or address of the server.
    pub host: String,
    /// Port of the server.
    pub port: u16,
    /// Restricts the address family.
    pub family: Option<Family>,
    /// The local address.
    pub bind: Option<IpAddr>,
    /// Test parameters.
    pub params: Params,
    /// Whether the server speaks iperf 2. If not, this is noticed where it does not answer as iperf3.
    pub iperf2: bool,
    /// Whether the user chose the block size; if not, TCP streams write large blocks.
    pub block_chosen: bool,
    /// Time between [`Interval`]s.
    pub interval: Duration,
    /// Time between samples for [`Outcome::samples`]; `None` disables sampling.
    pub sample_every: Option<Duration>,
    /// Number of idle probes before the load, with a fullpipe server.
    pub idle_probes: usize,
    /// Timeout for each connection.
    pub connect_timeout: Duration,
    /// The server's secret, if it requires one.
    pub secret: Option<String>,
    /// Whether to offer the fullpipe extensions. Without them a fullpipe server behaves like a
    /// stock one.
    pub extensions: bool,
    /// Whether streams are reset instead of closed, at both ends if the server is fullpipe: the
    /// kernel then caches no path metrics that would favour later tests.
    pub abort: bool,
}

impl Config {
    /// A 10-second test against `host`.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Config {
            host: host.into(),
            port,
            family: None,
            bind: None,
            params: Params::default(),
            iperf2: false,
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

/// Why a test failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The host has no address of the requested family.
    #[error("cannot find an address of `{host}`{family}: {source}")]
    Resolve {
        /// The host as given.
        host: String,
        /// For example " over IPv4".
        family: &'static str,
        /// The resolver's error.
        source: io::Error,
    },
    /// No connection.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// The last address tried.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// A stream's socket could not be prepared or connected.
    #[error("cannot connect a stream: {0}")]
    Stream(io::Error),
    /// The controller is not available.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// The server is not an iperf3 server.
    #[error("the server speaks {0}, which is not expected: is the port right?")]
    Foreign(&'static str),
    /// The server speaks iperf 2, which lacks what the test needs.
    #[error("the server speaks iperf 2, which cannot {0}")]
    Iperf2Lacks(&'static str),
    /// The server closed a connection before the end of the test.
    #[error("the server closed a connection before the end of the test")]
    Closed,
    /// No report of an iperf 2 server.
    #[error("the server returned no report of the datagrams: a firewall may drop UDP, or the port is wrong")]
    NoReport,
    /// The server sent nothing.
    #[error(
        "the server accepted the connection and sent nothing for {0:?}: probably neither iperf3 nor iperf 2, \
            but HTTP or TLS"
    )]
    Silent(Duration),
    /// The server is busy.
    #[error("the server is busy with another test or denies access; try again later")]
    Busy,
    /// The server refused the test.
    #[error("the server refused: {}", .0.explain())]
    Refused(ServerError),
    /// The server was stopped.
    #[error("the server was stopped")]
    Stopped,
    /// The server requires a secret and none was given.
    #[error("the server requires a secret: pass it with --secret-file")]
    SecretWanted,
    /// A test bounded by bytes transferred hardly any data for this long.
    #[error("the transfer stalled: hardly any data for {} s", .0.as_secs())]
    Stalled(Duration),
    /// A test bounded by bytes did not finish within this time.
    #[error("the test did not finish within {} h; reduce --bytes or --blockcount", .0.as_secs() / 3600)]
    TooLong(Duration),
    /// The user interrupted the test.
    #[error("interrupted")]
    Interrupted,
    /// The control connection failed.
    #[error(transparent)]
    Control(ControlError),
    /// A system call failed.
    #[error("{0}")]
    System(#[from] io::Error),
}

impl From<ControlError> for ClientError {
    fn from(error: ControlError) -> ClientError {
        match error {
            ControlError::Interrupted(_) => ClientError::Interrupted,
            error => ClientError::Control(error),
        }
    }
}

/// Runs one test. `progress` receives each interval as it ends. Setting `interrupt` ends the test
/// early and notifies the server.
///
/// # Errors
/// [`ClientError`] says at which step the test failed, and why.
pub fn run(
    config: &Config,
    interrupt: &AtomicBool,
    progress: &mut dyn FnMut(&Interval),
) -> Result<Outcome, ClientError> {
    if config.iperf2 {
        return iperf2::run(config, interrupt, progress);
    }
    match iperf3(config, interrupt, progress, true) {
        Err(ClientError::Foreign(IPERF2)) => iperf2::run(config, interrupt, progress),
        // That connection is closed: an iperf 2 server waits for the rest of what it takes for a
        // header, and accepts no other meanwhile, or has closed it.
        Err(ClientError::Silent(_) | ClientError::Control(ControlError::Closed(test::ANSWER))) => {
            match iperf2::is_spoken(config, interrupt)? {
                true => iperf2::run(config, interrupt, progress),
                false => iperf3(config, interrupt, progress, false),
            }
        }
        result => result,
    }
}

/// The name of the other protocol for tests.
const IPERF2: &str = "iperf 2";

/// Runs a test against an iperf3 or fullpipe server. With `asks`, one that does not answer soon is
/// silent.
fn iperf3(
    config: &Config,
    interrupt: &AtomicBool,
    progress: &mut dyn FnMut(&Interval),
    asks: bool,
) -> Result<Outcome, ClientError> {
    let socket = connect::first(config, None, interrupt)?;
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
    Test::new(config, interrupt, Some(control), cookie, peer, params).run(local, asks, progress)
}
