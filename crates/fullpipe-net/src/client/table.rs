//! A test as lines for people: one per stream and interval while it runs, and what it came to.

use super::{Interval, Outcome, StreamInterval, StreamOutcome, Sum};
use crate::iperf3::Protocol;
use crate::sample::SocketSample;
use std::collections::HashMap;
use std::fmt::Write;

/// Bits per second as people say it: `94.1 Mbit/s`.
pub fn rate(bits_per_second: f64) -> String {
    let (value, unit) = match bits_per_second {
        b if b >= 1e9 => (b / 1e9, "Gbit/s"),
        b if b >= 1e6 => (b / 1e6, "Mbit/s"),
        b if b >= 1e3 => (b / 1e3, "kbit/s"),
        b => (b, "bit/s"),
    };
    format!("{} {unit}", three(value))
}

/// Bytes as people say it: `1.2 MB`, in powers of 1000.
pub fn bytes(n: u64) -> String {
    let (value, unit) = match n as f64 {
        b if b >= 1e12 => (b / 1e12, "TB"),
        b if b >= 1e9 => (b / 1e9, "GB"),
        b if b >= 1e6 => (b / 1e6, "MB"),
        b if b >= 1e3 => (b / 1e3, "kB"),
        _ => return format!("{n} B"),
    };
    format!("{} {unit}", three(value))
}

/// Seconds as milliseconds: `40.2 ms`.
pub fn millis(seconds: f64) -> String {
    format!("{} ms", three(seconds * 1e3))
}

/// Three significant digits, without an exponent.
fn three(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Prints intervals. Remembers the sockets of the last one, whose counters only grow.
#[derive(Debug, Default)]
pub struct Table {
    headed: bool,
    last: HashMap<u64, SocketSample>,
}

impl Table {
    /// The lines for one interval.
    pub fn lines(&mut self, interval: &Interval) -> String {
        let mut text = String::new();
        if !self.headed {
            self.headed = true;
            text.push_str(HEADER);
        }
        for stream in &interval.streams {
            let arrow = if stream.sends { "→" } else { "←" };
            let label = format!("{arrow}{}", stream.id);
            self.line(&mut text, interval, &label, stream.bytes, Some(stream));
        }
        for sends in [true, false] {
            let streams: Vec<_> = interval.streams.iter().filter(|s| s.sends == sends).collect();
            if streams.len() > 1 {
                let arrow = if sends { "→" } else { "←" };
                let bytes = streams.iter().map(|s| s.bytes).sum();
                self.line(&mut text, interval, &format!("{arrow}all"), bytes, None);
            }
        }
        for stream in &interval.streams {
            if let Some(socket) = &stream.socket {
                self.last.insert(stream.id, socket.clone());
            }
        }
        text
    }

    fn line(
        &self,
        text: &mut String,
        interval: &Interval,
        label: &str,
        moved: u64,
        one: Option<&StreamInterval>,
    ) {
        let seconds = interval.end - interval.start;
        let _ = write!(
            text,
            "{:>7.2}–{:<7.2} {label:>5} {:>8} {:>12}",
            interval.start,
            interval.end,
            bytes(moved),
            rate(moved as f64 * 8.0 / seconds.max(1e-9)),
        );
        if let Some(stream) = one {
            if let Some(socket) = &stream.socket {
                let before = self.last.get(&stream.id);
                let retransmits =
                    before.map_or(socket.retransmits, |b| socket.retransmits.saturating_sub(b.retransmits));
                let _ = write!(
                    text,
                    " {:>6} {:>8} {:>8} {:>12} {:>12}  {}",
                    retransmits,
                    bytes(socket.cwnd),
                    millis(socket.rtt_us as f64 / 1e6),
                    socket.delivery_rate.map_or_else(|| "-".into(), |r| rate(r as f64 * 8.0)),
                    socket.pacing_rate.map_or_else(|| "-".into(), |r| rate(r as f64 * 8.0)),
                    limits(before, socket),
                );
            } else if stream.packets > 0 && !stream.sends {
                let share = stream.lost as f64 * 100.0 / (stream.packets as f64).max(1.0);
                let _ = write!(
                    text,
                    "  {} of {} datagrams lost ({share:.2} %), jitter {}",
                    stream.lost,
                    stream.packets,
                    millis(stream.jitter)
                );
            } else if stream.packets > 0 {
                let _ = write!(text, "  {} datagrams", stream.packets);
            }
        }
        if interval.omitted {
            text.push_str("  (left out)");
        }
        text.push('\n');
    }
}

const HEADER: &str = "        seconds stream    moved         rate   retr     cwnd      RTT     delivery       pacing  limited by\n";

/// What limited a sender since `before`: shares of the time it was busy.
fn limits(before: Option<&SocketSample>, now: &SocketSample) -> String {
    let since = |f: fn(&SocketSample) -> Option<u64>| {
        f(now).map(|n| n.saturating_sub(before.and_then(f).unwrap_or(0)) as f64)
    };
    let Some(busy) = since(|s| s.busy_us).filter(|&b| b > 0.0) else { return "-".into() };
    let share = |f: fn(&SocketSample) -> Option<u64>| since(f).map_or(0.0, |us| us / busy);
    let (rwnd, sndbuf) = (share(|s| s.rwnd_limited_us), share(|s| s.sndbuf_limited_us));
    let mut parts = Vec::new();
    if rwnd >= 0.005 {
        parts.push(format!("receive window {:.0} %", rwnd * 100.0));
    }
    if sndbuf >= 0.005 {
        parts.push(format!("send buffer {:.0} %", sndbuf * 100.0));
    }
    if parts.is_empty() { "cwnd or path".into() } else { parts.join(", ") }
}

/// What a test came to.
pub fn summary(outcome: &Outcome) -> String {
    let mut text = String::new();
    let udp = outcome.params.protocol == Protocol::Udp;
    for sends in [true, false] {
        let Some(sum) = outcome.sum(sends) else { continue };
        let streams: Vec<_> = outcome.streams.iter().filter(|s| s.sends == sends).collect();
        let _ = writeln!(text, "{}", direction(outcome, &sum, &streams, sends, udp));
    }
    let latency = &outcome.latency;
    if let (Some(idle), Some(loaded)) = (latency.idle, latency.loaded) {
        let _ = write!(text, "RTT           {} idle, {} under load", millis(idle), millis(loaded));
        if let Some(p99) = latency.loaded_p99 {
            let _ = write!(text, " (99 %: {})", millis(p99));
        }
        if let (Some(forward), Some(back)) = (latency.added_forward, latency.added_back) {
            let _ = write!(text, "; added on the way there {}, back {}", millis(forward), millis(back));
        }
        let how = if latency.source == "probes" { "" } else { " [the sockets' own estimate]" };
        let _ = writeln!(text, "{how}");
    }
    let _ = writeln!(
        text,
        "processor     {:.0} % of a core here, {:.0} % at the server",
        outcome.cpu_local[0], outcome.cpu_remote[0]
    );
    text
}

fn direction(outcome: &Outcome, sum: &Sum, streams: &[&StreamOutcome], sends: bool, udp: bool) -> String {
    let what = if sends { "sent    " } else { "received" };
    let mut line = format!(
        "{what}      {} in {:.2} s: {}",
        bytes(sum.received),
        sum.received_seconds,
        rate(sum.goodput())
    );
    if udp {
        let share = sum.lost as f64 * 100.0 / (sum.packets as f64).max(1.0);
        let _ = write!(
            line,
            ", {} of {} datagrams lost ({share:.2} %), jitter {}",
            sum.lost,
            sum.packets,
            millis(sum.jitter)
        );
        return line;
    }
    if let Some(n) = sum.retransmits {
        let _ = write!(line, ", {n} retransmits");
    }
    match streams.iter().find_map(|s| s.controller.as_deref()) {
        Some(used) => match outcome.params.congestion.as_deref() {
            Some(asked) if asked != used => {
                let _ = write!(line, "; the sender used {used}, NOT {asked} as asked");
            }
            _ => {
                let _ = write!(line, "; the sender used {used}");
            }
        },
        None => line.push_str("; the server does not say which controller it used"),
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        assert_eq!(rate(94_149_000.0), "94.1 Mbit/s");
        assert_eq!(rate(999_960.0), "1000 kbit/s");
        assert_eq!(rate(0.0), "0.00 bit/s");
        assert_eq!(bytes(1_250_000), "1.25 MB");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(millis(0.0402), "40.2 ms");
    }

    #[test]
    fn a_full_receive_window_is_named() {
        let mut a = SocketSample { busy_us: Some(0), rwnd_limited_us: Some(0), ..Default::default() };
        let mut b = SocketSample { busy_us: Some(1000), rwnd_limited_us: Some(800), ..Default::default() };
        assert_eq!(limits(Some(&a), &b), "receive window 80 %");
        a.rwnd_limited_us = Some(800);
        assert_eq!(limits(Some(&a), &b), "cwnd or path");
        b.busy_us = None;
        assert_eq!(limits(None, &b), "-");
    }
}
