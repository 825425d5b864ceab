//! Buffers and windows, which limit any controller.

use super::{Context, Finding, Group, Verdict};
use fullpipe_units::{Bytes, Rate, Span};

pub(super) fn check(context: &Context, findings: &mut Vec<Finding>) {
    if !context.facts.identity.running {
        return;
    }
    findings.push(limit(context, Side::Send));
    findings.push(limit(context, Side::Receive));
    findings.extend(memory(context));
    findings.extend(truth(context));
    findings.push(features(
        context,
        "window-scaling",
        "net.ipv4.tcp_window_scaling",
        Verdict::Fail,
        "without it windows are at most 64 KiB: 5 Mbit/s at 100 ms",
        "RFC 7323 §2",
    ));
    findings.push(features(
        context,
        "sack",
        "net.ipv4.tcp_sack",
        Verdict::Fail,
        "without it TCP recovers one lost packet per round trip, and delivery-rate samples are poor",
        "RFC 2018; RFC 6675",
    ));
    findings.push(features(
        context,
        "timestamps",
        "net.ipv4.tcp_timestamps",
        Verdict::Warn,
        "they give an RTT sample for each acknowledgement and protect against wrapped sequence numbers",
        "RFC 7323 §3–5",
    ));
}

#[derive(Clone, Copy)]
enum Side {
    Send,
    Receive,
}

/// Compares the maximum of tcp_wmem or tcp_rmem with the path's bandwidth-delay product.
fn limit(context: &Context, side: Side) -> Finding {
    let (id, name, good, fair) = match side {
        Side::Send => ("send-limit", "net.ipv4.tcp_wmem", 4, 2),
        Side::Receive => ("receive-limit", "net.ipv4.tcp_rmem", 2, 1),
    };
    let finding = |verdict, state: String| {
        Finding::new(id, Group::Buffers, verdict, state).why(
            match side {
                Side::Send => {
                    "a sender buffers data in flight, lost data and new data: 2 to 4 \
                               bandwidth-delay products"
                }
                Side::Receive => {
                    "a window below the BDP limits any controller: on Google's B4, 8 MB buffers \
                                  limited 75 % of BBR connections"
                }
            },
            match side {
                Side::Send => "Linux bbr_sndbuf_expand (3 × cwnd); tcp(7)",
                Side::Receive => "Cardwell et al., BBR, CACM 2017, “Google's B4”; tcp(7)",
            },
        )
    };
    let Some(text) = context.host.sysctl(name) else {
        return finding(Verdict::Unknown, format!("{name} is not readable")).read(name, "not readable");
    };
    let finding = |verdict, state| finding(verdict, state).read(name, &text);
    let Some(largest) = text.split_ascii_whitespace().nth(2).and_then(|v| v.parse::<u64>().ok()) else {
        return finding(Verdict::Unknown, format!("{name} has fewer than three values"));
    };
    if matches!(side, Side::Receive) && context.number("net.ipv4.tcp_moderate_rcvbuf") == Some(0) {
        return finding(Verdict::Warn, "receive buffer autotuning is off".into())
            .read("net.ipv4.tcp_moderate_rcvbuf", "0")
            .advice("set net.ipv4.tcp_moderate_rcvbuf=1, unless every application sets SO_RCVBUF");
    }
    let size = Bytes(largest);
    let Some((rate, rtt)) = context.question.path else {
        let reach = Rate::from_bytes_in(largest / good, Span::from_millis(100));
        let reach = Rate::from_bits_per_sec(reach.as_bits_per_sec() / 1_000_000 * 1_000_000);
        return finding(
            Verdict::Ok,
            format!("{size}: sufficient for {reach} at 100 ms; use --rate and --rtt to check your path"),
        );
    };
    let product = rate.bytes_in(rtt).max(1);
    let times = largest as f64 / product as f64;
    let state = format!("{size} is {times:.1} × BDP ({rate} × {rtt} = {})", Bytes(product));
    let advice = format!(
        "{} shows how to raise it to {}",
        context.command(format_args!("plan {} --rate {rate} --rtt {rtt}", context.question.controller)),
        Bytes(crate::plan::buffer_needed(rate, rtt, good))
    );
    if largest >= product.saturating_mul(good) {
        finding(Verdict::Ok, state)
    } else if largest >= product.saturating_mul(fair) {
        finding(Verdict::Warn, state).advice(advice)
    } else {
        finding(Verdict::Fail, state).advice(advice)
    }
}

fn memory(context: &Context) -> Option<Finding> {
    let limit = context.host.sysctl("net.ipv4.tcp_mem")?;
    let most: f64 = limit.split_ascii_whitespace().nth(2)?.parse().ok()?;
    let sockstat = context.host.text("/proc/net/sockstat")?;
    let tcp = sockstat.lines().find_map(|l| l.strip_prefix("TCP:"))?;
    let used: f64 = tcp.split_ascii_whitespace().skip_while(|w| *w != "mem").nth(1)?.parse().ok()?;
    let share = if most > 0.0 { used / most * 100.0 } else { 100.0 };
    let state = format!("TCP uses {share:.0} % of its memory limit");
    let finding = |verdict| {
        Finding::new("memory", Group::Buffers, verdict, &state)
            .read("net.ipv4.tcp_mem (pages)", &limit)
            .read("/proc/net/sockstat", tcp.trim())
            .why("near the limit the kernel shrinks all buffers, regardless of tcp_rmem", "tcp(7), tcp_mem")
    };
    const RAISE: &str = "raise net.ipv4.tcp_mem, or use smaller buffers";
    Some(match share {
        s if s < 50.0 => finding(Verdict::Ok),
        s if s <= 80.0 => finding(Verdict::Warn).advice(RAISE),
        _ => finding(Verdict::Fail).advice(RAISE),
    })
}

/// Limits that the kernel recorded for live connections.
fn truth(context: &Context) -> Option<Finding> {
    // Connections that were busy for less are ignored.
    const LONG_ENOUGH_US: u64 = 1_000_000;
    let busy: Vec<_> =
        context.sockets().iter().filter(|s| !s.is_loopback() && s.busy_us >= LONG_ENOUGH_US).collect();
    if busy.is_empty() {
        return None;
    }
    let over = |part: u64, whole: u64| part.saturating_mul(10) > whole;
    let by_peer: Vec<_> = busy.iter().filter(|s| over(s.receive_limited_us, s.busy_us)).collect();
    let by_self: Vec<_> = busy.iter().filter(|s| over(s.send_limited_us, s.busy_us)).collect();
    let finding = |verdict, state: String| {
        Finding::new("truth", Group::Buffers, verdict, state)
            .read("sock_diag tcp_info", format!("{} busy connections", busy.len()))
            .why(
                "the kernel counts how long the receiver's window or the send buffer limited each connection",
                "Linux tcp_chrono; tcpi_rwnd_limited, tcpi_sndbuf_limited",
            )
    };
    Some(match (by_peer.first(), by_self.first()) {
        (None, None) => finding(
            Verdict::Ok,
            format!("no buffer limits any of {} busy connections for more than 10 % of the time", busy.len()),
        ),
        (Some(one), _) => finding(
            Verdict::Warn,
            format!(
                "{} of {} busy connections are limited by the receiver's window, for example to {}",
                by_peer.len(),
                busy.len(),
                one.peer
            ),
        )
        .advice("raise tcp_rmem on the receiver"),
        (None, Some(one)) => finding(
            Verdict::Warn,
            format!(
                "{} of {} busy connections are limited by this host's send buffer, for example to {}",
                by_self.len(),
                busy.len(),
                one.peer
            ),
        )
        .advice("raise tcp_wmem (`fullpipe plan` with --rate and --rtt), or the application's SO_SNDBUF"),
    })
}

fn features(
    context: &Context,
    id: &'static str,
    name: &'static str,
    off: Verdict,
    why: &'static str,
    source: &'static str,
) -> Finding {
    match context.number(name) {
        None => Finding::new(id, Group::Buffers, Verdict::Unknown, format!("{name} is not readable"))
            .read(name, "not readable"),
        Some(0) => Finding::new(id, Group::Buffers, off, "off")
            .read(name, "0")
            .advice(format!("set {name}=1, and remove the line that sets it to 0")),
        Some(v) => Finding::new(id, Group::Buffers, Verdict::Ok, "on").read(name, v.to_string()),
    }
    .why(why, source)
}
