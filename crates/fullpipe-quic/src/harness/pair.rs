//! Both ends of a connection as a [`Transport`], whichever the stack.

use super::crypto::Progress;
use super::log::Log;
use fullpipe_cc::{Rate, Snapshot, Span, Time};
use fullpipe_path::Ecn;
use fullpipe_sim::{Datagram, Telemetry, Transport, TransportEnd, TransportEvent};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Datagrams that one call of a stack may produce, as in the socket layers of both (GSO).
const MAX_DATAGRAMS: usize = 10;

/// Datagrams of data that the stack gets ahead of what it has sent: more than a batch, so that it
/// never sees the application pause, and no more, so that little is sent after the application
/// stopped.
const DATAGRAMS_AHEAD: u64 = 16;

/// The time between two calls of a stack that has nothing to wait for.
const CLOCK_STEP: Span = Span::from_micros(1);

/// Changes of the sending end's port, as by a NAT that forgot the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rebinding {
    /// From one change to the next, and from the end of the handshake to the first.
    pub every: Span,
    /// How many changes there are.
    pub times: u32,
}

/// Options of both ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndOptions {
    /// Largest UDP payload in bytes.
    pub payload: u16,
    /// UDP payload in bytes of packets at the start, and after a black hole was detected.
    pub min_payload: u16,
    /// Whether the path's MTU is probed, up to `payload`.
    pub mtu_discovery: bool,
    /// When the receiving end sees the sending end at another port.
    pub rebinding: Option<Rebinding>,
    /// Receive window in bytes, of the connection and of each stream; `None` for the stack's
    /// default.
    pub receive_window: Option<u64>,
    /// Bytes that the stack keeps for (re)transmission.
    pub send_window: u64,
    /// Seed of what the stack draws.
    pub seed: u64,
}

/// Datagrams of one size (the last may be smaller), one behind the other in a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    /// Bytes in total.
    pub size: usize,
    /// Bytes of each datagram.
    pub segment: usize,
    /// Their ECN bits.
    pub ecn: Ecn,
}

/// An event of one end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum EndEvent {
    /// The handshake is complete.
    Connected,
    /// The connection is closed, with the stack's reason.
    Failed(String),
    /// A stream has data or an end to be read.
    Readable(u64),
    /// A stream may be written or opened.
    Writable,
}

/// What was read from a stream.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Read {
    /// Bytes, in order.
    pub bytes: u64,
    /// Whether that was all.
    pub finished: bool,
}

/// Counters of a stack.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counters {
    /// Packets sent.
    pub sent: u64,
    /// Packets declared lost.
    pub lost: u64,
    /// Smoothed round-trip time.
    pub srtt: Option<Duration>,
}

/// What a stack's controller reports.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Metrics {
    /// Window in bytes.
    pub window: u64,
    /// Slow-start threshold in bytes.
    pub ssthresh: Option<u64>,
    /// Pacing rate in bytes per second.
    pub pacing_rate: Option<u64>,
}

/// One end of a stack's connection.
pub(crate) trait StackEnd: Send {
    /// Opens the connection.
    fn connect(&mut self, now: Instant);
    /// A datagram arrives.
    fn receive(&mut self, now: Instant, ecn: Ecn, payload: Vec<u8>);
    /// Appends the next datagrams, `max_datagrams` at most, to the empty `buf`.
    fn transmit(&mut self, now: Instant, max_datagrams: usize, buf: &mut Vec<u8>) -> Option<Batch>;
    /// When the next timer is due.
    fn next_timer(&mut self) -> Option<Instant>;
    /// Processes due timers.
    fn on_timer(&mut self, now: Instant);
    /// The next event.
    fn poll(&mut self) -> Option<EndEvent>;
    /// Opens a unidirectional stream, if the peer allows one more.
    fn open_stream(&mut self) -> Option<u64>;
    /// Writes up to `bytes` zeroes. Returns how many the stack accepted.
    fn write(&mut self, stream: u64, bytes: u64) -> u64;
    /// Ends a stream.
    fn finish_stream(&mut self, stream: u64);
    /// Reads what has arrived in order.
    fn read(&mut self, stream: u64) -> Read;
    /// The counters.
    fn counters(&mut self) -> Counters;
    /// The controller's metrics.
    fn metrics(&self) -> Metrics;
}

/// The controller of the sending end, as the harness sees it beside the stack.
pub(crate) trait Inspect: Send {
    /// Its state; `None` for a controller of which only the metrics are known.
    fn snapshot(&self) -> Option<Snapshot>;
    /// [`Snapshot::state`] alone.
    fn state(&self) -> Option<&'static str>;
    /// The latest delivery-rate sample.
    fn delivery_rate(&self) -> Option<Rate>;
    /// When its pacer releases the next burst, and how many bytes.
    fn departure(&self) -> (Time, u64);
    /// Calls `read` with the log of its events, once there is a controller.
    fn with_log(&self, read: &mut dyn FnMut(&mut Log));
}

/// Bytes in flight and delivered, and the latest round-trip time.
#[derive(Clone, Copy, Default)]
struct FlightState {
    inflight: u64,
    delivered: u64,
    rtt: Option<Span>,
}

/// A request of the receiving application: a stream of its own.
#[derive(Clone, Copy, Debug)]
struct Request {
    stream: Option<u64>,
    unwritten: u64,
}

/// Datagrams of the latest batch that have not been polled.
#[derive(Default)]
struct Outbox {
    buf: Vec<u8>,
    start: usize,
    batch: Option<Batch>,
}

impl Outbox {
    fn next(&mut self) -> Option<Datagram> {
        let batch = self.batch?;
        let end = (self.start + batch.segment).min(batch.size);
        let payload = self.buf[self.start..end].to_vec();
        self.start = end;
        if end == batch.size {
            self.batch = None;
        }
        Some(Datagram { payload, ecn: batch.ecn })
    }

    fn fill(&mut self, batch: Batch) {
        self.start = 0;
        self.batch = Some(batch);
    }
}

/// One end with what the harness keeps for it.
struct Side<E> {
    /// Behind a cell for [`Transport::telemetry`]: a stack counts in its own time.
    end: RefCell<E>,
    outbox: Outbox,
    timer: Time,
    /// When due timers were last processed.
    processed: Option<Time>,
}

impl<E> Side<E> {
    fn new(end: E) -> Self {
        Side { end: RefCell::new(end), outbox: Outbox::default(), timer: Time::NEVER, processed: None }
    }
}

/// Both ends of a connection.
pub(crate) struct Pair<E> {
    base: Instant,
    sender: Side<E>,
    receiver: Side<E>,
    controller: Box<dyn Inspect>,
    progress: Arc<Progress>,
    options: PairOptions,
    events: VecDeque<TransportEvent>,
    established: bool,
    failed: bool,
    /// Number of the data's stream at the sending end, once open.
    stream: Option<u64>,
    /// Bytes that the application wrote.
    written: u64,
    /// Bytes of these that the stack has not accepted.
    waiting: u64,
    finishing: bool,
    finished: bool,
    delivered: u64,
    requests: VecDeque<Request>,
    /// The sending end is held by the controller's pacer until then.
    held_until: Time,
}

/// Options of a pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PairOptions {
    /// Whether packets may be marked by the path.
    pub ecn: bool,
    /// Whether the harness paces by the controller's rate.
    pub held: bool,
    /// Largest UDP payload in bytes.
    pub datagram: u64,
}

impl<E: StackEnd> Pair<E> {
    pub(crate) fn new(
        base: Instant,
        sender: E,
        receiver: E,
        controller: Box<dyn Inspect>,
        progress: Arc<Progress>,
        options: PairOptions,
    ) -> Self {
        Pair {
            base,
            sender: Side::new(sender),
            receiver: Side::new(receiver),
            controller,
            progress,
            options,
            events: VecDeque::new(),
            established: false,
            failed: false,
            stream: None,
            written: 0,
            waiting: 0,
            finishing: false,
            finished: false,
            delivered: 0,
            requests: VecDeque::new(),
            held_until: Time::ZERO,
        }
    }

    fn instant(&self, now: Time) -> Instant {
        self.base + Duration::from_nanos(now.as_nanos())
    }

    fn side(&mut self, end: TransportEnd) -> &mut Side<E> {
        match end {
            TransportEnd::Sender => &mut self.sender,
            TransportEnd::Receiver => &mut self.receiver,
        }
    }

    /// Reads the stack's timer after a call that can change it. Where a timer is due again at the
    /// moment at which it was processed (noq's pacer rounds a wait to nothing), it fires
    /// [`CLOCK_STEP`] later, as a real clock moves on; otherwise virtual time would stand still.
    fn update_timer(&mut self, end: TransportEnd) {
        let base = self.base;
        let side = self.side(end);
        let at = side.end.get_mut().next_timer().map_or(Time::NEVER, |at| Time::from_instant(base, at));
        side.timer = match side.processed {
            Some(processed) if at <= processed => processed + CLOCK_STEP,
            _ => at,
        };
    }

    /// Processes the events of `end`.
    fn process_events(&mut self, end: TransportEnd) {
        while let Some(event) = self.side(end).end.get_mut().poll() {
            match event {
                EndEvent::Connected if end == TransportEnd::Sender => {
                    self.established = true;
                    self.events.push_back(TransportEvent::Established);
                }
                EndEvent::Connected => self.events.push_back(TransportEvent::Accepted),
                EndEvent::Failed(reason) => self.fail(end, &reason),
                EndEvent::Readable(stream) => self.read(end, stream),
                EndEvent::Writable if end == TransportEnd::Receiver => self.write_requests(),
                EndEvent::Writable => {}
            }
        }
        if end == TransportEnd::Sender {
            let events = &mut self.events;
            self.controller.with_log(&mut |log| events.extend(log.events.drain(..)));
        }
    }

    fn fail(&mut self, end: TransportEnd, reason: &str) {
        if !self.failed {
            self.failed = true;
            let end = match end {
                TransportEnd::Sender => "sender",
                TransportEnd::Receiver => "receiver",
            };
            self.events.push_back(TransportEvent::Failed(format!("{end}: {reason}")));
        }
    }

    fn read(&mut self, end: TransportEnd, stream: u64) {
        let read = self.side(end).end.get_mut().read(stream);
        match end {
            TransportEnd::Receiver => self.delivered += read.bytes,
            TransportEnd::Sender if read.finished => self.events.push_back(TransportEvent::Requested),
            TransportEnd::Sender => {}
        }
    }

    /// Passes data to the stack as far as it sends it soon.
    fn write_data(&mut self) {
        if !self.established || self.finished {
            return;
        }
        let end = self.sender.end.get_mut();
        if self.stream.is_none() {
            self.stream = end.open_stream();
        }
        let Some(stream) = self.stream else { return };
        let unsent = (self.written - self.waiting).saturating_sub(self.progress.sent());
        let room = (DATAGRAMS_AHEAD * self.options.datagram).saturating_sub(unsent);
        if self.waiting > 0 && room > 0 {
            self.waiting -= end.write(stream, self.waiting.min(room));
        }
        if self.finishing && self.waiting == 0 {
            self.finished = true;
            end.finish_stream(stream);
        }
    }

    fn write_requests(&mut self) {
        let end = self.receiver.end.get_mut();
        while let Some(request) = self.requests.front_mut() {
            if request.stream.is_none() {
                request.stream = end.open_stream();
            }
            let Some(stream) = request.stream else { return };
            request.unwritten -= end.write(stream, request.unwritten);
            if request.unwritten > 0 {
                return;
            }
            end.finish_stream(stream);
            self.requests.pop_front();
        }
    }

    /// What the log counts.
    fn flight(&self) -> FlightState {
        let mut state = FlightState::default();
        self.controller.with_log(&mut |log| {
            state = FlightState { inflight: log.inflight, delivered: log.delivered, rtt: log.rtt };
        });
        state
    }

    /// How many datagrams the pacer lets the sending end send at `now`, 0 until later.
    fn allowance(&mut self, now: Time) -> usize {
        if !self.options.held || !self.established {
            return MAX_DATAGRAMS;
        }
        let (at, quantum) = self.controller.departure();
        if at > now {
            self.held_until = at;
            return 0;
        }
        self.held_until = Time::ZERO;
        let datagrams = quantum / self.options.datagram.max(1);
        datagrams.clamp(1, MAX_DATAGRAMS as u64) as usize
    }
}

impl<E: StackEnd> Transport for Pair<E> {
    fn open(&mut self, now: Time) {
        let at = self.instant(now);
        self.sender.end.get_mut().connect(at);
        self.process_events(TransportEnd::Sender);
        self.update_timer(TransportEnd::Sender);
    }

    fn on_datagram(&mut self, now: Time, end: TransportEnd, datagram: Datagram) {
        let at = self.instant(now);
        self.side(end).end.get_mut().receive(at, datagram.ecn, datagram.payload);
        self.process_events(end);
        self.update_timer(end);
    }

    fn poll_transmit(&mut self, now: Time, end: TransportEnd) -> Option<Datagram> {
        if let Some(datagram) = self.side(end).outbox.next() {
            return Some(datagram);
        }
        let allowed = match end {
            TransportEnd::Sender => {
                self.write_data();
                self.allowance(now)
            }
            TransportEnd::Receiver => MAX_DATAGRAMS,
        };
        if allowed == 0 {
            return None;
        }
        let at = self.instant(now);
        let ecn = self.options.ecn;
        let side = self.side(end);
        side.outbox.buf.clear();
        if let Some(mut batch) = side.end.get_mut().transmit(at, allowed, &mut side.outbox.buf) {
            // Only the data is marked; without it, the stack's validation of ECN fails and ends.
            if !ecn || end == TransportEnd::Receiver {
                batch.ecn = Ecn::NotEct;
            }
            side.outbox.fill(batch);
        }
        let datagram = side.outbox.next();
        self.update_timer(end);
        datagram
    }

    fn next_timer(&self, end: TransportEnd) -> Time {
        match end {
            TransportEnd::Receiver => self.receiver.timer,
            TransportEnd::Sender if self.held_until == Time::ZERO => self.sender.timer,
            TransportEnd::Sender => self.sender.timer.min(self.held_until),
        }
    }

    fn on_timer(&mut self, now: Time, end: TransportEnd) {
        if self.side(end).timer <= now {
            let at = self.instant(now);
            let side = self.side(end);
            side.processed = Some(now);
            side.end.get_mut().on_timer(at);
            self.process_events(end);
            self.update_timer(end);
        }
    }

    fn poll_event(&mut self) -> Option<TransportEvent> {
        self.events.pop_front()
    }

    fn write(&mut self, _: Time, bytes: u64) {
        // An application that writes without end says so with the largest number.
        let bytes = bytes.min(u64::MAX - self.written);
        self.written += bytes;
        self.waiting += bytes;
        self.write_data();
    }

    fn finish(&mut self, _: Time, truncate: bool) {
        if truncate {
            self.discard_unsent();
        }
        self.finishing = true;
        self.write_data();
    }

    fn discard_unsent(&mut self) -> u64 {
        self.written -= self.waiting;
        self.waiting = 0;
        self.written
    }

    fn request(&mut self, _: Time, bytes: u64) {
        self.requests.push_back(Request { stream: None, unwritten: bytes });
        self.write_requests();
    }

    fn delivered(&self) -> u64 {
        self.delivered
    }

    fn is_idle(&self) -> bool {
        self.delivered == self.written && self.flight().inflight == 0
    }

    fn state(&self) -> &'static str {
        self.controller.state().unwrap_or_else(|| phase(&self.sender.end.borrow().metrics()))
    }

    fn telemetry(&self) -> Telemetry {
        let metrics = self.sender.end.borrow().metrics();
        let rate = metrics.pacing_rate.map(Rate::from_bytes_per_sec);
        let snapshot = self.controller.snapshot().unwrap_or_else(|| Snapshot {
            state: phase(&metrics),
            cwnd: metrics.window,
            ssthresh: metrics.ssthresh.filter(|&threshold| threshold < u64::MAX),
            pacing_rate: rate,
            ..Snapshot::default()
        });
        let counters = self.sender.end.borrow_mut().counters();
        let flight = self.flight();
        Telemetry {
            snapshot,
            rtt: flight.rtt,
            srtt: counters.srtt.map(|srtt| Span::from_nanos(srtt.as_nanos() as u64)),
            inflight: flight.inflight,
            window: metrics.window,
            pacing_rate: snapshot.pacing_rate.or(rate),
            delivery_rate: self.controller.delivery_rate(),
            delivered: flight.delivered,
            sent: counters.sent,
            retransmitted: self.progress.resent(),
            lost: counters.lost,
        }
    }
}

/// The phase of a controller of which only the metrics are known.
fn phase(metrics: &Metrics) -> &'static str {
    match metrics.ssthresh {
        Some(threshold) if metrics.window < threshold => "SlowStart",
        Some(_) => "CongestionAvoidance",
        None => "",
    }
}

impl<E> fmt::Debug for Pair<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair")
            .field("written", &self.written)
            .field("delivered", &self.delivered)
            .field("established", &self.established)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}
