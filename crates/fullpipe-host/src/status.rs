//! State of a host: what fullpipe applied, what the boot files set, what the kernel uses, and
//! whether they agree.

use crate::apply::{Part, load_when_idle};
use crate::boot::{self, Assignment, Program};
use crate::controllers::is_ebpf;
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
    /// One sentence, with the next command if something is wrong.
    pub summary: String,
    /// Whether journal, boot files and kernel agree and nothing was interrupted.
    pub consistent: bool,
    /// Phase of fullpipe's plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The controller of fullpipe's plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// Assignments of loaded controllers (`fullpipe cc load`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<InUse>,
    /// Seconds until the trial is rolled back unless confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm_within: Option<u64>,
    /// The default controller now.
    pub live: Option<String>,
    /// The default controller after a restart, and what decides it.
    pub boot: String,
    /// Settings that differ from the plan.
    pub drift: Vec<String>,
    /// Established connections beyond loopback, by controller.
    pub connections: BTreeMap<String, usize>,
    /// Other network namespaces whose default differs from this one's.
    pub other_namespaces: Vec<(String, String)>,
}

/// A controller that fullpipe assigned, or `split`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct InUse {
    /// The name it is registered under.
    pub controller: String,
    /// The changes made for it.
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

/// Settings that differ from the plan.
#[derive(Default)]
struct Drift {
    /// One line each.
    lines: Vec<String>,
    /// Number of steps that are not in place.
    missing: usize,
}

impl Drift {
    /// The journal's steps that are not in place on the host.
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

    /// Checks that no newer file overrides the plan at the next boot.
    fn check_boot(&mut self, journal: &Journal, line: &Assignment) {
        let wanted = &journal.plan.controller;
        if drift_matters(journal) && line.value != *wanted {
            let text = format!("next boot: should set {wanted}, but {} sets {}", line.place(), line.value);
            self.lines.push(text);
        }
    }
}

/// Whether the journal's apply concerns the next boot.
fn drift_matters(journal: &Journal) -> bool {
    journal.trial.is_none() && journal.phase == Phase::Applied && journal.plan.lasts()
}

/// Whether an apply of an eBPF controller has no unit that loads it at boot. A canary ends with a
/// restart.
fn is_not_loaded_at_boot(journal: &Journal) -> bool {
    let plan = &journal.plan;
    let is_unit = |change: &Change| matches!(change, Change::File { path, .. } if path.ends_with(".service"));
    let applied = || plan.steps.iter().filter(|step| step.part_of.is_none());
    let is_whole = journal.trial.is_none() && journal.phase == Phase::Applied && plan.canary.is_none();
    // One with `--live-only` writes no files at all.
    let writes = applied().any(|step| matches!(step.change, Change::File { .. }));
    is_whole && writes && is_ebpf(&plan.controller) && !applied().any(|step| is_unit(&step.change))
}

/// State of an unconfirmed trial.
struct TrialState {
    /// Seconds left; 0 if it expired.
    left: u64,
    /// Whether a restart has ended it.
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

/// Summary of the assignments of loaded controllers, if there is no apply or one of them was
/// interrupted.
fn summarize_uses(journal: &Journal, drift: &Drift, identity: &Identity) -> Option<(bool, String)> {
    let command = |words: &str| identity.command(words);
    if let Some(name) =
        journal.busy_with.as_deref().filter(|name| [kernel::INSTALL, kernel::TRIAL].contains(name))
    {
        let what = if name == kernel::INSTALL {
            "a kernel installation"
        } else {
            "the preparation of a kernel trial"
        };
        let text = format!("{what} was interrupted: {} shows its state", command("kernel status"));
        return Some((false, format!("{text}, {} rolls it back", command("kernel back"))));
    }
    if let Some(name) = &journal.busy_with {
        let text = if journal.phase == Phase::Reverting {
            format!("unassigning {name} was interrupted: `fullpipe cc unload` completes it")
        } else {
            format!(
                "assigning {name} was interrupted ({} steps missing): the same `fullpipe cc load` or \
                 `fullpipe \
                 apply --to` completes it",
                drift.missing
            )
        };
        return Some((false, format!("{text}, {} rolls everything back", command("revert"))));
    }
    if journal.plan.has_apply() || journal.phase != Phase::Applied {
        return None;
    }
    let name = |used: InUse| match used.controller.as_str() {
        crate::split::USE => "a split of new connections".to_owned(),
        kernel::INSTALL => "the changes of `kernel install`".to_owned(),
        kernel::TRIAL => "the changes of `kernel try`".to_owned(),
        _ => used.controller,
    };
    let names: Vec<String> = uses(&journal.plan).into_iter().map(name).collect();
    let (names, are) = (names.join(", "), if names.len() == 1 { "is" } else { "are" });
    Some(if drift.lines.is_empty() {
        (true, format!("{names} {are} assigned by fullpipe, and all settings match"))
    } else {
        (
            false,
            format!(
                "{names} {are} assigned by fullpipe, but some settings were changed since: the same \
                 `fullpipe cc load` or \
                 `fullpipe apply --to` sets them again, {} rolls them back",
                command("revert")
            ),
        )
    })
}

/// Whether an apply is in place, and its summary.
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
                "the apply of {name} was interrupted ({} steps missing): {apply} completes it, {revert} \
                 rolls it back",
                drift.missing
            ),
        ),
        (Phase::Reverting, _) => {
            (false, format!("the revert of {name} was interrupted: {revert} completes it"))
        }
        (Phase::Applied, Some(TrialState { restarted: true, .. })) => (
            false,
            format!(
                "the trial of {name} was ended by a restart, which rolled it back: {revert} removes its \
                 record"
            ),
        ),
        (Phase::Applied, Some(TrialState { left: 0, .. })) => (
            false,
            format!(
                "the trial of {name} expired and its guard process is not running: {revert} rolls it back"
            ),
        ),
        (Phase::Applied, _) if !drift.lines.is_empty() => (
            false,
            format!(
                "fullpipe applied {name}, but some settings were changed since: {apply} sets them again, \
                 {revert} rolls everything back"
            ),
        ),
        (Phase::Applied, Some(TrialState { left, .. })) => {
            let confirm = identity.command("confirm");
            (true, format!("{name} is on trial: {left} s left for {confirm}, then it is rolled back"))
        }
        (Phase::Applied, None) => match &journal.plan.canary {
            Some(prefix) => (true, format!("{name} is on trial for {prefix} only")),
            None => (true, format!("{name} is applied by fullpipe, and all settings match")),
        },
    }
}

/// Reads the state of a host. Changes nothing; only root may read an existing journal.
///
/// # Errors
/// The journal is damaged or not readable.
pub fn status(host: &dyn Host, store: &Store) -> Result<Status> {
    let facts = Facts::gather(host);
    // After a restart the journal may hold no steps any more.
    let journal = load_when_idle(host, store)?.filter(|j| !j.plan.is_empty());
    let journal = journal.as_ref();
    let mut drift = journal.map(|journal| Drift::detect(journal, host)).unwrap_or_default();
    let takes = |key: &str, value: &str| facts.accepts_at_boot(host, key, value);
    let key = "net.ipv4.tcp_congestion_control";
    let prediction = boot::predict(host, &boot::programs(host), key, &takes);
    let boot_line = prediction.line;
    if journal.is_some() {
        drift.lines.extend(host.unread().iter().map(|text| format!("next boot: unknown, since {text}")));
    }
    if let (Some(journal), Some(line), true) = (journal, &boot_line, facts.scope.boots) {
        drift.check_boot(journal, line);
    }
    if let Some(journal) = journal.filter(|journal| facts.scope.boots && is_not_loaded_at_boot(journal)) {
        drift.lines.push(format!("next boot: nothing loads {}", journal.plan.controller));
    }
    if let Some(journal) = journal.filter(|journal| facts.scope.boots && drift_matters(journal)) {
        let wanted = &journal.plan.controller;
        drift.lines.extend(facts.obstacle_at_boot(wanted));
        match &boot_line {
            None => drift.lines.push(format!("next boot: no file sets {wanted}")),
            Some(line) if line.program != Program::Unit && line.value == *wanted => {
                if facts.controller_at_boot(wanted) == Presence::Unknown {
                    drift.lines.push(format!("next boot: unknown whether the kernel has {wanted}"));
                }
            }
            Some(_) => {}
        }
        let may_override = |line: &Assignment| {
            format!(
                "{} may override the next boot: the value {} is computed at boot",
                line.place(),
                line.value
            )
        };
        drift.lines.extend(prediction.unresolved.last().map(may_override));
    }
    let unread = host.unread();
    let boot = match &boot_line {
        _ if !unread.is_empty() => format!("unknown: {}", unread.join("; ")),
        Some(line) => format!("{} ({})", line.value, line.place()),
        None => "the kernel's built-in default (no file sets one)".into(),
    };
    let live = facts.default.clone();
    let at_boot_differs = facts.scope.boots
        && boot_line.as_ref().is_some_and(|l| live.as_ref().is_some_and(|live| *live != l.value));
    let trial = journal.and_then(|j| j.trial.as_ref()).map(|trial| TrialState::new(trial, host.clock()));
    let (consistent, summary) = match journal {
        Some(journal) => summarize_uses(journal, &drift, &facts.identity)
            .unwrap_or_else(|| summarize_apply(journal, &drift, trial.as_ref(), &facts.identity)),
        None if at_boot_differs => {
            (false, "no change by fullpipe; the default controller now and after a restart differ".into())
        }
        None => (true, "no change by fullpipe on this host".into()),
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
        "Number of settings that differ from what fullpipe applied.",
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
        "Other network namespaces with a different default controller.",
        &[(String::new(), other)],
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_text_escapes_labels() {
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
