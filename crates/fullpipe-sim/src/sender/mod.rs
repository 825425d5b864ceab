//! The sending end of a connection, modelled on Linux: processing of ACKs (`ack`), start and end of
//! recovery (`alert`), transmission (`transmit`), and timeouts (`timer`).

mod ack;
#[cfg(test)]
mod agreement;
mod alert;
mod limited;
mod memory;
mod offload;
mod rack;
mod recovery;
mod rto;
mod scoreboard;
mod timer;
mod transmit;
mod wheel;

use crate::processor::Processor;
use fullpipe_cc::{CongestionControl, Rate, SendController, Span, Time};
use fullpipe_experiment::recording::{Event, EventKind};
use limited::CwndLimited;
use memory::SendBuffer;
use rack::Rack;
use recovery::Recovering;
use rto::RttEstimator;
use scoreboard::Scoreboard;
use timer::Timer;
pub(crate) use wheel::Wheel;

/// The sender's counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    /// Data packets sent, retransmissions included.
    pub sent: u64,
    pub retransmitted: u64,
    /// Packets marked lost.
    pub marked_lost: u64,
    /// Packets that arrived: acknowledged, cumulatively or selectively.
    pub arrived: u64,
    /// Of these, marked lost and not retransmitted before their arrival was reported.
    pub found: u64,
    /// Packets whose loss mark was undone.
    pub unmarked: u64,
    /// Packets retransmitted as a probe while still counted as in flight.
    pub superseded: u64,
}

/// An event for the recording, smaller than the recording's: with many flows there are many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SenderEvent {
    at: Time,
    /// NaN without one.
    value: f64,
    kind: EventKind,
}

impl SenderEvent {
    /// It as the recording has it.
    pub fn recorded(&self) -> Event {
        let value = (!self.value.is_nan()).then_some(self.value);
        Event { at_s: self.at.as_secs_f64(), kind: self.kind, value }
    }
}

/// A tail loss probe that has been sent and not answered.
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// It is answered once everything below this segment is acknowledged.
    high: u64,
    retransmission: bool,
}

/// The sending end of a connection.
#[derive(Debug)]
pub(crate) struct Sender<C> {
    control: SendController<C>,
    smss: u64,
    board: Scoreboard,
    rtt: RttEstimator,
    rack: Rack,
    recovering: Recovering,
    limited: CwndLimited,
    /// The running timer, and when it expires.
    timer: Option<Timer>,
    timer_at: Time,
    /// The retransmission timeout when the timer was set: a sample from a selective ACK shortens the
    /// timeout, but not the running timer (`tcp_ack`: no `FLAG_SET_XMIT_TIMER`).
    #[cfg(test)]
    rto_when_armed: Span,
    /// The kernel's timer wheel; without it, timers are exact to the nanosecond.
    pub wheel: Option<Wheel>,
    /// Processing costs of the sending end, if any.
    pub cpu: Option<Processor>,
    /// When the pacer releases the next packet, if it delays one.
    paced_until: Time,
    probe: Option<Probe>,
    /// F-RTO sends new data before what is lost.
    new_first: bool,
    /// Bytes the application has written.
    written: u64,
    /// The application will write no more.
    closed: bool,
    send_buffer: SendBuffer,
    /// Sends as with segmentation offload.
    offloads: bool,
    /// The longest time that the receiver may delay an ACK.
    max_ack_delay: Span,
    /// Right edge of the receive window.
    edge: u64,
    /// One past the last segment that was sent less than full (`tcp_minshall_check`).
    small_end: u64,
    last_sent: Time,
    delivery_rate: Rate,
    pub counts: Counts,
    pub events: Vec<SenderEvent>,
}

impl<C: CongestionControl> Sender<C> {
    /// A sender of segments of `smss` payload bytes.
    pub fn new(cc: C, smss: u32, send_buffer: Option<u64>) -> Self {
        Sender {
            control: SendController::new(cc, smss),
            smss: u64::from(smss),
            board: Scoreboard::new(),
            rtt: RttEstimator::default(),
            rack: Rack::default(),
            recovering: Recovering::default(),
            limited: CwndLimited::default(),
            timer: None,
            timer_at: Time::NEVER,
            #[cfg(test)]
            rto_when_armed: Span::ZERO,
            wheel: None,
            cpu: None,
            paced_until: Time::NEVER,
            probe: None,
            new_first: false,
            written: 0,
            closed: false,
            send_buffer: SendBuffer::plain(send_buffer),
            offloads: false,
            max_ack_delay: Span::ZERO,
            edge: 0,
            small_end: 0,
            last_sent: Time::ZERO,
            delivery_rate: Rate::ZERO,
            counts: Counts::default(),
            events: Vec::new(),
        }
    }

    /// Sends as with segmentation offload, if `offloads`, from a buffer that Linux's rules account
    /// for.
    pub fn offloading(self, offloads: bool) -> Self {
        if !offloads {
            return self;
        }
        Sender { offloads, send_buffer: self.send_buffer.like_linux(self.smss), ..self }
    }

    /// Adds the receiver's `max_ack_delay` to the probe and retransmission timeouts (RFC 9002
    /// §6.2.1).
    pub fn expecting_acks_after(self, max_ack_delay: Option<Span>) -> Self {
        Sender { max_ack_delay: max_ack_delay.unwrap_or_default(), ..self }
    }

    /// If `paced`, paces a controller without a pacing rate by its window.
    pub fn paced(self, paced: bool) -> Self {
        if !paced {
            return self;
        }
        Sender { control: self.control.paced_by_window(), ..self }
    }

    /// The handshake is complete; `rtt` if it was not retransmitted.
    pub fn establish(&mut self, now: Time, rtt: Option<Span>, edge: u64) {
        self.edge = edge;
        if let Some(rtt) = rtt {
            self.rtt.sample(rtt, 0, 0);
            self.rtt.sample_min(now, rtt);
            self.control.on_handshake(now, rtt);
        }
    }

    /// The application has written `bytes` more.
    pub fn write(&mut self, bytes: u64) {
        self.written = self.written.saturating_add(bytes);
    }

    /// Discards data that was written and not yet sent. Returns the bytes written that remain.
    pub fn forget_unsent(&mut self) -> u64 {
        self.written = self.written.min(self.board.nxt_bytes());
        self.written
    }

    /// The application will write no more; if `truncate`, data not yet in the send buffer is
    /// discarded.
    pub fn close(&mut self, truncate: bool) {
        if truncate {
            self.written = self.written.min(self.board.nxt_bytes().max(self.unlimited_end()));
        }
        self.closed = true;
    }

    /// Bytes written; for an application that writes without limit, the bytes sent.
    fn unlimited_end(&self) -> u64 {
        if self.written == u64::MAX { self.board.nxt_bytes() } else { self.written }
    }

    /// Payload bytes sent, each counted once.
    pub fn sent_end(&self) -> u64 {
        self.board.nxt_bytes()
    }

    /// Whether everything written has been acknowledged.
    pub fn is_idle(&self) -> bool {
        self.board.una_bytes() == self.written
    }

    /// The next time at which a timer expires or the pacer releases a packet.
    #[inline]
    pub fn wake(&self) -> Time {
        self.timer_at.min(self.paced_until)
    }

    /// The controller.
    #[inline]
    pub fn controller(&self) -> &C {
        self.control.controller()
    }

    /// The controller, for a caller that drives it from outside.
    pub fn controller_mut(&mut self) -> &mut C {
        self.control.controller_mut()
    }

    /// Payload bytes in flight.
    pub fn inflight(&self) -> u64 {
        self.board.inflight()
    }

    /// Payload bytes known to have arrived.
    pub fn delivered(&self) -> u64 {
        self.control.delivered()
    }

    /// Latest, smoothed and minimum round-trip time.
    pub fn rtts(&self) -> (Option<Span>, Option<Span>, Option<Span>) {
        (self.rtt.latest(), self.rtt.srtt(), self.rtt.min())
    }

    /// The pacing rate, if packets are paced.
    pub fn pacing_rate(&self) -> Option<Rate> {
        self.control.pacing_rate()
    }

    /// The latest delivery-rate sample.
    pub fn delivery_rate(&self) -> Rate {
        self.delivery_rate
    }

    /// Smoothed round-trip time.
    #[inline]
    pub fn srtt(&self) -> Option<Span> {
        self.rtt.srtt()
    }

    /// The current retransmission timeout.
    pub fn rto(&self) -> Span {
        self.rtt.rto() + self.max_ack_delay
    }

    /// The congestion window: the controller's, or the one that proportional rate reduction allows.
    #[inline]
    pub fn window(&self) -> u64 {
        self.control.window()
    }

    fn record_event(&mut self, now: Time, kind: EventKind, value: Option<f64>) {
        self.events.push(SenderEvent { at: now, value: value.unwrap_or(f64::NAN), kind });
    }

    /// New payload that is in the send buffer.
    #[inline]
    fn unsent(&self) -> u64 {
        let buffered_end = self.send_buffer.end(self.written, self.board.una_bytes());
        buffered_end.saturating_sub(self.board.nxt_bytes())
    }

    /// `tcp_rate_check_app_limited`.
    #[inline]
    fn check_app_limited(&mut self) {
        if self.unsent() < self.smss && self.board.lost() == 0 && self.board.inflight() < self.window() {
            self.control.mark_app_limited(self.board.inflight());
        }
    }
}

#[cfg(test)]
impl<C: CongestionControl> Sender<C> {
    /// Payload bytes acknowledged cumulatively.
    pub fn acknowledged(&self) -> u64 {
        self.board.una_bytes()
    }

    /// Panics unless every packet sent is accounted for: arrived, lost, replaced or in flight.
    pub fn audit(&self) {
        let [kept, fresh] = self.board.audit();
        assert_eq!(kept, fresh, "inflight, sacked, lost, resent, deemed lost");
        let c = &self.counts;
        let gone = (c.arrived - c.found) + (c.marked_lost - c.unmarked) + c.superseded;
        assert_eq!(c.sent, gone + self.board.out(), "{c:?}");
        assert_eq!(self.control.delivered() - self.board.una_bytes(), self.board.sacked_bytes());
    }

    /// Panics if data could wait for longer than the retransmission timeout: outstanding data needs
    /// a timer that expires in time, unsent data a time at which it is sent.
    pub fn audit_silence(&self, now: Time) {
        if self.board.outstanding() > 0 {
            // A probe waits for two round trips, and the timeout may have been longer, or unknown, when the
            // timer was set.
            let most = self.rto().max(self.rto_when_armed).max(rto::RTO_INITIAL) * 2;
            let by = self.wheel.map_or(now + most, |wheel| wheel.expiry(now, now + most) + most / 8);
            assert!(self.timer.is_some(), "outstanding without a timer at {now:?}");
            assert!(self.timer_at <= by, "{:?} at {:?}, {by:?} at the latest", self.timer, self.timer_at);
        } else if self.next_new().is_some() {
            assert!(self.wake() < Time::NEVER, "nothing outstanding, and nothing to send what waits");
        }
    }
}
