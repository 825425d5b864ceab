//! `fullpipe serve`: the measuring server.

use crate::failure::Failure;
use fullpipe_net::iperf2;
use fullpipe_net::server::{self, Config, Event, Limits, Network, Pem, Server};
use fullpipe_net::signals;
use fullpipe_units::{Bytes, Rate, Span};
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

/// Serve iperf3, iperf 2, `fullpipe test`, `rpm`, curl and browsers
///
/// All clients share one port and run concurrently: iperf3 -c HOST, fullpipe test HOST,
/// fullpipe rpm HOST,
/// curl -o /dev/null 'http://HOST:5201/download?size=1g&cc=bbr', and a speed test for browsers at
/// http://HOST:5201/. iperf 2 clients also find it on their own port: iperf -c HOST.
#[derive(clap::Args)]
#[command(after_help = "Example: fullpipe serve --max-rate 1gbit --max-time 60s --allow 192.0.2.0/24")]
pub struct Args {
    /// Port to listen on, TCP and UDP; 0 selects a free one and prints it
    #[arg(short, long, default_value_t = 5201)]
    port: u16,
    /// Additional port for iperf 2 clients; 0 for none [default: 5001, if free]
    #[arg(long, value_name = "PORT")]
    iperf2_port: Option<u16>,
    /// Address to listen on [default: all IPv4 and IPv6 addresses]
    #[arg(short = 'B', long, value_name = "IP")]
    bind: Option<IpAddr>,
    /// Exit after one test
    #[arg(short = '1', long)]
    one_off: bool,
    /// Congestion controller for clients that request none [default: the system's]
    #[arg(short = 'C', long, value_name = "CC")]
    congestion: Option<String>,
    /// Maximum number of concurrent tests and transfers; others are rejected as busy
    #[arg(long, default_value_t = 1024, value_name = "N")]
    max_clients: usize,
    /// Maximum number of concurrent connections per address (per /64 for IPv6)
    #[arg(long, default_value_t = 1024, value_name = "N")]
    max_connections_per_address: usize,
    /// Maximum number of streams per test and direction
    #[arg(long, default_value_t = 128, value_name = "N")]
    max_streams: u32,
    /// Maximum rate per address (per /64 for IPv6) and direction, such as `1gbit` [default: unlimited]
    #[arg(long, value_name = "RATE")]
    max_rate: Option<Rate>,
    /// Maximum duration of a test or transfer
    #[arg(long, default_value = "24h", value_name = "TIME")]
    max_time: Span,
    /// Maximum bytes per test or transfer and direction, such as `10g` [default: unlimited]
    #[arg(long, value_name = "SIZE")]
    max_bytes: Option<Bytes>,
    /// Timeout after which a client without data transfer is disconnected
    #[arg(long, default_value = "60s", value_name = "TIME")]
    idle_timeout: Span,
    /// Timeout for each protocol step before and after the data transfer
    #[arg(long, default_value = "15s", value_name = "TIME")]
    step_timeout: Span,
    /// File with a secret that clients must present (`fullpipe test --secret-file`; HTTP:
    /// `Authorization: Bearer`)
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Network that may connect, such as `192.0.2.0/24`; may be repeated [default: all networks]
    #[arg(long, value_name = "NET", value_delimiter = ',')]
    allow: Vec<Network>,
    /// TLS certificate chain in PEM, for `fullpipe rpm` and other HTTP/2 clients [default: a
    /// self-signed one, made at the start; its SHA-256 is in the event `listening`]
    #[arg(long, value_name = "FILE", requires = "tls_key", value_hint = clap::ValueHint::FilePath)]
    tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_hint = clap::ValueHint::FilePath)]
    tls_key: Option<PathBuf>,
    /// User to switch to once the port is open [default: `nobody` if started by root]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// File to write events to [default: stderr, with lines prefixed `serve:`]
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Write events as JSON, one per line
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        if self.max_rate == Some(Rate::ZERO) {
            return Err(Failure::usage("--max-rate must be at least 8bit, one byte per second"));
        }
        // Every connection takes a file descriptor. Where the limit cannot be raised, the server accepts
        // fewer.
        let _ = server::raise_descriptor_limit();
        let secret = self.secret_file.as_deref().map(crate::secret::read).transpose()?;
        let config = Config {
            address: self.bind,
            port: self.port,
            iperf2_port: Some(self.iperf2_port.unwrap_or(iperf2::PORT)).filter(|&port| port != 0),
            limits: Limits {
                clients: self.max_clients,
                connections_per_address: self.max_connections_per_address,
                streams: self.max_streams,
                seconds: self.max_time.as_secs_f64().min(86_400.0 * 365.0) as u32,
                bytes: self.max_bytes.map(|b| b.0),
                rate: self.max_rate,
                handshake: Duration::from(self.step_timeout),
                idle: Duration::from(self.idle_timeout),
                ..Limits::default()
            },
            secret,
            allow: self.allow,
            one_off: self.one_off,
            controller: self.congestion,
            certificate: self.tls_cert.as_deref().zip(self.tls_key.as_deref()).map(pem).transpose()?,
        };
        let mut server =
            Server::bind(config, logger(self.log, self.json)?).map_err(|e| match &self.tls_cert {
                Some(path) if e.kind() == std::io::ErrorKind::InvalidData => {
                    Failure::usage(format!("--tls-cert {}: {e}", path.display()))
                }
                _ => Failure::Impossible(format!("cannot listen on port {}: {e}", self.port)),
            })?;
        if let Some(port) = self.iperf2_port.filter(|&port| port != 0 && port != self.port)
            && server.iperf2_address().is_none()
        {
            return Err(Failure::Impossible(format!("cannot listen on --iperf2-port {port}: it is in use")));
        }
        // Before other threads are started, since those would keep the privileges.
        server.confine(self.user.as_deref()).map_err(|e| match self.user {
            Some(_) => Failure::usage(format!("--user: {e}")),
            None => Failure::Impossible(format!("cannot drop privileges: {e}")),
        })?;
        let handle = server.handle();
        signals::on_termination(move || handle.stop()).map_err(|e| Failure::Impossible(e.to_string()))?;
        server.run().map_err(|e| Failure::Impossible(format!("the listening socket failed: {e}")))
    }
}

/// Maximum size of a file of certificates.
const MAX_CERTIFICATES: u64 = 1024 * 1024;

/// Reads the files of a certificate and its key.
fn pem((certificate, key): (&Path, &Path)) -> Result<Pem, Failure> {
    let failed = |option: &str, path: &Path, e: std::io::Error| {
        Failure::usage(format!("cannot read {option} {}: {e}", path.display()))
    };
    Ok(Pem {
        certificate: fullpipe_files::read_bounded(certificate, MAX_CERTIFICATES)
            .map_err(|e| failed("--tls-cert", certificate, e))?,
        key: fullpipe_files::read_secret(key).map_err(|e| failed("--tls-key", key, e))?,
    })
}

/// Writes each event as a line. A log that becomes unwritable does not stop the server.
fn logger(file: Option<PathBuf>, json: bool) -> Result<impl Fn(&Event) + Send + Sync + 'static, Failure> {
    let file = file
        .map(|path| {
            fullpipe_files::append(&path)
                .map_err(|e| Failure::usage(format!("cannot open --log {}: {e}", path.display())))
        })
        .transpose()?
        .map(Mutex::new);
    Ok(move |event: &Event| {
        let mut line = if json { event.to_json_line() } else { event.to_string() };
        line.push('\n');
        let _ = match &file {
            Some(file) => file.lock().map_or(Ok(()), |mut f| f.write_all(line.as_bytes())),
            None if json => std::io::stderr().write_all(line.as_bytes()),
            // The prefix tells the server's lines from those of a client on the same terminal.
            None => std::io::stderr().write_all(format!("serve: {line}").as_bytes()),
        };
    })
}
