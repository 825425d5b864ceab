//! `fullpipe lab`: kernel TCP over an emulated path.

use crate::failure::Failure;
use crate::runs;
use fullpipe_experiment::scenario::PathSpec;
use fullpipe_lab::{LinkReport, Shell, ShellReport};
use fullpipe_path::{Limit, LinkSpec, LossSpec, QueueSpec};
use fullpipe_run::Engine;
use fullpipe_units::{Bytes, Fraction, Rate, Span};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Run programs on kernel TCP over an emulated path, without root
#[derive(clap::Args)]
#[command(
    after_help = "Example: fullpipe lab shell --rate 50mbit --server 'iperf3 -s -1' -- iperf3 -c 198.18.0.2"
)]
pub struct Args {
    #[command(subcommand)]
    command: Lab,
}

#[derive(clap::Subcommand)]
enum Lab {
    Shell(ShellArgs),
    Compare(super::compare::Args),
}

/// Run any program inside an emulated path
///
/// COMMAND runs at the client end (198.18.0.1, 2001:2::1), and --server commands at the other end
/// (198.18.0.2, 2001:2::2, also in $FULLPIPE_SERVER). Rate, queue and loss apply in each direction.
/// A summary of the path is printed on stderr at the end.
///
/// Shells can be nested: an inner shell without a --server of its own reaches the outer server over
/// both paths, and its client is 198.18.1.1 (also in $FULLPIPE_CLIENT).
#[derive(clap::Args)]
struct ShellArgs {
    /// Scenario file to read the path, packet size and seed from, instead of the options below
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath,
          conflicts_with_all = ["rate", "down_rate", "rtt", "buffer", "loss", "mtu", "seed"])]
    path: Option<PathBuf>,
    /// Rate of the path in both directions, such as `50mbit` [default: unlimited]
    #[arg(long)]
    rate: Option<Rate>,
    /// Rate from server to client [default: that of --rate]
    #[arg(long, value_name = "RATE")]
    down_rate: Option<Rate>,
    /// Round-trip propagation delay
    #[arg(long, default_value = "40ms")]
    rtt: Span,
    /// Limit of the queue in each direction that has a rate: `1bdp`, `64k` (bytes), `100p`
    /// (packets), `20ms`
    #[arg(long, default_value = "1bdp")]
    buffer: Limit,
    /// Probability of random packet loss in each direction, such as `1%`
    #[arg(long, default_value = "0")]
    loss: Fraction,
    /// Largest packet in bytes, including the IP header
    #[arg(long, default_value = "1500")]
    mtu: Bytes,
    /// Seed of the path's random numbers, such as losses
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Command to run at the server end (198.18.0.2) while COMMAND runs; may be repeated
    #[arg(long = "server", value_name = "COMMAND")]
    servers: Vec<String>,
    /// Capture both ends to PREFIX-client.pcap and PREFIX-server.pcap
    #[arg(long, value_name = "PREFIX")]
    pcap: Option<PathBuf>,
    /// Print the summary of the path (packets, drops, longest queues, the emulator's delays) as
    /// JSON on stderr instead of text
    #[arg(long)]
    json: bool,
    /// Program and its arguments [default: $SHELL]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        match self.command {
            Lab::Shell(args) => args.run(),
            Lab::Compare(args) => args.run(),
        }
    }
}

impl ShellArgs {
    fn run(self) -> Result<(), Failure> {
        let json = self.json;
        let report = fullpipe_lab::shell(&self.shell()?).map_err(runs::in_lab)?;
        if json {
            let text = serde_json::to_string_pretty(&report).map_err(Failure::usage)?;
            eprintln!("{text}");
        } else {
            eprint!("{}", summary(&report));
        }
        match report.exit_code {
            0 => Ok(()),
            code => Err(Failure::Passed(code)),
        }
    }

    fn shell(self) -> Result<Shell, Failure> {
        let (path, mtu, seed) = match &self.path {
            Some(file) => path_from_file(file)?,
            None => (self.path_from_options(), self.mtu()?, self.seed),
        };
        let command = if self.command.is_empty() {
            vec![std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into())]
        } else {
            self.command
        };
        let PathSpec { forward, reverse } = path;
        Ok(Shell { forward, reverse, mtu, seed, command, servers: self.servers, pcap: self.pcap })
    }

    /// The path that the options describe.
    fn path_from_options(&self) -> PathSpec {
        let link = |rate: Option<Rate>, delay: Span| LinkSpec {
            rate,
            delay,
            queue: rate.map(|_| QueueSpec::from(self.buffer)),
            loss: (self.loss != Fraction::ZERO).then(|| LossSpec::from(self.loss)),
            ..LinkSpec::default()
        };
        let forward = self.rtt / 2;
        PathSpec {
            forward: vec![link(self.rate, forward)],
            reverse: vec![link(self.down_rate.or(self.rate), self.rtt - forward)],
        }
    }

    fn mtu(&self) -> Result<u32, Failure> {
        u32::try_from(self.mtu.0).ok().filter(|m| (68..=65_535).contains(m)).ok_or_else(|| {
            Failure::usage(format!("--mtu must be between 68 and 65535 bytes, got {}", self.mtu.0))
        })
    }
}

/// The path, packet size and seed of a scenario file.
fn path_from_file(file: &Path) -> Result<(PathSpec, u32, u64), Failure> {
    let wrong = |what: &str| Failure::usage(format!("--path {}: {what}", file.display()));
    let cases = runs::read(file, &[Engine::Lab])?;
    let first = &cases.first().ok_or_else(|| wrong("contains no run"))?.scenario;
    if !cases.iter().all(|case| case.scenario.path == first.path && case.scenario.mtu == first.mtu) {
        return Err(wrong("[sweep] varies the path, and a shell needs one path; remove what changes it"));
    }
    Ok((first.path.clone(), first.mtu, first.seed))
}

fn summary(report: &ShellReport) -> String {
    let mut text = format!("\nfullpipe lab: {:.2} s\n", report.duration_s);
    for LinkReport { link, bytes_out, max_queue_bytes } in &report.links {
        let rate = *bytes_out as f64 * 8.0 / report.duration_s.max(1e-9) / 1e6;
        let drops: Vec<String> = link.drops.iter().map(|(cause, n)| format!("{n} {cause}")).collect();
        let drops = if drops.is_empty() { "none".to_owned() } else { drops.join(", ") };
        text += &format!(
            "  {:<10} {} packets, {:.2} MB, {rate:.2} Mbit/s on average; dropped: {drops}; longest queue \
             {} kB\n",
            link.label,
            link.packets_out,
            *bytes_out as f64 / 1e6,
            max_queue_bytes / 1000
        );
    }
    let health = &report.health;
    text += &format!(
        "  emulator   lateness {:.0} us p50, {:.0} us p99, {:.0} us max; {:.0} % of a CPU\n",
        health.lateness_p50_us,
        health.lateness_p99_us,
        health.lateness_max_us,
        health.emulator_cpu * 100.0
    );
    for reason in &report.invalid_because {
        text += &format!("  INVALID: {reason}\n");
    }
    text
}
