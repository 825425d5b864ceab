//! A sample as text.

use crate::connection::Connection;
use crate::reader::Snapshot;
use crate::table::{Column, Order, cut, layout, ms, percent, rate};
use fullpipe_kernel::printable::wrap;
use fullpipe_units::{Rate, Span};
use std::fmt::Write;

/// Indent of continuation lines.
pub(crate) const INDENT: usize = 4;

/// Totals by controller and a table of at most `max_rows` connections, `width` characters wide.
pub fn render(snapshot: &Snapshot, order: Order, width: u16, max_rows: usize) -> String {
    let mut out = String::new();
    for line in totals(snapshot).iter().flat_map(|line| wrap(line, width.into(), INDENT)) {
        let _ = writeln!(out, "{}", cut(&line, width.into()));
    }
    let mut connections: Vec<&Connection> = snapshot.connections.iter().collect();
    order.sort(&mut connections, false);
    if !connections.is_empty() {
        out.push('\n');
        let columns = layout(width, |c| has_values(snapshot, c));
        let heading = line(&columns, |column, _| column.heading().to_owned());
        let _ = writeln!(out, "{heading}");
    }
    let columns = layout(width, |c| has_values(snapshot, c));
    for connection in connections.iter().take(max_rows) {
        let _ = writeln!(out, "{}", line(&columns, |column, width| column.cell(connection, width)));
    }
    if connections.len() > max_rows {
        let _ = writeln!(
            out,
            "and {} more: --json lists all, a filter selects fewer",
            connections.len() - max_rows
        );
    }
    for note in notes(snapshot) {
        let _ = writeln!(out, "{note}");
    }
    out
}

/// Whether any connection has a value for this column; empty columns are left out.
pub(crate) fn has_values(snapshot: &Snapshot, column: Column) -> bool {
    match column {
        Column::State | Column::Bandwidth | Column::Gain => {
            snapshot.connections.iter().any(|c| c.model.as_ref().is_some_and(|b| b.bw.is_some()))
        }
        Column::Process => snapshot.connections.iter().any(|c| c.owner.process.is_some()),
        Column::Unit => snapshot.connections.iter().any(|c| c.owner.unit().or(c.owner.container()).is_some()),
        _ => true,
    }
}

/// One line per controller.
pub fn totals(snapshot: &Snapshot) -> Vec<String> {
    if snapshot.connections.is_empty() {
        return vec!["no matching connections".to_owned()];
    }
    let name_width = snapshot.totals.iter().map(|t| t.controller.chars().count()).max().unwrap_or(0);
    snapshot
        .totals
        .iter()
        .map(|t| {
            // On a mostly sending host, the receiving rate would take the place of more important values.
            let sending = t.sending.map_or(0.0, Rate::as_bits_per_sec_f64);
            let is_significant = |r: &Rate| r.as_bits_per_sec_f64() > sending / 100.0;
            let plural = if t.connections == 1 { "" } else { "s" };
            let name = if t.controller.is_empty() { "(none)" } else { &t.controller };
            let mut line = format!("{name:name_width$}  {:>6} connection{plural}", t.connections);
            for (name, value) in [
                ("sending", t.sending.map(|r| format!("{}bit/s", spaced(&rate(r))))),
                (
                    "receiving",
                    t.receiving.filter(is_significant).map(|r| format!("{}bit/s", spaced(&rate(r)))),
                ),
                ("retr", t.retransmitted.map(percent)),
                ("RTT", t.srtt_p50_ms.map(|v| format!("{} ms", ms(Span::from_secs_f64(v / 1000.0))))),
                (
                    "queueing",
                    t.queueing_p50_ms.map(|v| format!("{} ms", ms(Span::from_secs_f64(v / 1000.0)))),
                ),
            ] {
                if let Some(value) = value {
                    let _ = write!(line, ", {name} {value}");
                }
            }
            line
        })
        .collect()
}

/// The states of the connections of each BBR, a line per controller: `bbr is BBR v3: 2 ProbeBW_UP, 1
/// Drain`.
pub fn states(snapshot: &Snapshot) -> Vec<String> {
    let with_states = snapshot.totals.iter().filter(|total| !total.states.is_empty());
    with_states
        .map(|total| {
            let version = total.bbr_version.map_or_else(String::new, |version| format!(" is BBR v{version}"));
            let counts = total.states.iter().map(|count| format!("{} {}", count.connections, count.state));
            let counts: Vec<String> = counts.collect();
            format!("{}{version}: {}", total.controller, counts.join(", "))
        })
        .collect()
}

/// `95.2M` becomes `95.2 M`, so that a unit can follow.
pub(crate) fn spaced(rate: &str) -> String {
    match rate.char_indices().last() {
        Some((at, c)) if c.is_alphabetic() => format!("{} {c}", &rate[..at]),
        _ => format!("{rate} "),
    }
}

/// Notes on the completeness of the sample.
pub(crate) fn notes(snapshot: &Snapshot) -> Vec<String> {
    let incomplete = (!snapshot.complete).then(|| {
        "the kernel's socket table changed while it was read: connections may be missing".to_owned()
    });
    incomplete.into_iter().chain(snapshot.unseen.iter().map(|part| format!("not shown: {part}"))).collect()
}

fn line(columns: &[(Column, u16)], cell: impl Fn(Column, u16) -> String) -> String {
    let cells: Vec<String> = columns
        .iter()
        .map(|&(column, width)| {
            let (text, width) = (cut(&cell(column, width), width.into()), usize::from(width));
            if column.is_numeric() { format!("{text:>width$}") } else { format!("{text:width$}") }
        })
        .collect();
    cells.join(" ").trim_end().to_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::connection::{Figures, PathModel};
    use crate::owner::{Owner, Process};
    use crate::totals;
    use fullpipe_experiment::connection::{LimitShare, Limitation};
    use fullpipe_kernel::tcp_info::State;

    /// Two connections over the same path, one of BBR and one of CUBIC.
    pub(crate) fn example() -> Snapshot {
        let connection = |cookie, controller: &str, mbps: u64, by, model: Option<PathModel>| Connection {
            cookie,
            local: "10.0.0.1:40000".parse().unwrap(),
            remote: format!("192.0.2.{cookie}:443").parse().unwrap(),
            state: State::Established,
            controller: Some(controller.into()),
            watched: Span::from_secs(12),
            owner: Owner {
                process: Some(Process { pid: 4711, name: "nginx".to_owned() }.into()),
                cgroup: Some("/system.slice/nginx.service".into()),
            },
            sending: Some(Rate::from_bits_per_sec(mbps * 1_000_000)),
            receiving: Some(Rate::ZERO),
            retransmitted: Some(0.011),
            limits: vec![
                LimitShare { by, share: 0.97 },
                LimitShare { by: Limitation::Application, share: 0.03 },
            ],
            model: model.map(Box::new),
            figures: Some(Figures {
                srtt: Span::from_micros(41_300),
                min_rtt: Some(Span::from_micros(40_100)),
                rto: Span::from_millis(244),
                mss_bytes: 1448,
                cwnd_segments: 346,
                ssthresh_segments: None,
                inflight_segments: 170,
                recovery: "Open",
                pacing: Some(Rate::from_bits_per_sec(50_000_000)),
                delivery: Some(Rate::from_bits_per_sec(mbps * 1_000_000)),
                delivery_app_limited: false,
                acked_bytes: Some(1 << 30),
                received_bytes: Some(0),
                sent_segments: Some(700_000),
                retransmitted_segments: 7000,
                unsent_bytes: Some(100_000),
                receive_window_bytes: Some(6 << 20),
            }),
        };
        let model = PathModel {
            state: Some("ProbeBW".to_owned()),
            bw: Some(Rate::from_bits_per_sec(48_300_000)),
            min_rtt: Some(Span::from_millis(40)),
            pacing_gain: Some(1.25),
            cwnd_gain: Some(2.0),
            ..PathModel::default()
        };
        let connections = vec![
            connection(1, "cubic", 6, Limitation::CongestionWindow, None),
            connection(2, "bbr", 47, Limitation::Bandwidth, Some(model)),
        ];
        Snapshot {
            schema: crate::SCHEMA,
            unix_s: 1.8e9,
            t_s: 12.0,
            complete: true,
            unseen: Vec::new(),
            totals: totals::totals(connections.iter().map(|c| (c, Some((1000, 11))))),
            connections,
        }
    }

    #[test]
    fn the_limit_fits_in_80_columns() {
        let text = render(&example(), Order::Rate, 80, 10);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("bbr         1 connection, sending 47.0 Mbit/s"), "{text}");
        assert_eq!(lines[1], "    1.20 ms", "{text}");
        assert_eq!(
            lines[5], "cc      state   remote                 send  RTT/min ms   retr limited by",
            "{text}"
        );
        let bbr = lines[6];
        assert!(
            bbr.starts_with("bbr     ProbeBW")
                && bbr.contains("41.3/40.1")
                && bbr.ends_with("bandwidth 97 %"),
            "{text}"
        );
        assert!(lines[7].starts_with("cubic   –") && lines[7].ends_with("congestion window"), "{text}");
        assert!(lines.iter().all(|l| l.chars().count() <= 80), "{text}");
    }

    #[test]
    fn every_state_of_bbr_v3_is_distinguished_at_any_width() {
        for (bytes, state) in fullpipe_testing::bbr_v3_of_each_phase() {
            let mut snapshot = example();
            let info = fullpipe_kernel::tcp_info::CcInfo::decode("bbr", &bytes).unwrap();
            snapshot.connections[1].model = PathModel::from_cc_info(&info).map(Box::new);
            let cell = |width| {
                let text = render(&snapshot, Order::Rate, width, 10);
                let line = text.lines().rfind(|line| line.starts_with("bbr")).unwrap().to_owned();
                line.split_whitespace().nth(1).unwrap().to_owned()
            };
            let short = match state {
                "ProbeRTT" => "ProbeR…",
                state => state.trim_start_matches("ProbeBW_"),
            };
            assert_eq!((cell(80).as_str(), cell(220).as_str()), (short, state));
            let json = serde_json::to_value(&snapshot).unwrap();
            let model = &json["connections"][1]["model"];
            assert_eq!((&model["state"], &model["version"]), (&state.into(), &3.into()));
        }
    }

    #[test]
    fn every_state_of_bbr_v3_is_counted_with_its_version() {
        let mut snapshot = example();
        let bbr = snapshot.connections.remove(1);
        for (bytes, _) in fullpipe_testing::bbr_v3_of_each_phase() {
            let info = fullpipe_kernel::tcp_info::CcInfo::decode("bbr", &bytes).unwrap();
            let model = PathModel::from_cc_info(&info).map(Box::new);
            snapshot.connections.push(Connection { model, ..bbr.clone() });
        }
        snapshot.connections.push(snapshot.connections[7].clone());
        snapshot.totals = totals::totals(snapshot.connections.iter().map(|c| (c, None)));
        assert_eq!(
            states(&snapshot),
            ["bbr is BBR v3: 2 ProbeBW_REFILL, 1 Drain, 1 ProbeBW_CRUISE, 1 ProbeBW_DOWN, 1 ProbeBW_UP, \
              1 ProbeRTT, 1 Startup"]
        );
        let json = serde_json::to_value(&snapshot.totals).unwrap();
        let most = serde_json::json!({"state": "ProbeBW_REFILL", "connections": 2});
        assert_eq!((&json[0]["bbr_version"], &json[0]["states"][0]), (&3.into(), &most));
        assert!(json[1].get("states").is_none(), "{json}");
    }

    #[test]
    fn incomplete_samples_have_notes() {
        let mut snapshot = example();
        snapshot.complete = false;
        snapshot.unseen.push("the sockets of 3 processes".to_owned());
        let text = render(&snapshot, Order::Rate, 100, 1);
        for expected in ["and 1 more", "may be missing", "not shown: the sockets of 3"] {
            assert!(text.contains(expected), "{text}");
        }
        snapshot.connections.clear();
        assert!(render(&snapshot, Order::Rate, 100, 1).starts_with("no matching connections"));
    }
}
