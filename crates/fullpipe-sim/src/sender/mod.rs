//! The sending end of a connection, as Linux's TCP is one: what an ACK means (`ack`), when recovery begins
//! and ends (`alert`), what may be sent (`transmit`), and what happens when no ACK comes (`timer`).

mod ack;
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
use fullpipe_cc::{CongestionControl, Connection, Rate, Span, Time};
use fullpipe_experiment::recording::EventKind;
use limited::CwndLimited;
use memory::SendBuffer;
use rack::Rack;
use recovery::Recovering;
use rto::RttEstimator;
use scoreboard::Scoreboard;
use timer::Timer;
pub(crate) use wheel::Wheel;

/// What the sender counts.
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
    /// Packets whose mark was taken back.
    pub unmarked: u64,
    /// Packets retransmitted as a probe while still counted as in flight.
    pub superseded: u64,
}

/// Something that happened at one time, for the recording.
pub(crate) type SenderEvent = (Time, EventKind, Option<f64>);

/// A tail loss probe that is out.
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// Acknowledged up to here, it is answered.
    high: u64,
    retransmission: bool,
}

/// The sending end of a connection.
#[derive(Debug)]
pub(crate) struct Sender<C> {
    connection: Connection<C>,
    smss: u64,
    board: Scoreboard,
    rtt: RttEstimator,
    rack: Rack,
    recovering: Recovering,
    limited: CwndLimited,
    /// The timer that runs and when it fires.
    timer: Option<Timer>,
    timer_at: Time,
    /// By which the timer goes off; to the nanosecond without one.
    pub wheel: Option<Wheel>,
    /// What sending and receiving costs, if anything.
    pub cpu: Option<Processor>,
    /// When the pacer lets the next packet leave, if it holds one back.
    paced_until: Time,
    probe: Option<Probe>,
    /// F-RTO sends new data before what is lost.
    new_first: bool,
    /// Bytes the application has written.
    written: u64,
    /// It will write no more.
    closed: bool,
    send_buffer: SendBuffer,
    /// Data leaves as with segmentation offload.
    offloads: bool,
    /// The receiver may hold an ACK back for so long.
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
            connection: Connection::new(cc, smss),
            smss: u64::from(smss),
            board: Scoreboard::new(),
            rtt: RttEstimator::default(),
            rack: Rack::default(),
            recovering: Recovering::default(),
            limited: CwndLimited::default(),
            timer: None,
            timer_at: Time::NEVER,
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

    /// Sends as with segmentation offload, if `offloads`, from a buffer that holds the bursts as Linux's does.
    pub fn offloading(self, offloads: bool) -> Self {
        if !offloads {
            return self;
        }
        Sender { offloads, send_buffer: self.send_buffer.like_linux(self.smss), ..self }
    }

    /// Waits so much longer before it probes or sends again, for the receiver may hold ACKs back (RFC 9002 § 6.2.1).
    pub fn expecting_acks_after(self, max_ack_delay: Option<Span>) -> Self {
        Sender { max_ack_delay: max_ack_delay.unwrap_or_default(), ..self }
    }

    /// Paces what the controller leaves unpaced by its window, if `paced`.
    pub fn paced(self, paced: bool) -> Self {
        if !paced {
            return self;
        }
        Sender { connection: self.connection.paced_by_window(), ..self }
    }

    /// The handshake is complete; `rtt` if it was not retransmitted.
    pub fn establish(&mut self, now: Time, rtt: Option<Span>, edge: u64) {
        self.edge = edge;
        if let Some(rtt) = rtt {
            self.rtt.sample(rtt, 0, 0);
            self.rtt.sample_min(now, rtt);
            self.connection.on_handshake(now, rtt);
        }
    }

    /// The application has written `bytes` more.
    pub fn write(&mut self, bytes: u64) {
        self.written = self.written.saturating_add(bytes);
    }

    /// What the application wrote and was not sent yet is not to be sent. How much it has written then.
    pub fn forget_unsent(&mut self) -> u64 {
        self.written = self.written.min(self.board.nxt_bytes());
        self.written
    }

    /// The application will write no more; what it did not hand over yet it will not.
    pub fn close(&mut self, truncate: bool) {
        if truncate {
            self.written = self.written.min(self.board.nxt_bytes().max(self.unlimited_end()));
        }
        self.closed = true;
    }

    /// Of an application that writes without end, what is sent already is all it has written.
    fn unlimited_end(&self) -> u64 {
        if self.written == u64::MAX { self.board.nxt_bytes() } else { self.written }
    }

    /// Whether everything written has been acknowledged.
    pub fn is_idle(&self) -> bool {
        self.board.una_bytes() == self.written
    }

    /// The next time that something must happen without an ACK.
    #[inline]
    pub fn wake(&self) -> Time {
        self.timer_at.min(self.paced_until)
    }

    /// The controller.
    #[inline]
    pub fn controller(&self) -> &C {
        self.connection.controller()
    }

    /// The controller, for who drives it from outside.
    pub fn controller_mut(&mut self) -> &mut C {
        self.connection.controller_mut()
    }

    /// Payload bytes in flight.
    pub fn inflight(&self) -> u64 {
        self.board.inflight()
    }

    /// Payload bytes known to have arrived.
    pub fn delivered(&self) -> u64 {
        self.connection.delivered()
    }

    /// Latest, smoothed and least round-trip time.
    pub fn rtts(&self) -> (Option<Span>, Option<Span>, Option<Span>) {
        (self.rtt.latest(), self.rtt.srtt(), self.rtt.min())
    }

    /// The rate that packets are paced at, if they are.
    pub fn pacing_rate(&self) -> Option<Rate> {
        self.connection.pacing_rate()
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

    /// The retransmission time-out now.
    pub fn rto(&self) -> Span {
        self.rtt.rto() + self.max_ack_delay
    }

    /// The window in force: the controller's, or what proportional rate reduction makes of it.
    #[inline]
    pub fn window(&self) -> u64 {
        self.connection.window()
    }

    fn happened(&mut self, now: Time, kind: EventKind, value: Option<f64>) {
        self.events.push((now, kind, value));
    }

    /// Payload that could be sent for the first time as far as the application is concerned.
    #[inline]
    fn unsent(&self) -> u64 {
        let handed_over = self.send_buffer.end(self.written, self.board.una_bytes());
        handed_over.saturating_sub(self.board.nxt_bytes())
    }

    /// `tcp_rate_check_app_limited`.
    #[inline]
    fn check_app_limited(&mut self) {
        if self.unsent() < self.smss && self.board.lost() == 0 && self.board.inflight() < self.window() {
            self.connection.mark_app_limited(self.board.inflight());
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
        assert_eq!(self.connection.delivered() - self.board.una_bytes(), self.board.sacked_bytes());
    }

    /// Panics if at `now` data waits longer than the retransmission time-out allows: for an acknowledgement without a timer that goes off by
    /// then, or to be sent without a time when it is.
    pub fn audit_silence(&self, now: Time) {
        if self.board.outstanding() > 0 {
            // A probe waits for two round trips; and the time-out may have been longer, or not known, when the timer was set.
            let most = self.rto().max(rto::RTO_INITIAL) * 2;
            let by = self.wheel.map_or(now + most, |wheel| wheel.expiry(now, now + most) + most / 8);
            assert!(self.timer.is_some(), "outstanding without a timer at {now:?}");
            assert!(self.timer_at <= by, "{:?} at {:?}, {by:?} at the latest", self.timer, self.timer_at);
        } else if self.next_new().is_some() {
            assert!(self.wake() < Time::NEVER, "nothing outstanding, and nothing to send what waits");
        }
    }
}
