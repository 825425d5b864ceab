//! One direction's data, followed as its sender would follow it.

use super::arrivals::Arrivals;
use super::bins::Bin;
use super::bursts::Bursts;
use super::course::{Course, Told};
use super::echoes::Echoes;
use super::flight::{Flight, Sent};
use super::holes::{Filled, Holes};
use super::receiving::Acknowledgment;
use super::retransmission::{Cause, Circumstances, cause};
use super::{Bins, Detail};
use crate::histogram::Histogram;
use crate::sequence::{ORIGIN, later, unwrap};
use crate::wire::{Ecn, Flags, Sack, Segment};
use fullpipe_cc::Sampler;
use fullpipe_experiment::connection::{self as record, Mark, MarkKind};
use fullpipe_units::{Span, Time};

/// A sender may wait until this part of the window is open (`tcp_tso_should_defer()`, `tcp_tso_win_divisor`).
const ROOM: u64 = 3;

/// More segments at once are not missing but another connection's, or nonsense.
const MANY: u64 = 1 << 16;

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

/// Data that left its sender when that had been told the same.
#[derive(Clone, Copy, Debug)]
struct Moment {
    echo: u32,
    /// When the first of it passed.
    since: Time,
    /// Whether the last of it left no room in the receiver's window.
    full: bool,
}

/// What was counted of one direction's data.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) packets: u64,
    pub(super) data_packets: u64,
    /// Bytes that passed for the first time.
    pub(super) fresh: u64,
    pub(super) bytes_sent: u64,
    pub(super) segments: u64,
    pub(super) again: record::Retransmissions,
    /// Segments that filled a hole after a retransmission's time.
    pub(super) filled_late: u64,
    pub(super) filled_late_bytes: u64,
    /// Retransmissions that did not arrive either, in segments: what left after them did before.
    pub(super) lost_again: u64,
    pub(super) reordering: record::Reordering,
    /// Spurious by DSACK and by Eifel, in segments.
    pub(super) dsack: u64,
    pub(super) eifel: u64,
    /// Bytes that were acknowledged and never seen.
    pub(super) unseen: u64,
    /// Packets that were captured twice.
    pub(super) doubled: u64,
    pub(super) idle: record::Idle,
    pub(super) window: record::Window,
    pub(super) ecn: record::Ecn,
    pub(super) acks: u64,
}

/// The time from the place of capture to the data's receiver and back.
#[derive(Clone, Debug, Default)]
pub(super) struct Leg {
    pub(super) min: Option<Span>,
    pub(super) samples: u64,
}

impl Leg {
    pub(super) fn add(&mut self, sample: Span) {
        self.min = Some(self.min.map_or(sample, |m| m.min(sample)));
        self.samples += 1;
    }
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

    /// Whether the receiver's window holds the sender now.
    #[inline]
    fn is_closed(&mut self, mss: u64) -> bool {
        let Some(edge) = self.edge else { return false };
        let room = edge.saturating_sub(self.next);
        // A sender that offloads segmentation leaves a little room until there is more of it.
        self.closed = room < mss || self.closed && room < edge.saturating_sub(self.una) / ROOM;
        self.closed
    }

    /// Data up to `end` passes that its sender sent when the receiver had allowed `window`. Elsewhere than at the sender
    /// packets of one moment pass one after another: whether the window held it until the next is what the last of them says.
    fn sent_under(&mut self, echo: u32, window: Option<(u64, u64)>, end: u64, (at, mss): (Time, u64)) {
        let full = self.holes.is_empty() && window.is_some_and(|(edge, _)| edge < end + mss);
        if let (true, Some(course), Some((_, window))) = (full, &mut self.course, window) {
            course.fills(window);
        }
        match self.moment {
            Some(moment) if moment.echo == echo => self.moment = Some(Moment { full, ..moment }),
            before => {
                if let Some(before) = before.filter(|m| m.full) {
                    self.bins.spend(before.since, at, |bin, t| bin.closed += t);
                }
                self.moment = Some(Moment { echo, since: at, full });
            }
        }
    }

    /// Data, or a FIN, passes at the place of capture, `here` if that is at its sender. `total_rtt` is the least round trip known.
    pub(super) fn data(&mut self, s: &Segment, at: Time, mss: u32, (total_rtt, here): (Option<Span>, bool)) {
        let seq = self.begin(s.seq);
        let end = seq + u64::from(s.payload);
        // When it passed, also where the capture has it a little late, behind what passed after it.
        let passed = if at.since(s.at) < DISORDER { s.at } else { at };
        let value = s.options.timestamps.map(|(value, _)| value);
        self.value = value.or(self.value);
        self.header = self.header.max(s.headers);
        if s.flags.has(Flags::FIN) {
            self.fin = Some(end);
        }
        if s.payload == 0 {
            return;
        }
        // A keep-alive asks with one byte that was acknowledged long ago.
        if s.payload == 1 && end <= self.una && seq + 1 == self.una {
            return;
        }
        self.largest = self.largest.max(s.payload);
        let segments = u64::from(s.payload.div_ceil(mss.max(1)));
        if self.first_data.is_none() {
            self.first_data = Some(at);
            self.now = at;
        }
        // What was in flight as it left was still on its way here.
        let mut behind = false;
        if let (Some(course), Some((_, echo))) = (&mut self.course, s.options.timestamps) {
            if end > self.next {
                behind = course.echoed(at, echo, end.saturating_sub(self.first)) > u64::from(s.payload);
            }
            let told = course.told(echo);
            if self.selective
                && let (Some(told), Some(rtt)) = (told, total_rtt)
            {
                self.holes.pass(seq, at, told.at, rtt, self.counts.segments);
            }
            if !here {
                self.sent_under(echo, told.and_then(|t| t.window), end.max(self.next), (at, u64::from(mss)));
            }
        }
        if let Some(since) = self.idle.take()
            && !behind
        {
            self.bins.spend(since, at, |bin, t| bin.idle += t);
            let pause = at.since(self.last_progress.max(self.last_data));
            if pause > total_rtt.unwrap_or(Span::from_millis(10)).max(Span::from_millis(1)) {
                let idle = &mut self.counts.idle;
                idle.times += 1;
                idle.total += pause;
                idle.longest = idle.longest.max(pause);
            }
        }
        self.paused(at, total_rtt);
        let course = self.course.get_or_insert_with(|| Course::new(at));
        let answered = here.then_some(self.una > self.first);
        let from_first = |byte: u64| byte.saturating_sub(self.first);
        let echo = s.options.timestamps.map(|(_, echo)| echo);
        course.opens(from_first(seq), from_first(end), echo, answered);
        let step = course.at(at);
        step.sent = step.sent.saturating_add(s.payload);
        let c = &mut self.counts;
        c.data_packets += 1;
        c.bytes_sent += u64::from(s.payload);
        c.segments += segments;
        match s.ecn {
            Ecn::NotCapable => {}
            Ecn::Capable => c.ecn.capable_packets += 1,
            Ecn::Marked => {
                c.ecn.capable_packets += 1;
                c.ecn.marked_packets += 1;
            }
        }
        self.bins.at(at).sent += u64::from(s.payload);
        self.bursts.leave(at, u64::from(s.payload), self.last_answer);
        self.arrivals.passes(at, u64::from(s.payload), total_rtt.unwrap_or(Span::from_millis(50)), behind);

        if seq >= self.next {
            if seq > self.next && self.counts.data_packets > 1 {
                self.hole(seq, at, value, mss);
            }
            self.fresh(seq, end, (at, passed), value);
        } else {
            self.overlapping(seq, end, (at, passed), value, mss, total_rtt);
        }
        self.short = !s.payload.is_multiple_of(mss.max(1)) && s.flags.has(Flags::PSH);
        if self.short {
            self.sampler.mark_app_limited(self.flight.outstanding());
        }
        self.last_data = at;
        let outstanding = self.flight.outstanding();
        self.inflight_max = self.inflight_max.max(outstanding);
        let bin = self.bins.at(at);
        bin.inflight = bin.inflight.max(outstanding);
        if let Some(course) = &mut self.course {
            let step = course.at(at);
            step.inflight = step.inflight.max(u32::try_from(outstanding).unwrap_or(u32::MAX));
        }
        if self.recovery <= self.una && self.edge.is_none_or(|edge| edge >= self.next + u64::from(mss)) {
            self.cwnd_at_least = self.cwnd_at_least.max(outstanding);
        }
    }

    /// Data passes after a last segment that was short and pushed: if a quarter of a round trip lies between, the
    /// application had nothing more to send, and it did not only end a record.
    fn paused(&mut self, at: Time, rtt: Option<Span>) {
        let gap = at.since(self.last_data);
        if !self.short || gap < rtt.map_or(Span::from_millis(5), |r| r / 4).max(Span::from_micros(500)) {
            return;
        }
        // What comes after the last acknowledgment is counted as idle already.
        let until = if self.next <= self.una { self.last_progress.clamp(self.last_data, at) } else { at };
        self.bins.spend(self.last_data, until, |bin, t| bin.short += t);
    }

    fn hole(&mut self, seq: u64, at: Time, value: Option<u32>, mss: u32) {
        let missing = (seq - self.next).div_ceil(u64::from(mss.max(1)));
        if missing < MANY {
            self.bins.at(at).missing += missing;
        }
        self.holes.notice(self.next, seq, at, value, self.counts.segments);
    }

    fn fresh(&mut self, seq: u64, end: u64, (at, passed): (Time, Time), value: Option<u32>) {
        let stamp = self.sampler.on_sent(at, end - seq, self.flight.outstanding());
        self.flight.add(Sent { seq, end, at: passed, stamp, times: 1, value, sacked: false });
        self.counts.fresh += end - seq;
        self.bins.at(at).fresh += end - seq;
        self.next = self.next.max(end);
        self.closed = false;
        self.mark(at, seq, end, MarkKind::Data);
    }

    /// Data not all of which is new.
    fn overlapping(
        &mut self,
        seq: u64,
        end: u64,
        (at, passed): (Time, Time),
        value: Option<u32>,
        mss: u32,
        total_rtt: Option<Span>,
    ) {
        let count = |from: u64, to: u64| (to - from).div_ceil(u64::from(mss.max(1)));
        let new_from = end.min(self.next).max(seq);
        // Below what is acknowledged it has arrived already: the ACK was lost, or the sender was wrong.
        let known_to = self.una.clamp(seq, new_from);
        if known_to > seq {
            // Unless the capture missed it and the ACK overtook it.
            self.sent_again(seq, known_to, count(seq, known_to), at, None);
        }
        for (from, to, known) in self.flight.parts(known_to, new_from) {
            match known {
                Some(sent) => {
                    let doubled =
                        total_rtt.is_some_and(|rtt| at.since(sent.at) * 2 < rtt) && sent.value == value;
                    if doubled {
                        self.counts.doubled += 1;
                        self.counts.segments = self.counts.segments.saturating_sub(count(from, to));
                        self.counts.bytes_sent -= to - from;
                        continue;
                    }
                    self.sent_again(from, to, count(from, to), at, Some(sent));
                    let stamp = self.sampler.on_sent(at, to - from, self.flight.outstanding());
                    self.flight.again(from, to, passed, stamp, value);
                }
                None => {
                    self.fresh(from, to, (at, passed), value);
                    self.filled(from, to, count(from, to), at, value, total_rtt);
                }
            }
        }
        if end > new_from {
            self.fresh(new_from, end, (at, passed), value);
        }
    }

    fn sent_again(&mut self, from: u64, to: u64, segments: u64, at: Time, sent: Option<Sent>) {
        let circumstances = Circumstances {
            overtaken: self.flight.highest_sacked() > to || self.duplicates >= 3,
            first: from <= self.una,
            last: to >= self.next,
            repeated: sent.is_some_and(|s| s.times > 1),
            after_timeout: self.timeout > from,
            silence: at.since(self.last_progress.max(self.last_data)),
            srtt: self.srtt,
        };
        let again = &mut self.counts.again;
        again.segments += segments;
        again.bytes += to - from;
        match cause(&circumstances) {
            Cause::Fast => again.fast += segments,
            Cause::TailLoss => again.tail_loss += segments,
            Cause::Timeout => {
                again.timeout += segments;
                self.timeout = self.next;
            }
        }
        self.recovery = self.recovery.max(self.next);
        self.repaired(at, segments, sent.map_or(at, |s| s.at));
        self.mark(at, from, to, MarkKind::Again);
    }

    /// Of what should have passed at `lost`, `segments` pass now.
    fn repaired(&mut self, at: Time, segments: u64, lost: Time) {
        self.bins.at(at).retransmitted += segments;
        if let Some(course) = &mut self.course {
            let segments = u32::try_from(segments).unwrap_or(u32::MAX);
            let step = course.at(at);
            step.again = step.again.saturating_add(segments);
            let step = course.at(lost);
            step.lost = step.lost.saturating_add(segments);
        }
    }

    /// An acknowledgment with the timestamp `value` passes on its way to the sender.
    pub(super) fn told(&mut self, value: u32, a: &Answer, scale: Option<u8>) {
        self.selective |= !a.sack.blocks().is_empty();
        let window = scale.map(|scale| {
            let window = u64::from(a.window) << scale;
            (unwrap(self.una, a.ack) + window, window)
        });
        if let Some(course) = &mut self.course {
            course.answered(value, Told { at: a.at, window }, self.counts.fresh);
        }
    }

    /// Data passes that later data had passed before: overtaken on the way, or sent again after the first was lost.
    fn filled(&mut self, from: u64, to: u64, segments: u64, at: Time, value: Option<u32>, rtt: Option<Span>) {
        let Some(Filled { hole, again }) = self.holes.fill(from, to, at, rtt.unwrap_or(Span::ZERO)) else {
            return;
        };
        let waited = at.since(hole.at);
        // Sent after what passed it: its clock says so; without clocks, nothing is sent again within half a round trip.
        let sent_later = match (value, hole.value) {
            (Some(this), Some(that)) => later(this, that),
            _ => waited * 2 > rtt.unwrap_or(Span::from_millis(6)),
        };
        if sent_later {
            self.counts.filled_late += segments;
            self.counts.filled_late_bytes += to - from;
            self.counts.lost_again += segments * u64::from(again);
            self.repaired(at, segments, hole.at);
            self.mark(at, from, to, MarkKind::Again);
        } else {
            let r = &mut self.counts.reordering;
            r.segments += segments;
            r.extent_bytes = r.extent_bytes.max(self.next - to);
            r.extent = r.extent.max(waited);
        }
    }

    /// An acknowledgment reaches the data's sender at `now`. Gives the time from the place of capture to the receiver
    /// and back, if this ACK shows it.
    pub(super) fn answer(
        &mut self,
        a: &Answer,
        now: Time,
        scale: Option<u8>,
        mss: u32,
        rtt: Option<Span>,
    ) -> Option<Span> {
        if !self.begun {
            self.begun = true;
            let at = ORIGIN + u64::from(a.ack);
            (self.first, self.next, self.una) = (at, at, at);
        }
        let ack = unwrap(self.una, a.ack);
        // Further than any window allows: another connection's, or nonsense.
        if ack > self.next + (1 << 30) || ack + (1 << 31) < self.una {
            return None;
        }
        self.counts.acks += 1;
        let before = self.flight.outstanding();
        let mut newest: Option<Sent> = None;
        let mut ambiguous = false;
        let mut arrived = 0;
        self.sampler.begin_ack();
        let sampler = &mut self.sampler;
        let mut on_arrived = |s: &Sent| {
            sampler.on_acked(now, s.len(), &s.stamp);
            arrived += s.len();
            if s.times > 1 {
                ambiguous = true;
            } else if newest.is_none_or(|n| (s.at, s.seq) > (n.at, n.seq)) {
                newest = Some(*s);
            }
        };
        let mut eifel = 0;
        let mut fin_acked = false;
        let advances = ack > self.una;
        let moves = ack.saturating_sub(self.una);
        let had_arrived = self.counts.fresh - before.min(self.counts.fresh);
        if advances {
            fin_acked = self.fin.is_some_and(|fin| ack == fin + 1);
            let data_end = if fin_acked { ack - 1 } else { ack };
            if data_end > self.next {
                self.counts.unseen += data_end - self.next;
                self.next = data_end;
            }
            let echo = a.echo;
            self.flight.acknowledge(ack, |s| {
                // RFC 3522 §3.2: the ACK of a retransmission that echoes an earlier time answers the first sending.
                if s.times > 1 && matches!((echo, s.value), (Some(e), Some(v)) if later(v, e)) {
                    eifel += s.len().div_ceil(u64::from(mss.max(1)));
                }
                on_arrived(s);
            });
            self.una = ack;
            self.counts.unseen += self.holes.acknowledge(ack);
        }
        let mut dsack = 0;
        let blocks = a.sack.blocks();
        if !blocks.is_empty() {
            let mut list = [(0, 0); 4];
            let mut n = 0;
            for (i, &(from, to)) in blocks.iter().enumerate() {
                let (from, to) = (unwrap(self.una, from), unwrap(self.una, to));
                if from >= to || to > self.next || to - from > 1 << 30 {
                    continue;
                }
                let inside = || {
                    blocks.get(1).is_some_and(|&(a, b)| {
                        let (a, b) = (unwrap(self.una, a), unwrap(self.una, b));
                        a <= from && to <= b
                    })
                };
                // RFC 2883 §4: the first block tells of a duplicate if it is below the ACK or inside the second.
                if i == 0 && (to <= ack || inside()) {
                    dsack = (to - from).div_ceil(u64::from(mss.max(1)));
                    continue;
                }
                list[n] = (from, to);
                n += 1;
            }
            self.flight.select(&list[..n], &mut on_arrived);
            for &(from, to) in &list[..n] {
                self.mark(a.at, from, to, MarkKind::Sack);
            }
        }
        let edge = self.edge;
        self.counts.dsack += dsack;
        self.counts.eifel += eifel;
        if a.flags.has(Flags::ECE) && !a.flags.has(Flags::SYN) {
            self.counts.ecn.echoes += 1;
        }
        if advances || arrived > 0 {
            self.last_progress = now;
            self.last_answer = Some(now);
        }
        if advances {
            self.duplicates = 0;
        } else if a.bare && ack == self.una && before > 0 {
            self.duplicates += 1;
        }
        self.window(a, ack, scale, fin_acked);
        if advances || a.bare {
            self.mark(a.at, ack, self.una, MarkKind::Ack);
        }
        if let Some(new) = self.edge.filter(|_| self.edge != edge) {
            self.mark(a.at, new, new, MarkKind::Window);
        }
        let bin = self.bins.at(now);
        bin.acked += arrived;
        if let Some(course) = &mut self.course {
            let step = course.at(now);
            step.arrived = step.arrived.saturating_add(u32::try_from(arrived).unwrap_or(u32::MAX));
            if let Some(scale) = scale.filter(|_| !a.flags.has(Flags::SYN)) {
                let window = u64::from(a.window) << scale;
                let told = Acknowledgment { arrived: had_arrived, moves, window, hole: !blocks.is_empty() };
                course.acknowledges(told, mss);
            }
        }
        if let Some(edge) = self.edge {
            bin.window = edge.saturating_sub(self.una);
        }
        let sample = self.sampler.finish_ack(now, rtt);
        if let Some(rate) = sample.rate
            && !sample.app_limited
        {
            self.rates.add(rate.as_bytes_per_sec() as f64, arrived as f64);
        }
        // Karn: data that was sent twice does not say which sending was acknowledged.
        newest.filter(|_| !ambiguous).map(|s| a.at.since(s.at))
    }

    fn window(&mut self, a: &Answer, ack: u64, scale: Option<u8>, fin_acked: bool) {
        // A SYN's window is not scaled (RFC 7323 §2.2), a reset's means nothing.
        if a.flags.has(Flags::RST) {
            return;
        }
        let shift = if a.flags.has(Flags::SYN) { 0 } else { scale.unwrap_or(0) };
        let window = u64::from(a.window) << shift;
        let edge = ack + window;
        if ack >= self.una && (scale.is_some() || a.flags.has(Flags::SYN)) {
            self.edge = Some(self.edge.map_or(edge, |e| if window == 0 { edge } else { e.max(edge) }));
        }
        if a.flags.has(Flags::SYN) || fin_acked {
            return;
        }
        let w = &mut self.counts.window;
        w.scale_unknown |= scale.is_none();
        if window == 0 {
            w.zero += 1;
        }
        w.min_bytes = Some(w.min_bytes.map_or(window, |m| m.min(window)));
        w.max_bytes = Some(w.max_bytes.map_or(window, |m| m.max(window)));
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
