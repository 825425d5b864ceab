//! The doctor: whether a host is ready for a controller, and what would help.
//!
//! Each check reads, judges, and gives the reason, advice and source. Checks change nothing and
//! need no privileges; unreadable values are reported as unknown.

mod at_boot;
mod buffers;
mod kernel;
mod offloads;
mod queueing;
mod selection;
mod tuning;

use crate::boot::{self, Program};
use crate::controllers::ebpf_twin;
use crate::error::Error;
use crate::facts::{Facts, Presence};
use crate::host::Host;
use crate::os_release::distribution;
use crate::plan::{self, Change, Plan, Request};
use fullpipe_units::{Rate, Span};
use serde::Serialize;
use std::fmt::Display;

/// Verdict of a check, worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It does not work, or not well.
    Fail,
    /// It works, but a setting is wrong.
    Warn,
    /// It cannot be read.
    Unknown,
    /// A change may be worthwhile.
    Advice,
    /// Correct.
    Ok,
}

/// Subject of a check.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// The kernel and the scope of changes.
    Kernel,
    /// Controllers in use.
    Controller,
    /// Queueing disciplines.
    Queueing,
    /// Settings after a restart.
    Boot,
    /// Buffers and windows.
    Buffers,
    /// Minor settings.
    Tuning,
}

/// A value that was read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Reading {
    /// Its source.
    pub from: String,
    /// The value.
    pub value: String,
}

/// The outcome of one check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// A stable name.
    pub id: &'static str,
    /// Its subject.
    pub group: Group,
    /// Its verdict.
    pub verdict: Verdict,
    /// The state in one line.
    pub state: String,
    /// The values that were read.
    pub read: Vec<Reading>,
    /// Why it matters.
    pub why: &'static str,
    /// Advice, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// Source of the claim.
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

    fn advice(self, advice: impl Into<String>) -> Finding {
        self.advising(Some(advice.into()))
    }

    /// As [`Finding::advice`], if there is any.
    fn advising(mut self, advice: Option<String>) -> Finding {
        self.advice = advice;
        self
    }
}

/// Input of the doctor.
#[derive(Clone, PartialEq, Debug)]
pub struct Question {
    /// The requested controller.
    pub controller: String,
    /// Rate and round-trip time of the path.
    pub path: Option<(Rate, Span)>,
}

/// Input of each check.
pub(crate) struct Context<'a> {
    pub host: &'a dyn Host,
    pub facts: &'a Facts,
    pub question: &'a Question,
    pub programs: Vec<Program>,
    /// What `plan` would do.
    pub plan: Result<Plan, Error>,
}

impl Context<'_> {
    /// Advice to run `plan`, if the plan contains such a step; the error, if planning failed.
    fn planned(&self, does: &str, step: impl Fn(&Change) -> bool) -> Option<String> {
        let wanted = &self.question.controller;
        match &self.plan {
            Ok(plan) if plan.steps.iter().any(|one| step(&one.change)) => {
                Some(format!("{} shows how to {does}", self.command(format_args!("plan {wanted}"))))
            }
            Ok(_) => None,
            Err(error) => Some(error.text().to_owned()),
        }
    }

    /// A sysctl as a number.
    fn number(&self, name: &str) -> Option<i64> {
        self.host.sysctl(name)?.split_ascii_whitespace().next()?.parse().ok()
    }

    fn sockets(&self) -> &[crate::net::TcpSocket] {
        self.facts.sockets.as_deref().unwrap_or_default()
    }

    /// The quoted command for `words`, with the options for this host.
    fn command(&self, words: impl Display) -> String {
        self.facts.identity.command(words)
    }

    /// As [`Context::command`], with `sudo` if needed.
    fn as_root(&self, words: impl Display) -> String {
        self.facts.identity.as_root(words)
    }

    /// Whether the requested controller paces.
    fn paced(&self) -> bool {
        self.question.controller.contains("bbr")
    }
}

/// Name and version of [`Report`]'s JSON schema. It changes when a field is removed or changes its
/// meaning, not for new fields, checks or texts.
pub const SCHEMA: &str = "fullpipe/doctor/1";

/// The doctor's report.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The kernel's release.
    pub kernel: String,
    /// The distribution, if the host says.
    pub system: String,
    /// Scope of a change made here.
    pub scope: String,
    /// The requested controller.
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

    /// The failed check that prevents enabling the controller, if there is one.
    pub fn obstacle(&self) -> Option<&Finding> {
        let prevents = |finding: &&Finding| {
            finding.verdict == Verdict::Fail && ["kernel", "scope", "controller"].contains(&finding.id)
        };
        self.findings.iter().find(prevents)
    }
}

/// Whether buffers limit the given path.
pub fn are_buffers_small(findings: &[Finding]) -> bool {
    let limits = ["send-limit", "receive-limit"];
    findings.iter().any(|finding| limits.contains(&finding.id) && finding.verdict <= Verdict::Warn)
}

/// Examines the host.
pub fn examine(host: &dyn Host, question: &Question) -> Report {
    let facts = Facts::gather(host);
    // A loaded eBPF controller replaces a missing kernel controller.
    let twin = ebpf_twin(&question.controller).filter(|twin| facts.available.iter().any(|c| c == twin));
    let twin = twin.filter(|_| matches!(facts.controller(&question.controller), Presence::Missing(_)));
    let question = &match twin {
        Some(twin) => Question { controller: twin.to_owned(), path: question.path },
        None => question.clone(),
    };
    let request = Request { buffers: question.path, ..Request::new(&question.controller) };
    let plan = plan::make_with(host, &facts, &request, "/usr/bin/fullpipe");
    let context = Context { host, facts: &facts, question, programs: boot::programs(host), plan };
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

/// The next thing to do.
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
    if let (true, Err(error)) = (!used || !lasting, &context.plan) {
        return format!("{} is refused: {error}", context.command(format_args!("plan {wanted}")));
    }
    let is_planned = context.plan.as_ref().is_ok_and(|plan| !plan.is_empty());
    if is_planned && (!used && context.facts.identity.running || !lasting) {
        let path = context.question.path.filter(|_| are_buffers_small(findings));
        let buffers = path.map_or_else(String::new, |(rate, rtt)| format!(" --rate {rate} --rtt {rtt}"));
        return format!(
            "{} shows the exact changes; {} makes them, and {} rolls them back",
            context.command(format_args!("plan {wanted}{buffers}")),
            context.as_root(format_args!("apply {wanted}{buffers}")),
            context.as_root("revert")
        );
    }
    match findings.iter().find(|f| f.verdict <= Verdict::Warn && f.advice.is_some()) {
        Some(f) => format!("{wanted} is in use; next ({}): {}", f.id, f.advice.clone().unwrap_or_default()),
        None if let Err(error) = &context.plan => format!(
            "{wanted} is in use{}; {} is refused: {error}",
            if context.facts.scope.boots { ", now and after a restart" } else { "" },
            context.command(format_args!("plan {wanted}"))
        ),
        None if context.facts.scope.boots && is_planned => format!(
            "{wanted} is in use, now and after a restart; {} shows what an apply would add",
            context.command(format_args!("plan {wanted}"))
        ),
        None if context.facts.scope.boots => {
            format!("nothing to do: {wanted} is in use, now and after a restart")
        }
        None => {
            format!("nothing to do: {wanted} is in use; the setting after a restart is not made here")
        }
    }
}
