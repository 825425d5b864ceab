//! `fullpipe rpm`: responsiveness under load.

use super::test::plan_failure;
use crate::failure::Failure;
use crate::print::{print, print_json, prose};
use crate::runs::listed;
use fullpipe_net::client::table::{millis, rate};
use fullpipe_net::compare::{Estimate, Finding};
use fullpipe_net::rpm::{
    self, Comparison, Confidence, Config, Direction, DirectionOutcome, Fingerprint, Interval, Outcome,
    Parameters, Plan, RpmError, Trust, configuration_url,
};
use fullpipe_units::Span;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Measure responsiveness under load, in round trips per minute
///
/// Loads the path with connections until goodput and responsiveness are stable, and measures how long
/// requests take meanwhile: on the loaded connections (self) and on separate ones (foreign). More is
/// better: 1000 RPM is a round trip of 60 ms. Follows draft-ietf-ippm-responsiveness-08, as Apple's
/// networkQuality does. The server is `fullpipe serve` or any other with /.well-known/nq.
#[derive(clap::Args)]
#[command(after_help = "Example: fullpipe rpm example.org --insecure --compare bbr,cubic")]
pub struct Args {
    /// Host of a server, or URL of its configuration object
    #[arg(value_name = "HOST|URL")]
    target: String,
    /// Port of a host
    #[arg(short, long, default_value_t = 5201)]
    port: u16,
    /// Direction to measure [default: download, then upload]
    #[arg(long, value_name = "DIRECTION", value_enum)]
    direction: Option<Which>,
    /// Time limit of each direction
    #[arg(short, long, default_value = "20s", value_name = "TIME")]
    time: Span,
    /// Congestion controller of the sender: `fullpipe serve` in downloads, this host in uploads
    /// [default: the system's]
    #[arg(short = 'C', long, value_name = "CC", conflicts_with = "compare")]
    congestion: Option<String>,
    /// Controllers to compare in interleaved rounds, such as `bbr,cubic`; may be repeated
    #[arg(long, value_name = "CC,CC")]
    compare: Option<Vec<String>>,
    /// Number of rounds of a comparison
    #[arg(long, default_value_t = 6, value_name = "N", requires = "compare")]
    rounds: usize,
    /// Controller that the others are compared with [default: cubic if compared, else the last]
    #[arg(long, value_name = "CC", requires = "compare")]
    baseline: Option<String>,
    /// Seed of the comparison's bootstrap statistics
    #[arg(long, default_value_t = 1, value_name = "N", requires = "compare")]
    seed: u64,
    /// Accept only the certificate with this SHA-256, as `fullpipe serve` prints it
    /// (`certificate_sha256`)
    #[arg(long, value_name = "HEX", conflicts_with = "insecure")]
    pin: Option<Fingerprint>,
    /// Accept any certificate, such as a self-signed one: the test transfers nothing secret
    #[arg(long)]
    insecure: bool,
    /// File with the server's secret in its first line
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    secret_file: Option<PathBuf>,
    /// Timeout for connecting, and for answers before there is load
    #[arg(long, default_value = "10s", value_name = "TIME")]
    connect_timeout: Span,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// The directions to measure.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Which {
    Download,
    Upload,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let config = self.config()?;
        let interrupt = crate::termination::flag()?;
        let mut progress = |direction: Direction, interval: &Interval| {
            let rpm = interval.rpm.map_or("-".to_owned(), |rpm| format!("{rpm:.0}"));
            let (goodput, n) = (rate(interval.goodput_bps), interval.connections);
            eprintln!("{direction:<8}  {goodput:>14}  {n:>2} connections  {rpm:>6} RPM");
        };
        if let Some(names) = &self.compare {
            let plan = Plan::new(config, listed(names), self.baseline.clone(), self.rounds, self.seed)
                .map_err(plan_failure)?;
            let mut begun = |round: usize, name: &str| {
                eprintln!("round {} of {}: {name}", round + 1, plan.rounds);
            };
            let comparison = plan.run(&interrupt, &mut begun, &mut progress).map_err(|e| {
                let why = format!("round {}, {}", e.round, e.controller);
                failure(e.source, &why)
            })?;
            return if self.json { print_json(&comparison) } else { print(comparison_text(&comparison)) };
        }
        let outcome = rpm::run(&config, &interrupt, &mut progress).map_err(|e| failure(e, ""))?;
        if self.json {
            return print_json(&outcome);
        }
        print(outcome_text(&outcome))?;
        for direction in &outcome.directions {
            if let Some(caution) = caution(direction) {
                prose(&format!("\n{caution}\n"));
            }
        }
        Ok(())
    }

    fn config(&self) -> Result<Config, Failure> {
        let url = configuration_url(&self.target, self.port).map_err(Failure::usage)?;
        let time_limit_s = self.time.as_secs_f64();
        if time_limit_s < 1.0 {
            return Err(Failure::usage("--time must be at least 1s, one interval"));
        }
        Ok(Config {
            directions: match self.direction {
                None => vec![Direction::Download, Direction::Upload],
                Some(Which::Download) => vec![Direction::Download],
                Some(Which::Upload) => vec![Direction::Upload],
            },
            controller: self.congestion.clone(),
            trust: match &self.pin {
                Some(fingerprint) => Trust::Pinned(fingerprint.clone()),
                None if self.insecure => Trust::Any,
                None => Trust::Authorities,
            },
            secret: self.secret_file.as_deref().map(crate::secret::read).transpose()?,
            connect_timeout: Duration::from(self.connect_timeout),
            parameters: Parameters { time_limit_s, ..Parameters::default() },
            ..Config::new(url)
        })
    }
}

/// The failure for an error: bad input, or something that the machine or the network lacks.
fn failure(error: RpmError, place: &str) -> Failure {
    let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
    if error.is_certificate() {
        return Failure::Impossible(format!(
            "{place}{error}\nhelp: for a self-signed certificate, pass --pin with the certificate_sha256 \
             that `fullpipe serve` prints, or --insecure"
        ));
    }
    match error {
        RpmError::Url(_) | RpmError::Resolve { .. } | RpmError::Pin(_) | RpmError::Secret => {
            Failure::usage(format!("{place}{error}"))
        }
        RpmError::Status { status: 401, .. } => {
            Failure::usage(format!("{place}{error}\nhelp: --secret-file FILE"))
        }
        _ => Failure::Impossible(format!("{place}{error}")),
    }
}

fn outcome_text(outcome: &Outcome) -> String {
    let mut text = format!("{} ({})\n\n", outcome.url, outcome.address);
    let idle = &outcome.idle;
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{:<9} {:>6}  {:<9}  {:>7}  {:>6}  {:>14}  {:<10}",
        "", "RPM", "", "foreign", "self", "goodput", "confidence"
    );
    let _ = writeln!(text, "{:<9} {:>6.0}  {} without load", "idle", idle.rpm, millis(idle.rtt_ms / 1e3));
    for one in &outcome.directions {
        let found = &one.responsiveness;
        let _ = writeln!(
            text,
            "{:<9} {:>6.0}  {:<9}  {:>7.0}  {:>6.0}  {:>14}  {:<10}",
            one.direction.to_string(),
            found.rpm,
            one.rating.to_string(),
            found.foreign_rpm,
            found.self_rpm,
            rate(one.goodput_bps),
            confidence(one.confidence)
        );
    }
    let _ = writeln!(
        text,
        "\n{:<9} {:>10} {:>10} {:>10} {:>10}  {:>7}  connections",
        "", "TCP", "TLS", "HTTP", "HTTP, self", "probes"
    );
    for one in &outcome.directions {
        let times = &one.responsiveness.times;
        let ms = |value: f64| millis(value / 1e3);
        let probes = one.foreign_probes + one.self_probes;
        let controller = one.controller.as_deref().map_or(String::new(), |name| format!(", {name}"));
        let _ = writeln!(
            text,
            "{:<9} {:>10} {:>10} {:>10} {:>10}  {:>7}  {}{controller}",
            one.direction.to_string(),
            ms(times.tcp_ms),
            times.tls_ms.map_or("-".to_owned(), ms),
            ms(times.http_ms),
            ms(times.self_ms),
            probes,
            one.connections
        );
    }
    text
}

fn confidence(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Low => "low",
        Confidence::Medium => "medium",
        Confidence::High => "high",
    }
}

/// What a reader of the numbers should know.
fn caution(one: &DirectionOutcome) -> Option<String> {
    let what = match (one.goodput_confidence, one.confidence) {
        (_, Confidence::High) => return None,
        (Confidence::High, _) => "responsiveness was",
        _ => "goodput and responsiveness were",
    };
    let direction = one.direction;
    Some(format!("{direction}: {what} not stable after {:.0} s; a longer --time may help", one.seconds))
}

fn comparison_text(comparison: &Comparison) -> String {
    let mut text = format!(
        "{:<9} {:<10}  {:>20}  {:>7}  {:>6}  {:>14}\n",
        "", "sender", "RPM (95 % CI)", "foreign", "self", "goodput"
    );
    for one in &comparison.controllers {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<9} {:<10}  {:>20}  {:>7.0}  {:>6.0}  {:>14}",
            one.direction.to_string(),
            one.controller,
            estimate(&one.rpm, 0),
            one.foreign_rpm.median,
            one.self_rpm.median,
            rate(one.goodput_bps.median)
        );
    }
    text.push('\n');
    for one in &comparison.contrasts {
        let finding = match &one.finding {
            Finding::Faster => "significantly more responsive than".to_owned(),
            Finding::Slower => "significantly less responsive than".to_owned(),
            Finding::Same => "as responsive as".to_owned(),
            Finding::Inconclusive { more_rounds } => {
                format!("inconclusive, about {more_rounds} more rounds needed, against")
            }
        };
        let _ = writeln!(
            text,
            "{}: {} is {finding} {}: {}× RPM",
            one.direction,
            one.controller,
            comparison.baseline,
            estimate(&one.ratio, 2)
        );
    }
    text
}

/// A median with its 95 % interval.
fn estimate(estimate: &Estimate, digits: usize) -> String {
    format!("{:.digits$} ({:.digits$}–{:.digits$})", estimate.median, estimate.low, estimate.high)
}
