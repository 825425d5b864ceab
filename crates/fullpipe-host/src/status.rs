//! Where a host stands: what fullpipe set, what the boot files say, what the kernel does, and whether they agree.

use crate::apply::Part;
use crate::boot;
use crate::error::Result;
use crate::facts::{Facts, Presence};
use crate::host::{Host, Identity};
use crate::journal::{Journal, Phase, Store};
use crate::kernel;
use crate::plan::{Change, Plan, Standing};
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

/// Where uses of loaded controllers stand, if that is what there is to say: an apply is not part of it, or one of them was
/// interrupted.
fn of_uses(
    journal: &Journal,
    missing: usize,
    drift: &[String],
    identity: &Identity,
) -> Option<(bool, String)> {
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
                "putting {name} to use was interrupted ({missing} steps not made): the same `fullpipe cc load` or `fullpipe \
                 apply --to` completes it"
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
    Some(if drift.is_empty() {
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

/// Finds out. Changes nothing; where fullpipe has something in force only root may read its journal.
///
/// # Errors
/// The journal is damaged or not readable.
pub fn status(host: &dyn Host, store: &Store) -> Result<Status> {
    let facts = Facts::gather(host);
    // What a restart ended leaves a journal of nothing.
    let journal = store.load(host)?.filter(|j| !j.plan.is_empty());
    let mut drift = Vec::new();
    let mut missing = 0;
    let on_trial = journal.as_ref().and_then(|j| j.trial.as_ref());
    // A trial writes nothing for the next boot before it is confirmed.
    let part = if on_trial.is_some() { Part::of_a_trial(host) } else { Part::Whole };
    let plan = journal.as_ref().map(|j| &j.plan);
    let steps = plan.iter().flat_map(|plan| plan.steps.iter().enumerate().map(move |(n, s)| (plan, n, s)));
    for (plan, number, step) in steps.filter(|(_, _, s)| s.part_of.is_some() || part.has(&s.change)) {
        let title = step.change.title();
        match plan.standing(host, number) {
            Ok(Standing::After) => {}
            Ok(Standing::Before | Standing::Partial) => {
                missing += 1;
                drift.push(format!("{title}: not {}", step.change.wanted()));
            }
            Ok(Standing::Gone) => drift.push(format!("{title}: gone")),
            Ok(Standing::Other(now)) => {
                missing += 1;
                drift.push(format!("{title}: set to {}, now {now}", step.change.wanted()));
            }
            Err(e) => drift.push(format!("{title}: cannot be read ({e})")),
        }
    }
    let takes = |value: &str| !matches!(facts.controller(value), Presence::Missing(_));
    let key = "net.ipv4.tcp_congestion_control";
    let boot_line = boot::winner(host, &boot::programs(host), key, &takes);
    let boot = match &boot_line {
        Some(line) => format!("{} ({})", line.value, line.place()),
        None => "the kernel's own default (no file names one)".into(),
    };
    let live = facts.default.clone();
    let at_boot_differs = facts.scope.boots
        && boot_line.as_ref().is_some_and(|l| live.as_ref().is_some_and(|live| *live != l.value));
    // What was made to last must win at the next boot still, whatever files came since.
    if let (Some(journal), Some(line)) = (&journal, &boot_line)
        && facts.scope.boots
        && on_trial.is_none()
        && journal.phase == Phase::Applied
        && journal.plan.lasts()
        && line.value != journal.plan.controller
    {
        drift.push(format!(
            "the next boot: to set {}, now {} by {}",
            journal.plan.controller,
            line.value,
            line.place()
        ));
    }
    let confirm_within = on_trial.map(|t| t.left(host.clock()).map_or(0, |left| left.as_secs().max(1)));
    let restarted = on_trial.is_some_and(|t| t.boot != host.clock().boot());
    let phase = journal.as_ref().map(|j| j.phase);
    let controller = journal.as_ref().map(|j| j.plan.controller.clone());
    let name = controller.clone().unwrap_or_default();
    let used = journal.as_ref().and_then(|journal| of_uses(journal, missing, &drift, &facts.identity));
    let command = |words: &str| facts.identity.command(words);
    let apply = command(&format!("apply {name}"));
    let revert = command("revert");
    let (consistent, summary) = match phase {
        _ if used.is_some() => used.unwrap_or_default(),
        Some(Phase::Applying) => (
            false,
            format!(
                "an apply of {name} was interrupted ({missing} steps not made): {apply} completes it, {revert} undoes it"
            ),
        ),
        Some(Phase::Reverting) => {
            (false, format!("a revert of {name} was interrupted: {revert} finishes it"))
        }
        Some(Phase::Applied) if restarted => (
            false,
            format!(
                "{name} was on trial when the machine restarted, which took it back: {revert} tidies up what is left"
            ),
        ),
        Some(Phase::Applied) if confirm_within == Some(0) => (
            false,
            format!("{name} was not confirmed in time and whoever waited for it is gone: {revert} undoes it"),
        ),
        Some(Phase::Applied) if !drift.is_empty() => (
            false,
            format!(
                "{name} was put in force by fullpipe, but not everything is so any more: {apply} sets it again, {revert} takes it back"
            ),
        ),
        Some(Phase::Applied) => match confirm_within {
            Some(left) => (
                true,
                format!(
                    "{name} is in force on trial: {left} s left for {}, then it is undone",
                    command("confirm")
                ),
            ),
            None => match journal.as_ref().and_then(|j| j.plan.canary.as_ref()) {
                Some(prefix) => (true, format!("{name} is on trial for {prefix} only")),
                None => {
                    (true, format!("{name} is in force through fullpipe, and everything is as it left it"))
                }
            },
        },
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
        phase,
        controller,
        uses: plan.map(uses).unwrap_or_default(),
        confirm_within,
        live,
        boot,
        drift,
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
