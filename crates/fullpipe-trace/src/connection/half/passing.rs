//! Data passes.

use super::{DISORDER, Half};
use crate::connection::course::Course;
use crate::connection::flight::Sent;
use crate::wire::{Ecn, Flags, Segment};
use fullpipe_experiment::connection::MarkKind;
use fullpipe_units::{Span, Time};

/// More segments at once are not missing but another connection's, or nonsense.
const MANY: u64 = 1 << 16;

/// Data as it passes.
#[derive(Clone, Copy)]
pub(super) struct Passing {
    pub(super) seq: u64,
    pub(super) end: u64,
    pub(super) at: Time,
    /// When it passed, also where the capture has it a little late, behind what passed after it.
    pub(super) passed: Time,
    /// What its sender's clock said, and the last that the sender had heard of the receiver's.
    pub(super) value: Option<u32>,
    echo: Option<u32>,
    mss: u32,
    /// The least round trip known.
    pub(super) rtt: Option<Span>,
}

impl Passing {
    fn bytes(&self) -> u64 {
        self.end - self.seq
    }

    /// How many segments these bytes are.
    #[inline]
    pub(super) fn segments(&self, from: u64, to: u64) -> u64 {
        (to - from).div_ceil(u64::from(self.mss.max(1)))
    }
}

impl Half {
    /// Data, or a FIN, passes at the place of capture, `here` if that is at its sender. `rtt` is the least round trip known.
    pub(in crate::connection) fn data(
        &mut self,
        s: &Segment,
        at: Time,
        mss: u32,
        (rtt, here): (Option<Span>, bool),
    ) {
        let seq = self.begin(s.seq);
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
        // A keep-alive asks with one byte that was acknowledged long ago.
        if s.payload == 1 && end <= self.una && seq + 1 == self.una {
            return;
        }
        self.largest = self.largest.max(s.payload);
        if self.first_data.is_none() {
            self.first_data = Some(at);
            self.now = at;
        }
        let passed = if at.since(s.at) < DISORDER { s.at } else { at };
        let p = Passing { seq, end, at, passed, value, echo, mss, rtt };
        let behind = self.left(&p, here);
        self.resumes(&p, behind);
        self.paused(at, rtt);
        self.counted(&p, s, here);
        self.bursts.leave(at, p.bytes(), self.last_answer);
        self.arrivals.passes(at, p.bytes(), rtt.unwrap_or(Span::from_millis(50)), behind);
        if seq >= self.next {
            if seq > self.next && self.counts.data_packets > 1 {
                self.hole(&p);
            }
            self.fresh(seq, end, &p);
        } else {
            self.overlapping(&p);
        }
        self.short = !s.payload.is_multiple_of(mss.max(1)) && s.flags.has(Flags::PSH);
        if self.short {
            self.sampler.mark_app_limited(self.flight.outstanding());
        }
        self.last_data = at;
        self.in_flight(at, mss);
    }

    /// What its timestamps tell of the moment at which it left its sender. Gives whether more was in flight then than this: the
    /// rest was still on its way here.
    #[inline]
    fn left(&mut self, p: &Passing, here: bool) -> bool {
        let (Some(course), Some(echo)) = (&mut self.course, p.echo) else { return false };
        let behind =
            p.end > self.next && course.echoed(p.at, echo, p.end.saturating_sub(self.first)) > p.bytes();
        let told = course.told(echo);
        if self.selective
            && let (Some(told), Some(rtt)) = (told, p.rtt)
        {
            self.holes.pass(p.seq, p.at, told.at, rtt, self.counts.segments);
        }
        if !here {
            let (window, end) = (told.and_then(|t| t.window), p.end.max(self.next));
            self.sent_under(echo, window, end, (p.at, u64::from(p.mss)));
        }
        behind
    }

    /// Ends a time with nothing in flight, unless something was that is not seen here.
    #[inline]
    fn resumes(&mut self, p: &Passing, behind: bool) {
        let Some(since) = self.idle.take().filter(|_| !behind) else { return };
        self.bins.spend(since, p.at, |bin, t| bin.idle += t);
        let pause = p.at.since(self.last_progress.max(self.last_data));
        if pause > p.rtt.unwrap_or(Span::from_millis(10)).max(Span::from_millis(1)) {
            let idle = &mut self.counts.idle;
            idle.times += 1;
            idle.total += pause;
            idle.longest = idle.longest.max(pause);
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

    /// Adds it to what was sent, whether it is new or not.
    #[inline]
    fn counted(&mut self, p: &Passing, s: &Segment, here: bool) {
        let answered = here.then_some(self.una > self.first);
        let from_first = |byte: u64| byte.saturating_sub(self.first);
        let course = self.course.get_or_insert_with(|| Course::new(p.at));
        course.opens(from_first(p.seq), from_first(p.end), p.echo, answered);
        let step = course.at(p.at);
        step.sent = step.sent.saturating_add(s.payload);
        let c = &mut self.counts;
        c.data_packets += 1;
        c.bytes_sent += p.bytes();
        c.segments += u64::from(s.payload.div_ceil(p.mss.max(1)));
        match s.ecn {
            Ecn::NotCapable => {}
            Ecn::Capable => c.ecn.capable_packets += 1,
            Ecn::Marked => {
                c.ecn.capable_packets += 1;
                c.ecn.marked_packets += 1;
            }
        }
        self.bins.at(p.at).sent += p.bytes();
    }

    fn hole(&mut self, p: &Passing) {
        let missing = p.segments(self.next, p.seq);
        if missing < MANY {
            self.bins.at(p.at).missing += missing;
        }
        self.holes.notice(self.next, p.seq, p.at, p.value, self.counts.segments);
    }

    /// The part from `seq` to `end` passes for the first time.
    #[inline]
    pub(super) fn fresh(&mut self, seq: u64, end: u64, p: &Passing) {
        let stamp = self.sampler.on_sent(p.at, end - seq, self.flight.outstanding());
        self.flight.add(Sent { seq, end, at: p.passed, stamp, times: 1, value: p.value, sacked: false });
        self.counts.fresh += end - seq;
        self.bins.at(p.at).fresh += end - seq;
        self.next = self.next.max(end);
        self.closed = false;
        self.mark(p.at, seq, end, MarkKind::Data);
    }

    /// What is in flight now, with what has just passed.
    #[inline]
    fn in_flight(&mut self, at: Time, mss: u32) {
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
}
