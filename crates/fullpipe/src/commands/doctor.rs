//! `fullpipe doctor`: whether a host is ready for a controller.

use super::host::Target;
use crate::failure::Failure;
use crate::print::print_json;
use fullpipe_host::checks::{self, Question, Verdict};
use fullpipe_host::screen::{self, Style};
use fullpipe_units::{Rate, Span};

/// Check whether this host is ready for a controller
///
/// Changes nothing. Exits with 1 if a check fails.
#[derive(clap::Args)]
#[command(after_help = "Example: fullpipe doctor bbr --rate 1gbit --rtt 80ms")]
pub struct Args {
    /// Controller to check for
    #[arg(default_value = "bbr", value_name = "CC")]
    controller: String,
    /// Rate that one connection should reach, to check the buffer limits
    #[arg(long, requires = "rtt", value_name = "RATE")]
    rate: Option<Rate>,
    /// Round-trip time of your path, to check the buffer limits
    #[arg(long, requires = "rate", value_name = "TIME")]
    rtt: Option<Span>,
    /// Explain passed checks too: what was read and why it matters
    #[arg(long, short)]
    verbose: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let (host, _) = self.target.open()?;
        let is_ours = self.target.is_this_machine() && self.controller.starts_with("fp_");
        let is_live = self.target.is_this_machine();
        let question = Question { controller: self.controller, path: self.rate.zip(self.rtt) };
        let mut report = checks::examine(&*host, &question);
        report.findings.extend(is_ours.then(calls).flatten());
        report.findings.extend(is_live.then(traffic).flatten());
        report.findings.extend(is_live.then(split).flatten());
        report.findings.sort_by_key(|finding| finding.verdict);
        if self.json {
            print_json(&report)?;
        } else {
            print!("{}", screen::doctor(Style::for_stdout(), &report, self.verbose));
        }
        // What failed is on the screen already.
        if report.worst() == Verdict::Fail { Err(Failure::Passed(1)) } else { Ok(()) }
    }
}

/// Whether the kernel makes every call to a controller that is a BPF program; none if it cannot be
/// counted.
#[cfg(feature = "ebpf")]
fn calls() -> Option<checks::Finding> {
    use super::cc;
    let counted = fullpipe_ebpf::calls::count_calls(cc::COUNT_DURATION);
    let (verdict, state, advice) = match counted {
        Ok(calls) if calls.all_made() => (Verdict::Ok, calls.to_string(), None),
        Ok(calls) => {
            let advice = "the controllers compensate from the connection's own counters, and sending is \
                not affected; \
                          if you have the choice, use another kernel or hypervisor";
            (Verdict::Warn, calls.to_string(), Some(advice.to_owned()))
        }
        // `cc load` reports why nothing can be loaded.
        Err(_) => return None,
    };
    Some(checks::Finding {
        id: "bpf-calls",
        group: checks::Group::Kernel,
        verdict,
        state,
        read: Vec::new(),
        why: "where a call is skipped, the caller reads an undefined value and the controller misses an ACK",
        advice,
        source: "counted here over loopback; docs/explanation/bbr3-on-stock-kernels.md, Skipped BPF calls",
    })
}

/// The running splits, whose arms override the default controller of new connections.
#[cfg(feature = "ebpf")]
fn split() -> Option<checks::Finding> {
    let all = super::split::all();
    let has_expired = all.iter().any(|split| split.lease_s == 0.0);
    let advice = "see `fullpipe split status`; end it with `fullpipe split stop` or `fullpipe revert`";
    (!all.is_empty()).then(|| checks::Finding {
        id: "split",
        group: checks::Group::Controller,
        verdict: if has_expired { Verdict::Warn } else { Verdict::Ok },
        state: super::split::summaries().join("; "),
        read: Vec::new(),
        why: "while a split runs, its arms and not the default determine the controller of new connections",
        advice: has_expired.then(|| format!("its owner does not respond: {advice}")),
        source: "the BPF programs in the kernel; docs/explanation/split-statistics.md",
    })
}

#[cfg(not(feature = "ebpf"))]
fn split() -> Option<checks::Finding> {
    None
}

/// The host's current traffic by controller.
#[cfg(feature = "live")]
fn traffic() -> Option<checks::Finding> {
    use super::traffic::{Traffic, lines};
    let snapshot = Traffic::open()?.sample()?;
    let lines = lines(&snapshot);
    (!lines.is_empty()).then(|| checks::Finding {
        id: "traffic",
        group: checks::Group::Controller,
        verdict: Verdict::Ok,
        state: lines.join("; "),
        read: Vec::new(),
        why: "connections keep the controller they were opened with, whatever the default is",
        advice: None,
        source: "two samples of the sockets, half a second apart; docs/reference/watch.md",
    })
}

#[cfg(not(feature = "live"))]
fn traffic() -> Option<checks::Finding> {
    None
}

#[cfg(not(feature = "ebpf"))]
fn calls() -> Option<checks::Finding> {
    None
}
