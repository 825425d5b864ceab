//! The details of one direction, line by line.

use super::{bytes, count, or_dash, rate, span};
use fullpipe_experiment::connection::{Direction, Limitation};
use std::fmt::Write;

/// Name and text of a line; `None` omits it.
type Line = (&'static str, fn(&Direction) -> Option<String>);

const LINES: [Line; 14] = [
    ("data", data),
    ("path", path),
    ("RTT", round_trips),
    ("in flight", in_flight),
    ("zero windows", zero_windows),
    ("bursts", bursts),
    ("retransmitted", retransmitted),
    ("losses", losses),
    ("capture", capture),
    ("pauses", pauses),
    ("small writes", small_writes),
    ("keep-alives", keep_alives),
    ("ECN", ecn),
    ("limited by", limits),
];

pub(super) fn lines(out: &mut String, d: &Direction) {
    let mut line = |name: &str, text: &str| {
        let _ = writeln!(out, "    {name:<16} {text}");
    };
    for (name, text) in LINES {
        if let Some(text) = text(d) {
            line(name, &text);
        }
    }
    for words in &d.limits.words {
        line("", words);
    }
    if let Some(sender) = &d.sender {
        line("controller", &sender.words);
        for condition in &sender.conditions {
            line("", condition);
        }
        for why in &sender.evidence {
            line("", why);
        }
    }
}

fn data(d: &Direction) -> Option<String> {
    let goodput = d.goodput.map(|goodput| format!(" in {}: {} goodput", span(d.active), rate(goodput)));
    Some(format!(
        "{}{}{}; {} captured, {} of {} bytes",
        bytes(d.bytes),
        if d.bytes_missed > 0 { format!(" and {} missed", bytes(d.bytes_missed)) } else { String::new() },
        goodput.unwrap_or_default(),
        count(d.data_packets, "packet"),
        count(d.segments, "segment"),
        or_dash(d.segment_bytes, |m| m.to_string())
    ))
}

fn path(d: &Direction) -> Option<String> {
    let btlbw = d.btlbw.zip(d.btlbw_on_the_wire).map(|(of_data, with_headers)| {
        format!("BtlBw {}{} ({} with headers)", at_least(d), rate(of_data), rate(with_headers))
    });
    let parts = [
        d.rtprop.map(|rtt| format!("RTprop {}", span(rtt))),
        btlbw,
        d.bdp_bytes.map(|bdp| format!("BDP {}{}", at_least(d), bytes(bdp))),
    ];
    let known: Vec<_> = parts.into_iter().flatten().collect();
    (!known.is_empty()).then(|| known.join(", "))
}

/// "at least", if the path was not seen full: BtlBw is only the highest rate that was reached.
pub(super) fn at_least(d: &Direction) -> &'static str {
    let full = d.limits.share(Limitation::Bandwidth) + d.limits.share(Limitation::Policer);
    if full > 0.0 { "" } else { "at least " }
}

fn round_trips(d: &Direction) -> Option<String> {
    (d.rtt.samples > 0).then(|| {
        format!(
            "p50 {}, p95 {}, max {} ({})",
            or_dash(d.rtt.p50, span),
            or_dash(d.rtt.p95, span),
            or_dash(d.rtt.max, span),
            count(d.rtt.samples, "sample")
        )
    })
}

fn in_flight(d: &Direction) -> Option<String> {
    let window = d.window.min_bytes.zip(d.window.max_bytes).map(|(min, max)| {
        let or_more = if d.window.scale_unknown { " or more (scale unknown)" } else { "" };
        format!("receive window {} to {}{or_more}", bytes(min), bytes(max))
    });
    let parts = [
        d.inflight_max_bytes.map(|most| format!("at most {}", bytes(most))),
        d.cwnd_at_least_bytes.map(|least| format!("congestion window at least {}", bytes(least))),
        window,
    ];
    let known: Vec<_> = parts.into_iter().flatten().collect();
    (!known.is_empty()).then(|| known.join("; "))
}

fn zero_windows(d: &Direction) -> Option<String> {
    let w = &d.window;
    (w.zero + w.probes > 0).then(|| {
        let (total, longest) = (span(w.zero_total), span(w.zero_longest));
        format!("{}, total {total}, longest {longest}; {}", w.zero, count(w.probes, "window probe"))
    })
}

fn bursts(d: &Direction) -> Option<String> {
    d.pacing.as_ref().map(|p| {
        format!(
            "{} (p50), {} (p95), at most {}; {:.0} % not triggered by an ACK",
            bytes(p.burst_p50_bytes),
            bytes(p.burst_p95_bytes),
            bytes(p.burst_max_bytes),
            p.unprompted * 100.0
        )
    })
}

fn retransmitted(d: &Direction) -> Option<String> {
    let r = &d.retransmissions;
    if r.segments == 0 {
        return Some("0 segments".to_owned());
    }
    Some(format!(
        "{}, {}: {} fast, {}, {} after a timeout; {} spurious{}",
        count(r.segments, "segment"),
        bytes(r.bytes),
        r.fast,
        count(r.tail_loss, "tail loss probe"),
        r.timeout,
        r.spurious,
        if r.inferred > 0 { format!("; {} inferred from holes", r.inferred) } else { String::new() }
    ))
}

fn losses(d: &Direction) -> Option<String> {
    let r = &d.reordering;
    let extent = format!(" (by at most {}, {})", bytes(r.extent_bytes), span(r.extent));
    let lost = count(d.lost_segments, "segment");
    Some(format!("{lost} lost, {} reordered{}", r.segments, if r.segments > 0 { &extent } else { "" }))
}

fn capture(d: &Direction) -> Option<String> {
    let counts = [
        (d.duplicate_packets, "packet", "captured twice"),
        (d.misordered_packets, "packet", "written out of order"),
        (d.unbelieved_acks, "ACK", "of another connection"),
    ];
    let shown = counts.iter().filter(|(n, ..)| *n > 0);
    let words: Vec<_> = shown.map(|(n, what, how)| format!("{} {how}", count(*n, what))).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn pauses(d: &Direction) -> Option<String> {
    let idle = &d.idle;
    (idle.times > 0)
        .then(|| format!("{}, total {}, longest {}", idle.times, span(idle.total), span(idle.longest)))
}

fn small_writes(d: &Direction) -> Option<String> {
    let small = d.small_writes.as_ref()?;
    let (held, delayed) = (count(small.held, "segment"), small.delayed_acks);
    let waited = span(small.waited);
    Some(format!("{held} waited for an ACK (Nagle), {delayed} for a delayed ACK; total {waited}"))
}

fn keep_alives(d: &Direction) -> Option<String> {
    (d.keep_alives > 0).then(|| d.keep_alives.to_string())
}

fn ecn(d: &Direction) -> Option<String> {
    (d.ecn.marked_packets + d.ecn.echoes > 0).then(|| {
        format!("{} marked, {} echoed", count(d.ecn.marked_packets, "packet"), count(d.ecn.echoes, "ACK"))
    })
}

fn limits(d: &Direction) -> Option<String> {
    if d.limits.shares.is_empty() {
        return (!d.limits.words.is_empty()).then(|| "unknown".to_owned());
    }
    let shares = d.limits.shares.iter().map(|s| format!("{} {:.0} %", s.by.name(), s.share * 100.0));
    Some(shares.collect::<Vec<_>>().join(", "))
}
