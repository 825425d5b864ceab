//! One direction's data, followed as its sender would follow it.

mod again;
mod answer;
mod passing;
mod window;

use self::window::Moment;
use super::arrivals::Arrivals;
use super::bins::Bin;
use super::bursts::Bursts;
use super::counts::{Counts, Leg};
use super::course::Course;
use super::echoes::Echoes;
use super::flight::Flight;
use super::holes::Holes;
use super::{Bins, Detail};
use crate::histogram::Histogram;
use crate::sequence::{ORIGIN, unwrap};
use crate::wire::{Flags, Sack, Segment};
use fullpipe_cc::Sampler;
use fullpipe_experiment::connection::{self as record, Mark, MarkKind};
use fullpipe_units::{Span, Time};

/// Captures of several queues or threads have packets this much out of order.
pub(super) const DISORDER: Span = Span::from_millis(100);

/// An acknowledgment as the data's sender takes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    /// When it passed the place of capture.
    pub(super) at: Time,
    pub(super) ack: u32,
    pub(super) sack: Sack,
    pub(super) window: u16,
    pub(super) echo: Option<u32>,
    /// It carried nothing else and could be a duplicate.
    pub(super) bare: bool,
    pub(super) flags: Flags,
}

/// One direction of a connection.
#[derive(Clone, Debug)]
pub(super) struct Half {
    /// Where sequence numbers begin: the SYN's, or the first seen.
    pub(super) isn: Option<u64>,
    pub(super) begun: bool,
    pub(super) first: u64,
    /// One after the highest byte seen.
    pub(super) next: u64,
    /// First byte not acknowledged.
    pub(super) una: u64,
    pub(super) fin: Option<u64>,
    pub(super) options: record::Options,
    pub(super) largest: u32,
    pub(super) header: u16,
    flight: Flight,
    sampler: Sampler,
    pub(super) holes: Holes,
    /// Whether its receiver says what it has selectively: other senders do not repair all holes at once.
    selective: bool,
    pub(super) echoes: Echoes,
    pub(super) leg: Leg,
    pub(super) rtt: Histogram,
    pub(super) rtt_max: Span,
    pub(super) rates: Histogram,
    pub(super) arrivals: Arrivals,
    pub(super) bursts: Bursts,
    pub(super) counts: Counts,
    pub(super) bins: Bins,
    pub(super) course: Option<Course>,
    pub(super) inflight_max: u64,
    pub(super) cwnd_at_least: u64,
    /// First byte that the receiver does not allow yet.
    edge: Option<u64>,
    /// Whether nothing has been sent since the window was full.
    closed: bool,
    /// The last moment of which data passed, away from its sender.
    moment: Option<Moment>,
    srtt: Option<Span>,
    pub(super) first_data: Option<Time>,
    pub(super) last_data: Time,
    last_progress: Time,
    pub(super) last_answer: Option<Time>,
    now: Time,
    duplicates: u32,
    short: bool,
    /// Losses before this are being repaired.
    recovery: u64,
    timeout: u64,
    value: Option<u32>,
    /// Since when nothing has been in flight, as far as is seen here.
    idle: Option<Time>,
    /// Every packet, if a plot of them is asked for.
    pub(super) marks: Option<Vec<Mark>>,
    start: Time,
}

impl Half {
    pub(super) fn new(start: Time, detail: Detail) -> Self {
        Half {
            isn: None,
            begun: false,
            first: ORIGIN,
            next: ORIGIN,
            una: ORIGIN,
            fin: None,
            options: record::Options::default(),
            largest: 0,
            header: 0,
            flight: Flight::default(),
            sampler: Sampler::new(),
            holes: Holes::default(),
            selective: false,
            echoes: Echoes::default(),
            leg: Leg::default(),
            rtt: Histogram::default(),
            rtt_max: Span::ZERO,
            rates: Histogram::default(),
            arrivals: Arrivals::default(),
            bursts: Bursts::default(),
            counts: Counts::default(),
            bins: Bins::new(start, detail.bins),
            course: None,
            inflight_max: 0,
            cwnd_at_least: 0,
            edge: None,
            closed: false,
            moment: None,
            srtt: None,
            first_data: None,
            last_data: start,
            last_progress: start,
            last_answer: None,
            now: start,
            duplicates: 0,
            short: false,
            recovery: 0,
            timeout: 0,
            value: None,
            idle: None,
            marks: detail.packets.then(Vec::new),
            start,
        }
    }

    #[inline]
    fn mark(&mut self, at: Time, from: u64, to: u64, kind: MarkKind) {
        if let Some(marks) = &mut self.marks {
            let below = |n: u64| n.saturating_sub(self.first);
            marks.push(Mark { at: at.since(self.start), from: below(from), to: below(to), kind });
        }
    }

    /// Payload bytes of a full segment: what the handshake allows, or less if less was seen throughout.
    pub(super) fn mss(&self, peer: &record::Options) -> u32 {
        let stamps = self.value.is_some();
        // RFC 6691 §2: options count against the peer's maximum segment size.
        let agreed =
            peer.mss.map(|m| u32::from(m).saturating_sub(if stamps { 12 } else { 0 })).filter(|m| *m > 0);
        match (agreed, self.largest) {
            (Some(agreed), 0) => agreed,
            // A path or a middlebox may allow less than the ends agreed on.
            (Some(agreed), seen) if self.counts.data_packets >= 8 => agreed.min(seen),
            (Some(agreed), _) => agreed,
            // Ethernet's, less headers: what is larger was put together by offloads.
            (None, seen) => seen.clamp(1, if stamps { 1448 } else { 1460 }),
        }
    }

    /// Begins where data does, if that was not known.
    pub(super) fn begin(&mut self, seq: u32) -> u64 {
        if !self.begun {
            self.begun = true;
            let at = ORIGIN + u64::from(seq);
            (self.first, self.next, self.una) = (at, at, at);
        }
        unwrap(self.next, seq)
    }

    /// The SYN passes.
    pub(super) fn syn(&mut self, s: &Segment) {
        let seq = self.begin(s.seq);
        // One that comes after data belongs to no connection that is followed here.
        if self.isn.is_none() && self.first_data.is_none() {
            self.isn = Some(seq);
            (self.first, self.next, self.una) = (seq + 1, seq + 1, seq + 1);
        }
        self.options = record::Options {
            mss: s.options.mss,
            window_scale: s.options.window_scale,
            sack: Some(s.options.sack_permitted),
            timestamps: Some(s.options.timestamps.is_some()),
        };
    }

    /// Time goes on to `at`: what the sender was waiting for meanwhile.
    #[inline]
    pub(super) fn advance(&mut self, at: Time, mss: u64) {
        let from = self.now;
        self.now = at.max(from);
        if self.first_data.is_none() || at <= from {
            return;
        }
        // Away from the sender only the next data shows whether it was under way meanwhile.
        if self.next <= self.una {
            self.idle.get_or_insert(from);
            return;
        }
        let closed = self.moment.is_none() && self.is_closed(mss);
        let recovery = self.recovery > self.una;
        if closed
            && !recovery
            && let (Some(course), Some(edge)) = (&mut self.course, self.edge)
        {
            // A receiver may take more than it said.
            course.fills(edge.saturating_sub(self.una));
        }
        self.bins.spend(from, at, |bin: &mut Bin, t| {
            // While losses are repaired the window often cannot move, but it is the congestion window that is small.
            if recovery {
                bin.recovery += t;
            } else if closed {
                bin.closed += t;
            }
        });
    }

    /// A round trip of this data, ends to end.
    pub(super) fn round_trip(&mut self, at: Time, sample: Span) {
        self.rtt.add(sample.as_nanos().max(1) as f64, 1.0);
        self.rtt_max = self.rtt_max.max(sample);
        self.srtt = Some(self.srtt.map_or(sample, |s| (s * 7 + sample) / 8));
        self.bins.at(at).rtt(sample);
        if let Some(course) = &mut self.course {
            let step = course.at(at);
            step.samples = step.samples.saturating_add(1);
            step.rtt_sum += sample.as_micros();
        }
    }

    /// Whether nothing is in flight.
    pub(super) fn is_quiet(&self) -> bool {
        self.flight.is_empty()
    }
}
