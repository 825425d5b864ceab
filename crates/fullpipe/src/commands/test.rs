//! `fullpipe test`: measure against a server.

use crate::failure::Failure;
use crate::print::print;
use crate::runs::{command_line, listed, open_outputs, print_hanging, width};
use fullpipe_experiment::Results;
use fullpipe_net::client::{self, ClientError, Config, Family, Interval, table};
use fullpipe_net::compare::{CompareError, Plan, PlanError};
use fullpipe_net::iperf2;
use fullpipe_net::iperf3::{DEFAULT_TCP_BLOCK, Params, Protocol};
use fullpipe_net::recording::recording;
use fullpipe_report::{About, Output, comparison_text};
use fullpipe_units::{Bytes, ParseError, Rate, Span};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Measure throughput, RTT and retransmissions to a server
///
/// The server is `fullpipe serve`, a stock iperf3 or iperf 2. Options have the same meaning as for
/// iperf3.
/// With `fullpipe serve`, -R also reports the state of the sending server's socket.
#[derive(clap::Args)]
#[command(
    disable_version_flag = true,
    after_help = "Example: fullpipe test example.org --compare bbr,cubic --rounds 10"
)]
pub struct Args {
    /// Host name or address of the server
    host: String,
    /// Port of the server [default: 5201; with --iperf2 5001]
    #[arg(short, long)]
    port: Option<u16>,
    /// The server speaks iperf 2 (`iperf -s`, port 5001) [default: detected]
    #[arg(long)]
    iperf2: bool,
    /// Time to measure, in seconds or with a unit
    #[arg(short, long, default_value = "10", value_parser = seconds, value_name = "TIME")]
    time: f64,
    /// Bytes to transfer, such as `1g` (1024³) or `1GB` (1000³), instead of --time
    #[arg(short = 'n', long, value_name = "SIZE", conflicts_with = "time")]
    bytes: Option<Bytes>,
    /// Blocks of --length bytes to transfer, instead of --time
    #[arg(short = 'k', long, value_name = "N", conflicts_with_all = ["time", "bytes"])]
    blockcount: Option<u64>,
    /// Time between reported intervals, in seconds or with a unit
    #[arg(short, long, default_value = "1", value_parser = seconds, value_name = "TIME")]
    interval: f64,
    /// Number of parallel streams
    #[arg(
        short = 'P',
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=128)
    )]
    parallel: u32,
    /// Reverse the direction: the server sends
    #[arg(short = 'R', long, conflicts_with = "bidir")]
    reverse: bool,
    /// Send in both directions at once
    #[arg(long)]
    bidir: bool,
    /// Congestion controller of the sender [default: the system's]
    #[arg(short = 'C', long, value_name = "CC")]
    congestion: Option<String>,
    /// Rate limit per stream: `100mbit`, or `100M` as for iperf3 [default: unlimited; UDP 1mbit]
    #[arg(short, long, value_parser = bitrate, value_name = "RATE")]
    bitrate: Option<Rate>,
    /// Initial time to exclude from the results, in seconds or with a unit
    #[arg(short = 'O', long, default_value = "0", value_parser = seconds, value_name = "TIME")]
    omit: f64,
    /// Size of the socket buffers in bytes, such as `256k` [default: the system's]
    #[arg(short, long, value_name = "SIZE")]
    window: Option<Bytes>,
    /// Bytes per write, or per UDP datagram [default: 128k; UDP: the connection's maximum segment
    /// size]
    #[arg(short, long, value_name = "SIZE")]
    length: Option<Bytes>,
    /// Maximum segment size in bytes [default: the system's]
    #[arg(short = 'M', long, value_name = "BYTES")]
    set_mss: Option<u32>,
    /// Disable Nagle's algorithm (TCP_NODELAY)
    #[arg(short = 'N', long)]
    no_delay: bool,
    /// IP type-of-service byte, 0 to 255 [default: 0]
    #[arg(short = 'S', long, value_name = "BYTE")]
    tos: Option<u8>,
    /// Use UDP instead of TCP
    #[arg(short, long)]
    udp: bool,
    /// Use IPv4 only
    #[arg(short = '4', conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use IPv6 only
    #[arg(short = '6')]
    ipv6: bool,
    /// Local address to send from [default: chosen by the system]
    #[arg(short = 'B', long, value_name = "IP")]
    bind: Option<IpAddr>,
    /// Timeout for connecting
    #[arg(long, default_value = "10s", value_name = "TIME")]
    connect_timeout: Span,
    /// Also show the server's output
    #[arg(long)]
    get_server_output: bool,
    /// File with the server's secret in its first line
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Controllers to compare in interleaved rounds, such as `bbr,cubic`; may be repeated
    #[arg(long, value_name = "CC,CC", conflicts_with = "congestion")]
    compare: Option<Vec<String>>,
    /// Number of rounds of a comparison. Each round measures every controller once, for --time
    /// after a warm-up: 10 rounds of 2 controllers take more than 20 × --time
    #[arg(long, default_value_t = 10, value_name = "N", requires = "compare")]
    rounds: usize,
    /// Controller that the others are compared with [default: cubic if compared, else the last]
    #[arg(long, value_name = "CC", requires = "compare")]
    baseline: Option<String>,
    /// Seed of the comparison's bootstrap statistics
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Also write a report to FILE, in the format of its extension: .html, .json, .csv, .svg, .png,
    /// …; an existing FILE is replaced; may be repeated
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    out: Vec<PathBuf>,
    /// Print JSON, in iperf3's format unless --compare is given
    #[arg(short = 'J', long)]
    json: bool,
}

/// The port of iperf3.
const PORT: u16 = 5201;
/// Column at which the numbers of a test's summary begin.
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
        Err(ParseError::new(text, "must be between 0 and 86400 seconds"))
    }
}

/// A rate as iperf3 users write it, also without a unit.
fn bitrate(text: &str) -> Result<Rate, ParseError> {
    // iperf3 takes a number without a unit as bit/s, and scripts rely on it.
    let is_number = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if is_number { format!("{text}bit").parse() } else { text.parse() }
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let config = self.config()?;
        let interrupt = crate::termination::flag()?;
        let output = open_outputs(&self.out)?;
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
                print_hanging("", HEAD, line);
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
        // The beginning of a test shows slow start, not the steady rate.
        if config.params.omit == 0 && config.params.byte_budget().is_none() {
            config.params.omit = (config.params.seconds / 5).clamp(1, 5);
        }
        let controllers = listed(&self.compare.unwrap_or_default());
        let plan =
            Plan::new(config, controllers, self.baseline, self.rounds, self.seed).map_err(plan_failure)?;
        let (p, total) =
            (&plan.config.params, (plan.rounds + plan.rounds_beside_cubic()) * plan.controllers.len());
        if p.byte_budget().is_none() {
            let transfer_s = total as u64 * u64::from(p.seconds + p.omit);
            eprintln!(
                "{total} tests of {} s after {} s of warm-up each: {transfer_s} s of transfers, plus about \
                 0.5 s and some round trips \
                 each to connect, probe and close",
                p.seconds, p.omit
            );
        }
        let began = Instant::now();
        let mut tests = 0;
        let mut on_start = |round: usize, name: &str| {
            let left =
                began.elapsed().as_secs_f64() / f64::from(tests.max(1)) * f64::from(total as u32 - tests);
            let left = if tests == 0 { String::new() } else { format!(", about {left:.0} s left") };
            eprintln!("{}: {name}{left}", plan.round_name(round));
            tests += 1;
        };
        let comparison = plan.run(interrupt, &mut on_start, &mut |_| {}).map_err(|e| match e {
            CompareError::Plan(e) => plan_failure(e),
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
                Err(Failure::usage(format!(
                    "{name} {value}: must be whole seconds, as iperf3's protocol has no fractions"
                )))
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
            return Err(Failure::usage("--window must be at most 512m"));
        }
        let (min, max) = if self.udp { (16, 65_507) } else { (1, 1 << 20) };
        if self.length.is_some() && !(min..=max).contains(&block) {
            return Err(Failure::usage(format!("--length must be between {min} and {max} bytes")));
        }
        if self.interval < 0.01 {
            return Err(Failure::usage("--interval must be at least 0.01"));
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
            iperf2: self.iperf2,
            interval: Duration::from_secs_f64(self.interval),
            connect_timeout: Duration::from(self.connect_timeout),
            secret: self.secret_file.as_deref().map(crate::secret::read).transpose()?,
            ..Config::new(&self.host, self.port.unwrap_or(if self.iperf2 { iperf2::PORT } else { PORT }))
        })
    }
}

/// Writes the reports.
fn write(outputs: Vec<Output>, results: Results, host: &str) -> Result<(), Failure> {
    let about = About { title: format!("Measured against {host}"), command: command_line() };
    outputs.into_iter().try_for_each(|output| output.write(&results, &about)).map_err(Failure::usage)
}

/// The failure for an invalid plan of a comparison.
pub fn plan_failure(error: PlanError) -> Failure {
    match error {
        PlanError::TooFewControllers => Failure::usage(
            "--compare needs at least two different controllers, for example --compare bbr,cubic",
        ),
        PlanError::NoRounds => Failure::usage("--rounds must be at least 1"),
        PlanError::UnknownBaseline(baseline) => {
            Failure::usage(format!("--baseline {baseline} is not among the compared controllers"))
        }
    }
}

/// The failure for an error of the client: bad input, or something that the machine or the network
/// lacks.
pub fn failure(error: ClientError) -> Failure {
    match error {
        ClientError::Resolve { .. }
        | ClientError::Pin(_)
        | ClientError::SecretWanted
        | ClientError::Iperf2Lacks(_) => Failure::usage(error),
        _ => Failure::Impossible(error.to_string()),
    }
}
