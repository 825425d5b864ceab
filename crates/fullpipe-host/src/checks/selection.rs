//! The controllers of new and established connections.

use super::{Context, Finding, Group, Verdict};
use crate::boot;
use crate::plan::Change;
use std::collections::BTreeMap;

pub(super) fn check(context: &Context, findings: &mut Vec<Finding>) {
    if !context.facts.identity.running {
        return;
    }
    findings.push(default(context));
    findings.push(allowed(context));
    findings.extend(namespaces(context));
    findings.extend(containers(context));
    findings.push(routes(context));
    findings.push(sockets(context));
}

fn default(context: &Context) -> Finding {
    let wanted = &context.question.controller;
    let finding = |verdict, state: String| {
        Finding::new("default", Group::Controller, verdict, state).why(
            "new connections get the default of their namespace; established ones keep theirs",
            "Linux tcp_cong.c, tcp_assign_congestion_control",
        )
    };
    const NAME: &str = "net.ipv4.tcp_congestion_control";
    match &context.facts.default {
        None => finding(Verdict::Unknown, "the default controller is not readable".into())
            .read(NAME, "not readable"),
        Some(now) if now == wanted => {
            finding(Verdict::Ok, format!("new connections use {now}")).read(NAME, now)
        }
        Some(now) => {
            finding(Verdict::Warn, format!("new connections use {now}, not {wanted}"))
                .read(NAME, now)
                .advising(context.planned(
                    "set it",
                    |change| matches!(change, Change::Sysctl { name, .. } if name == NAME),
                ))
        }
    }
}

fn allowed(context: &Context) -> Finding {
    let wanted = &context.question.controller;
    let list = &context.facts.allowed;
    let there = list.contains(wanted);
    let state = match (there, list.is_empty()) {
        (true, _) => format!("any application may use {wanted}"),
        (false, true) => "the allowed controllers are not readable".into(),
        (false, false) => {
            format!("unprivileged applications may not use {wanted}; making it the default allows it")
        }
    };
    let verdict = if there {
        Verdict::Ok
    } else if list.is_empty() {
        Verdict::Unknown
    } else {
        Verdict::Advice
    };
    Finding::new("allowed", Group::Controller, verdict, state)
        .read("net.ipv4.tcp_allowed_congestion_control", list.join(" "))
        .why(
            "setsockopt(TCP_CONGESTION) without CAP_NET_ADMIN, and other network namespaces, may only use \
             these",
            "Linux tcp_cong.c, TCP_CONG_NON_RESTRICTED",
        )
}

fn namespaces(context: &Context) -> Option<Finding> {
    let wanted = &context.question.controller;
    let others = context.host.other_namespaces().unwrap_or_default();
    let differ: Vec<String> =
        others.iter().filter(|(_, c)| c != wanted).map(|(name, c)| format!("{name}: {c}")).collect();
    if others.is_empty() {
        return None;
    }
    let state = if differ.is_empty() {
        format!("{} other network namespace(s) also use {wanted}", others.len())
    } else {
        format!(
            "{} of {} other network namespaces use another controller: {}",
            differ.len(),
            others.len(),
            some(&differ)
        )
    };
    let finding = Finding::new(
        "namespaces",
        Group::Controller,
        if differ.is_empty() { Verdict::Ok } else { Verdict::Advice },
        state,
    )
    .read("net.ipv4.tcp_congestion_control", format!("in {} namespaces", others.len()))
    .why(
        "a namespace (container) copies the default when it is created, and keeps its own afterwards",
        "Linux tcp_ipv4.c, tcp_set_congestion_control at tcp_sk_init",
    );
    Some(if differ.is_empty() {
        finding
    } else {
        finding.advice("restart these containers, or set it inside each")
    })
}

/// Containers that are started with a controller of their own.
fn containers(context: &Context) -> Option<Finding> {
    const KEY: &str = "net.ipv4.tcp_congestion_control";
    let wanted = &context.question.controller;
    let set = boot::container_sysctls(context.host, KEY);
    let differ: Vec<String> = set
        .iter()
        .filter(|sysctl| sysctl.value != *wanted)
        .map(|sysctl| format!("{} ({})", sysctl.value, sysctl.place))
        .collect();
    if differ.is_empty() {
        return None;
    }
    let state = format!("containers are started with another controller: {}", some(&differ));
    Some(
        Finding::new("containers", Group::Controller, Verdict::Advice, state)
            .read("container files", format!("{KEY} in {} places", set.len()))
            .why(
                "--sysctl sets the controller of a container's network namespace, which then does not copy \
                 the host's default",
                "podman-run(1), podman-systemd.unit(5), containers.conf(5)",
            )
            .advice(format!("change these lines to {wanted}, or remove them, and restart the containers")),
    )
}

/// The first few, and the number of others.
fn some(all: &[String]) -> String {
    let shown = all.iter().take(3).cloned().collect::<Vec<_>>().join("; ");
    if all.len() > 3 { format!("{shown}; and {} more", all.len() - 3) } else { shown }
}

fn routes(context: &Context) -> Finding {
    let wanted = &context.question.controller;
    let (verdict, state) = match &context.facts.routes {
        Err(e) => (Verdict::Unknown, format!("routes are not readable: {e}")),
        Ok(routes) if routes.is_empty() => (Verdict::Ok, "no route sets a controller".into()),
        Ok(routes) => {
            let list: Vec<String> = routes
                .iter()
                .map(|r| {
                    format!("{} congctl {}{}", r.prefix, if r.locked { "lock " } else { "" }, r.controller)
                })
                .collect();
            let same = routes.iter().all(|r| r.controller == *wanted);
            (if same { Verdict::Ok } else { Verdict::Advice }, some(&list))
        }
    };
    let finding = Finding::new("routes", Group::Controller, verdict, state).read("rtnetlink \
        RTAX_CC_ALGO", "every route").why(
        "a route's controller overrides the default for its destination, and `lock` also the application's \
         choice",
        "ip-route(8), congctl",
    );
    if verdict == Verdict::Advice {
        finding.advice("`ip route show` lists them; they override the default")
    } else {
        finding
    }
}

fn sockets(context: &Context) -> Finding {
    let wanted = &context.question.controller;
    let finding = |verdict, state: String| {
        Finding::new("sockets", Group::Controller, verdict, state)
            .why("established connections keep their controller", "Linux tcp_cong.c")
    };
    if let Err(e) = &context.facts.sockets {
        return finding(Verdict::Unknown, format!("sockets are not readable: {e}"))
            .advice("load tcp_diag (CONFIG_INET_DIAG); a sandbox without netlink access hides sockets, too")
            .read("sock_diag", "not readable");
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let remote = context.sockets().iter().filter(|s| !s.is_loopback());
    for socket in remote {
        *counts.entry(&socket.controller).or_default() += 1;
    }
    let text: Vec<String> = counts.iter().map(|(c, n)| format!("{n} with {c}")).collect();
    let read = if text.is_empty() { "none".to_owned() } else { text.join(", ") };
    if counts.is_empty() {
        return finding(Verdict::Ok, "no established connection beyond loopback".into())
            .read("sock_diag", read);
    }
    if counts.keys().all(|c| c == wanted) {
        return finding(Verdict::Ok, format!("all established connections use {wanted}"))
            .read("sock_diag", read);
    }
    let state = format!("established connections: {read}");
    let finding = finding(Verdict::Advice, state).read("sock_diag", read);
    if context.facts.default.as_ref() == Some(wanted) {
        finding.advice("the others change when they reconnect: restart their services if it matters")
    } else {
        finding
    }
}
