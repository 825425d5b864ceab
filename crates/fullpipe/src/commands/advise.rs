//! `fullpipe advise`: whether another controller is worth it on the path to a peer, and how to
//! enable it.

use super::test::{failure, plan_failure, seconds};
use crate::failure::Failure;
use crate::print::hanging_indent;
use crate::print::{Document, print, print_json};
use crate::runs::width;
use fullpipe_experiment::recording::{
    BbrChoice, BbrReason, Comparison, Gain, Recommendation, Verdict as Compared,
};
use fullpipe_host::checks::{self, Question, Report, Verdict};
use fullpipe_host::host::{Host, Machine, View};
use fullpipe_net::client::{ClientError, Config};
use fullpipe_net::compare::{CompareError, Plan};
use fullpipe_report::comparison_text;
use fullpipe_units::{Rate, Span};
use serde::Serialize;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::PathBuf;

/// Measure a path and advise whether to switch controller
///
/// Checks this host, measures CC and the current default controller (or OTHER) on the path to
/// HOST, and advises what to do. Changes nothing. HOST runs `fullpipe serve` or iperf3. This host
/// sends, since only the sender's controller matters. For BBR v1 and v3, the advice also depends on
/// retransmissions, RTT under load, ECN marks and, with `fullpipe serve`, the share beside a CUBIC
/// flow. Exits with 0 after a measurement, also if the result is inconclusive; with 1 if the
/// controller is better but cannot be enabled here, and with 3 if the path cannot be measured.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  fullpipe advise example.org bbr --rounds 10\n  fullpipe advise \
                        example.org bbr bbr3")]
pub struct Args {
    /// Peer at the other end of the path
    host: String,
    /// Controller to measure. `bbr3` is the kernel's, or fp_bbr3 if only that is loaded
    #[arg(default_value = "bbr", value_name = "CC")]
    controller: String,
    /// Controller to compare it with [default: the current default controller; if that is CC: cubic, or
    /// reno for cubic]
    #[arg(value_name = "OTHER")]
    other: Option<String>,
    /// Port of the peer's server
    #[arg(short, long, default_value_t = 5201)]
    port: u16,
    /// Measured time of each test, in seconds or with a unit; a warm-up of a fifth of that time (1
    /// to 5 s) precedes it
    #[arg(short, long, default_value = "5", value_parser = seconds, value_name = "TIME")]
    time: f64,
    /// Number of rounds, each of which measures both controllers; with fewer than 6 the result is
    /// inconclusive
    #[arg(long, default_value_t = 6, value_name = "N")]
    rounds: usize,
    /// File with the server's secret in its first line
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Print the advice, its reasons and the measurements as JSON
    #[arg(long)]
    json: bool,
}

/// The kind of an advice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    /// Enable the controller.
    Apply,
    /// The controller is better, and already enabled.
    Enabled,
    /// The controller is better, but cannot be enabled here.
    Blocked,
    /// The controller is not better.
    Keep,
    /// The measurement is inconclusive.
    Unclear,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
struct Advice {
    kind: Kind,
    /// The advice as text.
    text: String,
    /// The command to run, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    /// The command that changes only this destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    command_for_destination: Option<String>,
}

fn plain(kind: Kind, text: String) -> Advice {
    Advice { kind, text, command: None, command_for_destination: None }
}

/// The basis of an advice.
struct Evidence<'a> {
    /// The checks of the host, for the measured path.
    report: &'a Report,
    compared: &'a Compared,
    /// The version of BBR to use, if BBR v1 and v3 were compared.
    choice: Option<&'a BbrChoice>,
    /// The current default controller.
    default: Option<&'a str>,
    /// The peer, as named and as an address.
    host: &'a str,
    address: IpAddr,
    rounds: usize,
    /// Rate and RTT of the path, for buffer limits.
    rate: Rate,
    rtt: Option<Span>,
    /// Median RTT under load with the baseline, in milliseconds.
    loaded_ms: Option<f64>,
    /// Whether the user is connected over the network, and may lose that connection.
    is_remote: bool,
    is_root: bool,
}

impl Evidence<'_> {
    fn advice(&self) -> Advice {
        if let Some(choice) = self.choice {
            return self.version_advice(choice);
        }
        let (wanted, baseline) = (&self.compared.controller, &self.compared.baseline);
        let better = match self.compared.recommend(self.default, self.loaded_ms) {
            Recommendation::Switch(gain) => self.gain_text(gain),
            Recommendation::KeepDefault(Some(gain)) => {
                let better = self.gain_text(gain);
                let next = &self.report.next;
                return plain(
                    Kind::Enabled,
                    format!(
                        "{better}, and is already the default of this host. `fullpipe doctor {wanted}` adds: \
                         {next}"
                    ),
                );
            }
            Recommendation::KeepDefault(None) => {
                return plain(
                    Kind::Enabled,
                    format!(
                        "no change: {wanted} is the default here, and {baseline} is not better on this path"
                    ),
                );
            }
            Recommendation::KeepBaseline { is_faster: false } => {
                let text = if self.is_default(baseline) {
                    format!("keep {baseline}: {wanted} makes no relevant difference on this path")
                } else {
                    format!("no relevant difference between {wanted} and {baseline} on this path")
                };
                return plain(Kind::Keep, text);
            }
            Recommendation::KeepBaseline { is_faster: true } => {
                return plain(
                    Kind::Keep,
                    format!("keep {baseline}: it is faster than {wanted} on this path"),
                );
            }
            Recommendation::SwitchToBaseline => {
                let text = if self.is_default(wanted) {
                    format!("{wanted} is the default here, but {baseline} is faster on this path")
                } else {
                    format!("{baseline} is faster than {wanted} on this path")
                };
                return self.apply(baseline, text);
            }
            Recommendation::MeasureMore { more_rounds } => {
                let text = "inconclusive: the rounds vary too much, or there are too few".to_owned();
                let other = if self.is_default(baseline) { String::new() } else { format!(" {baseline}") };
                let command = format!(
                    "fullpipe advise {} {wanted}{other} --rounds {}",
                    self.host,
                    self.rounds + more_rounds
                );
                return Advice { command: Some(command), ..plain(Kind::Unclear, text) };
            }
        };
        self.apply(wanted, better)
    }

    fn is_default(&self, controller: &str) -> bool {
        self.default == Some(controller)
    }

    /// Which version of BBR to use.
    fn version_advice(&self, choice: &BbrChoice) -> Advice {
        let (chosen, words) = (&choice.controller, &choice.words);
        if self.is_default(chosen) {
            return plain(Kind::Enabled, format!("no change: {chosen} is the default here; {words}"));
        }
        if choice.reason == BbrReason::NoDifference {
            return plain(Kind::Keep, format!("no change: {words}"));
        }
        self.apply(chosen, format!("use {chosen}: {words}"))
    }

    /// The advice to enable `wanted`, which is `better`.
    fn apply(&self, wanted: &str, better: String) -> Advice {
        if let Some(failed) = self.report.obstacle() {
            let why = failed.advice.as_ref().unwrap_or(&failed.state);
            return plain(Kind::Blocked, format!("{better}; it cannot be enabled here: {why}"));
        }
        let measured = [self.compared.controller.as_str(), self.compared.baseline.as_str()];
        let better = match self.default.filter(|default| !measured.contains(default)) {
            Some(default) => format!(
                "{better}. The default here, {default}, was not measured: `fullpipe advise {} {wanted}` \
                 compares them",
                self.host
            ),
            None => better,
        };
        let sudo = self.sudo();
        let confirm = if self.is_remote { " --confirm 60s" } else { "" };
        let prefix = if self.address.is_ipv4() { 32 } else { 128 };
        Advice {
            kind: Kind::Apply,
            text: better,
            command: Some(format!("{sudo}fullpipe apply {wanted}{}{confirm}", self.buffers())),
            command_for_destination: Some(format!(
                "{sudo}fullpipe apply {wanted} --to {}/{prefix}",
                self.address
            )),
        }
    }

    fn gain_text(&self, gain: Gain) -> String {
        let (wanted, baseline) = (&self.compared.controller, &self.compared.baseline);
        match gain {
            Gain::Goodput => {
                format!("{wanted} is significantly faster than {baseline} on this path (95 % confidence)")
            }
            Gain::Latency => {
                format!("{wanted} is as fast as {baseline} on this path and keeps its queue shorter")
            }
        }
    }

    /// The options that raise buffer limits which are too small for this path.
    fn buffers(&self) -> String {
        let rtt = self.rtt.filter(|_| checks::are_buffers_small(&self.report.findings));
        rtt.map_or_else(String::new, |rtt| format!(" --rate {} --rtt {rtt}", self.rate))
    }

    fn sudo(&self) -> &'static str {
        if self.is_root { "" } else { "sudo " }
    }
}

/// The JSON output.
#[derive(Serialize)]
struct Output<'a> {
    advice: &'a Advice,
    doctor: &'a Report,
    comparison: &'a Comparison,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let host = Machine::new();
        let default = host.sysctl("net.ipv4.tcp_congestion_control");
        let wanted = offered(&host, &self.controller);
        let baseline = match (&self.other, default.as_deref()) {
            (Some(other), _) => offered(&host, other),
            (None, Some(default)) if default != wanted => default.to_owned(),
            _ if wanted == "cubic" => "reno".to_owned(),
            _ => "cubic".to_owned(),
        };
        let question = |controller: &str, path| Question { controller: controller.to_owned(), path };
        let before = checks::examine(&host, &question(&wanted, None));
        if !self.json {
            print!("{}", host_text(&before));
        }
        let mut addresses = (self.host.as_str(), self.port)
            .to_socket_addrs()
            .map_err(|e| Failure::usage(format_args!("{}: {e}", self.host)))?;
        let address = addresses
            .next()
            .ok_or_else(|| Failure::usage(format_args!("{} resolves to no address", self.host)))?;
        let comparison = self.measure(&host, &wanted, &baseline)?;
        let Some(compared) = comparison.verdicts.first() else {
            return Err(Failure::Impossible("the comparison has no result".into()));
        };
        let controller = |name: &str| comparison.controllers.iter().find(|c| c.controller == name);
        let best = comparison.controllers.iter().map(|c| c.goodput.median).fold(0.0, f64::max);
        let idle = comparison
            .controllers
            .iter()
            .flat_map(|c| c.loaded_rtt_ms.iter().flatten())
            .copied()
            .reduce(f64::min);
        let rate = Rate::from_bits_per_sec(rounded_up(best));
        let rtt = idle.map(|ms| Span::from_millis(ms.ceil().max(1.0) as u64));
        let choice = comparison.bbr_choice.as_ref();
        let loaded_ms = controller(&compared.baseline).and_then(|c| c.loaded_rtt).map(|rtt| rtt.median);
        let is_baseline =
            compared.recommend(default.as_deref(), loaded_ms) == Recommendation::SwitchToBaseline;
        let recommended = if is_baseline { &baseline } else { &wanted };
        let chosen = choice.map_or(recommended, |choice| &choice.controller);
        let report = checks::examine(&host, &question(chosen, rtt.map(|rtt| (rate, rtt))));
        let evidence = Evidence {
            report: &report,
            compared,
            choice,
            default: default.as_deref(),
            host: &self.host,
            address: address.ip().to_canonical(),
            rounds: self.rounds,
            rate,
            rtt,
            loaded_ms,
            is_remote: std::env::var_os("SSH_CONNECTION").is_some(),
            is_root: host.identity().privileged,
        };
        let advice = evidence.advice();
        if self.json {
            let output = Output { advice: &advice, doctor: &report, comparison: &comparison };
            print_json(&Document { schema: "fullpipe/advise/1", value: &output })?;
        } else {
            // The choice is the advice, which follows.
            let shown = Comparison { bbr_choice: None, ..comparison.clone() };
            print(format!("\n2. The path to {}\n{}", self.host, indented(&shown)))?;
            print!("{}", advice_text(&advice, &self.host, self.port));
        }
        if advice.kind == Kind::Blocked { Err(Failure::Passed(1)) } else { Ok(()) }
    }

    fn measure(&self, host: &Machine, wanted: &str, baseline: &str) -> Result<Comparison, Failure> {
        let mut config = Config::new(&self.host, self.port);
        config.params.seconds = (self.time.ceil() as u32).max(1);
        config.params.omit = (config.params.seconds / 5).clamp(1, 5);
        config.secret = self.secret_file.as_deref().map(crate::secret::read).transpose()?;
        let each = config.params.seconds + config.params.omit;
        let controllers = vec![wanted.to_owned(), baseline.to_owned()];
        let plan = Plan::new(config, controllers, Some(baseline.to_owned()), self.rounds, 1)
            .map_err(plan_failure)?;
        let tests = 2 * (self.rounds + plan.rounds_beside_cubic());
        eprintln!(
            "{tests} tests of {each} s to {}: {} s in total",
            self.host,
            tests as u64 * u64::from(each)
        );
        let interrupt = crate::termination::flag()?;
        let mut on_start = |round: usize, name: &str| eprintln!("{}: {name}", plan.round_name(round));
        let comparison = plan.run(&interrupt, &mut on_start, &mut |_| {}).map_err(|e| match e {
            CompareError::Plan(e) => plan_failure(e),
            // The doctor knows how to make the controller available.
            CompareError::Round { source: ClientError::Pin(_), ref controller, .. } => {
                let question = Question { controller: controller.clone(), path: None };
                Failure::Impossible(format!("{e}\n  help: {}", checks::examine(host, &question).next))
            }
            CompareError::Round { source, .. } => failure(source),
            CompareError::NotUsed { .. } => Failure::Impossible(e.to_string()),
        })?;
        Ok(comparison.to_recording())
    }
}

/// The controller that `name` means on this host: `bbr3` is the kernel's, or fp_bbr3 if only that is
/// loaded.
fn offered(host: &impl Host, name: &str) -> String {
    let available = host.sysctl("net.ipv4.tcp_available_congestion_control").unwrap_or_default();
    let has = |name: &str| available.split_ascii_whitespace().any(|one| one == name);
    if name == "bbr3" && !has("bbr3") && has("fp_bbr3") { "fp_bbr3".to_owned() } else { name.to_owned() }
}

/// A rate rounded up to two significant digits, for buffer limits.
fn rounded_up(bps: f64) -> u64 {
    let size = 10_f64.powf(bps.max(1e3).log10().floor() - 1.0);
    ((bps / size).ceil() * size) as u64
}

fn indented(comparison: &Comparison) -> String {
    let text = comparison_text(comparison, width().min(100).saturating_sub(3));
    text.lines().map(|line| format!("   {line}").trim_end().to_owned() + "\n").collect()
}

/// `text` after `lead`, wrapped to a readable width.
fn paragraph(lead: &str, text: &str) -> String {
    hanging_indent(lead, text, width().min(100))
}

/// The checks of the host that matter before anything is measured.
fn host_text(report: &Report) -> String {
    let mut text = "1. This host\n".to_owned();
    for finding in report.findings.iter().filter(|f| f.verdict <= Verdict::Warn) {
        let mark = if finding.verdict == Verdict::Fail { "✗" } else { "!" };
        text += &paragraph(&format!("   {mark} {}: ", finding.id), &finding.state);
    }
    let passed = report.findings.iter().filter(|f| f.verdict > Verdict::Warn).count();
    text + &paragraph(
        "   ✓ ",
        &format!(
            "{passed} of {} checks passed (`fullpipe doctor {}` lists them)",
            report.findings.len(),
            report.controller
        ),
    )
}

fn advice_text(advice: &Advice, host: &str, port: u16) -> String {
    let mut text = "\n3. What to do\n".to_owned();
    let mut sentence = advice.text.clone();
    if let Some(first) = sentence.get_mut(..1).filter(|_| {
        ["keep ", "no change", "inconclusive", "use "].iter().any(|start| advice.text.starts_with(start))
    }) {
        first.make_ascii_uppercase();
    }
    text += &paragraph("   ", &format!("{sentence}."));
    if let Some(command) = &advice.command {
        text += &format!("\n       {command}\n");
    }
    if let Some(command) = &advice.command_for_destination {
        text += &paragraph("   ", "Other paths may differ. To change this destination only:");
        text += &format!("\n       {command}\n");
        text += &paragraph("   ", "Then verify that it is in effect, now and after a restart:");
        text += &format!("\n       fullpipe verify --to {host}:{port}\n");
    }
    text
}

#[cfg(test)]
mod tests;
