//! A connection: both ends, its application, its handshake and its timers.

mod outside;

use super::access::Access;
use super::one_way::Outlet;
use super::queueing::Queueing;
use crate::app::Source;
use crate::capture::{Capture, End, PacketKind};
use crate::processor::Incoming;
use crate::receiver::Receiver;
use crate::recorder::FlowRecorder;
use crate::segment::{
    ACK_BYTES, Kind, NO_SACK, SACK_BLOCK_BYTES, SACK_OPTION_BYTES, SYN_BYTES, SackStore, Segment,
};
use crate::sender::Sender;
use crate::transport::Telemetry;
use fullpipe_cc::{CongestionControl, Span, Time};
use fullpipe_experiment::recording::{Event, EventKind};
use fullpipe_experiment::scenario::{App, FlowSpec, HEADER_BYTES};
use fullpipe_path::{Ecn, Packet};
use outside::Outside;
use std::collections::VecDeque;

/// Unanswered SYNs that are retransmitted every second before the timeout doubles
/// (`tcp_syn_linear_timeouts`).
const LINEAR_SYNS: u32 = 4;
/// Initial timeout of a SYN or SYN-ACK (`TCP_TIMEOUT_INIT`), and the longest.
const SYN_TIMEOUT: Span = Span::from_secs(1);
const MAX_SYN_TIMEOUT: Span = Span::from_secs(64);

/// Most packets of one request: they leave without congestion control.
const MAX_PARTS: u64 = 1 << 16;

/// The state of the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Not started.
    Waiting,
    /// The SYN has been sent.
    Connecting,
    /// Data may be sent.
    Open,
    /// Another transport has its own state.
    Outside,
}

/// The client of a request/response application, at the receiving end.
#[derive(Debug, Default)]
struct Requester {
    /// Requests sent so far.
    requests: u64,
    /// Stream length at which the current response is complete.
    response_end: u64,
    /// When the current request was first sent.
    sent_at: Time,
    repeats: u32,
}

/// Parts of the current request that have arrived at the sending end.
#[derive(Debug, Default)]
struct Request {
    number: u64,
    parts: Vec<bool>,
    missing: usize,
}

/// The requests of a request/response application, at both ends.
#[derive(Debug)]
struct Requests {
    /// Payload of a request and of a response, and the pause between them, until the application stops.
    exchange: Option<(u64, u64, Span)>,
    requester: Requester,
    arriving: Request,
}

/// The parts of the engine that an arrival or a timer uses.
pub(crate) struct Net<'a, O> {
    /// The direction that this end sends on.
    pub out: &'a mut O,
    pub sacks: &'a mut SackStore,
}

/// A flow's extra delay towards the sending end, on top of the path's, and the packets in it.
#[derive(Debug)]
struct ExtraDelay {
    delay: Span,
    packets: VecDeque<(Time, Packet<Segment>)>,
}

/// A connection: both ends and the application.
///
/// With thousands of connections each event misses the processor's caches, and its cost is mostly
/// the number of cache lines that it touches. So the fields that every event uses come first, and
/// what few flows have is boxed.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Connection<C> {
    /// When the last byte of a flow with a size was delivered; never for others.
    completed: Time,
    /// Sending end: when the SYN is retransmitted.
    syn_at: Time,
    /// When the application stops; never once it has.
    stop_at: Time,
    /// Receiving end: when the SYN-ACK is retransmitted; never once the connection is established.
    syn_ack_at: Time,
    /// Receiving end: when the next request is sent or the current one repeated.
    request_at: Time,
    /// Captures its packets, if enabled.
    pub capture: Option<Box<Capture>>,
    /// Its access link, before the path.
    pub access: Option<Box<Access>>,
    /// Data that waits for the receiving end's processor, if processing takes time.
    pub incoming: Option<Box<Incoming>>,
    extra_delay: Option<Box<ExtraDelay>>,
    /// The controller's latest recorded state.
    state: Option<&'static str>,
    /// The number of bytes after which it is complete, or `u64::MAX`.
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
    requests: Option<Box<Requests>>,
    /// Another transport, which replaces sender and receiver.
    outside: Option<Box<Outside>>,
}

impl<C: CongestionControl> Connection<C> {
    pub fn new(id: u32, spec: &FlowSpec, cc: C, smss: u32, rows: usize) -> Self {
        let start = spec.start.at().map_or(Time::NEVER, |at| Time::ZERO + at);
        let size = spec.size.map(|b| b.0);
        let stop = spec.stop.map_or(Time::NEVER, |at| Time::ZERO + at);
        let requests = match spec.app {
            App::RequestResponse { request, response, think } => Some(Box::new(Requests {
                exchange: Some((request.0, response.0, think)),
                requester: Requester::default(),
                arriving: Request::default(),
            })),
            _ => None,
        };
        let ecn = spec.ecn && cc.claims_ecn();
        Connection {
            completed: Time::NEVER,
            syn_at: start,
            stop_at: stop,
            syn_ack_at: Time::NEVER,
            request_at: Time::NEVER,
            capture: None,
            access: None,
            incoming: None,
            extra_delay: (!spec.extra_rtt.is_zero())
                .then(|| Box::new(ExtraDelay { delay: spec.extra_rtt, packets: VecDeque::new() })),
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
            requests,
            outside: None,
        }
    }

    /// Starts a flow that waited for another, at `at`, unless its application stops before.
    pub fn begin(&mut self, at: Time) {
        if at < self.stop {
            self.start = at;
            self.syn_at = at;
            self.recorder.begin(at);
        }
    }

    /// Whether it has ended for flows that wait for it: all is delivered, or its application has
    /// stopped.
    pub fn has_ended(&self) -> bool {
        self.completed != Time::NEVER || self.stop_at != self.stop
    }

    /// Whether it will send and receive nothing more.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.completed != Time::NEVER && self.is_acknowledged()
    }

    /// Whether part of a flow with a size has not been sent, so that it is not over before a packet
    /// has passed the path in both directions; or the flow has no size.
    pub fn has_more_to_send(&self) -> bool {
        self.size == u64::MAX || self.outside.is_none() && self.sender.sent_end() < self.size
    }

    /// Whether everything written has been acknowledged.
    fn is_acknowledged(&self) -> bool {
        match &self.outside {
            None => self.sender.is_idle(),
            Some(outside) => outside.is_idle(),
        }
    }

    /// Payload bytes that arrived at the receiving end, each counted once.
    pub fn arrived(&self) -> u64 {
        self.outside.as_ref().map_or_else(|| self.receiver.arrived(), |outside| outside.delivered())
    }

    /// Payload bytes delivered to the receiving application, in order.
    pub fn delivered(&self) -> u64 {
        self.outside.as_ref().map_or_else(|| self.receiver.delivered(), |outside| outside.delivered())
    }

    /// State and counters of the sending end.
    pub fn telemetry(&self) -> Telemetry {
        if let Some(outside) = &self.outside {
            return outside.telemetry();
        }
        let (rtt, srtt, _) = self.sender.rtts();
        Telemetry {
            snapshot: self.sender.controller().snapshot(),
            rtt,
            srtt,
            inflight: self.sender.inflight(),
            window: self.sender.window(),
            pacing_rate: self.sender.pacing_rate(),
            delivery_rate: Some(self.sender.delivery_rate()),
            delivered: self.sender.delivered(),
            sent: self.sender.counts.sent,
            retransmitted: self.sender.counts.retransmitted,
            lost: self.sender.counts.marked_lost,
        }
    }

    /// Whether it is over and its end is in the time series.
    pub fn is_recorded(&self) -> bool {
        self.is_over() && self.completed <= self.recorder.last_row()
    }

    /// When it ended: its last byte's delivery, its stop, or the end of the run.
    pub fn end(&self, run_end: Time) -> Time {
        self.completed.min(self.stop).max(self.start).min(run_end)
    }

    /// When its last byte was delivered, if it has a size.
    pub fn completed(&self) -> Option<Time> {
        (self.completed != Time::NEVER).then_some(self.completed)
    }

    /// The next time at which a timer of either end fires.
    #[inline]
    pub fn wake(&self) -> Time {
        self.sender_wake().min(self.receiver_wake()).min(self.stop_at)
    }

    /// The next timer of the sending end, which an arrival there can bring forward.
    #[inline]
    pub fn sender_wake(&self) -> Time {
        let delayed =
            self.extra_delay.as_ref().and_then(|d| d.packets.front()).map_or(Time::NEVER, |&(at, _)| at);
        let access = self.access.as_ref().map_or(Time::NEVER, |access| access.next());
        self.sender.wake().min(self.source.at).min(self.syn_at).min(delayed).min(access)
    }

    /// The next timer of the receiving end, which an arrival there can bring forward.
    #[inline]
    pub fn receiver_wake(&self) -> Time {
        let handled = self.incoming.as_ref().map_or(Time::NEVER, |incoming| incoming.due());
        self.receiver.ack_due().min(self.syn_ack_at).min(self.request_at).min(handled)
    }

    /// The path or the access link dropped a packet.
    pub fn on_dropped(&mut self, packet: &Packet<Segment>) {
        match packet.data.kind {
            Kind::Data => self.recorder.on_dropped(packet.data.stamp),
            Kind::ToReceiver | Kind::ToSender => self.drop_datagram(packet),
            Kind::Syn | Kind::SynAck | Kind::Established | Kind::Request | Kind::Ack => {}
        }
    }

    /// Packets in the flow's extra delay.
    #[cfg(test)]
    pub fn in_extra_delay(&self) -> usize {
        self.extra_delay.as_ref().map_or(0, |delay| delay.packets.len())
    }

    /// The controller's state, if it is new.
    #[inline]
    pub fn new_state(&mut self) -> Option<&'static str> {
        let state = match &self.outside {
            Some(outside) if self.phase == Phase::Outside => outside.state(),
            _ => self.sender.controller().state(),
        };
        // An unchanged state is mostly the same static string.
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

    /// Sends what the sender may send.
    #[inline]
    pub fn pump(&mut self, now: Time, out: &mut impl Outlet) {
        let (id, ecn, mut capture) = (self.id, self.ecn, self.capture.as_deref_mut());
        let mut out = Out { access: self.access.as_deref_mut(), path: out };
        self.sender.send(now, &mut |segment, retransmit| {
            transmit(now, id, ecn, segment, retransmit, &mut out, capture.as_deref_mut());
        });
    }

    /// Processes a packet that the path delivers at `now`, after a queueing delay that `queueing`
    /// models, if it is to be recorded. Returns the next timer that this can have brought forward, and
    /// the controller's state if it is new.
    #[inline]
    pub fn on_arrival(
        &mut self,
        now: Time,
        packet: Packet<Segment>,
        queueing: Option<&Queueing>,
        net: &mut Net<'_, impl Outlet>,
    ) -> (Time, Option<&'static str>) {
        match packet.data.kind {
            Kind::Data | Kind::Syn | Kind::Established | Kind::ToReceiver => {
                if let (Some(queueing), Kind::Data | Kind::ToReceiver) = (queueing, packet.data.kind) {
                    let waited = queueing.of_packet(packet.data.stamp, now, packet.bytes);
                    self.recorder.on_queued(waited - queueing.outside(self.access.as_deref(), packet.bytes));
                }
                self.at_receiver(now, packet, net);
                (self.receiver_wake(), None)
            }
            Kind::Ack | Kind::SynAck | Kind::Request | Kind::ToSender => {
                self.at_sender(now, packet, net);
                (self.sender_wake(), self.new_state())
            }
        }
    }

    /// Processes the timers of both ends at `now`. Returns when the next one is due.
    #[inline]
    pub fn on_timers<O: Outlet>(
        &mut self,
        now: Time,
        data_way: &mut O,
        ack_way: &mut O,
        sacks: &mut SackStore,
    ) -> Time {
        self.wake_receiver(now, &mut Net { out: ack_way, sacks });
        self.wake_sender(now, &mut Net { out: data_way, sacks });
        if let Some(mut access) = self.access.take() {
            access.pass_on(now, data_way, &mut |packet| self.on_dropped(packet));
            self.access = Some(access);
        }
        self.wake().max(now + Span::from_nanos(1))
    }

    // At the receiving end.

    /// Processes a packet from the sending end.
    #[inline]
    pub fn at_receiver(&mut self, now: Time, packet: Packet<Segment>, net: &mut Net<'_, impl Outlet>) {
        match packet.data.kind {
            Kind::Data => match &mut self.incoming {
                Some(incoming) => incoming.arrives(now, packet),
                None => {
                    if self.receive_data(now, packet, net) {
                        self.acknowledge(now, net);
                    }
                }
            },
            Kind::Syn => {
                self.capture_handshake(now, End::Receiver, PacketKind::Syn);
                // A retransmitted SYN is answered at once, whatever the SYN-ACK timer.
                if self.phase != Phase::Open || self.syn_ack_at != Time::NEVER {
                    self.send_syn_ack(now, net);
                }
            }
            Kind::Established => {
                self.capture_handshake(now, End::Receiver, PacketKind::Established);
                self.on_established(now);
            }
            Kind::ToReceiver => self.datagram_at_receiver(now, packet, net),
            Kind::SynAck | Kind::Ack | Kind::Request | Kind::ToSender => {}
        }
    }

    /// Delivers data to the receiver; returns whether it acknowledges at once.
    #[inline]
    fn receive_data(&mut self, now: Time, packet: Packet<Segment>, net: &mut Net<'_, impl Outlet>) -> bool {
        let marked = packet.ecn == Ecn::Ce;
        if let Some(capture) = &mut self.capture {
            capture.data(now, End::Receiver, &packet.data, marked);
        }
        self.on_established(now);
        if self.receiver.must_acknowledge_before(&packet.data) {
            self.acknowledge(now, net);
        }
        let rtt = self.sender.srtt();
        let acknowledges = self.receiver.on_data(now, &packet.data, marked, rtt);
        self.on_delivered(now, self.receiver.delivered());
        acknowledges
    }

    /// The receiving application has read `delivered` bytes in all.
    #[inline]
    fn on_delivered(&mut self, now: Time, delivered: u64) {
        if let Some(transfer) = self.source.on_delivered(delivered) {
            let took = now.since(transfer.began).as_secs_f64();
            self.record_event(now, EventKind::TransferDelivered, Some(took));
            self.schedule_request(now);
        }
        if delivered >= self.size && self.completed == Time::NEVER {
            self.completed = now;
            self.record_event(now, EventKind::Completed, None);
            self.request_at = Time::NEVER;
        }
    }

    #[inline]
    fn capture_handshake(&mut self, now: Time, end: End, kind: PacketKind) {
        if let Some(capture) = &mut self.capture {
            capture.handshake(now, end, kind);
        }
    }

    fn record_event(&mut self, now: Time, kind: EventKind, value: Option<f64>) {
        self.recorder.on_event(Event { at_s: now.as_secs_f64(), kind, value });
    }

    fn send_syn_ack(&mut self, now: Time, net: &mut Net<'_, impl Outlet>) {
        let wait = (SYN_TIMEOUT * (1 << self.syn_acks.min(10))).min(MAX_SYN_TIMEOUT);
        self.syn_ack_at = now + wait;
        self.syn_acks += 1;
        let edge = self.receiver.initial_edge();
        self.capture_handshake(now, End::Receiver, PacketKind::SynAck { edge });
        net.out.push(now, self.handshake(now, Kind::SynAck));
    }

    /// The receiving end has learned that the handshake is complete.
    #[inline]
    fn on_established(&mut self, now: Time) {
        if self.syn_acks > 0 {
            self.syn_acks = 0;
            self.syn_ack_at = Time::NEVER;
            self.receiver.opens(now);
            if self.sends_requests() {
                self.request_at = now;
            }
        }
    }

    /// Whether the receiving application sends requests.
    fn sends_requests(&self) -> bool {
        self.requests.as_ref().is_some_and(|requests| requests.exchange.is_some())
    }

    /// The receiving application sends no more requests.
    fn end_requests(&mut self) {
        self.request_at = Time::NEVER;
        if let Some(requests) = &mut self.requests {
            requests.exchange = None;
        }
    }

    /// The response is complete: schedules the next request after the pause.
    fn schedule_request(&mut self, now: Time) {
        if let Some(requests) = &mut self.requests
            && let Some((_, _, think)) = requests.exchange
        {
            requests.requester.repeats = 0;
            self.request_at = now + think;
        }
    }

    /// Sends the next request, or repeats the current one if its response has not begun.
    fn send_request(&mut self, now: Time, net: &mut Net<'_, impl Outlet>) {
        self.request_at = Time::NEVER;
        let Some(Requests { exchange, requester, .. }) = self.requests.as_deref_mut() else { return };
        let Some((request, response, _)) = *exchange else { return };
        let delivered = self.receiver.delivered();
        if delivered >= requester.response_end {
            *requester = Requester {
                requests: requester.requests + 1,
                response_end: delivered.saturating_add(response),
                sent_at: now,
                repeats: 0,
            };
        } else if delivered > requester.response_end - response {
            // The response has begun: its sender retransmits what is lost.
            return;
        }
        let parts = request.div_ceil(u64::from(self.smss)).clamp(1, MAX_PARTS) as u32;
        for part in 0..parts {
            let payload = (request - u64::from(part) * u64::from(self.smss)).min(u64::from(self.smss)) as u32;
            let segment = Segment {
                seq: requester.requests,
                stamp: requester.sent_at,
                edge: u64::from(parts),
                detail: part,
                ce: 0,
                kind: Kind::Request,
                push: false,
            };
            net.out.push(now, Packet::new(self.id, HEADER_BYTES + payload, segment));
        }
        self.request_at = now + self.sender.rto() * (1 << requester.repeats.min(6));
        requester.repeats += 1;
    }

    #[inline]
    fn acknowledge(&mut self, now: Time, net: &mut Net<'_, impl Outlet>) {
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

    /// Processes the timers of the receiving end.
    pub fn wake_receiver(&mut self, now: Time, net: &mut Net<'_, impl Outlet>) {
        if let Some(incoming) = self.incoming.as_mut().filter(|incoming| incoming.due() <= now) {
            let mut acknowledges = false;
            for packet in incoming.done(now) {
                acknowledges |= self.receive_data(now, packet, net);
            }
            if acknowledges {
                self.acknowledge(now, net);
            }
        }
        if self.receiver.ack_due() <= now {
            self.acknowledge(now, net);
        }
        if self.phase == Phase::Outside {
            return self.wake_outside_receiver(now, net);
        }
        if self.syn_ack_at <= now {
            self.send_syn_ack(now, net);
        }
        if self.request_at <= now {
            self.send_request(now, net);
        }
    }

    // At the sending end.

    /// Sends a packet of the sending end.
    fn transmit_control(&mut self, now: Time, packet: Packet<Segment>, net: &mut Net<'_, impl Outlet>) {
        Out { access: self.access.as_deref_mut(), path: &mut *net.out }.push(now, packet);
    }

    /// Processes a packet from the receiving end: at once, or after the flow's extra delay.
    #[inline]
    pub fn at_sender(&mut self, now: Time, packet: Packet<Segment>, net: &mut Net<'_, impl Outlet>) {
        if packet.data.kind == Kind::ToSender {
            self.keep_mark(&packet);
        }
        match &mut self.extra_delay {
            None => self.receive(now, packet.data, net),
            Some(extra) => extra.packets.push_back((now + extra.delay, packet)),
        }
    }

    #[inline]
    fn receive(&mut self, now: Time, segment: Segment, net: &mut Net<'_, impl Outlet>) {
        match segment.kind {
            Kind::Ack => {
                if let Some(capture) = &mut self.capture {
                    capture.ack(now, End::Sender, &segment, net.sacks);
                }
                let sack = net.sacks.remove(segment.detail);
                if let Some(rtt) = self.sender.on_ack(now, &segment, &sack) {
                    self.recorder.on_rtt(rtt);
                }
                self.source.on_ack(now, &mut self.sender);
                self.pump(now, net.out);
            }
            Kind::SynAck => self.open(now, net),
            Kind::Request => self.receive_request(now, &segment, net),
            Kind::ToSender => self.datagram_at_sender(now, segment, net),
            Kind::Syn | Kind::Established | Kind::Data | Kind::ToReceiver => {}
        }
    }

    fn open(&mut self, now: Time, net: &mut Net<'_, impl Outlet>) {
        let edge = self.receiver.initial_edge();
        self.capture_handshake(now, End::Sender, PacketKind::SynAck { edge });
        self.capture_handshake(now, End::Sender, PacketKind::Established);
        self.transmit_control(now, self.handshake(now, Kind::Established), net);
        if self.phase == Phase::Open {
            return;
        }
        self.phase = Phase::Open;
        // With several SYNs it is ambiguous which one is answered (Karn's algorithm).
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

    fn receive_request(&mut self, now: Time, segment: &Segment, net: &mut Net<'_, impl Outlet>) {
        let Some(requests) = &mut self.requests else { return };
        let q = &mut requests.arriving;
        if segment.seq > q.number {
            let parts = segment.edge as usize;
            *q = Request { number: segment.seq, parts: vec![false; parts], missing: parts };
        }
        let part = segment.detail as usize;
        if segment.seq == q.number && !std::mem::replace(&mut q.parts[part], true) {
            q.missing -= 1;
            if q.missing == 0 {
                self.source.respond(segment.stamp, &mut self.sender);
                self.pump(now, net.out);
            }
        }
    }

    /// Replaces the application by `app` at `now`.
    pub fn change_app(&mut self, now: Time, app: App) {
        self.source.change(now, app);
    }

    /// Processes the timers of the sending end.
    pub fn wake_sender(&mut self, now: Time, net: &mut Net<'_, impl Outlet>) {
        while let Some((_, packet)) =
            self.extra_delay.as_mut().and_then(|extra| extra.packets.pop_front_if(|(at, _)| *at <= now))
        {
            self.receive(now, packet.data, net);
        }
        if self.phase == Phase::Outside {
            return self.wake_outside_sender(now, net);
        }
        if self.syn_at <= now {
            self.phase = Phase::Connecting;
            let doublings = (self.syns + 1).saturating_sub(LINEAR_SYNS).min(10);
            self.syn_at = now + (SYN_TIMEOUT * (1 << doublings)).min(MAX_SYN_TIMEOUT);
            self.syns += 1;
            self.capture_handshake(now, End::Sender, PacketKind::Syn);
            self.transmit_control(now, self.handshake(now, Kind::Syn), net);
        }
        if self.stop_at <= now {
            self.stop_at = Time::NEVER;
            self.syn_at = Time::NEVER;
            self.end_requests();
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

/// The output of the sending end: its access link if it has one, else the path.
struct Out<'a, O> {
    access: Option<&'a mut Access>,
    path: &'a mut O,
}

impl<O: Outlet> Out<'_, O> {
    #[inline]
    fn push(&mut self, now: Time, packet: Packet<Segment>) {
        match &mut self.access {
            None => self.path.push(now, packet),
            Some(access) => access.push(now, packet),
        }
    }
}

/// Sends a data segment. Retransmissions are not ECN-capable (RFC 3168 §6.1.5).
#[inline]
fn transmit(
    now: Time,
    id: u32,
    ecn: bool,
    segment: Segment,
    retransmit: bool,
    out: &mut Out<'_, impl Outlet>,
    capture: Option<&mut Capture>,
) {
    if let Some(capture) = capture {
        capture.data(now, End::Sender, &segment, false);
    }
    let mut packet = Packet::new(id, segment.detail + HEADER_BYTES, segment);
    if ecn && !retransmit {
        packet.ecn = Ecn::Ect0;
    }
    out.push(now, packet);
}
