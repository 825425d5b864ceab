//! Connections of logs as text.

use super::{bytes, count, or_dash, rate, span};
use crate::quantity::logged_at;
use fullpipe_experiment::connection::{
    Capture, Closing, Connection, Direction, Heading, Judged, Log, LogFile, Spread,
};
use fullpipe_units::Rate;
use std::fmt::Write;

/// Names of events in the heading.
const MAX_NAMES: usize = 6;

/// What was read of a log file, and its damage.
pub fn log_heading(facts: &Capture, connections: usize, unlisted: u64) -> String {
    let none = LogFile::default();
    let file = facts.log.as_ref().unwrap_or(&none);
    let version = if file.version.is_empty() { "without a version" } else { &file.version };
    let mut out = format!(
        "{}: qlog {version} ({}), {}, {}",
        facts.name,
        file.serialization,
        count(file.events, "event"),
        count(connections as u64, "connection")
    );
    for (n, what) in [(file.malformed, "malformed"), (file.out_of_order, "out of order")] {
        if n > 0 {
            let _ = write!(out, ", {n} {what}");
        }
    }
    if file.implausible > 0 {
        let _ = write!(out, ", {} left out", count(file.implausible, "implausible value"));
    }
    out.push('\n');
    let names: Vec<String> =
        file.names.iter().take(MAX_NAMES).map(|n| format!("{} {}", n.count, n.name)).collect();
    let more = file.names.len().saturating_sub(MAX_NAMES) as u64;
    let more = if more > 0 { format!(" and {}", count(more, "other name")) } else { String::new() };
    let _ = writeln!(out, "Events: {}{more}.", names.join(", "));
    if unlisted > 0 {
        let _ = writeln!(out, "Not listed: {}.", count(unlisted, "connection"));
    }
    if let Some(damage) = &facts.damage {
        let _ = writeln!(
            out,
            "The file is damaged at byte {}: {}. The results cover the part before.",
            damage.offset, damage.reason
        );
    }
    out
}

/// All details of one connection of a log.
pub(super) fn detail(c: &Connection, log: &Log) -> String {
    let closed = if c.closing == Closing::Closed { " to its close" } else { "" };
    let mut out = format!(
        "Connection {}: {}, {}{closed}, {}\n",
        c.number,
        log.title,
        span(c.duration),
        logged_at(c.vantage.point)
    );
    let heading = crate::qlog::heading(c.vantage.point);
    let _ = writeln!(out, "  sent");
    sent(&mut out, c.direction(heading), log);
    let other = match heading {
        Heading::ToServer => &c.to_client,
        Heading::ToClient => &c.to_server,
    };
    if other.packets > 0 {
        let _ = writeln!(out, "  received");
        line(&mut out, "data", &data(other, "of streams"));
    }
    for note in &c.notes {
        let _ = writeln!(out, "  note: {note}");
    }
    if !log.checks.is_empty() {
        let _ = writeln!(out, "  BBR draft");
        for check in &log.checks {
            let result = check.result.name();
            let _ = writeln!(out, "    {result:<10} {}: {}", check.check, check.words);
        }
    }
    out
}

fn line(out: &mut String, name: &str, text: &str) {
    let _ = writeln!(out, "    {name:<16} {text}");
}

fn sent(out: &mut String, d: &Direction, log: &Log) {
    if d.packets > 0 {
        line(out, "data", &data(d, if log.has_streams { "of streams" } else { "of packets" }));
    }
    line(
        out,
        "path",
        &format!(
            "RTprop {}, BtlBw {}, BDP {}{}",
            or_dash(d.rtprop, span),
            or_dash(d.btlbw, rate),
            or_dash(d.bdp_bytes, bytes),
            log.bandwidth_bps
                .map_or_else(String::new, |b| format!("; bandwidth estimate {}", spread(b, bits)))
        ),
    );
    line(
        out,
        "RTT",
        &format!(
            "p50 {}, p95 {}, max {} ({})",
            or_dash(d.rtt.p50, span),
            or_dash(d.rtt.p95, span),
            or_dash(d.rtt.max, span),
            count(d.rtt.samples, "sample")
        ),
    );
    let amount = |v: f64| bytes(v as u64);
    let window = or_dash(log.cwnd_bytes, |s| spread(s, amount));
    let most = or_dash(d.inflight_max_bytes, bytes);
    line(out, "in flight", &format!("at most {most}; congestion window {window}"));
    if let Some(pacing) = log.pacing_bps {
        line(out, "pacing rate", &spread(pacing, bits));
    }
    let timeouts =
        if log.timeouts > 0 { format!(", {}", count(log.timeouts, "timeout")) } else { String::new() };
    let spurious = match log.spurious {
        0 => String::new(),
        n => format!(", {n} of them spurious"),
    };
    let lost = match log.lost {
        0 => "none logged".to_owned(),
        n => format!("{} declared lost{spurious}", count(n, "packet")),
    };
    line(out, "losses", &format!("{lost}{timeouts}"));
    let shares = d
        .limits
        .shares
        .iter()
        .filter(|s| s.share >= 0.005)
        .map(|s| format!("{} {:.0} %", s.by.name(), s.share * 100.0));
    let shares: Vec<String> = shares.collect();
    if !shares.is_empty() {
        line(out, "limited by", &shares.join(", "));
    }
    for words in &d.limits.words {
        line(out, if shares.is_empty() { "limited by" } else { "" }, words);
    }
    let states = log.states.iter().take(12).map(|s| {
        let times = if s.visits > 1 { format!(" ({} times)", s.visits) } else { String::new() };
        format!("{} {}{times}", s.state, span(s.total))
    });
    if !log.states.is_empty() {
        line(out, "states", &states.collect::<Vec<_>>().join(", "));
    }
    if let Some(sender) = &d.sender {
        line(out, "controller", &sender.words);
    }
}

/// The data of a direction, as far as it is known. `what`: whose bytes are counted.
fn data(d: &Direction, what: &str) -> String {
    let sent = if d.bytes_sent > 0 { format!(", {}", bytes(d.bytes_sent)) } else { String::new() };
    let packets = format!("{}{sent}", count(d.packets, "packet"));
    if d.bytes == 0 {
        return packets;
    }
    let goodput = or_dash(d.goodput, rate);
    format!("{} {what} in {}: {goodput} goodput; {packets}", bytes(d.bytes), span(d.active))
}

fn bits(bps: f64) -> String {
    rate(Rate::from_bits_per_sec(bps as u64))
}

fn spread(s: Spread, show: impl Fn(f64) -> String) -> String {
    format!("{} to {}, median {}", show(s.min), show(s.max), show(s.p50))
}

/// What the checks found, in sentences.
pub fn verdicts(log: &Log) -> Vec<String> {
    let number = |result| log.checks.iter().filter(|c| c.result == result).count() as u64;
    let (passed, failed) = (number(Judged::Passed), number(Judged::Failed));
    if passed + failed == 0 {
        return Vec::new();
    }
    let sum = format!(
        "BBR draft: {} passed, {failed} failed, {} not judged.",
        count(passed, "check"),
        number(Judged::NotJudged)
    );
    let failures = log.checks.iter().filter(|c| c.result == Judged::Failed);
    let failures = failures.map(|c| format!("Failed: {}: {}.", c.check, c.words));
    std::iter::once(sum).chain(failures).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_experiment::connection::{EventCount, Judgement};

    #[test]
    fn one_is_singular() {
        let names = (0..=MAX_NAMES).map(|i| EventCount { name: i.to_string(), count: 1 }).collect();
        let file = LogFile { implausible: 1, names, ..LogFile::default() };
        let heading = log_heading(&Capture { log: Some(file), ..Capture::default() }, 1, 1);
        let parts =
            ["1 connection, 1 implausible value left out", "and 1 other name.", "Not listed: 1 connection."];
        assert!(parts.iter().all(|part| heading.contains(part)), "{heading}");
        let check =
            Judgement { check: "a".into(), cases: vec![], result: Judged::Passed, words: String::new() };
        let log = Log { checks: vec![check], ..Log::default() };
        assert_eq!(verdicts(&log), ["BBR draft: 1 check passed, 0 failed, 0 not judged."]);
    }

    #[test]
    fn spreads_have_three_digits() {
        let s = Spread { min: 1e6, p50: 2.5e6, max: 1e9 };
        assert_eq!(spread(s, bits), "1.00 Mbit/s to 1.00 Gbit/s, median 2.50 Mbit/s");
    }
}
