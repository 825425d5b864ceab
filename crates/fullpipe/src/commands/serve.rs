//! `fullpipe serve`: the measuring server.

use crate::failure::Failure;
use fullpipe_net::server::{self, Config, Event, Limits, Network, Server};
use fullpipe_net::signals;
use fullpipe_units::{Bytes, Rate, Span};
use std::fs::File;
use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

/// Serve stock iperf3 clients, `fullpipe test`, curl, wget and browsers, on one port and all at once
///
/// iperf3 -c HOST, fullpipe test HOST, and
/// curl -o /dev/null 'http://HOST:5201/download?size=1g&cc=bbr' all work against it; a browser finds a speed test at
/// http://HOST:5201/.
#[derive(clap::Args)]
pub struct Args {
    /// Port for everything; 0 takes a free one and says which
    #[arg(short, long, default_value_t = 5201)]
    port: u16,
    /// Address to listen on [default: all, IPv4 and IPv6]
    #[arg(short = 'B', long, value_name = "IP")]
    bind: Option<IpAddr>,
    /// End after one test
    #[arg(short = '1', long)]
    one_off: bool,
    /// Controller of connections whose client does not ask for one [default: the system's]
    #[arg(short = 'C', long, value_name = "CC")]
    congestion: Option<String>,
    /// Tests and transfers at once; more are told that the server is busy
    #[arg(long, default_value_t = 1024, value_name = "N")]
    max_clients: usize,
    /// Connections from one address (IPv6: from one /64) at once
    #[arg(long, default_value_t = 1024, value_name = "N")]
    max_connections_per_address: usize,
    /// Streams of a test, per direction
    #[arg(long, default_value_t = 128, value_name = "N")]
    max_streams: u32,
    /// Rate of a client, each way, such as `1gbit`
    #[arg(long, value_name = "RATE")]
    max_rate: Option<Rate>,
    /// Length of a test or transfer
    #[arg(long, default_value = "24h", value_name = "TIME")]
    max_time: Span,
    /// Size of a test or transfer, each way, such as `10g`
    #[arg(long, value_name = "SIZE")]
    max_bytes: Option<Bytes>,
    /// A client that moves nothing for this long is dropped
    #[arg(long, default_value = "60s", value_name = "TIME")]
    idle_timeout: Span,
    /// A client gets this long for each step before and after its data
    #[arg(long, default_value = "15s", value_name = "TIME")]
    step_timeout: Span,
    /// File that holds a secret clients must know (`fullpipe test --secret-file`; HTTP: `Authorization: Bearer`)
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Network that may connect, such as `192.0.2.0/24`; may be repeated [default: all]
    #[arg(long, value_name = "NET", value_delimiter = ',')]
    allow: Vec<Network>,
    /// User to become once the port is open [default: nobody, where root starts it]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Write events to this file and not to stderr, where each line begins with `serve:`
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Events as JSON, one a line
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        if self.max_rate == Some(Rate::ZERO) {
            return Err(Failure::usage("--max-rate: at least 8bit, a byte per second"));
        }
        // Every connection is a descriptor. Where the system does not allow more, the server takes fewer.
        let _ = server::raise_descriptor_limit();
        let secret = self.secret_file.as_deref().map(crate::secret::read).transpose()?;
        let config = Config {
            address: self.bind,
            port: self.port,
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
        };
        let mut server = Server::bind(config, logger(self.log, self.json)?)
            .map_err(|e| Failure::Impossible(format!("cannot listen on port {}: {e}", self.port)))?;
        // Before there is another thread, which would keep what this one gives up.
        server.confine(self.user.as_deref()).map_err(|e| match self.user {
            Some(_) => Failure::usage(format!("--user: {e}")),
            None => Failure::Impossible(format!("cannot give up privileges: {e}")),
        })?;
        let handle = server.handle();
        signals::on_termination(move || handle.stop()).map_err(|e| Failure::Impossible(e.to_string()))?;
        server.run().map_err(|e| Failure::Impossible(format!("the listening socket failed: {e}")))
    }
}

/// Writes each event as a line. A log that cannot be written does not stop the server.
fn logger(file: Option<PathBuf>, json: bool) -> Result<impl Fn(&Event) + Send + Sync + 'static, Failure> {
    let file = file
        .map(|path| {
            File::options()
                .append(true)
                .create(true)
                .open(&path)
                .map_err(|e| Failure::usage(format!("cannot write the log {}: {e}", path.display())))
        })
        .transpose()?
        .map(Mutex::new);
    Ok(move |event: &Event| {
        let mut line = if json { event.to_json_line() } else { event.to_string() };
        line.push('\n');
        let _ = match &file {
            Some(file) => file.lock().map_or(Ok(()), |mut f| f.write_all(line.as_bytes())),
            None if json => std::io::stderr().write_all(line.as_bytes()),
            // A terminal may be shared with what a client prints.
            None => std::io::stderr().write_all(format!("serve: {line}").as_bytes()),
        };
    })
}
