//! Responsiveness under working conditions: round trips per minute while a path is loaded
//! (draft-ietf-ippm-responsiveness-08).
//!
//! [`Algorithm`] is the draft's algorithm without I/O; [`run`] measures with it against a server with
//! the draft's resources, such as `fullpipe serve`; [`Comparison`] does so by congestion controller.

mod algorithm;
mod compare;
mod configuration;
mod measure;
mod outcome;
mod statistics;
mod transport;
mod trust;

pub use algorithm::{Algorithm, Confidence, ForeignProbe, Parameters, Responsiveness, Step, Times};
pub use compare::{Compared, Comparison, ComparisonError, Contrast, Plan};
pub use configuration::{Configuration, ConfigurationError};
pub use measure::run;
pub use outcome::{Direction, DirectionOutcome, Idle, Interval, Outcome, Rating};
pub use statistics::{standard_deviation, trimmed_mean};
pub use trust::{Fingerprint, FingerprintError, Trust};

use crate::http2_error;
use fullpipe_kernel::tcp_info::PinError;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use url::Url;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address of the configuration object.
    pub url: Url,
    /// The directions, in this order.
    pub directions: Vec<Direction>,
    /// Controller of the sender of each direction.
    pub controller: Option<String>,
    /// Accepted certificates.
    pub trust: Trust,
    /// The server's secret.
    pub secret: Option<String>,
    /// Timeout for connecting, and for answers before there is load.
    pub connect_timeout: Duration,
    /// The draft's parameters.
    pub parameters: Parameters,
}

impl Config {
    /// Both directions, with the draft's parameters.
    pub fn new(url: Url) -> Config {
        Config {
            url,
            directions: vec![Direction::Download, Direction::Upload],
            controller: None,
            trust: Trust::Authorities,
            secret: None,
            connect_timeout: Duration::from_secs(10),
            parameters: Parameters::default(),
        }
    }
}

/// Path of the configuration object (RFC 8615).
pub const WELL_KNOWN: &str = "/.well-known/nq";

/// The address of the configuration object of a host, an address, or a URL.
///
/// # Errors
/// If it is not an https:// URL.
pub fn configuration_url(target: &str, default_port: u16) -> Result<Url, RpmError> {
    let invalid = |why: String| RpmError::Url(format!("{target}: {why}"));
    if target.contains("://") {
        let mut url = Url::parse(target).map_err(|e| invalid(e.to_string()))?;
        if url.scheme() != "https" || !url.has_host() {
            return Err(invalid("the test needs an https:// URL".to_owned()));
        }
        if url.path() == "/" {
            url.set_path(WELL_KNOWN);
        }
        return Ok(url);
    }
    let is_ipv6 = target.parse::<std::net::Ipv6Addr>().is_ok();
    let host = if is_ipv6 { format!("[{target}]") } else { target.to_owned() };
    let with_port = host.rsplit_once(':').is_some_and(|(before, port)| {
        !before.is_empty() && (!host.starts_with('[') || before.ends_with(']')) && port.parse::<u16>().is_ok()
    });
    let host = if with_port { host } else { format!("{host}:{default_port}") };
    if host.contains(['/', '?', '#', '@']) {
        return Err(invalid("neither a host nor an https:// URL".to_owned()));
    }
    Url::parse(&format!("https://{host}{WELL_KNOWN}")).map_err(|e| invalid(e.to_string()))
}

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum RpmError {
    /// The target is invalid.
    #[error("{0}")]
    Url(String),
    /// The host has no address.
    #[error("cannot resolve {host}: {source}")]
    Resolve {
        /// The host.
        host: String,
        /// The cause.
        source: io::Error,
    },
    /// No connection, TCP or TLS.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// The server answers in another protocol, such as that of iperf3.
    #[error("{0} does not speak TLS")]
    NoTls(SocketAddr),
    /// The server speaks HTTP/1.1 only.
    #[error("{0} does not offer HTTP/2")]
    NoHttp2(SocketAddr),
    /// A request failed.
    #[error("{url}: {why}")]
    Http {
        /// Its URL.
        url: String,
        /// The cause.
        why: String,
    },
    /// The server refused a request.
    #[error("{url}: status {status}: {text}")]
    Status {
        /// Its URL.
        url: String,
        /// The status.
        status: u16,
        /// The server's explanation.
        text: String,
    },
    /// The server's configuration object is invalid.
    #[error("{url}: invalid configuration object: {source}")]
    Configuration {
        /// Its URL.
        url: String,
        /// The cause.
        source: ConfigurationError,
    },
    /// The server cannot choose controllers.
    #[error("{url}: the server does not send with {controller} on request; `fullpipe serve` does")]
    NoChoice {
        /// Its configuration object.
        url: String,
        /// The controller.
        controller: String,
    },
    /// The secret cannot be sent.
    #[error("the secret has characters that HTTP does not permit")]
    Secret,
    /// This host lacks the controller.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// A load-generating connection ended: the draft aborts the test then.
    #[error("a load-generating connection ended: {0}")]
    Load(Box<RpmError>),
    /// No probe completed.
    #[error("{direction}: no {kind} completed within {seconds} s")]
    NoProbes {
        /// The direction.
        direction: Direction,
        /// Which probes.
        kind: &'static str,
        /// The time limit.
        seconds: f64,
    },
    /// The user interrupted it.
    #[error("interrupted")]
    Interrupted,
    /// Something that this host lacks.
    #[error(transparent)]
    System(io::Error),
}

impl RpmError {
    fn http(url: &Url, why: String) -> RpmError {
        RpmError::Http { url: url.to_string(), why }
    }

    fn hyper(url: &Url, error: &hyper::Error) -> RpmError {
        let closed = || "the server closed the connection".to_owned();
        RpmError::http(url, http2_error::text(error).unwrap_or_else(closed))
    }

    /// Whether the server's certificate was not accepted.
    pub fn is_certificate(&self) -> bool {
        use tokio_rustls::rustls::Error;
        let RpmError::Connect { source, .. } = self else { return false };
        let tls = source.get_ref().and_then(|e| e.downcast_ref::<Error>());
        matches!(tls, Some(Error::InvalidCertificate(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_hosts_addresses_or_urls() {
        let url = |target: &str| configuration_url(target, 5201).map(|url| url.to_string());
        for (target, expected) in [
            ("example.org", "https://example.org:5201/.well-known/nq"),
            ("example.org:443", "https://example.org/.well-known/nq"),
            ("192.0.2.1", "https://192.0.2.1:5201/.well-known/nq"),
            ("2001:db8::1", "https://[2001:db8::1]:5201/.well-known/nq"),
            ("[2001:db8::1]:4043", "https://[2001:db8::1]:4043/.well-known/nq"),
            ("[2001:db8::1]", "https://[2001:db8::1]:5201/.well-known/nq"),
            ("https://example.org", "https://example.org/.well-known/nq"),
            ("https://example.org/config", "https://example.org/config"),
        ] {
            assert_eq!(url(target).unwrap(), expected, "{target}");
        }
        for target in ["", "http://example.org/", "a b", "host/path", "user@host", "ftp://h", "h:99999"] {
            assert!(url(target).is_err(), "{target}");
        }
    }
}
