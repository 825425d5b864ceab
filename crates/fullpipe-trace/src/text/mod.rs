//! Connections as text for a terminal.

mod direction;
mod log;

pub(crate) use crate::quantity::count;
use crate::quantity::digits;
pub use crate::quantity::{bytes, rate, span};
pub use log::{log_heading, verdicts};

use crate::analysis::{Analyser, PacketCounts};
use crate::error::Damage;
use crate::facts::capture_facts;
use crate::input::Counters;
use fullpipe_experiment::connection::{
    Closing, Connection, Direction, Handshake, Heading, MarkKind, Opening, Place, Point, Sequence,
};
use fullpipe_units::{Rate, Span};
use std::fmt::Write;

fn or_dash<T>(v: Option<T>, text: impl Fn(T) -> String) -> String {
    v.map_or_else(|| "–".to_owned(), text)
}

/// Packet counts of a file, and its damage.
pub fn heading(name: &str, counters: &Counters, packets: &PacketCounts, damage: Option<&Damage>) -> String {
    let mut out = format!("{name}: {}, {} of TCP", count(counters.frames, "packet"), packets.tcp);
    for (n, what) in [
        (packets.filtered, "of these excluded by the filter"),
        (packets.other, "of other protocols"),
        (counters.unknown_link, "with unsupported link types"),
        (packets.reassembled, "reassembled fragments"),
        (packets.fragments, "fragments of incomplete packets"),
        (packets.short, "truncated or malformed"),
        (counters.damaged_blocks, "damaged blocks skipped"),
        (counters.dropped, "dropped by the capturing host"),
    ] {
        if n > 0 {
            let _ = write!(out, ", {n} {what}");
        }
    }
    out.push('\n');
    let tunnels: Vec<String> =
        packets.encapsulation.tunnels().map(|(tunnel, n)| format!("{n} in {}", tunnel.name())).collect();
    if !tunnels.is_empty() {
        let _ = writeln!(
            out,
            "TCP packets in tunnels: {}. Addresses are those inside the tunnels.",
            tunnels.join(", ")
        );
    }
    for unread in capture_facts(name, counters, packets, damage).unread {
        let _ = writeln!(
            out,
            "Not read: {}, {}. To read them, {}.",
            unread.name,
            count(unread.packets, "packet"),
            unread.hint
        );
    }
    if packets.unlisted_connections > 0 {
        let _ = writeln!(
            out,
            "Not listed: {}. A list has at most the {} with most data and the first {} without data.",
            count(packets.unlisted_connections, "connection"),
            Analyser::MAX_LISTED,
            Analyser::MAX_EMPTY
        );
    }
    if let Some(damage) = damage {
        let _ = writeln!(
            out,
            "The file is damaged at byte {}: {}. The results cover the part before.",
            damage.offset, damage.reason
        );
    }
    out
}

/// The direction to report on: that with more data, or what the endpoint of a log sent.
fn reported(c: &Connection) -> (&Direction, Heading) {
    match &c.log {
        Some(_) => {
            let heading = crate::qlog::heading(c.vantage.point);
            (c.direction(heading), heading)
        }
        None => c.bulk(),
    }
}

/// A table with one line per connection or, if that exceeds `width`, with addresses and results on
/// separate lines.
pub fn table<'a>(connections: impl IntoIterator<Item = &'a Connection>, width: Option<usize>) -> String {
    let connections: Vec<&Connection> = connections.into_iter().collect();
    let has_senders = connections.iter().any(|c| reported(c).0.sender.is_some());
    let [place_of, repeated] =
        if connections.iter().any(|c| c.log.is_some()) { ["logged", "lost"] } else { ["captured", "retr"] };
    let head = [
        "#",
        "from",
        "to",
        place_of,
        "bytes",
        "goodput",
        "RTprop",
        "BtlBw",
        repeated,
        "limited by",
        "controller",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for c in connections {
        let (d, heading) = reported(c);
        let [from, to] = match (&c.log, heading) {
            // A log has a title, and rarely addresses.
            (Some(log), _) => [log.title.clone(), "peer".to_owned()],
            (None, Heading::ToServer) => [c.client.to_string(), c.server.to_string()],
            (None, Heading::ToClient) => [c.server.to_string(), c.client.to_string()],
        };
        rows.push([
            c.number.to_string(),
            from,
            to,
            place(d.place).to_owned(),
            or_dash(Some(d.bytes).filter(|n| c.log.is_none() || *n > 0), bytes),
            or_dash(d.goodput, rate),
            or_dash(d.rtprop, span),
            or_dash(d.btlbw, rate),
            match &c.log {
                Some(log) => or_dash(Some(log.lost).filter(|n| log.has_packets || *n > 0), |n| n.to_string()),
                None => d.retransmissions.segments.to_string(),
            },
            or_dash(d.limits.dominant(), |l| format!("{} {:.0} %", l.by.name(), l.share * 100.0)),
            or_dash(d.sender.as_ref(), |s| s.words.clone()),
        ]);
    }
    let columns = head.len() - usize::from(!has_senders);
    let widths: Vec<usize> =
        (0..columns).map(|i| rows.iter().map(|r| r[i].chars().count()).max().unwrap_or(0)).collect();
    let line = |row: &[String], which: std::ops::Range<usize>| {
        let cells = which.map(|i| {
            let (cell, w) = (&row[i], widths[i]);
            if (4..9).contains(&i) || i == 0 { format!("{cell:>w$}") } else { format!("{cell:<w$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let whole: Vec<String> = rows.iter().map(|row| line(row, 0..columns)).collect();
    let longest = whole.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    if width.is_none_or(|width| longest <= width) {
        return whole.iter().map(|line| format!("{line}\n")).collect();
    }
    let indent = " ".repeat(widths[0] + 2);
    let mut out = String::new();
    for row in &rows {
        let _ = writeln!(out, "{:>3$}  {} → {}", row[0], row[1], row[2], widths[0]);
        // The controller is a sentence.
        let _ = writeln!(out, "{indent}{}", line(row, 3..columns.min(10)));
        if columns > 10 {
            let _ = writeln!(out, "{indent}{}", row[10]);
        }
    }
    out
}

/// Compares two connections side by side, each with the name of its capture. Names that would
/// exceed `width` are printed above the table.
pub fn comparison(before: (&str, &Connection), after: (&str, &Connection), width: Option<usize>) -> String {
    type Words = (&'static str, fn(&Direction) -> Option<String>);
    type Figure = (&'static str, fn(&Direction) -> Option<f64>, fn(f64) -> String);
    let ms = |v: f64| span(Span::from_secs_f64(v / 1e3));
    let bits = |v: f64| rate(Rate::from_bits_per_sec(v as u64));
    let shown: [Figure; 6] = [
        ("goodput", |d| d.goodput.map(Rate::as_bits_per_sec_f64), bits),
        ("BtlBw", |d| d.btlbw.map(Rate::as_bits_per_sec_f64), bits),
        ("RTprop", |d| d.rtprop.map(Span::as_millis_f64), ms),
        ("RTT p50", |d| d.rtt.p50.map(Span::as_millis_f64), ms),
        ("RTT p95", |d| d.rtt.p95.map(Span::as_millis_f64), ms),
        // A log has losses, and no retransmissions.
        if before.1.log.is_some() || after.1.log.is_some() {
            ("lost %", |d| share(d.lost_segments, d.segments), |v| format!("{v:.2} %"))
        } else {
            ("retr %", |d| share(d.retransmissions.segments, d.segments), |v| format!("{v:.2} %"))
        },
    ];
    let directions = [reported(before.1).0, reported(after.1).0];
    let mut rows = vec![["".to_owned(), before.0.to_owned(), after.0.to_owned(), String::new()]];
    for (name, of, show) in shown {
        let [a, b] = directions.map(of);
        let change = match (a, b) {
            (Some(a), Some(b)) if a > 0.0 => format!("× {}", digits(b / a)),
            _ => String::new(),
        };
        rows.push([name.to_owned(), or_dash(a, show), or_dash(b, show), change]);
    }
    let in_words: [Words; 2] = [
        ("limited by", |d| d.limits.dominant().map(|l| format!("{} {:.0} %", l.by.name(), l.share * 100.0))),
        ("controller", |d| {
            d.sender.as_ref().map(|s| s.name.clone().unwrap_or_else(|| "not identified".to_owned()))
        }),
    ];
    for (name, of) in in_words {
        let [a, b] = directions.map(of);
        if a.is_some() || b.is_some() {
            rows.push([name.to_owned(), or_dash(a, |w| w), or_dash(b, |w| w), String::new()]);
        }
    }
    let mut out = "Comparison of the connections with most data:\n".to_owned();
    let across = |rows: &[[String; 4]]| -> [usize; 4] {
        std::array::from_fn(|i| rows.iter().map(|r| r[i].chars().count()).max().unwrap_or(0))
    };
    if width.is_some_and(|width| across(&rows).iter().sum::<usize>() + 8 > width) {
        for (column, name) in [(1, "before"), (2, "after")] {
            let _ = writeln!(out, "  {name:<6}  {}", rows[0][column]);
            rows[0][column] = name.to_owned();
        }
    }
    let [n, w, x, _] = across(&rows);
    for [name, a, b, change] in rows {
        let line = format!("  {name:<n$}  {a:>w$}  {b:>x$}  {change}");
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

/// Percentage of the segments.
fn share(part: u64, segments: u64) -> Option<f64> {
    (segments > 0).then(|| part as f64 * 100.0 / segments as f64)
}

fn place(p: Place) -> &'static str {
    match p {
        Place::Sender => "sender",
        Place::Receiver => "receiver",
        Place::Between => "between",
        Place::Unknown => "unknown",
    }
}

/// The time that the handshake took, if it or retransmissions in it were captured.
fn opening(o: &Opening) -> Option<String> {
    let retransmitted = match o.retransmitted {
        0 => String::new(),
        1 => ", 1 retransmitted SYN or SYN-ACK".to_owned(),
        n => format!(", {n} retransmitted SYNs or SYN-ACKs"),
    };
    match o.connect {
        Some(connect) => Some(format!("connected after {}{retransmitted}", span(connect))),
        None if o.retransmitted > 0 => Some(format!("not connected{retransmitted}")),
        None => None,
    }
}

/// All details of one connection.
pub fn detail(c: &Connection) -> String {
    if let Some(log) = &c.log {
        return log::detail(c, log);
    }
    let mut out = format!("Connection {}: {} → {}, {}", c.number, c.client, c.server, span(c.duration));
    let _ = writeln!(
        out,
        ", {}{}",
        match c.opening.handshake {
            Handshake::Seen => "from its handshake",
            Handshake::Half => "half of its handshake captured",
            Handshake::NotSeen => "open before the capture began",
        },
        match c.closing {
            Closing::Open => ", not closed",
            Closing::HalfClosed => ", closed by one end",
            Closing::Closed => " to its close",
            Closing::ResetByClient => ", reset by the client",
            Closing::ResetByServer => ", reset by the server",
            Closing::TimedOut => ", timed out",
        }
    );
    let point = match c.vantage.point {
        Point::Client => "at the client",
        Point::Server => "at the server",
        Point::Between => "between the ends",
        Point::Unknown => "at an unknown point",
    };
    let probably = if c.vantage.is_guess { "probably " } else { "" };
    let _ = writeln!(out, "  captured {probably}{point}: {}", c.vantage.evidence.join("; "));
    if let Some(words) = opening(&c.opening) {
        let _ = writeln!(out, "  {words}");
    }
    for (name, d) in [("client → server", &c.to_server), ("server → client", &c.to_client)] {
        if d.bytes > 0 {
            let _ = writeln!(out, "  {name}");
            direction::lines(&mut out, d);
        }
    }
    for note in &c.notes {
        let _ = writeln!(out, "  note: {note}");
    }
    out
}

/// Goodput, limits and controller of a direction, in sentences.
pub fn conclusions(d: &Direction) -> Vec<String> {
    let got = d.goodput.zip(d.btlbw).map(|(got, of)| {
        format!("Goodput {} of a BtlBw of {}{}.", rate(got), direction::at_least(d), rate(of))
    });
    let named = d.sender.as_ref().and_then(|s| s.name.as_ref().map(|_| format!("Sender: {}.", s.words)));
    got.into_iter().chain(d.limits.words.iter().map(|w| sentence(w))).chain(named).collect()
}

/// `words` with a capital letter and a full stop.
fn sentence(words: &str) -> String {
    let mut rest = words.chars();
    let first: String = rest.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("{first}{}.", rest.as_str().trim_end_matches('.'))
}

/// The packets of a connection in `xplot` format, as written by tcptrace: one plot per direction.
pub fn xplot(c: &Connection, sequences: &[Sequence]) -> String {
    let mut out = String::new();
    for s in sequences.iter().filter(|s| !s.marks.is_empty()) {
        let _ = writeln!(
            out,
            "timeval unsigned\ntitle\n{} (time sequence graph)\nxlabel\ntime\nylabel\nsequence number",
            s.label
        );
        let mut levels: [Option<(f64, u64)>; 2] = [None; 2];
        for m in &s.marks {
            let t = c.start_s + m.at.as_secs_f64();
            let (from, to) = (m.from, m.to);
            let mut step = |which: usize, colour: &str| {
                if let Some((since, level)) = levels[which].replace((t, to)) {
                    let _ = writeln!(
                        out,
                        "{colour}\nline {since:.6} {level} {t:.6} {level}\nline {t:.6} {level} {t:.6} {to}"
                    );
                }
            };
            let _ = match m.kind {
                MarkKind::Ack => {
                    step(0, "green");
                    Ok(())
                }
                MarkKind::Window => {
                    step(1, "yellow");
                    Ok(())
                }
                MarkKind::Data => writeln!(
                    out,
                    "white\ndarrow {t:.6} {to}\nuarrow {t:.6} {from}\nline {t:.6} {from} {t:.6} {to}"
                ),
                MarkKind::Retransmission => writeln!(
                    out,
                    "red\ndarrow {t:.6} {to}\nuarrow {t:.6} {from}\nline {t:.6} {from} {t:.6} {to}\natext \
                     {t:.6} {to}\nR"
                ),
                MarkKind::Sack => writeln!(out, "purple\nline {t:.6} {from} {t:.6} {to}\nhtick {t:.6} {to}"),
            };
        }
        out += "go\n";
    }
    out
}
