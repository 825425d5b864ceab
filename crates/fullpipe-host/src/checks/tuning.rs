//! Minor settings: advice only, where it matters for the requested controller.

use super::{Context, Finding, Group, Verdict};
use crate::ecn::{self, Response};
use crate::plan::Tree;
use fullpipe_units::Bytes;

pub(super) fn check(context: &Context, findings: &mut Vec<Finding>) {
    if !context.facts.identity.running {
        return;
    }
    findings.extend(idle(context));
    findings.extend(metrics(context));
    findings.extend(unsent(context));
    findings.extend(mtu(context));
    findings.extend(queue_length(context));
    findings.extend(ecn(context));
    findings.extend(output_limit(context));
    findings.extend(clock(context));
    findings.extend(steal(context));
}

fn finding(
    id: &'static str,
    name: &str,
    value: impl ToString,
    verdict: Verdict,
    state: impl Into<String>,
) -> Finding {
    Finding::new(id, Group::Tuning, verdict, state).read(name, value.to_string())
}

fn idle(context: &Context) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_slow_start_after_idle";
    let value = context.number(NAME)?;
    let why = "after an idle RTO a loss-based controller restarts from its initial window; BBR restarts at \
               its estimated rate";
    let source = "Linux tcp_slow_start_after_idle_check; draft-ietf-ccwg-bbr, Restarting from Idle";
    Some(
        if value == 0 || context.paced() {
            finding(
                "slow-start-after-idle",
                NAME,
                value,
                Verdict::Ok,
                if value == 0 { "off" } else { "on; BBR does not use it" },
            )
        } else {
            finding(
                "slow-start-after-idle",
                NAME,
                value,
                Verdict::Advice,
                "on: idle connections restart slowly",
            )
            .advice(format!("set {NAME}=0 for connections that idle between transfers (HTTP keep-alive)"))
        }
        .why(why, source),
    )
}

fn metrics(context: &Context) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_no_metrics_save";
    let value = context.number(NAME)?;
    let why =
        "a cached slow-start threshold can end a new connection's slow start early; BBR does not use it";
    Some(
        if value == 1 || context.paced() {
            finding(
                "no-metrics-save",
                NAME,
                value,
                Verdict::Ok,
                if value == 1 {
                    "slow-start thresholds are not cached"
                } else {
                    "slow-start thresholds are cached; BBR does not use them"
                },
            )
        } else {
            finding(
                "no-metrics-save",
                NAME,
                value,
                Verdict::Advice,
                "slow-start thresholds are cached per peer",
            )
            .advice(format!("on paths whose rate varies, set {NAME}=1"))
        }
        .why(why, "Linux tcp_metrics.c"),
    )
}

fn unsent(context: &Context) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_notsent_lowat";
    let value: u64 = context.host.sysctl(NAME)?.parse().ok()?;
    let why = "unsent data adds latency: a server with less of it can still reprioritise (HTTP/2 priorities)";
    Some(
        if value >= u64::from(u32::MAX) || value == 0 {
            finding("notsent-lowat", NAME, value, Verdict::Ok, "unsent data is not limited (kernel default)")
        } else {
            finding(
                "notsent-lowat",
                NAME,
                value,
                Verdict::Ok,
                format!("unsent data is limited to {}", Bytes(value)),
            )
        }
        .why(why, "tcp(7), TCP_NOTSENT_LOWAT"),
    )
}

fn mtu(context: &Context) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_mtu_probing";
    let value = context.number(NAME)?;
    let state = match value {
        0 => "off: connections stall on paths that drop large packets and ICMP",
        1 => "on when a black hole is detected",
        _ => "always on",
    };
    Some(
        finding("mtu-probing", NAME, value, Verdict::Ok, state)
            .why("packetization layer path MTU discovery works without ICMP", "RFC 4821"),
    )
}

/// A short pfifo_fast queue drops bursts.
fn queue_length(context: &Context) -> Option<Finding> {
    let all = context.facts.qdiscs.as_ref().ok()?;
    let mut short = Vec::new();
    let mut seen = Vec::new();
    for device in context.host.list("/sys/class/net").unwrap_or_default() {
        let plain = Tree::of_device(all, &device).plain_kind().is_some_and(|k| k.starts_with("pfifo"));
        let length = context
            .host
            .text(&format!("/sys/class/net/{device}/tx_queue_len"))
            .and_then(|l| l.parse::<u32>().ok());
        if let Some(length) = length.filter(|_| plain) {
            seen.push(format!("{device}: {length}"));
            if length < 100 {
                short.push(format!("{device}: {length}"));
            }
        }
    }
    if seen.is_empty() {
        return None;
    }
    let why = "pfifo_fast queues at most txqueuelen packets and drops the rest";
    Some(
        if short.is_empty() {
            finding(
                "txqueuelen",
                "/sys/class/net/*/tx_queue_len",
                seen.join(", "),
                Verdict::Ok,
                seen.join(", "),
            )
        } else {
            finding(
                "txqueuelen",
                "/sys/class/net/*/tx_queue_len",
                short.join(", "),
                Verdict::Advice,
                format!("very short: {}", short.join(", ")),
            )
            .advice("ip link set DEV txqueuelen 1000")
        }
        .why(why, "tc-pfifo_fast(8)"),
    )
}

fn ecn(context: &Context) -> Option<Finding> {
    let value = context.number(ecn::SYSCTL)?;
    let wanted = &context.question.controller;
    let response = ecn::response(context.host, context.facts, wanted);
    let state = match value {
        0 => "off",
        value if ecn::is_requested(value) => "requested on outgoing connections",
        _ => "accepted if the peer requests it",
    };
    // The settings of a loaded program are not read here.
    let unless = if wanted == "fp_bbr3" { ", unless loaded with ecn=off or variant=linux" } else { "" };
    let answer = match response {
        Response::Ignores(why) => why.to_owned(),
        Response::SlowsDown => format!("{wanted} slows down when marked{unless}"),
        Response::Unknown => format!("it is unknown whether {wanted} slows down when marked"),
    };
    let routes = ecn::marked_routes(context.host, context.facts, wanted);
    let mut advice = Vec::new();
    if ecn::is_requested(value) && matches!(response, Response::Ignores(_)) {
        advice
            .push(format!("set {}=2 (kernel default) to use ECN only if the peer requests it", ecn::SYSCTL));
    }
    let mut state = format!("{state}; {answer}");
    for (why, marked) in routes.iter().flatten() {
        state += &format!("; {} with the feature ECN: {why}", ecn::listed(marked));
    }
    if routes.as_ref().is_ok_and(|routes| !routes.is_empty()) {
        advice.push("remove the feature of these routes (`ip route change`)".to_owned());
    }
    let verdict = if advice.is_empty() { Verdict::Ok } else { Verdict::Warn };
    let read = match &routes {
        Ok(routes) if routes.is_empty() => "none".to_owned(),
        Ok(routes) => ecn::listed(&routes.values().flatten().cloned().collect::<Vec<_>>()),
        Err(e) => format!("not readable: {e}"),
    };
    let found = finding("ecn", ecn::SYSCTL, value, verdict, state)
        .read("routes with RTAX_FEATURE_ECN beside a controller that ignores marks", read)
        .why(
            "a marking queue relies on senders that slow down when marked; Linux negotiates ECN for every \
             controller",
            "RFC 3168 section 5; draft-ietf-ccwg-bbr on ECN; Linux tcp_ecn_send_syn",
        );
    Some(if advice.is_empty() { found } else { found.advice(advice.join("; ")) })
}

fn output_limit(context: &Context) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_limit_output_bytes";
    let value = context.number(NAME)?;
    let small = value < 262_144;
    let state = format!("{} may be queued below TCP per connection", Bytes(value.max(0) as u64));
    let found =
        finding("limit-output", NAME, value, if small { Verdict::Advice } else { Verdict::Ok }, state).why(
            "TCP Small Queues: a low limit starves devices that send in batches (Wi-Fi, virtual machines)",
            "Linux tcp_small_queue_check",
        );
    Some(if small { found.advice(format!("set {NAME}=1048576 (kernel default since 4.20)")) } else { found })
}

fn clock(context: &Context) -> Option<Finding> {
    const NAME: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let value = context.host.text(NAME)?;
    let slow = ["acpi_pm", "hpet", "jiffies", "pit"].contains(&value.as_str());
    let found = finding(
        "clocksource",
        NAME,
        &value,
        if slow { Verdict::Warn } else { Verdict::Ok },
        if slow {
            format!("{value}: slow to read, and pacing reads the clock for every packet")
        } else {
            value.clone()
        },
    )
    .why("precision and cost of pacing depend on the clock", "Documentation/timers/timekeeping.rst");
    Some(if slow {
        found.advice("use tsc or the hypervisor's clock, if available (boot option clocksource=)")
    } else {
        found
    })
}

fn steal(context: &Context) -> Option<Finding> {
    let stat = context.host.text("/proc/stat")?;
    let values: Vec<u64> = stat
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_ascii_whitespace()
        .filter_map(|v| v.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq steal; guest time is part of user.
    let total: u64 = values.iter().take(8).sum();
    let stolen = *values.get(7)?;
    let share = if total == 0 { 0.0 } else { stolen as f64 / total as f64 * 100.0 };
    let much = share > 5.0;
    let found = finding(
        "steal",
        "/proc/stat",
        format!("{stolen} of {total} ticks"),
        if much { Verdict::Warn } else { Verdict::Ok },
        format!("the hypervisor stole {share:.1} % of the CPU time since boot"),
    )
    .why("a descheduled machine sends late and in bursts, which distorts rate measurements", "proc(5)");
    Some(if much {
        found.advice("use a machine with dedicated CPU; expect uneven measured rates")
    } else {
        found
    })
}
