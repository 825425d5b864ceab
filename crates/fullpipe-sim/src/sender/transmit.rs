//! Transmission: lost segments before new ones, as window, pacer, receiver and application allow
//! (`tcp_write_xmit`, `tcp_xmit_retransmit_queue`).

use super::Sender;
use super::timer::Timer;
use crate::segment::{Kind, Segment};
use fullpipe_cc::{CongestionControl, Stamp, Time};
use fullpipe_experiment::recording::EventKind;

/// Most payload in flight: what a TCP window can express (RFC 7323 §2.3).
const MAX_BYTES: u64 = 1 << 30;
/// Most segments outstanding, which bounds memory when segments are tiny.
const MAX_SEGMENTS: u64 = 1 << 20;

/// The next segment to send.
enum Next {
    Lost(u64),
    New,
}

impl<C: CongestionControl> Sender<C> {
    /// Sends as much as window, pacer, receiver and application allow. The application refills the
    /// send buffer as it becomes free.
    pub fn send(&mut self, now: Time, out: &mut impl FnMut(Segment, bool)) {
        self.send_buffered(now, out);
        while self.send_buffer.fill(self.written, self.board.una_bytes(), self.board.nxt_bytes()) {
            self.send_buffered(now, out);
        }
    }

    /// Sends as much of the send buffer as is allowed.
    fn send_buffered(&mut self, now: Time, out: &mut impl FnMut(Segment, bool)) {
        let outstanding_before = self.board.outstanding();
        let sent_before = self.counts.sent;
        let mut by_window = false;
        let paced = self.control.pacing_rate().is_some();
        loop {
            let busy_until = self.cpu.map_or(now, |cpu| cpu.free());
            if busy_until > now || !self.control.ready(now) {
                if self.has_something(&mut by_window) {
                    self.paced_until = busy_until.max(self.control.next_departure());
                }
                break;
            }
            let quantum = if self.offloads { self.largest_burst() } else { self.control.send_quantum() };
            if self.offloads && self.defers_new(now, quantum, &mut by_window) {
                break;
            }
            let (bytes, segments) = self.send_burst(now, quantum, &mut by_window, out);
            if segments == 0 {
                break;
            }
            self.control.on_batch_sent(now, bytes, segments);
            if let Some(cpu) = &mut self.cpu {
                // With offload the processor handles a burst as one segment.
                cpu.handle(now, if self.offloads { 1 } else { segments }, bytes);
            }
            self.send_buffer.sent(self.board.nxt_bytes());
            if !paced && !self.offloads {
                break;
            }
        }
        let sent = self.counts.sent > sent_before;
        if sent || by_window {
            by_window |= self.board.inflight() + self.smss > self.window();
            self.limited.on_sent(by_window, self.board.outstanding(), self.board.una(), self.board.nxt());
        }
        if sent {
            if outstanding_before == 0 || self.timer.is_none() {
                self.timer = None;
                self.rearm_rto(now);
            }
            if self.timer != Some(Timer::Reordering) && self.board.outstanding() > outstanding_before {
                self.schedule_probe(now, false);
            }
        }
    }

    /// Whether new data is next and segmentation offload defers it.
    fn defers_new(&mut self, now: Time, burst: u64, by_window: &mut bool) -> bool {
        let window = self.window().min(MAX_BYTES);
        matches!(self.next_to_send(window, by_window), Some(Next::New)) && self.defers(now, burst, by_window)
    }

    /// Whether a packet could be sent if the pacer allowed it.
    fn has_something(&mut self, by_window: &mut bool) -> bool {
        let window = self.window().min(MAX_BYTES);
        self.next_to_send(window, by_window).is_some()
    }

    /// The next segment to send: a lost one, or a new one.
    #[inline]
    fn next_to_send(&mut self, window: u64, by_window: &mut bool) -> Option<Next> {
        let inflight = self.board.inflight();
        let fits = |len: u64| inflight + len <= window || inflight == 0;
        let new = self.next_new();
        if !(self.new_first && new.is_some())
            && let Some(seq) = self.board.next_lost()
        {
            let len = u64::from(self.board.get(seq).len);
            if fits(len) {
                return Some(Next::Lost(seq));
            }
            *by_window = true;
            return None;
        }
        let len = new?;
        if !fits(len) {
            *by_window = true;
            return None;
        }
        Some(Next::New)
    }

    /// Length of the next new segment, if application and receiver allow it.
    #[inline]
    pub(super) fn next_new(&self) -> Option<u64> {
        let unsent = self.unsent();
        if unsent == 0 || self.board.outstanding() >= MAX_SEGMENTS {
            return None;
        }
        let len = unsent.min(self.smss);
        let nagle = len < self.smss && !self.closed && self.small_end > self.board.una();
        (!nagle && self.board.nxt_bytes() + len <= self.edge).then_some(len)
    }

    fn send_burst(
        &mut self,
        now: Time,
        quantum: u64,
        by_window: &mut bool,
        out: &mut impl FnMut(Segment, bool),
    ) -> (u64, u64) {
        let (mut bytes, mut segments) = (0, 0);
        let mut window = self.window().min(MAX_BYTES);
        let offloads = self.offloads;
        let quantum = if offloads { quantum.min((window / 2).max(self.smss)) } else { quantum };
        // The last segment of a burst is known only when there is no next one, so output lags by one.
        let mut last = None;
        let mut out_delayed = |segment: Segment, again: bool| {
            let next = (segment, again);
            let ready = if offloads { last.replace(next) } else { Some(next) };
            if let Some((segment, again)) = ready {
                out(segment, again);
            }
        };
        while bytes < quantum {
            let Some(next) = self.next_to_send(window, by_window) else { break };
            let len = match next {
                Next::Lost(seq) => self.retransmit(now, seq, &mut out_delayed),
                Next::New => self.send_new(now, &mut out_delayed),
            };
            if segments == 0 {
                // The controller may restart on the first packet after an idle period.
                window = self.window().min(MAX_BYTES);
            }
            bytes += len;
            segments += 1;
        }
        if let Some((segment, again)) = last {
            // PSH is set on the last segment of an offloaded burst (`__tcp_transmit_skb`) and at the end of
            // the send buffer (`tcp_push`).
            out(Segment { push: segments > 1 || self.unsent() == 0, ..segment }, again);
        }
        (bytes, segments)
    }

    #[inline]
    fn notify_sent(&mut self, now: Time, bytes: u64, retransmit: bool) -> Stamp {
        let inflight = self.board.inflight();
        if inflight == 0 && !retransmit && self.counts.sent > 0 && now.since(self.last_sent) > self.rtt.rto()
        {
            self.record_event(now, EventKind::IdleRestart, None);
        }
        self.last_sent = now;
        self.counts.sent += 1;
        self.control.on_sent(now, bytes, inflight, retransmit)
    }

    pub(super) fn send_new(&mut self, now: Time, out: &mut impl FnMut(Segment, bool)) -> u64 {
        let len = self.unsent().min(self.smss);
        let stamp = self.notify_sent(now, len, false);
        let seq = self.board.nxt();
        self.board.push(len as u16, stamp);
        if len < self.smss {
            self.small_end = self.board.nxt();
        }
        let edge = self.board.nxt_bytes();
        out(
            Segment { seq, stamp: now, edge, detail: len as u32, ce: 0, kind: Kind::Data, push: false },
            false,
        );
        len
    }

    pub(super) fn retransmit(&mut self, now: Time, seq: u64, out: &mut impl FnMut(Segment, bool)) -> u64 {
        let e = self.board.get(seq);
        let (len, start) = (u64::from(e.len), self.board.start_of(seq));
        self.counts.superseded += u64::from(!e.is_lost());
        let stamp = self.notify_sent(now, len, true);
        self.board.retransmitted(seq, stamp);
        self.recovering.on_retransmit(now);
        self.counts.retransmitted += 1;
        let edge = start + len;
        out(
            Segment { seq, stamp: now, edge, detail: len as u32, ce: 0, kind: Kind::Data, push: false },
            true,
        );
        len
    }
}
