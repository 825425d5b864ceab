//! Distributions over many connections, grouped by controller, prefix, port and hour.

use super::sample::{Sample, prefix};
use super::sketch::QuantileSketch;
use fullpipe_experiment::calendar;
use fullpipe_experiment::connection::Connection;
use std::collections::HashMap;

/// The property by which connections are grouped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GroupBy {
    /// Congestion controller of the recorded host.
    Controller,
    /// Prefix of the peer: /24 for IPv4, /48 for IPv6.
    Prefix,
    /// Port of the server.
    Port,
    /// Hour (UTC) in which the connection opened.
    Hour,
}

impl GroupBy {
    /// All groupings.
    pub const ALL: [GroupBy; 4] = [GroupBy::Controller, GroupBy::Prefix, GroupBy::Port, GroupBy::Hour];

    /// Name for headings.
    pub fn name(self) -> &'static str {
        match self {
            GroupBy::Controller => "controller",
            GroupBy::Prefix => "prefix",
            GroupBy::Port => "port",
            GroupBy::Hour => "hour",
        }
    }
}

/// Connections with the same value of a [`GroupBy`] property.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Group {
    /// The value that they share.
    pub name: String,
    /// Number of connections.
    pub connections: u64,
    /// Payload bytes of all connections, both directions.
    pub bytes: u64,
    /// Data segments sent, retransmissions included.
    pub segments: u64,
    /// Segments retransmitted.
    pub retransmitted: u64,
    /// One sketch for each of [`Metric::ALL`].
    sketches: [QuantileSketch; 5],
}

/// A measurement of a connection whose distribution is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Metric {
    /// Time from opening to closing, in seconds.
    Duration,
    /// Payload bytes, both directions.
    Bytes,
    /// Payload divided by the time with data to send, in bits per second.
    Goodput,
    /// Minimum round-trip time, in milliseconds.
    MinRtt,
    /// Share of the data segments that were retransmissions, 0 to 1.
    Retransmitted,
}

impl Metric {
    /// All metrics in display order.
    pub const ALL: [Metric; 5] =
        [Metric::Duration, Metric::Bytes, Metric::Goodput, Metric::MinRtt, Metric::Retransmitted];
}

impl Group {
    /// The distribution of a metric.
    pub fn distribution(&self, metric: Metric) -> &QuantileSketch {
        &self.sketches[metric as usize]
    }

    /// Share of all data segments that were retransmissions, 0 to 1; `None` if no data segment was
    /// sent.
    pub fn retransmitted_share(&self) -> Option<f64> {
        (self.segments > 0).then(|| (self.retransmitted as f64 / self.segments as f64).min(1.0))
    }

    fn add(&mut self, sample: &Sample) {
        self.connections += 1;
        self.bytes = self.bytes.saturating_add(sample.bytes);
        self.segments = self.segments.saturating_add(sample.segments);
        self.retransmitted = self.retransmitted.saturating_add(sample.retransmitted);
        // A retransmitted SYN is not a data segment.
        let share =
            (sample.segments > 0).then(|| (sample.retransmitted as f64 / sample.segments as f64).min(1.0));
        let metrics =
            [sample.duration_s, Some(sample.bytes as f64), sample.goodput_bps, sample.min_rtt_ms, share];
        for (sketch, value) in self.sketches.iter_mut().zip(metrics) {
            value.into_iter().for_each(|value| sketch.add(value));
        }
    }
}

/// Groups of a kind. Connections beyond these are counted in the total only.
const MAX_GROUPS: usize = 10_000;

/// Distributions over many connections.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Distributions {
    /// All connections.
    pub all: Group,
    groups: [HashMap<String, Group>; 4],
    /// By kind: connections that are in no group because [`MAX_GROUPS`] was reached.
    ungrouped: [u64; 4],
    /// When the first and the last connection opened, in seconds since 1970.
    span: Option<(f64, f64)>,
    /// Connections that were open before recording began.
    pub open_before: u64,
}

impl Distributions {
    /// Adds a connection.
    pub fn add(&mut self, record: &Connection) {
        self.add_sample(&Sample::from_record(record));
    }

    pub(super) fn add_sample(&mut self, sample: &Sample) {
        self.all.add(sample);
        self.open_before += u64::from(sample.duration_s.is_none());
        let at = if sample.start_s.is_finite() { sample.start_s } else { 0.0 };
        let (first, last) = self.span.unwrap_or((at, at));
        self.span = Some((first.min(at), last.max(at)));
        let names = [
            sample.controller.as_deref().map_or_else(|| "unknown".to_owned(), clipped),
            prefix(sample.remote),
            sample.port.to_string(),
            hour(at),
        ];
        for ((groups, ungrouped), name) in self.groups.iter_mut().zip(&mut self.ungrouped).zip(names) {
            let is_full = groups.len() >= MAX_GROUPS;
            match groups.get_mut(&name) {
                Some(group) => group.add(sample),
                None if is_full => *ungrouped += 1,
                None => {
                    let mut group = Group { name: name.clone(), ..Group::default() };
                    group.add(sample);
                    groups.insert(name, group);
                }
            }
        }
    }

    /// The groups by falling number of connections; hours in chronological order.
    pub fn groups(&self, by: GroupBy) -> Vec<&Group> {
        let mut groups: Vec<&Group> = self.groups[by as usize].values().collect();
        match by {
            GroupBy::Hour => groups.sort_by(|a, b| a.name.cmp(&b.name)),
            _ => groups.sort_by(|a, b| b.connections.cmp(&a.connections).then_with(|| a.name.cmp(&b.name))),
        }
        groups
    }

    /// Connections that are in no group because there were too many groups.
    pub fn ungrouped(&self, by: GroupBy) -> u64 {
        self.ungrouped[by as usize]
    }

    /// When the first and the last connection opened, as text; `None` without connections.
    pub fn period(&self) -> Option<String> {
        let minute = |at: f64| {
            let text = calendar::rfc3339(at.clamp(0.0, MAX_TIME_S) as u64);
            text[..16].replace('T', " ")
        };
        self.span.map(|(first, last)| format!("{} to {} UTC", minute(first), minute(last)))
    }
}

/// Longest name of a group in characters. The kernel's controller names have at most 15.
const MAX_NAME_CHARS: usize = 40;

/// The start of `name` without control characters: a record can contain any text.
fn clipped(name: &str) -> String {
    let printable = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    match name.char_indices().nth(MAX_NAME_CHARS) {
        None => name.chars().map(printable).collect(),
        Some(_) => name.chars().take(MAX_NAME_CHARS - 1).map(printable).chain(['…']).collect(),
    }
}

/// End of the year 9999, after which RFC 3339 dates get longer.
const MAX_TIME_S: f64 = 253_402_300_799.0;

/// The hour as `2026-11-23 05 h`.
fn hour(at: f64) -> String {
    let text = calendar::rfc3339(at.clamp(0.0, MAX_TIME_S) as u64);
    format!("{} {} h", &text[..10], &text[11..13])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::connection;

    #[test]
    fn connections_are_grouped_by_each_property() {
        let mut all = Distributions::default();
        (1..=120).for_each(|n| all.add(&connection(n)));
        assert_eq!((all.all.connections, all.open_before), (120, 0));
        let named = |by| -> Vec<(String, u64)> {
            all.groups(by).iter().map(|g| (g.name.clone(), g.connections)).collect()
        };
        assert_eq!(named(GroupBy::Controller), [("bbr".to_owned(), 60), ("cubic".to_owned(), 60)]);
        assert_eq!(named(GroupBy::Prefix).len(), 8);
        assert_eq!(named(GroupBy::Port), [("443".to_owned(), 120)]);
        let hours = named(GroupBy::Hour);
        assert!(hours.len() >= 2 && hours[0].0 < hours[1].0 && hours[0].0.ends_with(" h"), "{hours:?}");
        let bbr = all.groups(GroupBy::Controller)[0];
        assert!((bbr.distribution(Metric::MinRtt).quantile(0.5).unwrap() / 40.0 - 1.0).abs() < 0.021);
        assert!((bbr.retransmitted_share().unwrap() - 10.0 / 701.0).abs() < 1e-9);
        assert_eq!(all.period().as_deref().map(|p| p.ends_with("UTC")), Some(true));
    }

    #[test]
    fn impossible_start_times_are_accepted() {
        let mut all = Distributions::default();
        for start_s in [f64::NAN, f64::INFINITY, -1e300, 1e300] {
            let mut record = connection(1);
            record.start_s = start_s;
            all.add(&record);
        }
        assert!(all.period().unwrap().contains("1970-01-01 00:00 to 9999-12-31"), "{:?}", all.period());
    }
}
