//! A connection of another transport: its datagrams, timers and application.

use super::{Connection, Net, Out, Phase};
use crate::app::Stream;
use crate::engine::one_way::Outlet;
use crate::segment::{Kind, Segment};
use crate::transport::{DATAGRAM_HEADER_BYTES, Datagram, Telemetry, Transport, TransportEnd, TransportEvent};
use fullpipe_cc::{CongestionControl, Time};
use fullpipe_experiment::recording::Event;
use fullpipe_path::Packet;

/// Another transport and the payloads of its datagrams on the path.
#[derive(Debug)]
pub(super) struct Outside {
    transport: Box<dyn Transport>,
    payloads: Vec<Datagram>,
    free: Vec<u32>,
    opened: bool,
    established: bool,
    failure: Option<String>,
}

impl Outside {
    fn new(transport: Box<dyn Transport>) -> Self {
        Outside {
            transport,
            payloads: Vec::new(),
            free: Vec::new(),
            opened: false,
            established: false,
            failure: None,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.transport.is_idle()
    }

    pub fn delivered(&self) -> u64 {
        self.transport.delivered()
    }

    pub fn state(&self) -> &'static str {
        self.transport.state()
    }

    pub fn telemetry(&self) -> Telemetry {
        self.transport.telemetry()
    }

    /// Stores a payload until it is [taken](Self::remove).
    fn put(&mut self, datagram: Datagram) -> u32 {
        match self.free.pop() {
            Some(handle) => {
                self.payloads[handle as usize] = datagram;
                handle
            }
            None => {
                self.payloads.push(datagram);
                (self.payloads.len() - 1) as u32
            }
        }
    }

    fn remove(&mut self, handle: u32) -> Datagram {
        self.free.push(handle);
        std::mem::take(&mut self.payloads[handle as usize])
    }
}

/// The transport as what an application writes to at `now`.
struct Writer<'a> {
    transport: &'a mut dyn Transport,
    now: Time,
}

impl Stream for Writer<'_> {
    fn write(&mut self, bytes: u64) {
        self.transport.write(self.now, bytes);
    }

    fn close(&mut self, truncate: bool) {
        self.transport.finish(self.now, truncate);
    }

    fn forget_unsent(&mut self) -> u64 {
        self.transport.discard_unsent()
    }

    fn is_idle(&self) -> bool {
        self.transport.is_idle()
    }
}

/// The connection's timers: `syn_at` is the next timer of the transport's sending end (or the start
/// of the flow), `syn_ack_at` that of its receiving end.
impl<C: CongestionControl> Connection<C> {
    /// Replaces sender and receiver by `transport`.
    pub fn over(mut self, transport: Box<dyn Transport>) -> Self {
        self.outside = Some(Box::new(Outside::new(transport)));
        self.phase = Phase::Outside;
        self
    }

    /// Why the transport failed, if it did.
    #[inline]
    pub fn failure(&self) -> Option<&str> {
        if self.phase != Phase::Outside {
            return None;
        }
        self.outside.as_ref()?.failure.as_deref()
    }

    /// Keeps the mark that the path has set on a datagram.
    #[cold]
    pub(super) fn keep_mark(&mut self, packet: &Packet<Segment>) {
        if let Some(outside) = &mut self.outside {
            outside.payloads[packet.data.detail as usize].ecn = packet.ecn;
        }
    }

    /// The path dropped a datagram.
    #[cold]
    pub(super) fn drop_datagram(&mut self, packet: &Packet<Segment>) {
        if packet.data.kind == Kind::ToReceiver {
            self.recorder.on_dropped(packet.data.stamp);
        }
        if let Some(outside) = &mut self.outside {
            outside.remove(packet.data.detail);
        }
    }

    pub(super) fn datagram_at_receiver(
        &mut self,
        now: Time,
        packet: Packet<Segment>,
        net: &mut Net<'_, impl Outlet>,
    ) {
        let Some(outside) = &mut self.outside else { return };
        let mut datagram = outside.remove(packet.data.detail);
        datagram.ecn = packet.ecn;
        outside.transport.on_datagram(now, TransportEnd::Receiver, datagram);
        self.run_receiver(now, net);
    }

    pub(super) fn datagram_at_sender(&mut self, now: Time, segment: Segment, net: &mut Net<'_, impl Outlet>) {
        let Some(outside) = &mut self.outside else { return };
        let datagram = outside.remove(segment.detail);
        outside.transport.on_datagram(now, TransportEnd::Sender, datagram);
        self.run_sender(now, net);
    }

    /// Processes the timers of the receiving end.
    pub(super) fn wake_outside_receiver(&mut self, now: Time, net: &mut Net<'_, impl Outlet>) {
        let timer = self.syn_ack_at <= now;
        let requests = self.request_at <= now;
        let Some(outside) = self.outside.as_mut().filter(|_| timer || requests) else { return };
        if timer {
            outside.transport.on_timer(now, TransportEnd::Receiver);
        }
        if requests {
            self.request_at = Time::NEVER;
            if let Some(requests) = &mut self.requests
                && let Some((request, _, _)) = requests.exchange
            {
                requests.requester.sent_at = now;
                outside.transport.request(now, request);
            }
        }
        self.run_receiver(now, net);
    }

    /// After a call at the receiving end.
    fn run_receiver(&mut self, now: Time, net: &mut Net<'_, impl Outlet>) {
        self.poll_events(now);
        let delivered = self.delivered();
        self.on_delivered(now, delivered);
        let Some(outside) = &mut self.outside else { return };
        while let Some(datagram) = outside.transport.poll_transmit(now, TransportEnd::Receiver) {
            let packet = packet(now, self.id, Kind::ToSender, datagram, outside);
            net.out.push(now, packet);
        }
        self.syn_ack_at = outside.transport.next_timer(TransportEnd::Receiver);
    }

    /// Processes the start, the timers and the application of the sending end.
    pub(super) fn wake_outside_sender(&mut self, now: Time, net: &mut Net<'_, impl Outlet>) {
        let due = self.syn_at.min(self.stop_at).min(self.source.at) <= now;
        let Some(outside) = self.outside.as_mut().filter(|_| due) else { return };
        let transport = &mut *outside.transport;
        if self.stop_at <= now {
            self.stop_at = Time::NEVER;
            self.request_at = Time::NEVER;
            if let Some(requests) = &mut self.requests {
                requests.exchange = None;
            }
            self.source.stop(&mut Writer { transport, now }, true);
            // A flow that has not started never will.
            if !outside.opened {
                self.syn_at = Time::NEVER;
            }
        }
        if self.source.at <= now {
            self.source.on_time(now, &mut Writer { transport, now });
        }
        if self.syn_at <= now {
            if std::mem::replace(&mut outside.opened, true) {
                transport.on_timer(now, TransportEnd::Sender);
            } else {
                transport.open(now);
            }
        }
        if outside.opened {
            self.run_sender(now, net);
        }
    }

    /// After a call at the sending end.
    fn run_sender(&mut self, now: Time, net: &mut Net<'_, impl Outlet>) {
        self.poll_events(now);
        let Some(outside) = &mut self.outside else { return };
        if outside.established {
            self.source.on_ack(now, &mut Writer { transport: &mut *outside.transport, now });
        }
        let mut out = Out { access: self.access.as_deref_mut(), path: &mut *net.out };
        while let Some(datagram) = outside.transport.poll_transmit(now, TransportEnd::Sender) {
            out.push(now, packet(now, self.id, Kind::ToReceiver, datagram, outside));
        }
        self.syn_at = outside.transport.next_timer(TransportEnd::Sender);
    }

    fn poll_events(&mut self, now: Time) {
        let sends_requests = self.sends_requests();
        let Some(outside) = &mut self.outside else { return };
        while let Some(event) = outside.transport.poll_event() {
            let mut stream = Writer { transport: &mut *outside.transport, now };
            match event {
                TransportEvent::Established => {
                    outside.established = true;
                    self.source.start(now, &mut stream);
                }
                TransportEvent::Accepted if sends_requests => self.request_at = now,
                TransportEvent::Accepted => {}
                TransportEvent::Rtt(rtt) => self.recorder.on_rtt(rtt),
                TransportEvent::Requested => {
                    let sent_at =
                        self.requests.as_ref().map_or(Time::ZERO, |requests| requests.requester.sent_at);
                    self.source.respond(sent_at, &mut stream);
                }
                TransportEvent::Recorded(kind, value) => {
                    self.recorder.on_event(Event { at_s: now.as_secs_f64(), kind, value });
                }
                TransportEvent::Failed(reason) => outside.failure = outside.failure.take().or(Some(reason)),
            }
        }
    }
}

/// A packet with `datagram`, whose payload `outside` keeps.
fn packet(now: Time, flow: u32, kind: Kind, datagram: Datagram, outside: &mut Outside) -> Packet<Segment> {
    let bytes = DATAGRAM_HEADER_BYTES.saturating_add(datagram.payload.len() as u32);
    let ecn = datagram.ecn;
    let detail = outside.put(datagram);
    let segment = Segment { seq: 0, stamp: now, edge: 0, detail, ce: 0, kind, push: false };
    let mut packet = Packet::new(flow, bytes, segment);
    packet.ecn = ecn;
    packet
}
