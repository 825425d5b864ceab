//! The doctor: is this host ready for a controller, and if not, what would help.
//!
//! Each check reads, judges, says why it matters, what to do, and where the claim comes from. None changes anything,
//! none needs privileges: what cannot be read is told as such.

mod at_boot;
mod buffers;
mod kernel;
mod offloads;
mod queueing;
mod selection;
mod tuning;

use crate::boot::{self, Program};
use crate::controllers::ebpf_twin;
use crate::facts::{Facts, Presence, distribution};
use crate::host::Host;
use fullpipe_units::{Rate, Span};
use serde::Serialize;
use std::fmt::Display;

/// How a check came out, worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It will not work, or not well.
    Fail,
    /// It works and something is not as it should be.
    Warn,
    /// It could not be read.
    Unknown,
    /// Something that may be worth changing.
    Advice,
    /// As it should be.
    Ok,
}

/// What a check is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// The kernel and how far it can be reached from here.
    Kernel,
    /// Which controller is used, by whom.
    Controller,
    /// Queueing disciplines.
    Queueing,
    /// What holds after a restart.
    Boot,
    /// Buffers and windows.
    Buffers,
    /// Smaller switches.
    Tuning,
}

/// Something that was read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Reading {
    /// Where.
    pub from: String,
    /// What was there.
    pub value: String,
}

/// The outcome of one check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// A stable name.
    pub id: &'static str,
    /// What it is about.
    pub group: Group,
    /// How it came out.
    pub verdict: Verdict,
    /// The state in one line.
    pub state: String,
    /// What was read, and from where.
    pub read: Vec<Reading>,
    /// Why it matters.
    pub why: &'static str,
    /// What to do, unless there is nothing to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// Where the claim comes from.
    pub source: &'static str,
}

impl Finding {
    fn new(id: &'static str, group: Group, verdict: Verdict, state: impl Into<String>) -> Finding {
        Finding {
            id,
            group,
            verdict,
            state: state.into(),
            read: Vec::new(),
            why: "",
            advice: None,
            source: "",
        }
    }

    fn read(mut self, from: impl Into<String>, value: impl Into<String>) -> Finding {
        self.read.push(Reading { from: from.into(), value: value.into() });
        self
    }

    fn why(mut self, why: &'static str, source: &'static str) -> Finding {
        self.why = why;
        self.source = source;
        self
    }

    fn advice(mut self, advice: impl Into<String>) -> Finding {
        self.advice = Some(advice.into());
        self
    }
}

/// What the doctor is asked.
#[derive(Clone, PartialEq, Debug)]
pub struct Question {
    /// The controller that is wanted.
    pub controller: String,
    /// The path that connections have: its rate and its round-trip time.
    pub path: Option<(Rate, Span)>,
}

/// What each check looks at.
pub(crate) struct Context<'a> {
    pub host: &'a dyn Host,
    pub facts: &'a Facts,
    pub question: &'a Question,
    pub programs: Vec<Program>,
}

impl Context<'_> {
    /// A sysctl as a number, and the reading.
    fn number(&self, name: &str) -> Option<i64> {
        self.host.sysctl(name)?.split_ascii_whitespace().next()?.parse().ok()
    }

    fn sockets(&self) -> &[crate::net::TcpSocket] {
        self.facts.sockets.as_deref().unwrap_or_default()
    }

    /// The command to type for `words`, such that it acts on this host.
    fn command(&self, words: impl Display) -> String {
        self.facts.identity.command(words)
    }

    /// The same for what only root may do.
    fn as_root(&self, words: impl Display) -> String {
        self.facts.identity.as_root(words)
    }

    /// Whether the wanted controller is paced.
    fn paced(&self) -> bool {
        self.question.controller.contains("bbr")
    }
}

/// The name and version of [`Report`]'s JSON form. A field that is removed or changes its meaning changes it; new
/// fields, checks and verdicts' texts do not.
pub const SCHEMA: &str = "fullpipe/doctor/1";

/// All that the doctor found.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The kernel's release.
    pub kernel: String,
    /// The distribution, if the host says.
    pub system: String,
    /// How far a change made here reaches.
    pub scope: String,
    /// The controller that was asked about.
    pub controller: String,
    /// One for each check, worst first.
    pub findings: Vec<Finding>,
    /// What to do next.
    pub next: String,
}

impl Report {
    /// The worst verdict.
    pub fn worst(&self) -> Verdict {
        self.findings.iter().map(|f| f.verdict).min().unwrap_or(Verdict::Ok)
    }
}

/// Whether buffers hold back the path that was asked for.
pub fn are_buffers_small(findings: &[Finding]) -> bool {
    let limits = ["send-limit", "receive-limit"];
    findings.iter().any(|finding| limits.contains(&finding.id) && finding.verdict <= Verdict::Warn)
}

/// Examines the host.
pub fn examine(host: &dyn Host, question: &Question) -> Report {
    let facts = Facts::gather(host);
    // What stands in for a controller of the kernel's is what would be put in force.
    let twin = ebpf_twin(&question.controller).filter(|twin| facts.available.iter().any(|c| c == twin));
    let twin = twin.filter(|_| matches!(facts.controller(&question.controller), Presence::Missing(_)));
    let question = &match twin {
        Some(twin) => Question { controller: twin.to_owned(), path: question.path },
        None => question.clone(),
    };
    let context = Context { host, facts: &facts, question, programs: boot::programs(host) };
    let mut findings = Vec::new();
    kernel::check(&context, &mut findings);
    selection::check(&context, &mut findings);
    queueing::check(&context, &mut findings);
    at_boot::check(&context, &mut findings);
    buffers::check(&context, &mut findings);
    tuning::check(&context, &mut findings);
    offloads::check(&context, &mut findings);
    findings.sort_by_key(|f| (f.verdict, f.group));
    let system = distribution(host, "PRETTY_NAME").unwrap_or_default();
    Report {
        schema: SCHEMA,
        kernel: facts.identity.release.clone(),
        system,
        scope: facts.scope.describe(),
        controller: question.controller.clone(),
        next: next(&context, &findings),
        findings,
    }
}

/// The one thing to do now.
fn next(context: &Context, findings: &[Finding]) -> String {
    let wanted = &context.question.controller;
    let verdict = |id: &str| findings.iter().find(|f| f.id == id).map_or(Verdict::Ok, |f| f.verdict);
    let advice =
        |id: &str| findings.iter().find(|f| f.id == id).and_then(|f| f.advice.clone()).unwrap_or_default();
    if verdict("kernel") == Verdict::Fail {
        return advice("kernel");
    }
    if verdict("scope") == Verdict::Fail {
        return advice("scope");
    }
    if verdict("controller") == Verdict::Fail {
        return advice("controller");
    }
    let used = context.facts.default.as_ref() == Some(wanted);
    let lasting = verdict("boot-value") == Verdict::Ok && verdict("boot-qdisc") <= Verdict::Ok;
    if !used && context.facts.identity.running || !lasting {
        let path = context.question.path.filter(|_| are_buffers_small(findings));
        let buffers = path.map_or_else(String::new, |(rate, rtt)| format!(" --rate {rate} --rtt {rtt}"));
        return format!(
            "{} shows exactly what would change; {} does it, and {} takes it back",
            context.command(format_args!("plan {wanted}{buffers}")),
            context.as_root(format_args!("apply {wanted}{buffers}")),
            context.as_root("revert")
        );
    }
    match findings.iter().find(|f| f.verdict <= Verdict::Warn && f.advice.is_some()) {
        Some(f) => format!(
            "{wanted} is in use. First of what remains ({}): {}",
            f.id,
            f.advice.clone().unwrap_or_default()
        ),
        None if context.facts.scope.boots => format!("nothing: {wanted} is in use, now and after a restart"),
        None => {
            format!("nothing: {wanted} is in use; what holds after a restart is not decided in here")
        }
    }
}
