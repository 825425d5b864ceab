//! Distributions over many connections: by controller, prefix, port and hour.

use super::seen::{Seen, prefix};
use super::spread::Spread;
use fullpipe_experiment::calendar;
use fullpipe_experiment::connection::Connection;
use std::collections::HashMap;

/// By what connections are told apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum By {
    /// The controller of whoever was recorded.
    Controller,
    /// The other end's /24, or /48 of IPv6.
    Prefix,
    /// The server's port.
    Port,
    /// The hour of the beginning, in universal time.
    Hour,
}

impl By {
    /// All.
    pub const ALL: [By; 4] = [By::Controller, By::Prefix, By::Port, By::Hour];

    /// As a heading.
    pub fn name(self) -> &'static str {
        match self {
            By::Controller => "controller",
            By::Prefix => "prefix",
            By::Port => "port",
            By::Hour => "hour",
        }
    }
}

/// Connections that have something in common.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Group {
    /// What.
    pub name: String,
    /// How many.
    pub connections: u64,
    /// Payload bytes of all, in both directions.
    pub bytes: u64,
    /// Data segments that were sent, and of these those sent again.
    pub segments: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// One for each of [`Figure::ALL`].
    spreads: [Spread; 5],
}

/// What of a connection is distributed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Figure {
    /// From its opening to its end, in seconds.
    Duration,
    /// Payload bytes, both directions.
    Bytes,
    /// Payload over the time with data to send, in bits per second.
    Goodput,
    /// The least round trip, in milliseconds.
    MinRtt,
    /// Segments sent again as a share of the data segments, 0 to 1.
    Retransmitted,
}

impl Figure {
    /// All, in the order in which they are shown.
    pub const ALL: [Figure; 5] =
        [Figure::Duration, Figure::Bytes, Figure::Goodput, Figure::MinRtt, Figure::Retransmitted];
}

impl Group {
    /// The distribution of a figure.
    pub fn spread(&self, of: Figure) -> &Spread {
        &self.spreads[of as usize]
    }

    /// Segments sent again as a share of all data segments, 0 to 1; none where none was sent.
    pub fn retransmitted_share(&self) -> Option<f64> {
        (self.segments > 0).then(|| (self.retransmitted as f64 / self.segments as f64).min(1.0))
    }

    fn add(&mut self, seen: &Seen) {
        self.connections += 1;
        self.bytes = self.bytes.saturating_add(seen.bytes);
        self.segments = self.segments.saturating_add(seen.segments);
        self.retransmitted = self.retransmitted.saturating_add(seen.retransmitted);
        // A SYN that is sent again is no data segment.
        let share = (seen.segments > 0).then(|| (seen.retransmitted as f64 / seen.segments as f64).min(1.0));
        let figures = [seen.duration_s, Some(seen.bytes as f64), seen.goodput_bps, seen.min_rtt_ms, share];
        for (spread, value) in self.spreads.iter_mut().zip(figures) {
            value.into_iter().for_each(|value| spread.add(value));
        }
    }
}

/// Told apart; more would be no report. The others are counted among all.
const MOST: usize = 10_000;

/// Distributions over many connections.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Distributions {
    /// All of them.
    pub all: Group,
    groups: [HashMap<String, Group>; 4],
    /// Those of too many groups, by kind.
    ungrouped: [u64; 4],
    /// The beginnings of the first and the last, in seconds since 1970.
    span: Option<(f64, f64)>,
    /// How many were open before they were recorded.
    pub open_before: u64,
}

impl Distributions {
    /// Adds a connection.
    pub fn add(&mut self, record: &Connection) {
        self.add_seen(&Seen::of(record));
    }

    pub(super) fn add_seen(&mut self, seen: &Seen) {
        self.all.add(seen);
        self.open_before += u64::from(seen.duration_s.is_none());
        let at = if seen.start_s.is_finite() { seen.start_s } else { 0.0 };
        let (first, last) = self.span.unwrap_or((at, at));
        self.span = Some((first.min(at), last.max(at)));
        let names = [
            seen.controller.clone().unwrap_or_else(|| "unknown".to_owned()),
            prefix(seen.remote),
            seen.port.to_string(),
            hour(at),
        ];
        for ((groups, ungrouped), name) in self.groups.iter_mut().zip(&mut self.ungrouped).zip(names) {
            let is_full = groups.len() >= MOST;
            match groups.get_mut(&name) {
                Some(group) => group.add(seen),
                None if is_full => *ungrouped += 1,
                None => {
                    let mut group = Group { name: name.clone(), ..Group::default() };
                    group.add(seen);
                    groups.insert(name, group);
                }
            }
        }
    }

    /// The groups, those with most connections first; hours in their order.
    pub fn groups(&self, by: By) -> Vec<&Group> {
        let mut groups: Vec<&Group> = self.groups[by as usize].values().collect();
        match by {
            By::Hour => groups.sort_by(|a, b| a.name.cmp(&b.name)),
            _ => groups.sort_by(|a, b| b.connections.cmp(&a.connections).then_with(|| a.name.cmp(&b.name))),
        }
        groups
    }

    /// Connections that are in no group because there were too many groups.
    pub fn ungrouped(&self, by: By) -> u64 {
        self.ungrouped[by as usize]
    }

    /// When the first and the last began, in words; none of nothing.
    pub fn period(&self) -> Option<String> {
        let minute = |at: f64| {
            let text = calendar::rfc3339(at.clamp(0.0, LAST) as u64);
            text[..16].replace('T', " ")
        };
        self.span.map(|(first, last)| format!("{} to {} UTC", minute(first), minute(last)))
    }
}

/// The end of the year 9999, after which dates have another length.
const LAST: f64 = 253_402_300_799.0;

/// `2026-11-23 05 h`.
fn hour(at: f64) -> String {
    let text = calendar::rfc3339(at.clamp(0.0, LAST) as u64);
    format!("{} {} h", &text[..10], &text[11..13])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::connection;

    #[test]
    fn connections_are_told_apart_by_each_of_the_four() {
        let mut all = Distributions::default();
        (1..=120).for_each(|n| all.add(&connection(n)));
        assert_eq!((all.all.connections, all.open_before), (120, 0));
        let named = |by| -> Vec<(String, u64)> {
            all.groups(by).iter().map(|g| (g.name.clone(), g.connections)).collect()
        };
        assert_eq!(named(By::Controller), [("bbr".to_owned(), 60), ("cubic".to_owned(), 60)]);
        assert_eq!(named(By::Prefix).len(), 8);
        assert_eq!(named(By::Port), [("443".to_owned(), 120)]);
        let hours = named(By::Hour);
        assert!(hours.len() >= 2 && hours[0].0 < hours[1].0 && hours[0].0.ends_with(" h"), "{hours:?}");
        let bbr = all.groups(By::Controller)[0];
        assert!((bbr.spread(Figure::MinRtt).quantile(0.5).unwrap() / 40.0 - 1.0).abs() < 0.021);
        assert!((bbr.retransmitted_share().unwrap() - 10.0 / 701.0).abs() < 1e-9);
        assert_eq!(all.period().as_deref().map(|p| p.ends_with("UTC")), Some(true));
    }

    #[test]
    fn what_no_host_records_is_taken_all_the_same() {
        let mut all = Distributions::default();
        for start_s in [f64::NAN, f64::INFINITY, -1e300, 1e300] {
            let mut record = connection(1);
            record.start_s = start_s;
            all.add(&record);
        }
        assert!(all.period().unwrap().contains("1970-01-01 00:00 to 9999-12-31"), "{:?}", all.period());
    }
}
