//! A connection: both ends, the application on it, its handshake and its timers.

use super::access::Access;
use super::one_way::TimedPath;
use crate::app::Source;
use crate::capture::{Capture, End, What};
use crate::processor::Incoming;
use crate::receiver::Receiver;
use crate::recorder::FlowRecorder;
use crate::segment::{
    ACK_BYTES, Kind, NO_SACK, SACK_BLOCK_BYTES, SACK_OPTION_BYTES, SYN_BYTES, SackStore, Segment,
};
use crate::sender::Sender;
use fullpipe_cc::{CongestionControl, Span, Time};
use fullpipe_experiment::recording::{Event, EventKind};
use fullpipe_experiment::scenario::{App, FlowSpec, HEADER_BYTES};
use fullpipe_path::{Ecn, Packet};
use std::collections::VecDeque;

/// Unanswered SYNs that are repeated every second before the waits double (`tcp_syn_linear_timeouts`).
const LINEAR_SYNS: u32 = 4;
/// First wait for an answer to a SYN or SYN-ACK (`TCP_TIMEOUT_INIT`), and the longest.
const SYN_TIMEOUT: Span = Span::from_secs(1);
const SYN_TIMEOUT_MAX: Span = Span::from_secs(64);

/// Most packets of one question: they leave without congestion control.
const MOST_PARTS: u64 = 1 << 16;

/// How far the connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Starts later.
    Waiting,
    /// The SYN is out.
    Connecting,
    /// Data may be sent.
    Open,
}

/// The asking side of a request/response application, at the receiving end.
#[derive(Debug, Default)]
struct Asker {
    /// Questions asked so far.
    asked: u64,
    /// The stream's length when the present answer is complete.
    answered_at: u64,
    /// When the present question was first asked.
    asked_at: Time,
    repeats: u32,
}

/// Parts of the present question that have arrived at the sending end.
#[derive(Debug, Default)]
struct Question {
    number: u64,
    parts: Vec<bool>,
    missing: usize,
}

/// What a packet's arrival or a timer needs of the rest of the engine.
pub(crate) struct Net<'a> {
    /// Where this end's packets go.
    pub out: &'a mut TimedPath,
    pub sacks: &'a mut SackStore,
}

/// A flow's own delay on top of the path's, and the packets in it, on their way to the sending end.
#[derive(Debug)]
struct Detour {
    takes: Span,
    packets: VecDeque<(Time, Packet<Segment>)>,
}

/// A connection: both ends and the application.
///
/// With thousands of them each event finds its own outside the processor's caches, and what it costs is mostly how many lines of memory it
/// has to wait for. So what every event looks at lies together at the beginning, and what few flows have lies elsewhere.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Connection<C> {
    /// When the last byte was delivered of a flow of a given size; never for others.
    completed: Time,
    /// Sending end: when the SYN is repeated.
    syn_at: Time,
    /// When the application stops, until it has.
    stop_at: Time,
    /// Receiving end: when the SYN-ACK is repeated; never once the connection is known to be there.
    syn_ack_at: Time,
    /// Receiving end: when the next question is asked or the present one repeated.
    ask_at: Time,
    /// What passes at one of its ends, if anyone wants to know.
    pub capture: Option<Box<Capture>>,
    /// A link of its own before the path.
    pub access: Option<Box<Access>>,
    /// Data that waits for the receiving end's processor, if that takes time.
    pub incoming: Option<Box<Incoming>>,
    detour: Option<Box<Detour>>,
    /// The controller's latest state that was recorded.
    state: Option<&'static str>,
    /// The bytes after which it is complete, if it ever is.
    size: u64,
    id: u32,
    smss: u32,
    syns: u32,
    syn_acks: u32,
    ecn: bool,
    phase: Phase,
    pub receiver: Receiver,
    pub sender: Sender<C>,
    source: Source,
    pub recorder: FlowRecorder,
    pub start: Time,
    /// When the application stops.
    stop: Time,
    /// Requests: payload of a question, of an answer, pause.
    questions: Option<(u64, u64, Span)>,
    asker: Asker,
    question: Question,
}

impl<C: CongestionControl> Connection<C> {
    pub fn new(id: u32, spec: &FlowSpec, cc: C, smss: u32, rows: usize) -> Self {
        let start = spec.start.at().map_or(Time::NEVER, |at| Time::ZERO + at);
        let size = spec.size.map(|b| b.0);
        let stop = spec.stop.map_or(Time::NEVER, |at| Time::ZERO + at);
        let questions = match spec.app {
            App::RequestResponse { request, response, think } => Some((request.0, response.0, think)),
            _ => None,
        };
        let ecn = spec.ecn && cc.claims_ecn();
        Connection {
            completed: Time::NEVER,
            syn_at: start,
            stop_at: stop,
            syn_ack_at: Time::NEVER,
            ask_at: Time::NEVER,
            capture: None,
            access: None,
            incoming: None,
            detour: (!spec.extra_rtt.is_zero())
                .then(|| Box::new(Detour { takes: spec.extra_rtt, packets: VecDeque::new() })),
            state: None,
            size: size.unwrap_or(u64::MAX),
            id,
            smss,
            syns: 0,
            syn_acks: 0,
            ecn,
            phase: Phase::Waiting,
            receiver: Receiver::new(smss, spec),
            sender: Sender::new(cc, smss, spec.send_buffer.map(|b| b.0))
                .offloading(spec.tso == Some(true))
                .paced(spec.paced)
                .expecting_acks_after(spec.ack_frequency.map(|asked| asked.max_ack_delay)),
            source: Source::new(spec.app.clone(), size),
            recorder: FlowRecorder::new(rows, start),
            start,
            stop,
            questions,
            asker: Asker::default(),
            question: Question::default(),
        }
    }

    /// It has waited for another, and starts at `at` unless its application has stopped before.
    pub fn begin(&mut self, at: Time) {
        if at < self.stop {
            self.start = at;
            self.syn_at = at;
            self.recorder.begin(at);
        }
    }

    /// Whether it is at its end for who waits for that: all is delivered, or its application has stopped.
    pub fn has_ended(&self) -> bool {
        self.completed != Time::NEVER || self.stop_at != self.stop
    }

    /// Whether it will send and receive nothing more.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.completed != Time::NEVER && self.sender.is_idle()
    }

    /// Whether it is over and the end of it is in the series.
    pub fn is_recorded(&self) -> bool {
        self.is_over() && self.completed <= self.recorder.last_row()
    }

    /// When it ended: its last byte's delivery, its stop, or the end of the run.
    pub fn end(&self, run_end: Time) -> Time {
        self.completed.min(self.stop).max(self.start).min(run_end)
    }

    /// When its last byte was delivered, if it is a flow of a given size.
    pub fn completed(&self) -> Option<Time> {
        (self.completed != Time::NEVER).then_some(self.completed)
    }

    /// The next time that something must happen at either end without a packet from the path.
    #[inline]
    pub fn wake(&self) -> Time {
        self.sender_wake().min(self.receiver_wake()).min(self.stop_at)
    }

    /// Of that, what a packet can bring forward that arrives at the sending end.
    #[inline]
    pub fn sender_wake(&self) -> Time {
        let held = self.detour.as_ref().and_then(|d| d.packets.front()).map_or(Time::NEVER, |&(at, _)| at);
        let access = self.access.as_ref().map_or(Time::NEVER, |access| access.next());
        self.sender.wake().min(self.source.at).min(self.syn_at).min(held).min(access)
    }

    /// Of that, what a packet can bring forward that arrives at the receiving end.
    #[inline]
    pub fn receiver_wake(&self) -> Time {
        let handled = self.incoming.as_ref().map_or(Time::NEVER, |incoming| incoming.due());
        self.receiver.ack_due().min(self.syn_ack_at).min(self.ask_at).min(handled)
    }

    /// Packets in the flow's own delay.
    #[cfg(test)]
    pub fn waiting_outside(&self) -> usize {
        self.detour.as_ref().map_or(0, |detour| detour.packets.len())
    }

    /// The controller's state, if it is new.
    #[inline]
    pub fn new_state(&mut self) -> Option<&'static str> {
        let state = self.sender.controller().state();
        // The same state is mostly the same text in memory.
        let is_old = self.state.is_some_and(|last| std::ptr::eq(last, state))
            || self.state.replace(state) == Some(state);
        (!is_old).then_some(state)
    }

    fn packet(&self, bytes: u32, segment: Segment) -> Packet<Segment> {
        Packet::new(self.id, bytes, segment)
    }

    fn handshake(&self, now: Time, kind: Kind) -> Packet<Segment> {
        let bytes = if kind == Kind::Established { ACK_BYTES } else { SYN_BYTES };
        self.packet(bytes, Segment { seq: 0, stamp: now, edge: 0, detail: NO_SACK, ce: 0, kind, push: false })
    }

    /// Lets the sender send what it may.
    #[inline]
    pub fn pump(&mut self, now: Time, out: &mut TimedPath) {
        let (id, ecn, mut capture) = (self.id, self.ecn, self.capture.as_deref_mut());
        let mut out = Out { access: self.access.as_deref_mut(), path: out };
        self.sender.send(now, &mut |segment, retransmit| {
            transmit(now, id, ecn, segment, retransmit, &mut out, capture.as_deref_mut());
        });
    }

    // At the receiving end.

    /// A packet arrives that the sending end sent.
    #[inline]
    pub fn at_receiver(&mut self, now: Time, packet: Packet<Segment>, net: &mut Net<'_>) {
        match packet.data.kind {
            Kind::Data => match &mut self.incoming {
                Some(incoming) => incoming.arrives(now, packet),
                None => {
                    if self.take_data(now, packet) {
                        self.acknowledge(now, net);
                    }
                }
            },
            Kind::Syn => {
                self.shakes(now, End::Receiver, What::Syn);
                // A repeated SYN is answered at once, whatever the timer says.
                if self.phase != Phase::Open || self.syn_ack_at != Time::NEVER {
                    self.send_syn_ack(now, net);
                }
            }
            Kind::Established => {
                self.shakes(now, End::Receiver, What::Established);
                self.known_open(now);
            }
            Kind::SynAck | Kind::Ack | Kind::Request => {}
        }
    }

    /// The receiving end takes data in; whether it acknowledges at once.
    #[inline]
    fn take_data(&mut self, now: Time, packet: Packet<Segment>) -> bool {
        if let Some(capture) = &mut self.capture {
            capture.data(now, End::Receiver, &packet.data);
        }
        self.known_open(now);
        let marked = packet.ecn == Ecn::Ce;
        let rtt = self.sender.srtt();
        let acknowledges = self.receiver.on_data(now, &packet.data, marked, rtt);
        let delivered = self.receiver.delivered();
        if let Some(transfer) = self.source.on_delivered(delivered) {
            let took = now.since(transfer.began).as_secs_f64();
            self.happened(now, EventKind::TransferDelivered, Some(took));
            self.think(now);
        }
        if delivered >= self.size && self.completed == Time::NEVER {
            self.completed = now;
            self.happened(now, EventKind::Completed, None);
            self.ask_at = Time::NEVER;
        }
        acknowledges
    }

    #[inline]
    fn shakes(&mut self, now: Time, end: End, what: What) {
        if let Some(capture) = &mut self.capture {
            capture.handshake(now, end, what);
        }
    }

    fn happened(&mut self, now: Time, kind: EventKind, value: Option<f64>) {
        self.recorder.on_event(Event { at_s: now.as_secs_f64(), kind, value });
    }

    fn send_syn_ack(&mut self, now: Time, net: &mut Net<'_>) {
        let wait = (SYN_TIMEOUT * (1 << self.syn_acks.min(10))).min(SYN_TIMEOUT_MAX);
        self.syn_ack_at = now + wait;
        self.syn_acks += 1;
        let edge = self.receiver.initial_edge();
        self.shakes(now, End::Receiver, What::SynAck { edge });
        net.out.push(now, self.handshake(now, Kind::SynAck));
    }

    /// The receiving end knows that the handshake is complete.
    #[inline]
    fn known_open(&mut self, now: Time) {
        if self.syn_acks > 0 {
            self.syn_acks = 0;
            self.syn_ack_at = Time::NEVER;
            self.receiver.opens(now);
            if self.questions.is_some() {
                self.ask_at = now;
            }
        }
    }

    /// The answer is complete: the next question follows after a pause.
    fn think(&mut self, now: Time) {
        if let Some((_, _, think)) = self.questions {
            self.asker.repeats = 0;
            self.ask_at = now + think;
        }
    }

    /// Asks the next question, or the present one again if its answer has not begun.
    fn ask(&mut self, now: Time, net: &mut Net<'_>) {
        let Some((request, response, _)) = self.questions else {
            self.ask_at = Time::NEVER;
            return;
        };
        let delivered = self.receiver.delivered();
        if delivered >= self.asker.answered_at {
            self.asker = Asker {
                asked: self.asker.asked + 1,
                answered_at: delivered.saturating_add(response),
                asked_at: now,
                repeats: 0,
            };
        } else if delivered > self.asker.answered_at - response {
            // The answer is under way: its sender repeats what is lost.
            self.ask_at = Time::NEVER;
            return;
        }
        let parts = request.div_ceil(u64::from(self.smss)).clamp(1, MOST_PARTS) as u32;
        for part in 0..parts {
            let payload = (request - u64::from(part) * u64::from(self.smss)).min(u64::from(self.smss)) as u32;
            let segment = Segment {
                seq: self.asker.asked,
                stamp: self.asker.asked_at,
                edge: u64::from(parts),
                detail: part,
                ce: 0,
                kind: Kind::Request,
                push: false,
            };
            net.out.push(now, self.packet(HEADER_BYTES + payload, segment));
        }
        self.ask_at = now + self.sender.rto() * (1 << self.asker.repeats.min(6));
        self.asker.repeats += 1;
    }

    #[inline]
    fn acknowledge(&mut self, now: Time, net: &mut Net<'_>) {
        let ack = self.receiver.acknowledge(net.sacks);
        if let Some(capture) = &mut self.capture {
            capture.ack(now, End::Receiver, &ack, net.sacks);
        }
        let blocks = net.sacks.count(ack.detail) as u32;
        let options = if blocks > 0 { SACK_OPTION_BYTES + blocks * SACK_BLOCK_BYTES } else { 0 };
        let mut packet = self.packet(ACK_BYTES + options, ack);
        packet.pure_ack = true;
        net.out.push(now, packet);
    }

    /// Does what is due at the receiving end.
    pub fn wake_receiver(&mut self, now: Time, net: &mut Net<'_>) {
        if let Some(incoming) = self.incoming.as_mut().filter(|incoming| incoming.due() <= now) {
            let mut acknowledges = false;
            for packet in incoming.done(now) {
                acknowledges |= self.take_data(now, packet);
            }
            if acknowledges {
                self.acknowledge(now, net);
            }
        }
        if self.receiver.ack_due() <= now {
            self.acknowledge(now, net);
        }
        if self.syn_ack_at <= now {
            self.send_syn_ack(now, net);
        }
        if self.ask_at <= now {
            self.ask(now, net);
        }
    }

    // At the sending end.

    /// A packet of the sending end leaves.
    fn leave(&mut self, now: Time, packet: Packet<Segment>, net: &mut Net<'_>) {
        Out { access: self.access.as_deref_mut(), path: &mut *net.out }.push(now, packet);
    }

    /// A packet arrives that the receiving end sent: at once, or after the flow's own delay.
    #[inline]
    pub fn at_sender(&mut self, now: Time, packet: Packet<Segment>, net: &mut Net<'_>) {
        match &mut self.detour {
            None => self.take(now, packet.data, net),
            Some(detour) => detour.packets.push_back((now + detour.takes, packet)),
        }
    }

    #[inline]
    fn take(&mut self, now: Time, segment: Segment, net: &mut Net<'_>) {
        match segment.kind {
            Kind::Ack => {
                if let Some(capture) = &mut self.capture {
                    capture.ack(now, End::Sender, &segment, net.sacks);
                }
                let sack = net.sacks.take(segment.detail);
                if let Some(rtt) = self.sender.on_ack(now, &segment, &sack) {
                    self.recorder.on_rtt(rtt);
                }
                self.source.on_ack(now, &mut self.sender);
                self.pump(now, net.out);
            }
            Kind::SynAck => self.open(now, net),
            Kind::Request => self.asked(now, &segment, net),
            Kind::Syn | Kind::Established | Kind::Data => {}
        }
    }

    fn open(&mut self, now: Time, net: &mut Net<'_>) {
        let edge = self.receiver.initial_edge();
        self.shakes(now, End::Sender, What::SynAck { edge });
        self.shakes(now, End::Sender, What::Established);
        self.leave(now, self.handshake(now, Kind::Established), net);
        if self.phase == Phase::Open {
            return;
        }
        self.phase = Phase::Open;
        // Which of several SYNs is answered, nobody knows (Karn).
        let first_try = self.syns == 1;
        let rtt = first_try.then(|| now.since(self.start));
        self.syn_at = Time::NEVER;
        self.sender.establish(now, rtt, edge);
        if let Some(rtt) = rtt {
            self.recorder.on_rtt(rtt);
        }
        self.source.start(now, &mut self.sender);
        self.pump(now, net.out);
    }

    fn asked(&mut self, now: Time, segment: &Segment, net: &mut Net<'_>) {
        let q = &mut self.question;
        if segment.seq > q.number {
            let parts = segment.edge as usize;
            *q = Question { number: segment.seq, parts: vec![false; parts], missing: parts };
        }
        let part = segment.detail as usize;
        if segment.seq == q.number && !std::mem::replace(&mut q.parts[part], true) {
            q.missing -= 1;
            if q.missing == 0 {
                self.source.answer(segment.stamp, &mut self.sender);
                self.pump(now, net.out);
            }
        }
    }

    /// From `now` on the application does what `app` says.
    pub fn change_app(&mut self, now: Time, app: App) {
        self.source.change(now, app);
    }

    /// Does what is due at the sending end.
    pub fn wake_sender(&mut self, now: Time, net: &mut Net<'_>) {
        while let Some((_, packet)) =
            self.detour.as_mut().and_then(|detour| detour.packets.pop_front_if(|(at, _)| *at <= now))
        {
            self.take(now, packet.data, net);
        }
        if self.syn_at <= now {
            self.phase = Phase::Connecting;
            let doublings = (self.syns + 1).saturating_sub(LINEAR_SYNS).min(10);
            self.syn_at = now + (SYN_TIMEOUT * (1 << doublings)).min(SYN_TIMEOUT_MAX);
            self.syns += 1;
            self.shakes(now, End::Sender, What::Syn);
            self.leave(now, self.handshake(now, Kind::Syn), net);
        }
        if self.stop_at <= now {
            self.stop_at = Time::NEVER;
            self.syn_at = Time::NEVER;
            self.ask_at = Time::NEVER;
            self.questions = None;
            self.source.stop(&mut self.sender, true);
        }
        let wrote = self.source.at <= now;
        if wrote {
            self.source.on_time(now, &mut self.sender);
        }
        if self.sender.wake() <= now {
            let (id, ecn, mut capture) = (self.id, self.ecn, self.capture.as_deref_mut());
            let mut out = Out { access: self.access.as_deref_mut(), path: &mut *net.out };
            self.sender.on_wake(now, &mut |segment, again| {
                transmit(now, id, ecn, segment, again, &mut out, capture.as_deref_mut());
            });
            self.pump(now, net.out);
        } else if wrote {
            self.pump(now, net.out);
        }
    }
}

/// Where packets of the sending end go: to its access link if it has one, else to the path.
struct Out<'a> {
    access: Option<&'a mut Access>,
    path: &'a mut TimedPath,
}

impl Out<'_> {
    #[inline]
    fn push(&mut self, now: Time, packet: Packet<Segment>) {
        match &mut self.access {
            None => self.path.push(now, packet),
            Some(access) => access.push(now, packet),
        }
    }
}

/// A data segment leaves. Retransmissions are not marked capable (RFC 3168 §6.1.5).
#[inline]
fn transmit(
    now: Time,
    id: u32,
    ecn: bool,
    segment: Segment,
    retransmit: bool,
    out: &mut Out<'_>,
    capture: Option<&mut Capture>,
) {
    if let Some(capture) = capture {
        capture.data(now, End::Sender, &segment);
    }
    let mut packet = Packet::new(id, segment.detail + HEADER_BYTES, segment);
    if ecn && !retransmit {
        packet.ecn = Ecn::Ect0;
    }
    out.push(now, packet);
}
