//! Analyses all connections of a capture.

use crate::connection::{Bins, Detail, Tracker, Trajectory};
use crate::filter::Filter;
use crate::input::Frame;
use crate::wire::{Segment, SkipReason};
use fullpipe_experiment::connection::{Connection, Point, Sequence};
use fullpipe_units::{Span, Time};
use std::collections::HashMap;
use std::net::SocketAddr;

/// Bins of a time series without plots: enough to find what limited a connection. At most about 60 kB per direction.
const BINS: usize = 512;
/// Bins of a time series for plots.
const PLOT_BINS: usize = 8192;

/// Connections that are tracked at a time. A further one evicts the one that was silent longest.
const MAX_OPEN: usize = 100_000;

/// How long a closed connection is kept for late packets.
const LINGER_TIMEOUT: Span = Span::from_secs(30);

/// Segments between two sweeps for closed connections.
const SWEEP_INTERVAL: u64 = 1 << 16;

/// Options of an analysis.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where the capture was taken, if the user specified it.
    pub at: Option<Point>,
    /// Analyse only packets that match.
    pub filter: Filter,
    /// Keep time series fine enough for plots.
    pub plots: bool,
    /// Number of the connection whose packets are kept for a time-sequence plot, 32 bytes each.
    pub packets_of: Option<u32>,
}

/// Packet counts of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PacketCounts {
    /// TCP packets as captured.
    pub tcp: u64,
    /// TCP packets that the filter excluded.
    pub filtered: u64,
    /// Packets of other protocols.
    pub other: u64,
    /// Fragments without a TCP header.
    pub fragments: u64,
    /// Packets that are truncated or malformed.
    pub short: u64,
}

/// An analysed connection.
#[derive(Clone, Debug)]
pub struct TracedConnection {
    /// The record of the connection.
    pub record: Connection,
    /// The packets of both directions, if they were kept.
    pub sequences: Vec<Sequence>,
    pub(crate) bins: [Bins; 2],
    pub(crate) trajectories: [Option<Trajectory>; 2],
}

impl TracedConnection {
    /// Identifies the congestion controller that sent the bulk of the data and adds it to the record. This simulates the
    /// connection 18 times, or 54 times if the first runs do not decide.
    pub fn identify(&mut self) {
        let identification = crate::identify(self, self.record.bulk().1);
        self.record.bulk_mut().sender = Some(identification.sender);
    }
}

/// The result of an analysis.
#[derive(Clone, Debug, Default)]
pub struct Analysis {
    /// Connections in order of their first packet.
    pub connections: Vec<TracedConnection>,
    /// Packet counts.
    pub packets: PacketCounts,
}

/// Both endpoints of a connection, the smaller first.
type Endpoints = (SocketAddr, SocketAddr);

fn endpoints(one: SocketAddr, other: SocketAddr) -> Endpoints {
    if one <= other { (one, other) } else { (other, one) }
}

/// The table of open connections. Most packets belong to the connection of the previous packet, whose slot is cached.
#[derive(Default)]
struct OpenConnections {
    slots: HashMap<Endpoints, usize>,
    trackers: Vec<Option<Tracker>>,
    vacant: Vec<usize>,
    latest: Option<(Endpoints, usize)>,
}

impl OpenConnections {
    fn len(&self) -> usize {
        self.slots.len()
    }

    /// The connection between two addresses.
    #[inline]
    fn get_mut(&mut self, from: &SocketAddr, to: &SocketAddr) -> Option<&mut Tracker> {
        let slot = match &self.latest {
            Some(((a, b), slot)) if from == a && to == b || from == b && to == a => *slot,
            _ => {
                let endpoints = endpoints(*from, *to);
                let slot = *self.slots.get(&endpoints)?;
                self.latest = Some((endpoints, slot));
                slot
            }
        };
        self.trackers[slot].as_mut()
    }

    fn insert(&mut self, endpoints: Endpoints, tracker: Tracker) {
        let slot = self.vacant.pop().unwrap_or(self.trackers.len());
        match self.trackers.get_mut(slot) {
            Some(vacant) => *vacant = Some(tracker),
            None => self.trackers.push(Some(tracker)),
        }
        self.slots.insert(endpoints, slot);
    }

    fn remove(&mut self, endpoints: Endpoints) -> Option<Tracker> {
        let slot = self.slots.remove(&endpoints)?;
        self.latest = None;
        self.vacant.push(slot);
        self.trackers[slot].take()
    }

    fn iter(&self) -> impl Iterator<Item = (Endpoints, &Tracker)> {
        self.slots.iter().filter_map(|(endpoints, slot)| Some((*endpoints, self.trackers[*slot].as_ref()?)))
    }
}

/// Analyses the connections of one capture, frame by frame.
///
/// Memory: the data in flight of each open connection (48 bytes per captured packet), its time series (about 200 bytes
/// for each millisecond, or later each longer interval, with activity; at most 300 kB per direction, 1.3 MB with plots),
/// and the record of each closed connection. At most 100 000 connections are open at a time.
pub struct Analyser {
    options: Options,
    open: OpenConnections,
    closed: Vec<TracedConnection>,
    packets: PacketCounts,
    started: u32,
}

impl Analyser {
    /// An analysis without packets.
    pub fn new(options: Options) -> Self {
        Analyser {
            options,
            open: OpenConnections::default(),
            closed: Vec::new(),
            packets: PacketCounts::default(),
            started: 0,
        }
    }

    /// Adds the next frame of the capture.
    #[inline]
    pub fn add_frame(&mut self, frame: &Frame<'_>) {
        match Segment::parse(frame) {
            Ok(segment) => self.add_segment(&segment),
            Err(SkipReason::NotTcp) => self.packets.other += 1,
            Err(SkipReason::Fragment) => self.packets.fragments += 1,
            Err(SkipReason::Short) => self.packets.short += 1,
        }
    }

    /// Adds the next segment of the capture.
    pub fn add_segment(&mut self, s: &Segment) {
        self.packets.tcp += 1;
        if !self.options.filter.matches(s) {
            self.packets.filtered += 1;
            return;
        }
        match self.open.get_mut(&s.from, &s.to) {
            Some(tracker) if !tracker.is_reopened_by(s) => tracker.add_segment(s),
            Some(_) => {
                if let Some(before) = self.open.remove(endpoints(s.from, s.to)) {
                    self.close(before);
                }
                self.start(s);
            }
            None => self.start(s),
        }
        if self.packets.tcp.is_multiple_of(SWEEP_INTERVAL) {
            self.sweep(s.at);
        }
    }

    fn start(&mut self, s: &Segment) {
        if self.open.len() >= MAX_OPEN {
            let silent =
                self.open.iter().min_by_key(|(_, tracker)| tracker.last).map(|(endpoints, _)| endpoints);
            if let Some(tracker) = silent.and_then(|endpoints| self.open.remove(endpoints)) {
                self.close(tracker);
            }
        }
        self.started += 1;
        let detail = Detail {
            bins: if self.options.plots { PLOT_BINS } else { BINS },
            packets: self.options.packets_of == Some(self.started),
        };
        let mut tracker = Tracker::new(self.started, s, detail, self.options.at);
        tracker.add_segment(s);
        self.open.insert(endpoints(s.from, s.to), tracker);
    }

    fn sweep(&mut self, now: Time) {
        let expired: Vec<_> = self
            .open
            .iter()
            .filter(|(_, tracker)| tracker.is_closed() && now.since(tracker.last) > LINGER_TIMEOUT)
            .map(|(endpoints, _)| endpoints)
            .collect();
        for endpoints in expired {
            if let Some(tracker) = self.open.remove(endpoints) {
                self.close(tracker);
            }
        }
    }

    fn close(&mut self, tracker: Tracker) {
        self.closed.push(tracker.into_traced());
    }

    /// Endpoints the analysis.
    pub fn finish(mut self) -> Analysis {
        for tracker in std::mem::take(&mut self.open).trackers.into_iter().flatten() {
            self.close(tracker);
        }
        self.closed.sort_by_key(|c| c.record.number);
        Analysis { connections: self.closed, packets: self.packets }
    }
}
