//! `fullpipe diagnose`: what limits a transfer.

use super::test::{failure, seconds};
use crate::failure::Failure;
use crate::print::prose;
use fullpipe_net::client::table::rate;
use fullpipe_net::client::{Config, Outcome};
use fullpipe_net::diagnose::{self, Diagnosis, Observed};
use fullpipe_net::iperf3::Params;
use std::path::PathBuf;
use std::time::Duration;

/// Find what limits a transfer
///
/// The limit is the application, the receive window, the send buffer, congestion control or the
/// path. With HOST, measures against `fullpipe serve` or iperf3 -s; with --pid, samples the sockets
/// of a running process.
#[derive(clap::Args)]
#[command(after_help = "Example: fullpipe diagnose example.org -R")]
#[command(group = clap::ArgGroup::new("target").required(true).args(["host", "pid"]))]
pub struct Args {
    /// Server to measure against
    host: Option<String>,
    /// ID of the process whose sockets are sampled
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Port of the server
    #[arg(short, long, default_value_t = 5201, conflicts_with = "pid")]
    port: u16,
    /// Time to measure, in seconds or with a unit
    #[arg(short, long, default_value = "5", value_parser = seconds, value_name = "TIME")]
    time: f64,
    /// Reverse the direction: the server sends (needs `fullpipe serve`)
    #[arg(short = 'R', long, conflicts_with = "pid")]
    reverse: bool,
    /// Congestion controller of the sender [default: the system's]
    #[arg(short = 'C', long, value_name = "CC", conflicts_with = "pid")]
    congestion: Option<String>,
    /// File with the server's secret in its first line
    #[arg(long, value_name = "FILE", conflicts_with = "pid")]
    secret_file: Option<PathBuf>,
    /// Print the diagnosis as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        match (&self.host, self.pid) {
            (Some(host), _) => self.host(host),
            (None, Some(pid)) => self.pid(pid),
            (None, None) => Err(Failure::usage("name a HOST or a process with --pid")),
        }
    }

    fn host(&self, host: &str) -> Result<(), Failure> {
        let interrupt = crate::termination::flag()?;
        let params = Params {
            seconds: self.time.round().clamp(1.0, 3600.0) as u32,
            omit: 1,
            reverse: self.reverse,
            congestion: self.congestion.clone(),
            ..Params::default()
        };
        let secret = self.secret_file.as_deref().map(crate::secret::read).transpose()?;
        let config = Config { params, secret, abort: true, ..Config::new(host, self.port) };
        let Some((outcome, diagnosis)) = diagnose::server(&config, &interrupt).map_err(failure)? else {
            return Err(Failure::Impossible(
                "a stock iperf3 server does not report its sending socket: remove -R, or run `fullpipe \
                 serve` there"
                    .into(),
            ));
        };
        if self.json {
            println!("{:#}", serde_json::json!(diagnosis));
        } else {
            prose(&text(&title(&outcome), &diagnosis));
        }
        Ok(())
    }

    fn pid(&self, pid: u32) -> Result<(), Failure> {
        let time = Duration::from_secs_f64(self.time);
        let sockets = diagnose::process(pid, time)
            .map_err(|e| Failure::Impossible(format!("cannot inspect the sockets of process {pid}: {e}")))?;
        if self.json {
            let list: Vec<_> = sockets
                .iter()
                .map(|Observed { socket, sample, diagnosis }| {
                    serde_json::json!({
                        "local": socket.local.to_string(), "remote": socket.remote.to_string(),
                        "unread": socket.unread, "socket": sample, "diagnosis": diagnosis,
                    })
                })
                .collect();
            println!("{:#}", serde_json::json!(list));
            return Ok(());
        }
        if sockets.is_empty() {
            println!("process {pid} has no connected TCP socket in this network namespace");
        }
        for Observed { socket, sample, diagnosis } in &sockets {
            let controller = sample.as_ref().map_or("", |s| s.controller.as_str());
            let title = format!("{} → {}, {controller}", socket.local, socket.remote);
            match diagnosis {
                Some(diagnosis) => prose(&text(&title, diagnosis)),
                None if socket.unread > 0 => {
                    println!(
                        "{title}\n  sent nothing; {} bytes are unread: the application is the limit",
                        socket.unread
                    );
                }
                None => println!("{title}\n  sent nothing"),
            }
        }
        Ok(())
    }
}

fn title(outcome: &Outcome) -> String {
    let controller = outcome.streams.iter().find_map(|s| s.controller.clone()).unwrap_or_default();
    let (from, to) = if outcome.params.reverse {
        (outcome.peer.ip(), outcome.local.ip())
    } else {
        (outcome.local.ip(), outcome.peer.ip())
    };
    format!("{from} → {to}, {controller}")
}

fn text(title: &str, diagnosis: &Diagnosis) -> String {
    let [idle, window, buffer, cwnd] = diagnosis.shares.map(|s| format!("{:.0} %", s * 100.0));
    let mut text = format!(
        "{title}: {}\n  share of time: application idle {idle}, receive window {window}, send buffer \
         {buffer}, congestion window {cwnd}\n",
        rate(diagnosis.goodput)
    );
    for line in &diagnosis.explanation {
        text += &format!("  {line}\n");
    }
    text
}
