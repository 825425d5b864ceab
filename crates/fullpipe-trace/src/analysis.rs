//! Analyses all connections of a capture.

use crate::connection::{Bins, Detail, Tracker, Trajectory};
use crate::filter::Filter;
use crate::input::Frame;
use crate::wire::{Flags, Segment, SkipReason};
use fullpipe_experiment::connection::{Connection, Point, Sequence};
use fullpipe_units::{Span, Time};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::SocketAddr;

/// Bins of a time series without plots: enough to find what limited a connection. At most about 60
/// kB per direction.
const BINS: usize = 512;
/// Bins of a time series for plots.
const PLOT_BINS: usize = 8192;

/// Connections that are tracked at a time. A further one evicts the one that was silent longest.
const MAX_OPEN: usize = 100_000;

/// Connections without payload that are listed, such as those of a port scan or a SYN flood.
/// Further ones are only counted.
const MAX_EMPTY: usize = 20_000;

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
    /// Connections without payload that are not listed, as there are too many.
    pub unlisted_connections: u64,
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
    /// Identifies the congestion controller that sent the bulk of the data and adds it to the
    /// record. This simulates the connection 18 times, or 54 times if the first runs do not
    /// decide.
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

/// A connection. Its tracker is made for the second packet: most connections of a SYN flood have no
/// second.
struct OpenConnection {
    number: u32,
    first: Segment,
    tracker: Option<Box<Tracker>>,
}

impl OpenConnection {
    /// When the latest packet was captured.
    fn last(&self) -> Time {
        self.tracker.as_ref().map_or(self.first.at, |tracker| tracker.last)
    }

    fn endpoints(&self) -> Endpoints {
        endpoints(self.first.from, self.first.to)
    }

    /// The tracker, made from the first packet if necessary.
    #[inline]
    fn tracker(&mut self, options: &Options) -> &mut Tracker {
        let OpenConnection { number, first, tracker } = self;
        tracker.get_or_insert_with(|| {
            let detail = Detail {
                bins: if options.plots { PLOT_BINS } else { BINS },
                packets: options.packets_of == Some(*number),
            };
            let mut tracker = Box::new(Tracker::new(*number, first, detail, options.at));
            tracker.add_segment(first);
            tracker
        })
    }

    /// Whether both ends closed it and late packets are no longer expected.
    fn is_expired(&self, now: Time) -> bool {
        let is_closed = match &self.tracker {
            Some(tracker) => tracker.is_closed(),
            None => self.first.flags.has(Flags::RST),
        };
        is_closed && now.since(self.last()) > LINGER_TIMEOUT
    }
}

/// The table of open connections. Most packets belong to the connection of the previous packet,
/// whose slot is cached.
#[derive(Default)]
struct OpenConnections {
    slots: HashMap<Endpoints, usize>,
    connections: Vec<Option<OpenConnection>>,
    vacant: Vec<usize>,
    latest: Option<(Endpoints, usize)>,
    /// For each connection a time of a packet, at most that of the latest; its number and its slot.
    /// The entries of removed connections stay for a while.
    silent: BinaryHeap<Reverse<(Time, u32, usize)>>,
}

impl OpenConnections {
    fn len(&self) -> usize {
        self.slots.len()
    }

    /// Removes the connection that was silent longest. This takes logarithmic time, and as much for
    /// each connection that had a packet since its entry was made.
    fn remove_silent(&mut self) -> Option<OpenConnection> {
        while let Some(Reverse((at, number, slot))) = self.silent.pop() {
            let Some(connection) = self.connections[slot].as_ref().filter(|c| c.number == number) else {
                continue;
            };
            let last = connection.last();
            if last > at {
                self.silent.push(Reverse((last, number, slot)));
            } else {
                return self.remove(connection.endpoints());
            }
        }
        None
    }

    /// The connection between two addresses.
    #[inline]
    fn get_mut(&mut self, from: &SocketAddr, to: &SocketAddr) -> Option<&mut OpenConnection> {
        let slot = match &self.latest {
            Some(((a, b), slot)) if from == a && to == b || from == b && to == a => *slot,
            _ => {
                let endpoints = endpoints(*from, *to);
                let slot = *self.slots.get(&endpoints)?;
                self.latest = Some((endpoints, slot));
                slot
            }
        };
        self.connections[slot].as_mut()
    }

    fn insert(&mut self, connection: OpenConnection) {
        let slot = self.vacant.pop().unwrap_or(self.connections.len());
        self.slots.insert(connection.endpoints(), slot);
        if self.silent.len() > 2 * self.slots.len() + 1024 {
            let connections = &self.connections;
            self.silent.retain(|Reverse((_, number, slot))| {
                connections[*slot].as_ref().is_some_and(|c| c.number == *number)
            });
        }
        self.silent.push(Reverse((connection.last(), connection.number, slot)));
        match self.connections.get_mut(slot) {
            Some(vacant) => *vacant = Some(connection),
            None => self.connections.push(Some(connection)),
        }
    }

    fn remove(&mut self, endpoints: Endpoints) -> Option<OpenConnection> {
        let slot = self.slots.remove(&endpoints)?;
        self.latest = None;
        self.vacant.push(slot);
        self.connections[slot].take()
    }
}

/// Analyses the connections of one capture, frame by frame.
///
/// Memory: the data in flight of each open connection (48 bytes per captured packet), its time
/// series (about 200 bytes for each millisecond, or later each longer interval, with activity; at
/// most 300 kB per direction, 1.3 MB with plots), and the record of each closed connection. At most
/// 100 000 connections are open at a time, and at most 20 000 without payload are listed. A
/// connection of one packet takes about 200 bytes.
pub struct Analyser {
    options: Options,
    open: OpenConnections,
    closed: Vec<TracedConnection>,
    packets: PacketCounts,
    started: u32,
    /// Listed connections without payload.
    empty: usize,
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
            empty: 0,
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
        match self.open.get_mut(&s.from, &s.to).map(|connection| connection.tracker(&self.options)) {
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
        if self.open.len() >= MAX_OPEN
            && let Some(silent) = self.open.remove_silent()
        {
            self.close(silent);
        }
        self.started += 1;
        self.open.insert(OpenConnection { number: self.started, first: *s, tracker: None });
    }

    fn sweep(&mut self, now: Time) {
        let open = self.open.connections.iter().flatten();
        let expired: Vec<_> =
            open.filter(|connection| connection.is_expired(now)).map(OpenConnection::endpoints).collect();
        for endpoints in expired {
            if let Some(connection) = self.open.remove(endpoints) {
                self.close(connection);
            }
        }
    }

    fn close(&mut self, mut connection: OpenConnection) {
        let is_full = self.empty >= MAX_EMPTY;
        if is_full && connection.tracker.is_none() && connection.first.payload == 0 {
            self.packets.unlisted_connections += 1;
            return;
        }
        connection.tracker(&self.options);
        let Some(tracker) = connection.tracker else { return };
        let traced = tracker.into_traced();
        let is_empty = traced.record.to_server.bytes == 0 && traced.record.to_client.bytes == 0;
        if is_empty && is_full {
            self.packets.unlisted_connections += 1;
            return;
        }
        self.empty += usize::from(is_empty);
        self.closed.push(traced);
    }

    /// Ends the analysis.
    pub fn finish(mut self) -> Analysis {
        let mut open: Vec<_> = std::mem::take(&mut self.open).connections.into_iter().flatten().collect();
        // So that the first ones without payload are listed.
        open.sort_by_key(|connection| connection.number);
        open.into_iter().for_each(|connection| self.close(connection));
        self.closed.sort_by_key(|c| c.record.number);
        Analysis { connections: self.closed, packets: self.packets }
    }
}
