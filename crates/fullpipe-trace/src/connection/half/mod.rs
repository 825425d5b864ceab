//! One direction of a connection, tracked as its sender would track it.

mod ack;
mod data;
mod retransmitted;
mod small_writes;
mod window;
mod zero_window;

use self::small_writes::Small;
use self::window::SendMoment;
use super::arrivals::Arrivals;
use super::belief::Disbelief;
use super::bins::Bin;
use super::bursts::Bursts;
use super::counts::{Counts, Leg};
use super::doubles::Doubles;
use super::echoes::Echoes;
use super::flight::Flight;
use super::holes::Holes;
use super::late::MissedData;
use super::trajectory::Trajectory;
use super::zero_window::ZeroWindow;
use super::{Bins, Detail};
use crate::histogram::Histogram;
use crate::sequence::{ORIGIN, unwrap};
use crate::wire::{Flags, Sack, Segment};
use fullpipe_cc::Sampler;
use fullpipe_experiment::connection::{self as record, Mark, MarkKind};
use fullpipe_units::{Span, Time};

/// Maximum disorder of packets in multi-queue captures.
pub(super) const DISORDER: Span = Span::from_millis(100);

/// The MSS of a peer without the option (RFC 9293 §3.7.1).
const DEFAULT_MSS: u32 = 536;
/// Maximum number of bytes that a capture writes before their SYN: an initial window.
const MAX_OPENING_BYTES: u64 = 1 << 17;

/// Maximum number of marks of a plot: 32 bytes each.
pub(super) const MAX_MARKS: usize = 1 << 23;

/// An acknowledgment as the sender of the data receives it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ack {
    /// When it passed the place of capture.
    pub(super) at: Time,
    pub(super) ack: u32,
    pub(super) sack: Sack,
    pub(super) window: u16,
    pub(super) echo: Option<u32>,
    /// Whether it has no payload, SYN or FIN, and thus may be a duplicate ACK.
    pub(super) bare: bool,
    pub(super) flags: Flags,
}

/// One direction of a connection.
#[derive(Clone, Debug)]
pub(super) struct Half {
    /// Initial sequence number: that of the SYN, or the first captured.
    pub(super) isn: Option<u64>,
    pub(super) begun: bool,
    pub(super) first: u64,
    /// One after the highest byte captured.
    pub(super) next: u64,
    /// First unacknowledged byte.
    pub(super) una: u64,
    pub(super) fin: Option<u64>,
    pub(super) options: record::Options,
    pub(super) largest: u32,
    pub(super) header: u16,
    flight: Flight,
    sampler: Sampler,
    pub(super) holes: Holes,
    missed: MissedData,
    /// Highest acknowledgment captured, which may not have reached the sender yet.
    pub(super) acked_here: u64,
    pub(super) doubles: Doubles,
    pub(super) disbelief: Disbelief,
    /// Whether its receiver sends SACK blocks: without, senders do not repair all holes at once.
    uses_sack: bool,
    pub(super) echoes: Echoes,
    pub(super) leg: Leg,
    pub(super) rtt: Histogram,
    pub(super) rtt_max: Span,
    pub(super) rates: Histogram,
    pub(super) arrivals: Arrivals,
    pub(super) bursts: Bursts,
    pub(super) counts: Counts,
    pub(super) bins: Bins,
    pub(super) trajectory: Option<Trajectory>,
    pub(super) inflight_max: u64,
    pub(super) cwnd_at_least: u64,
    /// Right edge of the receive window.
    edge: Option<u64>,
    /// Whether the window is full and nothing was sent since.
    closed: bool,
    /// Since the window was zero for the first time, which it never is in most connections.
    zero_window: Option<Box<ZeroWindow>>,
    /// The last moment of sending, if not captured at the sender.
    moment: Option<SendMoment>,
    srtt: Option<Span>,
    pub(super) first_data: Option<Time>,
    pub(super) last_data: Time,
    last_progress: Time,
    pub(super) last_answer: Option<Time>,
    now: Time,
    duplicates: u32,
    /// Whether the last segment was short and pushed.
    short: bool,
    /// Whether the last segment of the largest size was not pushed: the sender had more data.
    unpushed: bool,
    /// Since the first small segment.
    small: Option<Box<Small>>,
    /// First byte sent since nothing was in flight, if that was so after the first data.
    flight_start: Option<u64>,
    /// Losses below this sequence number are being repaired.
    recovery: u64,
    timeout: u64,
    value: Option<u32>,
    /// Since when nothing was in flight.
    idle: Option<Time>,
    /// Every packet, if they are kept.
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
            missed: MissedData::default(),
            acked_here: 0,
            doubles: Doubles::default(),
            disbelief: Disbelief::default(),
            uses_sack: false,
            echoes: Echoes::default(),
            leg: Leg::default(),
            rtt: Histogram::default(),
            rtt_max: Span::ZERO,
            rates: Histogram::default(),
            arrivals: Arrivals::default(),
            bursts: Bursts::default(),
            counts: Counts::default(),
            bins: Bins::new(start, detail.bins),
            trajectory: None,
            inflight_max: 0,
            cwnd_at_least: 0,
            edge: None,
            closed: false,
            zero_window: None,
            moment: None,
            srtt: None,
            first_data: None,
            last_data: start,
            last_progress: start,
            last_answer: None,
            now: start,
            duplicates: 0,
            short: false,
            unpushed: false,
            small: None,
            flight_start: None,
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
        if let Some(marks) = self.marks.as_mut().filter(|marks| marks.len() < MAX_MARKS) {
            let below = |n: u64| n.saturating_sub(self.first);
            marks.push(Mark { at: at.since(self.start), from: below(from), to: below(to), kind });
        }
    }

    /// Payload bytes of a full segment: the MSS of the handshake, or less if all captured segments
    /// were smaller.
    pub(super) fn mss(&self, peer: &record::Options) -> u32 {
        self.mss_with(peer, self.largest, self.value.is_some())
    }

    /// Like [`Half::mss`] when `s` is the next segment. The first data of a connection older than
    /// the capture counts.
    pub(super) fn mss_at(&self, peer: &record::Options, s: &Segment) -> u32 {
        let timestamps = self.value.is_some() || s.options.timestamps.is_some();
        self.mss_with(peer, self.largest.max(s.payload), timestamps)
    }

    fn mss_with(&self, peer: &record::Options, largest: u32, timestamps: bool) -> u32 {
        // RFC 6691 §2: the MSS includes options.
        let agreed =
            peer.mss.map(|m| u32::from(m).saturating_sub(if timestamps { 12 } else { 0 })).filter(|m| *m > 0);
        match (agreed, largest) {
            (Some(agreed), 0) => agreed,
            // The path or a middlebox may allow less.
            (Some(agreed), seen)
                if seen < agreed && self.counts.data_packets >= 8 && self.fills_segments(seen) =>
            {
                seen
            }
            (Some(agreed), _) => agreed,
            // Assume Ethernet: larger packets were merged by offloads.
            (None, seen) => {
                let ethernet = if timestamps { 1448 } else { 1460 };
                if seen < ethernet && self.fills_segments(seen) { seen.max(1) } else { ethernet }
            }
        }
    }

    /// Whether segments of `largest` bytes, the largest captured, are as long as the path allows, and
    /// not just the writes of the application.
    fn fills_segments(&self, largest: u32) -> bool {
        self.unpushed || largest >= DEFAULT_MSS && self.inflight_max > u64::from(largest)
    }

    /// Sets the first sequence number, if unknown, and unwraps `seq`.
    pub(super) fn begin(&mut self, seq: u32) -> u64 {
        if !self.begun {
            self.begun = true;
            let at = ORIGIN + u64::from(seq);
            (self.first, self.next, self.una) = (at, at, at);
        }
        unwrap(self.next, seq)
    }

    /// Whether a SYN with the number `seq` can be that of the data captured before it: the capture
    /// wrote the SYN late.
    pub(super) fn may_open(&self, seq: u32) -> bool {
        self.begun
            && unwrap(self.first, seq).abs_diff(self.first) <= MAX_OPENING_BYTES
            && unwrap(self.first, seq) < self.first
    }

    /// Handles a SYN.
    pub(super) fn syn(&mut self, s: &Segment) {
        let seq = self.begin(s.seq);
        if self.isn.is_none() && self.may_open(s.seq) {
            // The capture wrote it behind what followed.
            self.counts.misordered += 1;
            self.isn = Some(seq);
        }
        // A SYN after data does not belong to this connection.
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

    /// Advances the time to `at` and records what the sender waited for.
    #[inline]
    pub(super) fn advance(&mut self, at: Time, mss: u64) {
        let from = self.now;
        self.now = at.max(from);
        if self.first_data.is_none() || at <= from {
            return;
        }
        // If not captured at the sender, only the next data shows whether it was already in flight.
        if self.next <= self.una {
            self.idle.get_or_insert(from);
            return;
        }
        if let Some(zero) = &mut self.zero_window {
            zero.record_until(at);
        }
        let closed = self.moment.is_none() && self.is_closed(mss);
        let recovery = self.recovery > self.una;
        if closed
            && !recovery
            && let (Some(trajectory), Some(edge)) = (&mut self.trajectory, self.edge)
        {
            // A receiver may accept more than its window.
            trajectory.record_full_window(edge.saturating_sub(self.una));
        }
        self.bins.add_time(from, at, |bin: &mut Bin, t| {
            // During recovery the receive window often cannot move, but the congestion window is the limit.
            if recovery {
                bin.recovery += t;
            } else if closed {
                bin.closed += t;
            }
        });
    }

    /// Adds an end-to-end RTT sample.
    pub(super) fn add_rtt_sample(&mut self, at: Time, sample: Span) {
        self.rtt.add(sample.as_nanos().max(1) as f64, 1.0);
        self.rtt_max = self.rtt_max.max(sample);
        self.srtt = Some(self.srtt.map_or(sample, |s| (s * 7 + sample) / 8));
        self.bins.at(at).add_rtt(sample);
        if let Some(trajectory) = &mut self.trajectory {
            let step = trajectory.at(at);
            step.samples = step.samples.saturating_add(1);
            step.rtt_sum = step.rtt_sum.saturating_add(sample.as_micros());
        }
    }

    /// Ranges in flight and holes that were not followed to their end, as there were too many.
    pub(super) fn dropped(&self) -> u64 {
        // A capture without acknowledgments has no end of flights.
        let unacknowledged = if self.counts.acks > 0 { self.flight.dropped() } else { 0 };
        unacknowledged + self.holes.dropped()
    }

    /// Bytes of memory, approximately, without the packets kept for a plot.
    pub(super) fn memory(&self) -> usize {
        let histograms = [&self.rtt, &self.rates, self.arrivals.rates(), self.bursts.sizes()];
        histograms.map(Histogram::memory).iter().sum::<usize>()
            + self.flight.memory()
            + self.holes.memory()
            + self.missed.memory()
            + self.doubles.memory()
            + self.echoes.memory()
            + self.bins.memory()
            + self.zero_window.as_ref().map_or(0, |_| size_of::<ZeroWindow>())
            + self.small.as_ref().map_or(0, |_| size_of::<Small>())
            + self.trajectory.as_ref().map_or(0, Trajectory::memory)
    }

    /// Right edge of the receive window, if known.
    pub(super) fn window_edge(&self) -> Option<u64> {
        self.edge
    }

    /// Whether nothing is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.flight.is_empty()
    }
}
