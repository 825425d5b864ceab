//! Where a host stands: what fullpipe set, what the boot files say, what the kernel does, and whether they agree.

use crate::apply::Part;
use crate::boot::{self, Assignment};
use crate::error::Result;
use crate::facts::{Facts, Presence};
use crate::host::{Clock, Host, Identity};
use crate::journal::{Journal, Phase, Store, Trial};
use crate::kernel;
use crate::plan::{Change, Plan, StepState};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The state of a host's congestion control.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Status {
    /// In one sentence, with what to do if something is not as it should be.
    pub summary: String,
    /// Whether journal, boot files and kernel agree and nothing is half-done.
    pub consistent: bool,
    /// What fullpipe has in force or was doing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The controller of fullpipe's plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// What loaded controllers are in use for (`fullpipe cc load`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<InUse>,
    /// Seconds until what was applied is undone unless confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm_within: Option<u64>,
    /// The default controller now.
    pub live: Option<String>,
    /// The default controller after a restart, and what decides it.
    pub boot: String,
    /// What is not as fullpipe left it.
    pub drift: Vec<String>,
    /// Established connections beyond loopback, by controller.
    pub connections: BTreeMap<String, usize>,
    /// Other network namespaces whose default differs from this one's.
    pub other_namespaces: Vec<(String, String)>,
}

/// A controller that fullpipe put to use, or `split`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct InUse {
    /// The name that it is registered under.
    pub controller: String,
    /// What was changed for it.
    pub changes: Vec<String>,
}

fn uses(plan: &Plan) -> Vec<InUse> {
    let mut all: Vec<InUse> = Vec::new();
    for step in &plan.steps {
        let Some(part) = &step.part_of else { continue };
        let title = match &step.change {
            change @ Change::Split { .. } => format!("{}: {}", change.title(), change.wanted()),
            change => change.title(),
        };
        match all.iter_mut().find(|used| used.controller == part.controller) {
            Some(used) => used.changes.push(title),
            None => all.push(InUse { controller: part.controller.clone(), changes: vec![title] }),
        }
    }
    all
}

/// What is not as fullpipe left it.
#[derive(Default)]
struct Drift {
    /// In words.
    lines: Vec<String>,
    /// How many steps are not made, or not any more.
    missing: usize,
}

impl Drift {
    /// What of a journal's steps does not hold on the host.
    fn detect(journal: &Journal, host: &dyn Host) -> Drift {
        // A trial writes nothing for the next boot before it is confirmed.
        let part = if journal.trial.is_some() { Part::for_trial(host) } else { Part::Whole };
        let steps = journal.plan.steps.iter().enumerate();
        let mut drift = Drift::default();
        for (number, step) in steps.filter(|(_, s)| s.part_of.is_some() || part.includes(&s.change)) {
            let title = step.change.title();
            match journal.plan.state(host, number) {
                Ok(StepState::After) => {}
                Ok(StepState::Before | StepState::Partial) => {
                    drift.missing += 1;
                    drift.lines.push(format!("{title}: not {}", step.change.wanted()));
                }
                Ok(StepState::Gone) => drift.lines.push(format!("{title}: gone")),
                Ok(StepState::Other(now)) => {
                    drift.missing += 1;
                    drift.lines.push(format!("{title}: set to {}, now {now}", step.change.wanted()));
                }
                Err(e) => drift.lines.push(format!("{title}: cannot be read ({e})")),
            }
        }
        drift
    }

    /// What was made to last must win at the next boot still, whatever files came since.
    fn check_boot(&mut self, journal: &Journal, line: &Assignment) {
        let wanted = &journal.plan.controller;
        let lasts = journal.trial.is_none() && journal.phase == Phase::Applied && journal.plan.lasts();
        if lasts && line.value != *wanted {
            let told = format!("the next boot: to set {wanted}, now {} by {}", line.value, line.place());
            self.lines.push(told);
        }
    }
}

/// How a trial stands that is not confirmed.
struct TrialState {
    /// Seconds that are left; 0 if it is over.
    left: u64,
    /// Whether the machine restarted since, which took it back.
    restarted: bool,
}

impl TrialState {
    fn new(trial: &Trial, clock: &dyn Clock) -> TrialState {
        TrialState {
            left: trial.remaining(clock).map_or(0, |left| left.as_secs().max(1)),
            restarted: trial.boot != clock.boot(),
        }
    }
}

/// Where uses of loaded controllers stand, if that is what there is to say: an apply is not part of it, or one of them was
/// interrupted.
fn summarize_uses(journal: &Journal, drift: &Drift, identity: &Identity) -> Option<(bool, String)> {
    let command = |words: &str| identity.command(words);
    if let Some(name) =
        journal.busy_with.as_deref().filter(|name| [kernel::INSTALL, kernel::TRIAL].contains(name))
    {
        let what =
            if name == kernel::INSTALL { "installing a kernel" } else { "making ready to try a kernel" };
        let text = format!("{what} was interrupted: {} says how far it came", command("kernel status"));
        return Some((false, format!("{text}, {} takes it back", command("kernel back"))));
    }
    if let Some(name) = &journal.busy_with {
        let text = if journal.phase == Phase::Reverting {
            format!("taking {name} out of use was interrupted: `fullpipe cc unload` finishes it")
        } else {
            format!(
                "putting {name} to use was interrupted ({} steps not made): the same `fullpipe cc load` or `fullpipe \
                 apply --to` completes it",
                drift.missing
            )
        };
        return Some((false, format!("{text}, {} takes everything back", command("revert"))));
    }
    if journal.plan.has_apply() || journal.phase != Phase::Applied {
        return None;
    }
    let name = |used: InUse| match used.controller.as_str() {
        crate::split::USE => "a split of new connections".to_owned(),
        kernel::INSTALL => "what `kernel install` made".to_owned(),
        kernel::TRIAL => "what `kernel try` made".to_owned(),
        _ => used.controller,
    };
    let names: Vec<String> = uses(&journal.plan).into_iter().map(name).collect();
    let (names, are) = (names.join(", "), if names.len() == 1 { "is" } else { "are" });
    Some(if drift.lines.is_empty() {
        (true, format!("{names} {are} in use through fullpipe, and everything is as it left it"))
    } else {
        (
            false,
            format!(
                "{names} {are} in use through fullpipe, but not everything is so any more: the same `fullpipe cc load` or \
                 `fullpipe apply --to` sets it again, {} takes it back",
                command("revert")
            ),
        )
    })
}

/// Where an apply stands: whether all is as it should be, and in one sentence.
fn summarize_apply(
    journal: &Journal,
    drift: &Drift,
    trial: Option<&TrialState>,
    identity: &Identity,
) -> (bool, String) {
    let name = &journal.plan.controller;
    let apply = identity.command(format_args!("apply {name}"));
    let revert = identity.command("revert");
    match (journal.phase, trial) {
        (Phase::Applying, _) => (
            false,
            format!(
                "an apply of {name} was interrupted ({} steps not made): {apply} completes it, {revert} undoes it",
                drift.missing
            ),
        ),
        (Phase::Reverting, _) => (false, format!("a revert of {name} was interrupted: {revert} finishes it")),
        (Phase::Applied, Some(TrialState { restarted: true, .. })) => (
            false,
            format!(
                "{name} was on trial when the machine restarted, which took it back: {revert} tidies up what is left"
            ),
        ),
        (Phase::Applied, Some(TrialState { left: 0, .. })) => (
            false,
            format!("{name} was not confirmed in time and whoever waited for it is gone: {revert} undoes it"),
        ),
        (Phase::Applied, _) if !drift.lines.is_empty() => (
            false,
            format!(
                "{name} was put in force by fullpipe, but not everything is so any more: {apply} sets it again, {revert} takes it back"
            ),
        ),
        (Phase::Applied, Some(TrialState { left, .. })) => {
            let confirm = identity.command("confirm");
            (true, format!("{name} is in force on trial: {left} s left for {confirm}, then it is undone"))
        }
        (Phase::Applied, None) => match &journal.plan.canary {
            Some(prefix) => (true, format!("{name} is on trial for {prefix} only")),
            None => (true, format!("{name} is in force through fullpipe, and everything is as it left it")),
        },
    }
}

/// Finds out. Changes nothing; where fullpipe has something in force only root may read its journal.
///
/// # Errors
/// The journal is damaged or not readable.
pub fn status(host: &dyn Host, store: &Store) -> Result<Status> {
    let facts = Facts::gather(host);
    // What a restart ended leaves a journal of nothing.
    let journal = store.load(host)?.filter(|j| !j.plan.is_empty());
    let journal = journal.as_ref();
    let mut drift = journal.map(|journal| Drift::detect(journal, host)).unwrap_or_default();
    let takes = |value: &str| !matches!(facts.controller(value), Presence::Missing(_));
    let key = "net.ipv4.tcp_congestion_control";
    let boot_line = boot::winner(host, &boot::programs(host), key, &takes);
    if let (Some(journal), Some(line), true) = (journal, &boot_line, facts.scope.boots) {
        drift.check_boot(journal, line);
    }
    let boot = match &boot_line {
        Some(line) => format!("{} ({})", line.value, line.place()),
        None => "the kernel's own default (no file names one)".into(),
    };
    let live = facts.default.clone();
    let at_boot_differs = facts.scope.boots
        && boot_line.as_ref().is_some_and(|l| live.as_ref().is_some_and(|live| *live != l.value));
    let trial = journal.and_then(|j| j.trial.as_ref()).map(|trial| TrialState::new(trial, host.clock()));
    let (consistent, summary) = match journal {
        Some(journal) => summarize_uses(journal, &drift, &facts.identity)
            .unwrap_or_else(|| summarize_apply(journal, &drift, trial.as_ref(), &facts.identity)),
        None if at_boot_differs => (
            false,
            "fullpipe has changed nothing here; the default now and the one after a restart differ".into(),
        ),
        None => (true, "fullpipe has changed nothing on this host".into()),
    };
    let mut connections = BTreeMap::new();
    for socket in facts.sockets.iter().flatten().filter(|s| !s.is_loopback()) {
        *connections.entry(socket.controller.clone()).or_default() += 1;
    }
    let mut other_namespaces = host.other_namespaces().unwrap_or_default();
    other_namespaces.retain(|(_, c)| Some(c) != live.as_ref());
    Ok(Status {
        summary,
        consistent,
        phase: journal.map(|j| j.phase),
        controller: journal.map(|j| j.plan.controller.clone()),
        uses: journal.map(|j| uses(&j.plan)).unwrap_or_default(),
        confirm_within: trial.map(|trial| trial.left),
        live,
        boot,
        drift: drift.lines,
        connections,
        other_namespaces,
    })
}

/// The status in Prometheus' text format, for node_exporter's textfile collector.
pub fn prometheus(status: &Status) -> String {
    let mut out = String::new();
    let mut gauge = |name: &str, help: &str, samples: &[(String, f64)]| {
        let _ = writeln!(out, "# HELP fullpipe_{name} {help}\n# TYPE fullpipe_{name} gauge");
        for (labels, value) in samples {
            let _ = writeln!(out, "fullpipe_{name}{labels} {value}");
        }
    };
    let label = |name: &str, value: &str| {
        format!("{{{name}=\"{}\"}}", value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
    };
    let consistent = f64::from(u8::from(status.consistent));
    gauge("host_consistent", "Whether journal, boot files and kernel agree.", &[(String::new(), consistent)]);
    gauge(
        "host_drift",
        "Settings that are not as fullpipe left them.",
        &[(String::new(), status.drift.len() as f64)],
    );
    let live: Vec<_> = status.live.iter().map(|c| (label("controller", c), 1.0)).collect();
    gauge("host_default_controller", "The default congestion controller.", &live);
    let connections: Vec<_> =
        status.connections.iter().map(|(c, n)| (label("controller", c), *n as f64)).collect();
    gauge("host_connections", "Established connections beyond loopback, by controller.", &connections);
    let other = status.other_namespaces.len() as f64;
    gauge(
        "host_namespaces_differing",
        "Network namespaces whose default differs.",
        &[(String::new(), other)],
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_written_as_prometheus_reads_it() {
        let status = Status {
            summary: String::new(),
            consistent: true,
            phase: Some(Phase::Applied),
            controller: Some("bbr".into()),
            uses: vec![],
            confirm_within: None,
            live: Some("bbr".into()),
            boot: "bbr".into(),
            drift: vec![],
            connections: [("bbr".to_owned(), 3), ("a\"b".to_owned(), 1)].into(),
            other_namespaces: vec![],
        };
        let text = prometheus(&status);
        assert!(text.contains("# TYPE fullpipe_host_connections gauge\n"), "{text}");
        assert!(text.contains("fullpipe_host_connections{controller=\"bbr\"} 3\n"), "{text}");
        assert!(text.contains("fullpipe_host_connections{controller=\"a\\\"b\"} 1\n"), "{text}");
        assert!(text.contains("fullpipe_host_consistent 1\n"), "{text}");
    }
}
