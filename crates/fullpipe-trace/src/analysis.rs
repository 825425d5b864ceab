//! Analyses all connections of a capture.

use crate::connection::{Bins, Detail, Tracker, Trajectory};
use crate::filter::Filter;
use crate::input::Frame;
use crate::wire::{Decapsulator, EncapsulationCounts, Flags, Segment, SkipReason, Skipped};
use fullpipe_experiment::connection::{Connection, Point, Sequence};
use fullpipe_units::{Span, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::net::SocketAddr;

/// Bins of a time series without plots: enough to find what limited a connection. At most about 60
/// kB per direction.
const BINS: usize = 512;
/// Bins of a time series for plots.
const PLOT_BINS: usize = 8192;

/// Connections that are tracked at a time. A further one evicts the one that was silent longest.
const MAX_OPEN: usize = 100_000;

/// Of these, connections of more than one packet. A further one evicts the one that was closed
/// first, or without closed ones the one that was silent longest.
const MAX_TRACKED: usize = 20_000;

/// Bytes of memory of all open connections, and of all listed ones with payload; each has at most a
/// few hundred kilobytes, and 110 bytes for each packet in flight.
const MAX_BYTES: usize = 1 << 30;
/// The same for listed connections without payload.
const MAX_EMPTY_BYTES: usize = 1 << 28;

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
    /// Fragments of TCP packets that are not complete, or whose fragments contradict each other.
    pub fragments: u64,
    /// Fragments of reassembled TCP packets beyond the first of each, which `tcp` counts.
    pub reassembled: u64,
    /// TCP packets in tunnels, and what was not read.
    pub encapsulation: EncapsulationCounts,
    /// Packets that are truncated or malformed.
    pub short: u64,
    /// Connections that are counted and not listed, as there are too many.
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
    /// Payload bytes in both directions.
    fn bytes(&self) -> u64 {
        self.record.to_server.bytes.saturating_add(self.record.to_client.bytes)
    }

    /// Bytes of memory, approximately, without the packets kept for a plot.
    fn memory(&self) -> usize {
        size_of::<TracedConnection>()
            + self.bins.iter().map(Bins::memory).sum::<usize>()
            + self.trajectories.iter().flatten().map(Trajectory::memory).sum::<usize>()
    }

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
    /// Whether it is in the queue of closed connections.
    is_queued: bool,
}

impl OpenConnection {
    /// When the latest packet was captured.
    fn last(&self) -> Time {
        self.tracker.as_ref().map_or(self.first.at, |tracker| tracker.last)
    }

    fn endpoints(&self) -> Endpoints {
        endpoints(self.first.from, self.first.to)
    }

    /// Bytes of memory, approximately.
    fn memory(&self) -> usize {
        self.tracker.as_ref().map_or(0, |tracker| tracker.memory())
    }

    /// The tracker, made from the first packet if necessary.
    #[inline]
    fn tracker(&mut self, options: &Options) -> &mut Tracker {
        let OpenConnection { number, first, tracker, .. } = self;
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

    /// Payload bytes captured. At most these, if it has one packet only.
    fn bytes(&self) -> u64 {
        self.tracker.as_ref().map_or(u64::from(self.first.payload), |tracker| tracker.bytes())
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
    /// Number and slot of connections in the order in which they closed, some of them removed.
    closed: VecDeque<(u32, usize)>,
    /// Connections of more than one packet.
    tracked: usize,
}

impl OpenConnections {
    fn len(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of memory of all connections, approximately.
    fn memory(&self) -> usize {
        self.connections.iter().flatten().map(OpenConnection::memory).sum()
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

    /// Removes the connection that closed first.
    fn remove_closed(&mut self) -> Option<OpenConnection> {
        while let Some((number, slot)) = self.closed.pop_front() {
            if let Some(connection) = self.connections[slot].as_ref().filter(|c| c.number == number) {
                return self.remove(connection.endpoints());
            }
        }
        None
    }

    /// The slot of the connection between two addresses.
    #[inline]
    fn find(&mut self, from: &SocketAddr, to: &SocketAddr) -> Option<usize> {
        match &self.latest {
            Some(((a, b), slot)) if from == a && to == b || from == b && to == a => Some(*slot),
            _ => {
                let endpoints = endpoints(*from, *to);
                let slot = *self.slots.get(&endpoints)?;
                self.latest = Some((endpoints, slot));
                Some(slot)
            }
        }
    }

    /// Adds a segment to the connection in `slot`. Returns false if it opens another connection.
    #[inline]
    fn add_segment(&mut self, slot: usize, s: &Segment, options: &Options) -> bool {
        let Some(connection) = self.connections[slot].as_mut() else { return false };
        self.tracked += usize::from(connection.tracker.is_none());
        let tracker = connection.tracker(options);
        if tracker.is_reopened_by(s) {
            return false;
        }
        tracker.add_segment(s);
        if tracker.has_ended() && !connection.is_queued {
            connection.is_queued = true;
            self.closed.push_back((connection.number, slot));
        }
        true
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
        let connection = self.connections[slot].take()?;
        self.tracked -= usize::from(connection.tracker.is_some());
        if self.closed.len() > 2 * self.slots.len() + 1024 {
            let connections = &self.connections;
            self.closed
                .retain(|(number, slot)| connections[*slot].as_ref().is_some_and(|c| c.number == *number));
        }
        Some(connection)
    }
}

/// Analyses the connections of one capture, frame by frame.
///
/// Memory: the data in flight of each open connection (110 bytes per captured packet), its time
/// series (about 200 bytes for each millisecond, or later each longer interval, with activity; at
/// most 300 kB per direction, 1.3 MB with plots), and the record of each listed connection. At most
/// 100 000 connections are open at a time, 20 000 of them with more than one packet; at most 20 000
/// with payload and 20 000 without are listed. A connection of one packet takes about 200 bytes,
/// one of a few packets about 6 kB. All open connections together take at most 1 GiB, and so do all
/// listed ones.
///
/// Time: logarithmic per packet, on average over the packets of a connection.
pub struct Analyser {
    options: Options,
    open: OpenConnections,
    /// Listed connections with payload, by their bytes; of equal ones the later is less.
    listed: BTreeMap<(u64, Reverse<u32>), Box<TracedConnection>>,
    /// Their bytes of memory.
    listed_bytes: usize,
    /// Listed connections without payload, by their numbers.
    empty: BTreeMap<u32, Box<TracedConnection>>,
    empty_bytes: usize,
    packets: PacketCounts,
    decapsulator: Decapsulator,
    started: u32,
}

impl Analyser {
    /// Connections with payload that are listed: those with most. Others are only counted.
    pub const MAX_LISTED: usize = 20_000;
    /// Connections without payload that are listed, such as those of a port scan or a SYN flood:
    /// the first. Others are only counted.
    pub const MAX_EMPTY: usize = 20_000;

    /// An analysis without packets.
    pub fn new(options: Options) -> Self {
        Analyser {
            options,
            open: OpenConnections::default(),
            listed: BTreeMap::new(),
            listed_bytes: 0,
            empty: BTreeMap::new(),
            empty_bytes: 0,
            packets: PacketCounts::default(),
            decapsulator: Decapsulator::default(),
            started: 0,
        }
    }

    /// Adds the next frame of the capture.
    #[inline]
    pub fn add_frame(&mut self, frame: &Frame<'_>) {
        match Segment::parse(frame) {
            Ok(segment) => self.add_segment(&segment),
            Err(reason) => self.add_encapsulated(frame, reason),
        }
    }

    /// Adds the segments in a frame that is not read on the fast path.
    #[cold]
    fn add_encapsulated(&mut self, frame: &Frame<'_>, reason: SkipReason) {
        match self.decapsulator.add(frame, reason) {
            Skipped::Other => self.packets.other += 1,
            Skipped::Short => self.packets.short += 1,
            Skipped::No => {}
        }
        let mut i = 0;
        while let Some(segment) = self.decapsulator.segments().get(i).copied() {
            self.add_segment(&segment);
            i += 1;
        }
    }

    /// Adds the next segment of the capture.
    pub fn add_segment(&mut self, s: &Segment) {
        self.packets.tcp += 1;
        if !self.options.filter.matches(s) {
            self.packets.filtered += 1;
            return;
        }
        match self.open.find(&s.from, &s.to) {
            Some(slot) if self.open.add_segment(slot, s, &self.options) => {
                while self.open.tracked > MAX_TRACKED && self.evict().is_some() {}
            }
            Some(_) => {
                if let Some(before) = self.open.remove(endpoints(s.from, s.to)) {
                    self.close(before);
                }
                self.start(s);
            }
            None => self.start(s),
        }
        if (self.packets.tcp - self.packets.filtered).is_multiple_of(SWEEP_INTERVAL) {
            self.sweep(s.at);
        }
    }

    fn start(&mut self, s: &Segment) {
        if self.open.len() >= MAX_OPEN
            && let Some(silent) = self.open.remove_silent()
        {
            self.close(silent);
        }
        self.started = self.started.wrapping_add(1);
        let number = self.started;
        self.open.insert(OpenConnection { number, first: *s, tracker: None, is_queued: false });
    }

    /// Ends the tracking of a connection, if there is one. Returns the bytes of memory that it
    /// took.
    #[cold]
    fn evict(&mut self) -> Option<usize> {
        let connection = self.open.remove_closed().or_else(|| self.open.remove_silent())?;
        let bytes = connection.memory();
        self.close(connection);
        Some(bytes)
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
        let mut bytes = self.open.memory();
        while bytes > MAX_BYTES
            && let Some(freed) = self.evict()
        {
            bytes = bytes.saturating_sub(freed);
        }
    }

    /// Whether a connection with so many bytes is listed.
    fn is_listed(&self, bytes: u64, number: u32) -> bool {
        match bytes {
            0 => self.empty.len() < Self::MAX_EMPTY && self.empty_bytes < MAX_EMPTY_BYTES,
            _ if self.listed.len() < Self::MAX_LISTED => true,
            _ => self.listed.first_key_value().is_none_or(|(least, _)| (bytes, Reverse(number)) > *least),
        }
    }

    fn close(&mut self, mut connection: OpenConnection) {
        let number = connection.number;
        // A record takes longer than the packets of a short connection.
        if !self.is_listed(connection.bytes(), number) {
            self.packets.unlisted_connections += 1;
            return;
        }
        connection.tracker(&self.options);
        if !self.is_listed(connection.bytes(), number) {
            self.packets.unlisted_connections += 1;
            return;
        }
        let Some(tracker) = connection.tracker else { return };
        let traced = Box::new(tracker.into_traced());
        match traced.bytes() {
            0 => {
                self.empty_bytes += traced.memory();
                self.empty.insert(number, traced);
            }
            bytes => {
                self.listed_bytes += traced.memory();
                self.listed.insert((bytes, Reverse(number)), traced);
            }
        }
        while self.listed.len() > Self::MAX_LISTED || self.listed_bytes > MAX_BYTES && self.listed.len() > 1 {
            if let Some((_, least)) = self.listed.pop_first() {
                self.listed_bytes -= least.memory();
                self.packets.unlisted_connections += 1;
            }
        }
    }

    /// Ends the analysis.
    pub fn finish(mut self) -> Analysis {
        let counts = std::mem::take(&mut self.decapsulator).finish();
        self.packets.encapsulation = counts.encapsulation;
        self.packets.reassembled = counts.reassembled;
        self.packets.fragments += counts.incomplete.tcp;
        self.packets.other += counts.incomplete.other + counts.reassembled_other;
        let mut open: Vec<_> = std::mem::take(&mut self.open).connections.into_iter().flatten().collect();
        // So that the first ones without payload are listed.
        open.sort_by_key(|connection| connection.number);
        let end = open.iter().map(OpenConnection::last).max();
        for mut connection in open {
            if let Some(tracker) = &mut connection.tracker {
                tracker.capture_end = end;
            }
            self.close(connection);
        }
        let mut listed: Vec<_> = self.listed.into_values().chain(self.empty.into_values()).collect();
        listed.sort_by_key(|c| c.record.number);
        Analysis { connections: listed.into_iter().map(|c| *c).collect(), packets: self.packets }
    }
}
