//! `fullpipe doctor`: is this host ready for a controller?

use super::host::Target;
use crate::failure::Failure;
use crate::print::print_json;
use fullpipe_host::checks::{self, Question, Verdict};
use fullpipe_host::screen::{self, Style};
use fullpipe_units::{Rate, Span};

/// Is this host ready for BBR (or another controller), and what would help? Changes nothing
#[derive(clap::Args)]
pub struct Args {
    /// The controller that you want
    #[arg(default_value = "bbr", value_name = "CC")]
    controller: String,
    /// The rate that a connection should reach, to judge the buffers
    #[arg(long, requires = "rtt", value_name = "RATE")]
    rate: Option<Rate>,
    /// The round-trip time of your path, to judge the buffers
    #[arg(long, requires = "rate", value_name = "TIME")]
    rtt: Option<Span>,
    /// Also what was read and why it matters for checks that are fine
    #[arg(long, short)]
    verbose: bool,
    /// For machines
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

/// Whether the kernel makes every call to a controller that is a BPF program, where that can be asked.
#[cfg(feature = "ebpf")]
fn calls() -> Option<checks::Finding> {
    use super::cc;
    let counted = fullpipe_ebpf::calls::count_calls(cc::CALLS_FOR);
    let (verdict, state, advice) = match counted {
        Ok(calls) if calls.all_made() => (Verdict::Ok, calls.to_string(), None),
        Ok(calls) => {
            let advice = "the controllers carry on from what the connection counts, and sends are as they should be; \
                          if you can choose, run them on another kernel or hypervisor";
            (Verdict::Warn, calls.to_string(), Some(advice.to_owned()))
        }
        // Why nothing can be loaded is for `cc load` to say.
        Err(_) => return None,
    };
    Some(checks::Finding {
        id: "bpf-calls",
        group: checks::Group::Kernel,
        verdict,
        state,
        read: Vec::new(),
        why: "where a call is not made its caller reads an undefined value, and the controller misses an ACK",
        advice,
        source: "counted here, over loopback; docs/explanation/bbr3-on-stock-kernels.md, Skipped BPF calls",
    })
}

/// Whether new connections get the controllers of a split's arms, whatever the default is.
#[cfg(feature = "ebpf")]
fn split() -> Option<checks::Finding> {
    let all = super::split::all();
    let hangs = all.iter().any(|split| split.lease_s == 0.0);
    let advice = "`fullpipe split status` shows it, `fullpipe split stop` or `fullpipe revert` ends it";
    (!all.is_empty()).then(|| checks::Finding {
        id: "split",
        group: checks::Group::Controller,
        verdict: if hangs { Verdict::Warn } else { Verdict::Ok },
        state: super::split::in_short().join("; "),
        read: Vec::new(),
        why: "while a split runs its arms decide which controller a new connection gets, not the default",
        advice: hangs.then(|| format!("its owner does not answer: {advice}")),
        source: "the programs in the kernel; docs/explanation/split-statistics.md",
    })
}

#[cfg(not(feature = "ebpf"))]
fn split() -> Option<checks::Finding> {
    None
}

/// What the host's connections do now.
#[cfg(feature = "live")]
fn traffic() -> Option<checks::Finding> {
    use super::traffic::{Traffic, lines};
    let seen = Traffic::open()?.look()?;
    let lines = lines(&seen);
    (!lines.is_empty()).then(|| checks::Finding {
        id: "traffic",
        group: checks::Group::Controller,
        verdict: Verdict::Ok,
        state: lines.join("; "),
        read: Vec::new(),
        why: "connections keep the controller that they were opened with, whatever the default is",
        advice: None,
        source: "two looks at the sockets, half a second apart; docs/reference/watch.md",
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
