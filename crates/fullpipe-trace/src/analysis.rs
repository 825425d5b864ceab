//! All connections of a capture.

use crate::connection::{Bins, Course, Detail, Life};
use crate::filter::Filter;
use crate::input::Frame;
use crate::wire::{Segment, Skipped};
use fullpipe_experiment::connection::{Connection, Point, Sequence};
use fullpipe_units::{Span, Time};
use std::collections::HashMap;
use std::net::SocketAddr;

/// Bins of a connection's series where no plot is asked for: enough to tell what limited it. About 60 kB a direction
/// at most.
const FEW: usize = 512;
/// The same for plots.
const MANY: usize = 8192;

/// Connections that are followed at a time. One more ends the one that was silent longest.
const OPEN: usize = 100_000;

/// How long a closed connection is kept for what still comes of it.
const LINGER: Span = Span::from_secs(30);

/// Segments between two looks for connections that are over.
const SWEEP: u64 = 1 << 16;

/// How captures are read.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where the capture was taken, if the user knows better.
    pub at: Option<Point>,
    /// Look only at connections that it matches.
    pub filter: Filter,
    /// Keep series fine enough for plots.
    pub plots: bool,
    /// Keep every packet of this connection, for a time-sequence plot: 32 bytes a packet.
    pub packets_of: Option<u32>,
}

/// What packets there were.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PacketCounts {
    /// TCP segments as captured.
    pub tcp: u64,
    /// Of these, what the filter left out.
    pub filtered: u64,
    /// Packets of other protocols.
    pub other: u64,
    /// Fragments without a TCP header.
    pub fragments: u64,
    /// Packets of which too little was captured, or that make no sense.
    pub short: u64,
}

/// A connection that was followed to its end or the capture's.
#[derive(Clone, Debug)]
pub struct Traced {
    /// What is known of it.
    pub record: Connection,
    /// Its packets in both directions, if they were kept.
    pub sequences: Vec<Sequence>,
    pub(crate) bins: [Bins; 2],
    pub(crate) courses: [Option<Course>; 2],
}

impl Traced {
    /// Concludes which controller sent the bulk of the data, and adds that to the record. Takes about as long as
    /// simulating the connection eighteen times, or three times that where these do not decide.
    pub fn identify(&mut self) {
        let conclusion = crate::identify(self, self.record.bulk().1);
        self.record.bulk_mut().sender = Some(conclusion.sender);
    }
}

/// What a capture said.
#[derive(Clone, Debug, Default)]
pub struct Analysed {
    /// Connections in the order in which they began.
    pub connections: Vec<Traced>,
    /// Packets.
    pub packets: PacketCounts,
}

/// Both ends of a connection, the lesser first.
type Ends = (SocketAddr, SocketAddr);

fn ends(one: SocketAddr, other: SocketAddr) -> Ends {
    if one <= other { (one, other) } else { (other, one) }
}

/// Connections that are open. Most packets are of the connection that the one before was of: its place is known without a look.
#[derive(Default)]
struct Open {
    places: HashMap<Ends, usize>,
    lives: Vec<Option<Life>>,
    vacant: Vec<usize>,
    latest: Option<(Ends, usize)>,
}

impl Open {
    fn len(&self) -> usize {
        self.places.len()
    }

    /// The connection that a packet between these is of.
    #[inline]
    fn get_mut(&mut self, from: &SocketAddr, to: &SocketAddr) -> Option<&mut Life> {
        let place = match &self.latest {
            Some(((a, b), place)) if from == a && to == b || from == b && to == a => *place,
            _ => {
                let ends = ends(*from, *to);
                let place = *self.places.get(&ends)?;
                self.latest = Some((ends, place));
                place
            }
        };
        self.lives[place].as_mut()
    }

    fn insert(&mut self, ends: Ends, life: Life) {
        let place = self.vacant.pop().unwrap_or(self.lives.len());
        match self.lives.get_mut(place) {
            Some(vacant) => *vacant = Some(life),
            None => self.lives.push(Some(life)),
        }
        self.places.insert(ends, place);
    }

    fn remove(&mut self, ends: Ends) -> Option<Life> {
        let place = self.places.remove(&ends)?;
        self.latest = None;
        self.vacant.push(place);
        self.lives[place].take()
    }

    fn iter(&self) -> impl Iterator<Item = (Ends, &Life)> {
        self.places.iter().filter_map(|(ends, place)| Some((*ends, self.lives[*place].as_ref()?)))
    }
}

/// Follows the connections of one capture, frame by frame.
///
/// Memory: what is in flight of each open connection (48 bytes a captured packet), its series (some 200 bytes for each
/// millisecond, or later stretch, in which something happened; 300 kB a direction at most, 1.3 MB with plots), and its record when it is over. At most 100 000 connections are open at a time.
pub struct Analysis {
    options: Options,
    open: Open,
    over: Vec<Traced>,
    packets: PacketCounts,
    begun: u32,
}

impl Analysis {
    /// Nothing seen yet.
    pub fn new(options: Options) -> Self {
        Analysis {
            options,
            open: Open::default(),
            over: Vec::new(),
            packets: PacketCounts::default(),
            begun: 0,
        }
    }

    /// The next frame of the capture.
    #[inline]
    pub fn frame(&mut self, frame: &Frame<'_>) {
        match Segment::read(frame) {
            Ok(segment) => self.segment(&segment),
            Err(Skipped::NotTcp) => self.packets.other += 1,
            Err(Skipped::Fragment) => self.packets.fragments += 1,
            Err(Skipped::Short) => self.packets.short += 1,
        }
    }

    /// The next segment of the capture.
    pub fn segment(&mut self, s: &Segment) {
        self.packets.tcp += 1;
        if !self.options.filter.matches(s) {
            self.packets.filtered += 1;
            return;
        }
        match self.open.get_mut(&s.from, &s.to) {
            Some(life) if !life.is_followed_by(s) => life.segment(s),
            Some(_) => {
                if let Some(before) = self.open.remove(ends(s.from, s.to)) {
                    self.close(before);
                }
                self.begin(s);
            }
            None => self.begin(s),
        }
        if self.packets.tcp.is_multiple_of(SWEEP) {
            self.sweep(s.at);
        }
    }

    fn begin(&mut self, s: &Segment) {
        if self.open.len() >= OPEN {
            let silent = self.open.iter().min_by_key(|(_, life)| life.last).map(|(ends, _)| ends);
            if let Some(life) = silent.and_then(|ends| self.open.remove(ends)) {
                self.close(life);
            }
        }
        self.begun += 1;
        let detail = Detail {
            bins: if self.options.plots { MANY } else { FEW },
            packets: self.options.packets_of == Some(self.begun),
        };
        let mut life = Life::new(self.begun, s, detail, self.options.at);
        life.segment(s);
        self.open.insert(ends(s.from, s.to), life);
    }

    fn sweep(&mut self, now: Time) {
        let over: Vec<_> = self
            .open
            .iter()
            .filter(|(_, life)| life.is_over() && now.since(life.last) > LINGER)
            .map(|(ends, _)| ends)
            .collect();
        for ends in over {
            if let Some(life) = self.open.remove(ends) {
                self.close(life);
            }
        }
    }

    fn close(&mut self, life: Life) {
        self.over.push(life.record());
    }

    /// The capture has ended.
    pub fn finish(mut self) -> Analysed {
        for life in std::mem::take(&mut self.open).lives.into_iter().flatten() {
            self.close(life);
        }
        self.over.sort_by_key(|c| c.record.number);
        Analysed { connections: self.over, packets: self.packets }
    }
}
