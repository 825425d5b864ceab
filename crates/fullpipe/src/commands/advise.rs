//! `fullpipe advise`: is another controller worth it on this host, towards that one, and how is it put in force?

use super::host::Target;
use super::test::{failure, seconds};
use crate::failure::Failure;
use crate::print::hung;
use crate::print::{Document, print, print_json};
use crate::runs::width;
use fullpipe_experiment::recording::{Comparison, Finding, Verdict as Compared};
use fullpipe_host::checks::{self, Question, Report, Verdict};
use fullpipe_net::client::{ClientError, Config};
use fullpipe_net::compare::{CompareError, Plan};
use fullpipe_net::signals;
use fullpipe_report::comparison_text;
use fullpipe_units::{Rate, Span};
use serde::Serialize;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Is BBR (or another controller) worth it here? Examines this host, measures both controllers on the path to HOST, and says what to do.
/// Changes nothing
///
/// HOST runs `fullpipe serve` or iperf3. This host sends, because a controller is the sender's. Exit code 0: there is an answer, whatever
/// it is. 1: the controller would be better and cannot be put in force here; why is said. 3: it could not be measured.
#[derive(clap::Args)]
pub struct Args {
    /// The other end of the path
    host: String,
    /// The controller that you think of
    #[arg(default_value = "bbr", value_name = "CC")]
    controller: String,
    /// The port of the server there
    #[arg(short, long, default_value_t = 5201)]
    port: u16,
    /// Seconds of each test, the first fifth left out of them besides
    #[arg(short, long, default_value = "5", value_parser = seconds, value_name = "TIME")]
    time: f64,
    /// Rounds; each measures both controllers. Fewer than 6 prove nothing
    #[arg(long, default_value_t = 6, value_name = "N")]
    rounds: usize,
    /// File that holds the server's secret
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// For machines
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

/// What follows from what was measured and examined.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    /// Put it in force.
    Apply,
    /// It is better, and is the default already.
    InForce,
    /// It is better, and cannot be put in force here.
    Blocked,
    /// It is not better.
    Keep,
    /// Nobody can tell yet.
    Unclear,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
struct Advice {
    kind: Kind,
    /// In words.
    words: String,
    /// What to type, where something is to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    /// The same for this destination alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    command_for_destination: Option<String>,
}

/// What the advice is made of.
struct Known<'a> {
    /// What the doctor found, with the path that was measured.
    report: &'a Report,
    compared: &'a Compared,
    /// The default of this host now.
    default: Option<&'a str>,
    /// The other end, as it was named and as an address.
    host: &'a str,
    address: IpAddr,
    rounds: usize,
    /// Of the path, for buffers.
    rate: Rate,
    rtt: Option<Span>,
    /// What the median RTT under load was by the baseline, milliseconds.
    loaded_ms: Option<f64>,
    /// Whether whoever asks may lose the connection that he asks by.
    is_remote: bool,
    is_root: bool,
}

impl Known<'_> {
    fn advice(&self) -> Advice {
        let (wanted, baseline) = (&self.compared.controller, &self.compared.baseline);
        let is_default = self.default == Some(wanted.as_str());
        let plain =
            |kind, words: String| Advice { kind, words, command: None, command_for_destination: None };
        let better = match self.compared.finding {
            Finding::Faster => format!("on this path {wanted} is faster than {baseline}, beyond doubt"),
            Finding::Same if self.halves_the_queue() => {
                format!("{wanted} carries as much as {baseline} on this path and keeps its queue shorter")
            }
            Finding::Same if is_default => {
                return plain(
                    Kind::InForce,
                    format!("leave it: {wanted} is the default here, and {baseline} would be no better"),
                );
            }
            Finding::Same => {
                return plain(
                    Kind::Keep,
                    format!("keep {baseline}: on this path {wanted} makes no difference worth a change"),
                );
            }
            Finding::Slower if is_default => {
                let words = format!("{wanted} is the default here, and {baseline} is faster on this path");
                let command = Some(format!("{}fullpipe apply {baseline}", self.sudo()));
                return Advice { command, ..plain(Kind::Keep, words) };
            }
            Finding::Slower => {
                return plain(
                    Kind::Keep,
                    format!("keep {baseline}: it is faster than {wanted} on this path"),
                );
            }
            Finding::Inconclusive { more_rounds } => {
                let words = "it cannot be told yet: the rounds differ too much, or are too few".to_owned();
                let command =
                    format!("fullpipe advise {} {wanted} --rounds {}", self.host, self.rounds + more_rounds);
                return Advice { command: Some(command), ..plain(Kind::Unclear, words) };
            }
        };
        if is_default {
            return plain(
                Kind::InForce,
                format!(
                    "{better}, and it is the default of this host already. `fullpipe doctor {wanted}` adds: {}",
                    self.report.next
                ),
            );
        }
        if let Some(why) = self.obstacle() {
            return plain(Kind::Blocked, format!("{better}, but it cannot be put in force here: {why}"));
        }
        let sudo = self.sudo();
        let confirm = if self.is_remote { " --confirm 60s" } else { "" };
        let prefix = if self.address.is_ipv4() { 32 } else { 128 };
        Advice {
            kind: Kind::Apply,
            words: better,
            command: Some(format!("{sudo}fullpipe apply {wanted}{}{confirm}", self.buffers())),
            command_for_destination: Some(format!(
                "{sudo}fullpipe apply {wanted} --to {}/{prefix}",
                self.address
            )),
        }
    }

    /// Equal goodput is not everything: the comparison's own bound of what is worth a change for latency alone.
    fn halves_the_queue(&self) -> bool {
        let (Some(added), Some(without)) = (self.compared.rtt_added_ms, self.loaded_ms) else { return false };
        added.high < -(without * 0.2).max(5.0)
    }

    /// What of the doctor's findings forbids it.
    fn obstacle(&self) -> Option<String> {
        let mut failed = self.report.findings.iter().filter(|finding| finding.verdict == Verdict::Fail);
        let found = failed.find(|finding| ["kernel", "scope", "controller"].contains(&finding.id))?;
        Some(found.advice.clone().unwrap_or_else(|| found.state.clone()))
    }

    /// The options for buffers that hold this path back.
    fn buffers(&self) -> String {
        let rtt = self.rtt.filter(|_| checks::are_buffers_small(&self.report.findings));
        rtt.map_or_else(String::new, |rtt| format!(" --buffers auto --rate {} --rtt {rtt}", self.rate))
    }

    fn sudo(&self) -> &'static str {
        if self.is_root { "" } else { "sudo " }
    }
}

/// What machines are told.
#[derive(Serialize)]
struct Told<'a> {
    advice: &'a Advice,
    doctor: &'a Report,
    comparison: &'a Comparison,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        if !self.target.is_this_machine() {
            return Err(Failure::usage("advise measures from this machine: leave out --root and --state"));
        }
        let (host, _) = self.target.open()?;
        let default = host.sysctl("net.ipv4.tcp_congestion_control");
        let baseline = match default.as_deref() {
            Some(default) if default != self.controller => default.to_owned(),
            _ if self.controller == "cubic" => "reno".to_owned(),
            _ => "cubic".to_owned(),
        };
        let question = |path| Question { controller: self.controller.clone(), path };
        let before = checks::examine(&*host, &question(None));
        if !self.json {
            print!("{}", first(&before));
        }
        let mut addresses = (self.host.as_str(), self.port)
            .to_socket_addrs()
            .map_err(|e| Failure::usage(format_args!("{}: {e}", self.host)))?;
        let address =
            addresses.next().ok_or_else(|| Failure::usage(format_args!("{} has no address", self.host)))?;
        let found = self.measure(&baseline, &before)?;
        let Some(compared) = found.verdicts.first() else {
            return Err(Failure::Impossible("nothing was compared".into()));
        };
        let of = |name: &str| found.controllers.iter().find(|c| c.controller == name);
        let best = found.controllers.iter().map(|c| c.goodput.median).fold(0.0, f64::max);
        let idle =
            found.controllers.iter().flat_map(|c| c.loaded_rtt_ms.iter().flatten()).copied().reduce(f64::min);
        let rate = Rate::from_bits_per_sec(two_digits(best));
        let rtt = idle.map(|ms| Span::from_millis(ms.ceil().max(1.0) as u64));
        let report = checks::examine(&*host, &question(rtt.map(|rtt| (rate, rtt))));
        let known = Known {
            report: &report,
            compared,
            default: default.as_deref(),
            host: &self.host,
            address: address.ip().to_canonical(),
            rounds: self.rounds,
            rate,
            rtt,
            loaded_ms: of(&compared.baseline).and_then(|c| c.loaded_rtt).map(|rtt| rtt.median),
            is_remote: std::env::var_os("SSH_CONNECTION").is_some(),
            is_root: host.identity().privileged,
        };
        let advice = known.advice();
        if self.json {
            let told = Told { advice: &advice, doctor: &report, comparison: &found };
            print_json(&Document { schema: "fullpipe/advise/1", value: &told })?;
        } else {
            print(format!("\n2. The path to {}\n{}", self.host, compared_text(&found)))?;
            print!("{}", last(&advice, &self.host, self.port));
        }
        if advice.kind == Kind::Blocked { Err(Failure::Passed(1)) } else { Ok(()) }
    }

    fn measure(&self, baseline: &str, report: &Report) -> Result<Comparison, Failure> {
        let mut config = Config::new(&self.host, self.port);
        config.params.seconds = (self.time.ceil() as u32).max(1);
        config.params.omit = (config.params.seconds / 5).clamp(1, 5);
        config.secret = self.secret_file.as_deref().map(crate::secret::read).transpose()?;
        let each = config.params.seconds + config.params.omit;
        let controllers = vec![self.controller.clone(), baseline.to_owned()];
        let plan = Plan::new(config, controllers, Some(baseline.to_owned()), self.rounds, 1)
            .map_err(|e| Failure::usage(e.to_string().replace("--compare needs", "advise needs")))?;
        let tests = 2 * self.rounds;
        eprintln!("{tests} tests of {each} s towards {}: {} s", self.host, tests as u64 * u64::from(each));
        let interrupt = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&interrupt);
        signals::on_termination(move || flag.store(true, Relaxed))
            .map_err(|e| Failure::Impossible(e.to_string()))?;
        let mut begun =
            |round: usize, name: &str| eprintln!("round {} of {}: {name}", round + 1, self.rounds);
        let comparison = plan.run(&interrupt, &mut begun, &mut |_| {}).map_err(|e| match e {
            CompareError::Plan(_) => Failure::usage(e),
            // Whether it could be had is what the doctor knows.
            CompareError::Round { source: ClientError::Pin(_), .. } => {
                Failure::Impossible(format!("{e}\nDoctor's next: {}", report.next))
            }
            CompareError::Round { source, .. } => failure(source),
            CompareError::NotUsed { .. } => Failure::Impossible(e.to_string()),
        })?;
        Ok(comparison.to_recording())
    }
}

/// A figure of two digits, upwards: what buffers are made for.
fn two_digits(bps: f64) -> u64 {
    let size = 10_f64.powf(bps.max(1e3).log10().floor() - 1.0);
    ((bps / size).ceil() * size) as u64
}

fn compared_text(found: &Comparison) -> String {
    let text = comparison_text(found, width().min(100).saturating_sub(3));
    text.lines().map(|line| format!("   {line}").trim_end().to_owned() + "\n").collect()
}

/// `text` after `lead`, in lines that are not too long to read.
fn paragraph(lead: &str, text: &str) -> String {
    hung(lead, text, width().min(100))
}

/// What of the host matters before anything is measured.
fn first(report: &Report) -> String {
    let mut text = "1. This host\n".to_owned();
    for finding in report.findings.iter().filter(|f| f.verdict <= Verdict::Warn) {
        let mark = if finding.verdict == Verdict::Fail { "✗" } else { "!" };
        text += &paragraph(&format!("   {mark} {}: ", finding.id), &finding.state);
    }
    let fine = report.findings.iter().filter(|f| f.verdict > Verdict::Warn).count();
    text + &paragraph(
        "   ✓ ",
        &format!(
            "{fine} of {} checks have nothing against it (`fullpipe doctor {}`)",
            report.findings.len(),
            report.controller
        ),
    )
}

fn last(advice: &Advice, host: &str, port: u16) -> String {
    let mut text = "\n3. What to do\n".to_owned();
    let mut words = advice.words.clone();
    if let Some(first) =
        words.get_mut(..1).filter(|_| advice.kind == Kind::Unclear || words_begin_a_sentence(&advice.words))
    {
        first.make_ascii_uppercase();
    }
    text += &paragraph("   ", &format!("{words}."));
    if let Some(command) = &advice.command {
        text += &format!("\n       {command}\n");
    }
    if let Some(command) = &advice.command_for_destination {
        text += &paragraph("   ", "A path says little about others. For this destination alone:");
        text += &format!("\n       {command}\n");
        text += &paragraph("   ", "Then see that it is in force, now and after a restart:");
        text += &format!("\n       fullpipe verify --to {host}:{port}\n");
    }
    text
}

/// Whether the first word is none that is written as it is, such as a controller's name.
fn words_begin_a_sentence(words: &str) -> bool {
    ["on ", "keep ", "leave ", "it "].iter().any(|start| words.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_experiment::recording::Estimate;
    use fullpipe_host::checks::Group;

    fn finding(id: &'static str, verdict: Verdict) -> checks::Finding {
        checks::Finding {
            id,
            group: Group::Kernel,
            verdict,
            state: format!("{id} is so"),
            read: Vec::new(),
            why: "",
            advice: Some(format!("mend {id}")),
            source: "",
        }
    }

    fn advice(found: Finding, findings: Vec<checks::Finding>, default: &str, rtt_added: f64) -> Advice {
        let report = Report {
            schema: checks::SCHEMA,
            kernel: String::new(),
            system: String::new(),
            scope: String::new(),
            controller: "bbr".into(),
            findings,
            next: "nothing".into(),
        };
        let e = |median| Estimate { median, low: median, high: median };
        let compared = Compared {
            controller: "bbr".into(),
            baseline: "cubic".into(),
            ratio: e(2.0),
            finding: found,
            retransmits_added: e(0.0),
            rtt_added_ms: Some(e(rtt_added)),
            words: String::new(),
        };
        let known = Known {
            report: &report,
            compared: &compared,
            default: Some(default),
            host: "there",
            address: "203.0.113.7".parse().unwrap(),
            rounds: 6,
            rate: Rate::from_bits_per_sec(48_000_000),
            rtt: Some(Span::from_millis(41)),
            loaded_ms: Some(100.0),
            is_remote: true,
            is_root: false,
        };
        known.advice()
    }

    #[test]
    fn faster_is_applied_with_what_the_path_needs_and_what_a_remote_hand_needs() {
        let told = advice(Finding::Faster, vec![finding("send-limit", Verdict::Fail)], "cubic", 0.0);
        assert_eq!(told.kind, Kind::Apply);
        let command = told.command.unwrap();
        assert_eq!(command, "sudo fullpipe apply bbr --buffers auto --rate 48mbit --rtt 41ms --confirm 60s");
        assert_eq!(told.command_for_destination.unwrap(), "sudo fullpipe apply bbr --to 203.0.113.7/32");
        let told = advice(Finding::Faster, vec![finding("send-limit", Verdict::Ok)], "cubic", 0.0);
        assert_eq!(told.command.unwrap(), "sudo fullpipe apply bbr --confirm 60s");
    }

    #[test]
    fn what_forbids_it_is_said_in_place_of_a_command() {
        for id in ["kernel", "scope", "controller"] {
            let told = advice(Finding::Faster, vec![finding(id, Verdict::Fail)], "cubic", 0.0);
            assert_eq!((told.kind, told.command.as_deref()), (Kind::Blocked, None));
            assert!(
                told.words.ends_with(&format!("cannot be put in force here: mend {id}")),
                "{}",
                told.words
            );
        }
        assert_eq!(
            advice(Finding::Faster, vec![finding("fq", Verdict::Fail)], "cubic", 0.0).kind,
            Kind::Apply
        );
    }

    #[test]
    fn no_gain_is_no_change_unless_the_queue_is_much_shorter() {
        let told = advice(Finding::Same, vec![], "cubic", -3.0);
        assert_eq!((told.kind, told.command.as_deref()), (Kind::Keep, None));
        assert_eq!(advice(Finding::Same, vec![], "cubic", -40.0).kind, Kind::Apply);
        assert_eq!(advice(Finding::Slower, vec![], "cubic", 0.0).kind, Kind::Keep);
        assert_eq!(advice(Finding::Faster, vec![], "bbr", 0.0).kind, Kind::InForce);
        let back = advice(Finding::Slower, vec![], "bbr", 0.0);
        assert_eq!((back.kind, back.command.as_deref()), (Kind::Keep, Some("sudo fullpipe apply cubic")));
    }

    #[test]
    fn what_is_not_sure_is_measured_again_and_longer() {
        let told = advice(Finding::Inconclusive { more_rounds: 7 }, vec![], "cubic", 0.0);
        assert_eq!(told.kind, Kind::Unclear);
        assert_eq!(told.command.as_deref(), Some("fullpipe advise there bbr --rounds 13"));
    }

    #[test]
    fn rates_for_buffers_are_rounded_up_to_two_digits() {
        assert_eq!([47_410_000.0, 3_210.0, 100e6].map(two_digits), [48_000_000, 3_300, 100_000_000]);
    }
}
