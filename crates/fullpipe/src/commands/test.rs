//! `fullpipe test`: measure against a server.

use crate::failure::Failure;
use crate::print::print;
use crate::runs::{command_line, hanging, listed, opened, width};
use fullpipe_experiment::Results;
use fullpipe_net::client::{self, ClientError, Config, Family, Interval, table};
use fullpipe_net::compare::{CompareError, Plan};
use fullpipe_net::iperf3::{DEFAULT_TCP_BLOCK, Params, Protocol};
use fullpipe_net::recording::recording;
use fullpipe_net::signals;
use fullpipe_report::{About, Output, comparison_text};
use fullpipe_units::{Bytes, ParseError, Rate, Span};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Measure throughput, RTT and retransmits against `fullpipe serve` or a stock iperf3 server
///
/// Options mean what they mean to iperf3. With our server, `-R` shows the sending server's socket live.
#[derive(clap::Args)]
#[command(disable_version_flag = true)]
pub struct Args {
    /// The server
    host: String,
    /// Its port
    #[arg(short, long, default_value_t = 5201)]
    port: u16,
    /// Seconds to measure
    #[arg(short, long, default_value = "10", value_parser = seconds, value_name = "TIME")]
    time: f64,
    /// Bytes to send instead of a time, such as `1g`
    #[arg(short = 'n', long, value_name = "SIZE", conflicts_with = "time")]
    bytes: Option<Bytes>,
    /// Blocks to send instead of a time
    #[arg(short = 'k', long, value_name = "N", conflicts_with_all = ["time", "bytes"])]
    blockcount: Option<u64>,
    /// Seconds between lines
    #[arg(short, long, default_value = "1", value_parser = seconds, value_name = "TIME")]
    interval: f64,
    /// Streams at once
    #[arg(short = 'P', long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=128))]
    parallel: u32,
    /// The server sends
    #[arg(short = 'R', long, conflicts_with = "bidir")]
    reverse: bool,
    /// Both send
    #[arg(long)]
    bidir: bool,
    /// The sender's congestion controller
    #[arg(short = 'C', long, value_name = "CC")]
    congestion: Option<String>,
    /// Rate per stream: `100M` as iperf3 has it, or `100mbit` [default: unlimited, UDP 1 Mbit/s]
    #[arg(short, long, value_parser = bitrate, value_name = "RATE")]
    bitrate: Option<Rate>,
    /// Seconds to leave out at the beginning
    #[arg(short = 'O', long, default_value = "0", value_parser = seconds, value_name = "TIME")]
    omit: f64,
    /// Socket buffers, such as `256k`
    #[arg(short, long, value_name = "SIZE")]
    window: Option<Bytes>,
    /// Bytes per write, or per datagram
    #[arg(short, long, value_name = "SIZE")]
    length: Option<Bytes>,
    /// Maximum segment size
    #[arg(short = 'M', long, value_name = "BYTES")]
    set_mss: Option<u32>,
    /// Do not wait to fill segments
    #[arg(short = 'N', long)]
    no_delay: bool,
    /// IP type-of-service byte
    #[arg(short = 'S', long, value_name = "BYTE")]
    tos: Option<u8>,
    /// UDP
    #[arg(short, long)]
    udp: bool,
    /// IPv4 only
    #[arg(short = '4', conflicts_with = "ipv6")]
    ipv4: bool,
    /// IPv6 only
    #[arg(short = '6')]
    ipv6: bool,
    /// Local address
    #[arg(short = 'B', long, value_name = "IP")]
    bind: Option<IpAddr>,
    /// Give up connecting after this time
    #[arg(long, default_value = "10s", value_name = "TIME")]
    connect_timeout: Span,
    /// Ask the server for what it prints
    #[arg(long)]
    get_server_output: bool,
    /// File that holds the server's secret
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Measure these controllers in interleaved rounds and say which is better here: `bbr,cubic`; may be repeated
    #[arg(long, value_name = "CC,CC", conflicts_with = "congestion")]
    compare: Option<Vec<String>>,
    /// Rounds of a comparison; each measures every controller once
    #[arg(long, default_value_t = 10, value_name = "N", requires = "compare")]
    rounds: usize,
    /// What the others are compared with [default: cubic if it takes part, else the last]
    #[arg(long, value_name = "CC", requires = "compare")]
    baseline: Option<String>,
    /// Seed of the comparison's bootstrap
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Also write a report: .html, .json, .csv, .svg, .png … by its ending; may be repeated
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    out: Vec<PathBuf>,
    /// Print JSON, as iperf3 does unless --compare is given
    #[arg(short = 'J', long)]
    json: bool,
}

/// Where the figures of a test's summary begin.
const HEAD: usize = 14;

/// Seconds as iperf3 users write them, `10` or `0.5`, or with a unit.
pub fn seconds(text: &str) -> Result<f64, ParseError> {
    let value = match text.parse::<f64>() {
        Ok(seconds) => seconds,
        Err(_) => text.parse::<Span>()?.as_secs_f64(),
    };
    if (0.0..=86_400.0).contains(&value) {
        Ok(value)
    } else {
        Err(ParseError::new(text, "must lie between 0 and 86400 seconds"))
    }
}

/// A rate as iperf3 users write it: without a unit, too.
fn bitrate(text: &str) -> Result<Rate, ParseError> {
    // A number alone is in bit/s to iperf3, and so in scripts.
    let is_number = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if is_number { format!("{text}bit").parse() } else { text.parse() }
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let config = self.config()?;
        let interrupt = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&interrupt);
        signals::on_termination(move || flag.store(true, Relaxed))
            .map_err(|e| Failure::Impossible(e.to_string()))?;
        let output = opened(&self.out)?;
        if self.compare.is_some() {
            return self.compare(config, &interrupt, output);
        }
        let mut table = table::Table::new(width());
        let json = self.json;
        let mut progress = |interval: &Interval| {
            if !json {
                print!("{}", table.lines(interval));
            }
        };
        let outcome = client::run(&config, &interrupt, &mut progress).map_err(failure)?;
        if json {
            println!("{:#}", client::iperf3_json(&outcome));
        } else {
            for line in table::summary(&outcome).lines() {
                hanging("", HEAD, line);
            }
            if let Some(text) = &outcome.server_output {
                print!("\nserver: {text}");
            }
        }
        let label =
            outcome.streams.iter().find_map(|s| s.controller.clone()).unwrap_or_else(|| "test".into());
        write(output, Results::new(vec![recording(&outcome, &label, self.seed)]), &self.host)
    }

    fn compare(self, mut config: Config, interrupt: &AtomicBool, output: Vec<Output>) -> Result<(), Failure> {
        // The beginning of a test says how fast a controller starts, not how fast it is.
        if config.params.omit == 0 && config.params.byte_budget().is_none() {
            config.params.omit = (config.params.seconds / 5).clamp(1, 5);
        }
        let controllers = listed(&self.compare.unwrap_or_default());
        let plan =
            Plan::new(config, controllers, self.baseline, self.rounds, self.seed).map_err(Failure::usage)?;
        let (p, total) = (&plan.config.params, plan.rounds * plan.controllers.len());
        if p.byte_budget().is_none() {
            let moving = total as u64 * u64::from(p.seconds + p.omit);
            eprintln!(
                "{total} tests of {} s, of each the first {} s left out: {moving} s of data, and some round trips and 0.5 s more each to \
                 connect, probe and end",
                p.seconds, p.omit
            );
        }
        let began = Instant::now();
        let mut tests = 0;
        let mut begun = |round: usize, name: &str| {
            let left =
                began.elapsed().as_secs_f64() / f64::from(tests.max(1)) * f64::from(total as u32 - tests);
            let left = if tests == 0 { String::new() } else { format!(", about {left:.0} s left") };
            eprintln!("round {} of {}: {name}{left}", round + 1, plan.rounds);
            tests += 1;
        };
        let comparison = plan.run(interrupt, &mut begun, &mut |_| {}).map_err(|e| match e {
            CompareError::Plan(_) => Failure::usage(e),
            CompareError::Round { source: ClientError::Pin(_), .. } => Failure::usage(e),
            _ => Failure::Impossible(e.to_string()),
        })?;
        let results = comparison.results();
        if let Some(found) = results.comparison.as_ref() {
            if self.json {
                let json = serde_json::to_value(found).map_err(Failure::usage)?;
                println!("{json:#}");
            } else {
                print(comparison_text(found, width()))?;
            }
        }
        write(output, results, &self.host)
    }

    fn config(&self) -> Result<Config, Failure> {
        let whole = |name: &str, value: f64| {
            if value.fract() == 0.0 {
                Ok(value as u32)
            } else {
                Err(Failure::usage(format!("{name} {value}: iperf3's protocol knows whole seconds only")))
            }
        };
        let rate = match (self.bitrate, self.udp) {
            (Some(rate), _) => rate.as_bits_per_sec(),
            (None, true) => 1_000_000,
            (None, false) => 0,
        };
        let bounded = self.bytes.is_some() || self.blockcount.is_some();
        let block = self.length.map_or(u64::from(DEFAULT_TCP_BLOCK), |b| b.0);
        let window = self.window.map_or(0, |b| b.0);
        if window > 512 << 20 {
            return Err(Failure::usage("--window: at most 512m"));
        }
        let (least, most) = if self.udp { (16, 65_507) } else { (1, 1 << 20) };
        if self.length.is_some() && !(least..=most).contains(&block) {
            return Err(Failure::usage(format!("--length: {least} to {most} bytes")));
        }
        if self.interval < 0.01 {
            return Err(Failure::usage("--interval: at least 0.01"));
        }
        let params = Params {
            protocol: if self.udp { Protocol::Udp } else { Protocol::Tcp },
            seconds: if bounded { 0 } else { whole("--time", self.time)?.max(1) },
            omit: whole("--omit", self.omit)?,
            bytes: self.bytes.map_or(0, |b| b.0),
            blocks: self.blockcount.unwrap_or(0),
            parallel: self.parallel,
            reverse: self.reverse,
            bidirectional: self.bidir,
            block: block as u32,
            window: window as u32,
            rate,
            mss: self.set_mss.unwrap_or(0),
            no_delay: self.no_delay,
            tos: self.tos.unwrap_or(0),
            congestion: self.congestion.clone(),
            get_server_output: self.get_server_output,
            ..Params::default()
        };
        Ok(Config {
            family: match (self.ipv4, self.ipv6) {
                (true, _) => Some(Family::V4),
                (_, true) => Some(Family::V6),
                _ => None,
            },
            bind: self.bind,
            params,
            block_chosen: self.length.is_some(),
            interval: Duration::from_secs_f64(self.interval),
            connect_timeout: Duration::from(self.connect_timeout),
            secret: self.secret_file.as_deref().map(crate::secret::read).transpose()?,
            ..Config::new(&self.host, self.port)
        })
    }
}

/// Writes the reports that are wanted.
fn write(outputs: Vec<Output>, results: Results, host: &str) -> Result<(), Failure> {
    let about = About { title: format!("Measured against {host}"), command: command_line() };
    outputs.into_iter().try_for_each(|output| output.write(&results, &about)).map_err(Failure::usage)
}

/// What the user asked for that cannot be is bad input; what the machine or the network lacks is not.
pub fn failure(error: ClientError) -> Failure {
    match error {
        ClientError::Resolve { .. } | ClientError::Pin(_) | ClientError::SecretWanted => {
            Failure::usage(error)
        }
        _ => Failure::Impossible(error.to_string()),
    }
}
