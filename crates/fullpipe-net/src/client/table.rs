//! A test as text: one line per stream and interval, and a summary.

use super::{Interval, Outcome, StreamInterval, StreamOutcome, Sum};
use crate::iperf3::Protocol;
use crate::sample::SocketSample;
use std::collections::HashMap;
use std::fmt::Write;

/// Formats bits per second: `94.1 Mbit/s`.
pub fn rate(bits_per_second: f64) -> String {
    let (value, unit) = match bits_per_second {
        b if b >= 1e9 => (b / 1e9, "Gbit/s"),
        b if b >= 1e6 => (b / 1e6, "Mbit/s"),
        b if b >= 1e3 => (b / 1e3, "kbit/s"),
        b => (b, "bit/s"),
    };
    format!("{} {unit}", three(value))
}

/// Formats bytes in powers of 1000: `1.2 MB`.
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

/// Formats seconds as milliseconds: `40.2 ms`.
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

/// Formats intervals. Remembers the last socket samples to compute differences.
#[derive(Debug)]
pub struct Table {
    headed: bool,
    last: HashMap<u64, SocketSample>,
    /// Terminal width: columns that do not fit are omitted, the least important first.
    width: usize,
}

/// Width of the columns that are always present.
const FIXED_COLUMNS: usize = 60;
/// Width of the delivery-rate and pacing-rate columns, each.
const RATE_COLUMNS: usize = 12;
/// Minimum width of the column with the sender's limit: `cwnd or path`.
const LIMIT_COLUMNS: usize = 14;

impl Table {
    /// A table for a terminal of this width; at least 80 columns are used.
    pub fn new(width: usize) -> Self {
        Table { headed: false, last: HashMap::new(), width: width.max(80) }
    }

    /// How many of the two rate columns fit.
    fn rates(&self) -> usize {
        (self.width.saturating_sub(FIXED_COLUMNS + LIMIT_COLUMNS) / RATE_COLUMNS).min(2)
    }

    /// Formats one interval.
    pub fn lines(&mut self, interval: &Interval) -> String {
        let mut text = String::new();
        if !self.headed {
            self.headed = true;
            let _ = write!(
                text,
                "{:>13} {:>4} {:>7} {:>11} {:>5} {:>7} {:>7}",
                "seconds", "flow", "bytes", "rate", "retr", "cwnd", "RTT"
            );
            for name in ["delivery", "pacing"].iter().take(self.rates()) {
                let _ = write!(text, " {name:>11}");
            }
            text.push_str("  limited by\n");
        }
        for (i, stream) in interval.streams.iter().enumerate() {
            let arrow = if stream.sends { "→" } else { "←" };
            // iperf3's stream ids skip 2; they are in the JSON output.
            let label = format!("{arrow}{}", i + 1);
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
        let when = format!("{:.2}–{:.2}", interval.start, interval.end);
        let moving = rate(moved as f64 * 8.0 / seconds.max(1e-9));
        let _ = write!(text, "{when:>13} {label:>4} {:>7} {moving:>11}", bytes(moved));
        let omitted = interval.omitted.then(|| "omitted".to_owned());
        if let Some(stream) = one {
            if let Some(socket) = &stream.socket {
                let before = self.last.get(&stream.id);
                let retransmits =
                    before.map_or(socket.retransmits, |b| socket.retransmits.saturating_sub(b.retransmits));
                let _ = write!(
                    text,
                    " {retransmits:>5} {:>7} {:>7}",
                    bytes(socket.cwnd),
                    millis(socket.rtt_us as f64 / 1e6),
                );
                for bytes_per_second in [socket.delivery_rate, socket.pacing_rate].iter().take(self.rates()) {
                    let shown = bytes_per_second.map_or_else(|| "-".into(), |r| rate(r as f64 * 8.0));
                    let _ = write!(text, " {shown:>11}");
                }
                let room = self.width.saturating_sub(FIXED_COLUMNS + 2 + RATE_COLUMNS * self.rates());
                let _ = writeln!(text, "  {}", omitted.unwrap_or_else(|| limits(before, socket, room)));
                return;
            } else if stream.packets > 0 && !stream.sends {
                let _ = write!(
                    text,
                    "  {} of {} lost, jitter {}",
                    stream.lost,
                    stream.packets,
                    millis(stream.jitter)
                );
            } else if stream.packets > 0 {
                let _ = write!(text, "  {} datagrams", stream.packets);
            }
        }
        if let Some(omitted) = omitted {
            let _ = write!(text, "  {omitted}");
        }
        text.push('\n');
    }
}

/// What limited a sender since `before`: shares of its busy time, abbreviated to fit `room`.
fn limits(before: Option<&SocketSample>, now: &SocketSample, room: usize) -> String {
    let since = |f: fn(&SocketSample) -> Option<u64>| {
        f(now).map(|n| n.saturating_sub(before.and_then(f).unwrap_or(0)) as f64)
    };
    let Some(busy) = since(|s| s.busy_us).filter(|&b| b > 0.0) else { return "-".into() };
    let share = |f: fn(&SocketSample) -> Option<u64>| since(f).map_or(0.0, |us| us / busy);
    let mut shares = [
        ("receive window", "rwnd", share(|s| s.rwnd_limited_us)),
        ("send buffer", "sndbuf", share(|s| s.sndbuf_limited_us)),
    ];
    shares.sort_by(|a, b| b.2.total_cmp(&a.2));
    let shown_shares: Vec<_> = shares.iter().filter(|(_, _, share)| *share >= 0.005).collect();
    let Some((_, short, most)) = shown_shares.first() else { return "cwnd or path".into() };
    let all = |name: fn(&(&'static str, &'static str, f64)) -> &'static str| {
        let parts: Vec<String> =
            shown_shares.iter().map(|one| format!("{} {:.0} %", name(one), one.2 * 100.0)).collect();
        parts.join(", ")
    };
    let forms = [all(|one| one.0), all(|one| one.1)];
    let fits = forms.into_iter().find(|text| text.len() <= room);
    fits.unwrap_or_else(|| format!("{short} {:.0} %", most * 100.0))
}

/// The summary of a test.
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
            let _ =
                write!(text, "; queueing delay: {} upstream, {} downstream", millis(forward), millis(back));
        }
        let how = if latency.source == "probes" { "" } else { " [socket estimate]" };
        let _ = writeln!(text, "{how}");
    }
    let _ = write!(text, "CPU           {:.0} % of a core at the client", outcome.cpu_local[0]);
    if let Some(cpu) = outcome.cpu_remote {
        let _ = write!(text, ", {:.0} % at the server", cpu[0]);
    }
    text.push('\n');
    if let Some(version) = outcome.iperf2.as_deref() {
        let version = if version == "?" { "2" } else { version };
        let counts = if udp { "" } else { "; it does not report what it counts" };
        let _ = writeln!(text, "server        iperf {version}{counts}");
    }
    text
}

fn direction(outcome: &Outcome, sum: &Sum, streams: &[&StreamOutcome], sends: bool, udp: bool) -> String {
    let (delivered, seconds) = sum.delivered();
    let what = if sends { "sent    " } else { "received" };
    let mut line = format!("{what}      {} in {:.2} s: {}", bytes(delivered), seconds, rate(sum.goodput()));
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
                let _ = write!(line, "; the sender used {used}, NOT {asked} as requested");
            }
            _ => {
                let _ = write!(line, "; the sender used {used}");
            }
        },
        None => line.push_str("; the server does not report its controller"),
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
    fn limits_are_named_as_far_as_they_fit() {
        let mut a = SocketSample { busy_us: Some(0), rwnd_limited_us: Some(0), ..Default::default() };
        let mut b = SocketSample { busy_us: Some(1000), rwnd_limited_us: Some(800), ..Default::default() };
        assert_eq!(limits(Some(&a), &b, 20), "receive window 80 %");
        b.sndbuf_limited_us = Some(900);
        assert_eq!(limits(Some(&a), &b, 40), "send buffer 90 %, receive window 80 %");
        assert_eq!(limits(Some(&a), &b, 22), "sndbuf 90 %, rwnd 80 %");
        assert_eq!(limits(Some(&a), &b, 12), "sndbuf 90 %");
        b.sndbuf_limited_us = None;
        a.rwnd_limited_us = Some(800);
        assert_eq!(limits(Some(&a), &b, 12), "cwnd or path");
        b.busy_us = None;
        assert_eq!(limits(None, &b, 12), "-");
    }

    #[test]
    fn lines_fit_the_terminal_and_streams_are_numbered_without_gaps() {
        let socket = SocketSample {
            retransmits: 99_999,
            cwnd: 999_600,
            rtt_us: 999_600,
            delivery_rate: Some(124_990_000),
            pacing_rate: Some(124_990_000),
            busy_us: Some(1000),
            rwnd_limited_us: Some(1000),
            sndbuf_limited_us: Some(1000),
            ..Default::default()
        };
        let stream = |id, sends| StreamInterval {
            id,
            sends,
            bytes: 999_960,
            socket: Some(socket.clone()),
            retransmits: None,
            packets: 0,
            lost: 0,
            jitter: 0.0,
        };
        let streams = vec![stream(1, true), stream(3, true), stream(4, false)];
        let interval = Interval { start: 999.0, end: 1000.0, omitted: false, streams, probe_rtt: None };
        for (width, has, has_not) in [
            (80, "RTT", "delivery"),
            (90, "delivery", "pacing"),
            (100, "pacing", "window"),
            (140, "receive window 100 %, send", "rwnd"),
        ] {
            let text = Table::new(width).lines(&interval);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
            assert!(text.contains(has) && !text.contains(has_not), "{width}:\n{text}");
            for label in ["→1", "→2", "←3", "→all"] {
                assert!(text.contains(label), "{label}: {text}");
            }
        }
    }
}
