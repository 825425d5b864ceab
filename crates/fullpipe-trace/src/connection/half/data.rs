//! Adds captured data to a direction.

use super::{DISORDER, Half};
use crate::connection::flight::Sent;
use crate::connection::trajectory::Trajectory;
use crate::wire::{Ecn, Flags, Segment};
use fullpipe_experiment::connection::MarkKind;
use fullpipe_units::{Span, Time};

/// A larger gap is not a loss: the data belongs to another connection or is damaged.
const MAX_GAP_SEGMENTS: u64 = 1 << 16;
/// Segments that a sender can have in flight without any acknowledgment (RFC 6928 §2).
const INITIAL_WINDOW_SEGMENTS: u64 = 10;
/// Assumed if the RTT is unknown.
const UNKNOWN_RTT: Span = Span::from_millis(50);

/// Captured data.
#[derive(Clone, Copy)]
pub(super) struct Data {
    pub(super) seq: u64,
    pub(super) end: u64,
    pub(super) at: Time,
    /// Its own capture time, even if it is slightly out of order in the capture.
    pub(super) captured_at: Time,
    /// Timestamp of the sender, and its echo of the receiver's.
    pub(super) value: Option<u32>,
    echo: Option<u32>,
    mss: u32,
    /// IPv4 identification; 0: none.
    pub(super) id: u16,
    /// Minimum RTT, if known.
    pub(super) rtt: Option<Span>,
}

impl Data {
    fn bytes(&self) -> u64 {
        self.end - self.seq
    }

    /// Number of segments of a byte range.
    #[inline]
    pub(super) fn segments(&self, from: u64, to: u64) -> u64 {
        (to - from).div_ceil(u64::from(self.mss.max(1)))
    }
}

impl Half {
    /// Adds data or a FIN. `rtt`: minimum RTT, if known. `at_sender`: captured at the sender.
    pub(in crate::connection) fn add_data(
        &mut self,
        s: &Segment,
        at: Time,
        mss: u32,
        (rtt, at_sender): (Option<Span>, bool),
    ) {
        // A SYN has a sequence number of its own, before its data (TCP Fast Open).
        let seq = self.begin(s.seq) + u64::from(s.flags.has(Flags::SYN));
        let end = seq + u64::from(s.payload);
        let (value, echo) = s.options.timestamps.unzip();
        self.value = value.or(self.value);
        self.header = self.header.max(s.headers);
        if s.flags.has(Flags::FIN) {
            self.fin = Some(end);
        }
        if s.payload == 0 {
            return;
        }
        if self.is_probe(seq, end) {
            return;
        }
        let pushed = s.flags.has(Flags::PSH);
        if s.payload >= self.largest {
            self.unpushed = !pushed || self.unpushed && s.payload == self.largest;
            self.largest = s.payload;
        }
        let small = !s.payload.is_multiple_of(mss.max(1));
        if self.first_data.is_none() {
            self.first_data = Some(at);
            self.now = at;
        }
        let captured_at = if at.since(s.at) < DISORDER { s.at } else { at };
        let d = Data { seq, end, at, captured_at, value, echo, mss, id: self.doubles.identification(s), rtt };
        let in_flight_before = self.process_echo(&d, at_sender);
        self.decide_zero_window(at, rtt);
        if small {
            self.add_small(end, at, (rtt, at_sender));
        }
        self.end_idle(&d, in_flight_before);
        self.check_pause(at, rtt);
        self.count_data(&d, s, at_sender);
        self.bursts.add(at, d.bytes(), self.last_answer);
        self.arrivals.add(at, d.bytes(), rtt.unwrap_or(Span::from_millis(50)), in_flight_before);
        if seq >= self.next {
            if seq > self.next {
                self.note_hole(&d);
            }
            if end <= self.acked_here {
                self.counts.misordered += u64::from(captured_at == at);
            }
            self.add_new(seq, end, &d);
        } else {
            self.add_overlapping(&d);
        }
        self.short = small && pushed;
        if self.short {
            self.sampler.mark_app_limited(self.flight.outstanding());
        }
        self.last_data = at;
        self.record_inflight(at, mss);
    }

    /// Processes the echoed timestamp, which shows the state of the sender. Returns whether other
    /// data was in flight between the sender and the place of capture.
    #[inline]
    fn process_echo(&mut self, d: &Data, at_sender: bool) -> bool {
        let (Some(trajectory), Some(echo)) = (&mut self.trajectory, d.echo) else { return false };
        let in_flight_before = d.end > self.next
            && trajectory.data_echoes(d.at, echo, d.end.saturating_sub(self.first)) > d.bytes();
        let known = trajectory.known_to_sender(echo);
        if self.uses_sack
            && let (Some(known), Some(rtt)) = (known, d.rtt)
        {
            self.holes.data_passes(d.seq, d.at, known.at, rtt, self.counts.segments);
        }
        if !at_sender {
            let (window, end) = (known.and_then(|k| k.window), d.end.max(self.next));
            self.record_sent_under(echo, window, end, (d.at, u64::from(d.mss)));
        }
        in_flight_before
    }

    /// Ends an idle period, unless other data was in flight before the place of capture.
    #[inline]
    fn end_idle(&mut self, d: &Data, in_flight_before: bool) {
        let Some(since) = self.idle.take().filter(|_| !in_flight_before) else { return };
        self.bins.add_time(since, d.at, |bin, t| bin.idle += t);
        let progress = self.last_progress.max(self.last_data);
        let pause = d.at.since(self.zero_window_end().map_or(progress, |end| end.max(progress)));
        if pause > d.rtt.unwrap_or(Span::from_millis(10)).max(Span::from_millis(1)) {
            let idle = &mut self.counts.idle;
            idle.times += 1;
            idle.total += pause;
            idle.longest = idle.longest.max(pause);
            // Otherwise the pause after a pushed segment is recorded.
            if !self.short {
                self.record_small_flight(d.mss);
            }
        }
        self.flight_start = Some(self.next);
    }

    /// Records the time from the last data to its acknowledgment as application-limited if its
    /// flight would fit in an initial window: a sender with more data would have sent it.
    fn record_small_flight(&mut self, mss: u32) {
        let flight = self.next.saturating_sub(self.flight_start.unwrap_or(self.first));
        if flight <= INITIAL_WINDOW_SEGMENTS * u64::from(mss) {
            self.bins.add_time(self.last_data, self.last_progress, |bin, t| bin.short += t);
        }
    }

    /// Ends the capture with the last packet of the connection at `last`.
    pub(in crate::connection) fn finish_flight(&mut self, last: Time, mss: u32, rtt: Option<Span>) {
        let silence = last.since(self.last_progress);
        let is_over = self.short || self.fin.is_some() || silence > rtt.unwrap_or(UNKNOWN_RTT);
        if self.first_data.is_some() && self.una >= self.next && is_over {
            self.record_small_flight(mss);
        }
    }

    /// Counts the pause after a short, pushed segment as application-limited if it is longer than a
    /// quarter of an RTT; a shorter one only ended a record.
    fn check_pause(&mut self, at: Time, rtt: Option<Span>) {
        let gap = at.since(self.last_data);
        if !self.short || gap < rtt.map_or(Span::from_millis(5), |r| r / 4).max(Span::from_micros(500)) {
            return;
        }
        // The time after the last acknowledgment is already counted as idle.
        let until = if self.next <= self.una { self.last_progress.clamp(self.last_data, at) } else { at };
        self.bins.add_time(self.last_data, until, |bin, t| bin.short += t);
    }

    /// Adds new or retransmitted data to the counters.
    #[inline]
    fn count_data(&mut self, d: &Data, s: &Segment, at_sender: bool) {
        let answered = at_sender.then_some(self.una > self.first);
        let from_first = |byte: u64| byte.saturating_sub(self.first);
        let trajectory = self.trajectory.get_or_insert_with(|| Trajectory::new(d.at));
        trajectory.track_opening(from_first(d.seq), from_first(d.end), d.echo, answered);
        let step = trajectory.at(d.at);
        step.sent = step.sent.saturating_add(s.payload);
        trajectory.data_passes(d.at, d.bytes());
        let c = &mut self.counts;
        c.data_packets += 1;
        c.bytes_sent += d.bytes();
        c.segments += u64::from(s.payload.div_ceil(d.mss.max(1)));
        match s.ecn {
            Ecn::NotCapable => {}
            Ecn::Capable => c.ecn.capable_packets += 1,
            Ecn::Marked => {
                c.ecn.capable_packets += 1;
                c.ecn.marked_packets += 1;
            }
        }
        self.bins.at(d.at).sent += d.bytes();
    }

    fn note_hole(&mut self, d: &Data) {
        let missing = d.segments(self.next, d.seq);
        if missing < MAX_GAP_SEGMENTS {
            self.bins.at(d.at).missing += missing;
        }
        self.holes.add(self.next, d.seq, d.at, d.value, self.counts.segments);
    }

    /// Adds the new bytes `seq..end`.
    #[inline]
    pub(super) fn add_new(&mut self, seq: u64, end: u64, d: &Data) {
        let stamp = self.sampler.on_sent(d.at, end - seq, self.flight.outstanding());
        self.flight.add(Sent {
            seq,
            end,
            at: d.captured_at,
            stamp,
            times: 1,
            value: d.value,
            id: d.id,
            sacked: false,
        });
        self.counts.new_bytes += end - seq;
        self.bins.at(d.at).new_bytes += end - seq;
        self.next = self.next.max(end);
        self.closed = false;
        self.mark(d.at, seq, end, MarkKind::Data);
    }

    /// Records the data in flight.
    #[inline]
    fn record_inflight(&mut self, at: Time, mss: u32) {
        let outstanding = self.flight.outstanding();
        self.inflight_max = self.inflight_max.max(outstanding);
        let bin = self.bins.at(at);
        bin.inflight = bin.inflight.max(outstanding);
        if let Some(trajectory) = &mut self.trajectory {
            let step = trajectory.at(at);
            step.inflight = step.inflight.max(u32::try_from(outstanding).unwrap_or(u32::MAX));
        }
        if self.recovery <= self.una && self.edge.is_none_or(|edge| edge >= self.next + u64::from(mss)) {
            self.cwnd_at_least = self.cwnd_at_least.max(outstanding);
        }
    }
}
