//! Queueing disciplines of sending devices.

use super::{Context, Finding, Group, Verdict};
use crate::facts::{Presence, Version};
use crate::net::QdiscNode;
use crate::plan::{Change, Tree};
use std::time::Duration;

pub(super) fn check(context: &Context, findings: &mut Vec<Finding>) {
    if !context.facts.identity.running {
        return;
    }
    let all = match &context.facts.qdiscs {
        Ok(all) => all,
        Err(e) => {
            let state = format!("queueing disciplines are not readable: {e}");
            findings.push(
                Finding::new("qdisc", Group::Queueing, Verdict::Unknown, state)
                    .read("rtnetlink", "not readable")
                    .why(
                        "fq paces on kernels before 4.13, and shares a busy uplink fairly on all",
                        "sch_fq.c",
                    ),
            );
            return;
        }
    };
    let mut devices: Vec<&str> = all.iter().map(|n| n.device.as_str()).collect();
    devices.sort_unstable();
    devices.dedup();
    let trees: Vec<(&str, Tree)> = devices
        .into_iter()
        .map(|d| (d, Tree::of_device(all, d)))
        .filter(|(_, t)| t.plain_kind() != Some("noqueue"))
        .collect();
    findings.push(leaves(context, &trees));
    findings.extend(foreign(&trees));
    findings.extend(drops(context, all));
}

fn leaves(context: &Context, trees: &[(&str, Tree)]) -> Finding {
    let shown = trees.iter().map(|(d, t)| format!("{d}: {}", t.describe())).collect::<Vec<_>>().join("; ");
    let finding = |verdict, state: String| {
        Finding::new("qdisc", Group::Queueing, verdict, state)
            .read("rtnetlink RTM_GETQDISC", if shown.is_empty() { "no device with a queue" } else { &shown })
            .why(
                "fq shares a busy uplink fairly and saves TCP a timer per connection; before 4.13 only fq \
                 paces bbr",
                "sch_fq.c; Linux 4.13 tcp_internal_pacing",
            )
    };
    if trees.is_empty() {
        return finding(Verdict::Ok, "no device queues packets".into());
    }
    let without: Vec<&str> =
        trees.iter().filter(|(_, t)| t.plain_kind() != Some("fq")).map(|(d, _)| *d).collect();
    let flattened: Vec<String> = trees
        .iter()
        .filter(|(_, t)| t.plain_kind() == Some("fq") && t.root().is_some_and(|r| r.kind == "fq"))
        .filter_map(|(device, _)| {
            let queues = context.host.list(&format!("/sys/class/net/{device}/queues")).unwrap_or_default();
            let count = queues.iter().filter(|q| q.starts_with("tx-")).count();
            (count > 1).then(|| format!("{device} ({count} queues)"))
        })
        .collect();
    if !flattened.is_empty() {
        let state = format!("a single root fq serialises all queues: {}", flattened.join(", "));
        return finding(Verdict::Advice, state).advice(
            "`tc qdisc del dev DEV root` with net.core.default_qdisc=fq restores mq with one fq per queue",
        );
    }
    if without.is_empty() {
        return finding(Verdict::Ok, format!("fq on every queue ({shown})"));
    }
    if !context.paced() {
        return finding(Verdict::Ok, shown.clone());
    }
    if context.facts.version.is_some_and(|v| v < Version(4, 13)) {
        let finding = finding(Verdict::Fail, format!("no fq on {}: bbr is not paced", without.join(", ")));
        return match context.facts.qdisc("fq") {
            Presence::Missing(_) => finding.advice("this kernel has no fq: use a newer one, or keep cubic"),
            _ => finding.advice(
                context
                    .planned("set fq on every queue", sets_qdisc)
                    .unwrap_or_else(|| "set it: `tc qdisc replace dev DEV root fq`".into()),
            ),
        };
    }
    if !context.facts.scope.initial_network {
        return finding(
            Verdict::Ok,
            format!("{shown}; TCP paces by itself, and the host's devices queue the packets"),
        );
    }
    match context.facts.qdisc("fq") {
        Presence::Missing(from) => {
            finding(Verdict::Ok, format!("{shown}; TCP paces by itself (this kernel has no fq)"))
                .read(from, "no fq")
        }
        _ => match (context.facts.shares_queues(context.host), &context.plan) {
            (Some((why, kind)), _) => finding(
                Verdict::Ok,
                format!(
                    "{shown}; TCP paces by itself, and packets that this host forwards need the AQM of {kind}"
                ),
            )
            .read("forwarding", why),
            (None, Ok(plan)) if !plan.steps.iter().any(|step| sets_qdisc(&step.change)) => {
                finding(Verdict::Ok, format!("{shown}; TCP paces by itself"))
            }
            _ => finding(
                Verdict::Advice,
                format!("{shown}; TCP paces by itself, and fq would pace more precisely on a busy host"),
            )
            .advising(context.planned("set fq on every queue", sets_qdisc)),
        },
    }
}

fn sets_qdisc(change: &Change) -> bool {
    matches!(change, Change::Qdisc { .. })
}

/// Devices with shapers or other manual configurations.
fn foreign(trees: &[(&str, Tree)]) -> Option<Finding> {
    let chosen: Vec<String> = trees
        .iter()
        .filter(|(_, t)| t.plain_kind().is_none())
        .map(|(d, t)| format!("{d}: {}", t.describe()))
        .collect();
    (!chosen.is_empty()).then(|| {
        Finding::new(
            "foreign-qdisc",
            Group::Queueing,
            Verdict::Advice,
            format!("manually configured shaping: {}", chosen.join("; ")),
        )
        .read("rtnetlink RTM_GETQDISC", chosen.join("; "))
        .why("replacing a shaper would remove its purpose; fullpipe does not change it", "tc(8)")
        .advice("to use fq below it, change the configuration of the shaper")
    })
}

/// Whether fq currently drops packets at its flow limit.
fn drops(context: &Context, before: &[QdiscNode]) -> Option<Finding> {
    if !before.iter().any(|n| n.kind == "fq") {
        return None;
    }
    let sum = |nodes: &[QdiscNode]| nodes.iter().filter_map(|n| n.flows_plimit).sum::<u64>();
    context.host.pause(Duration::from_millis(500));
    let after = context.host.qdiscs().ok()?;
    let (old, new) = (sum(before), sum(&after));
    let finding = |verdict, state: String| {
        Finding::new("fq-drops", Group::Queueing, verdict, state)
            .read("tc statistics, flows_plimit, 0.5 s apart", format!("{old}, then {new}"))
            .why("fq drops packets of a flow beyond its flow_limit (100 packets)", "tc-fq(8)")
    };
    Some(match (old, new) {
        (0, 0) => finding(Verdict::Ok, "no fq drops at the flow limit".into()),
        (a, b) if b > a => {
            finding(Verdict::Warn, format!("fq is dropping at its flow limit: {} packets in 0.5 s", b - a))
                .advice("raise the limit: `tc qdisc replace dev DEV … fq flow_limit 1000`")
        }
        _ => finding(
            Verdict::Ok,
            format!("fq dropped {old} packets at its flow limit since it was configured, none now"),
        ),
    })
}
