//! A connection over a path, without the simulator.

use fullpipe_experiment::recording::EventKind;
use fullpipe_experiment::scenario::FlowSpec;
use fullpipe_path::{BuildContext, Direction, LinkSpec, Outcome, Packet, Path};
use fullpipe_quic::harness::Stacks;
use fullpipe_sim::{
    DATAGRAM_HEADER_BYTES, Datagram, Opening, Transport, TransportEnd, TransportEvent, Transports,
};
use fullpipe_units::{Bytes, Span, Time};

/// A connection, its path, and what arrived.
pub struct World {
    pub transport: Box<dyn Transport>,
    forward: Path<Vec<u8>>,
    reverse: Path<Vec<u8>>,
    pub now: Time,
    pub events: Vec<(Time, TransportEvent)>,
    /// Hash of all times and sizes of arrivals.
    pub digest: u64,
    /// Packets that the sender sent, and of these dropped by the path.
    pub sent: u64,
    pub dropped: u64,
    /// When the sender sent the last packet.
    pub last_sent: Time,
    /// Larger packets do not pass, in bytes.
    pub mtu: u32,
}

/// One link from `text`, in the syntax of a scenario.
pub fn link(text: &str) -> LinkSpec {
    toml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// A flow of `cc` with receive windows of 16 MB.
pub fn flow(cc: &str) -> FlowSpec {
    FlowSpec { receive_buffer: Some(Bytes(16 << 20)), ..FlowSpec::bulk(cc) }
}

impl World {
    pub fn new(flow: &FlowSpec, forward: &[LinkSpec], reverse: &[LinkSpec], seed: u64) -> Self {
        let opening = Opening { flow, mtu: 1500, seed };
        let transport = Stacks.open(&opening).unwrap_or_else(|fault| panic!("{fault:?}"));
        Self::with(transport, forward, reverse, seed)
    }

    pub fn with(
        transport: Box<dyn Transport>,
        forward: &[LinkSpec],
        reverse: &[LinkSpec],
        seed: u64,
    ) -> Self {
        let path = |direction| {
            let context = BuildContext::for_path(forward, reverse, direction, 1500, seed);
            Path::new(if direction == Direction::Forward { forward } else { reverse }, &context).unwrap()
        };
        World {
            transport,
            forward: path(Direction::Forward),
            reverse: path(Direction::Reverse),
            now: Time::ZERO,
            events: Vec::new(),
            digest: 0xcbf2_9ce4_8422_2325,
            sent: 0,
            dropped: 0,
            last_sent: Time::ZERO,
            mtu: u32::MAX,
        }
    }

    fn hash(&mut self, n: u64) {
        self.digest = (self.digest ^ n).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17);
    }

    /// Polls events and datagrams after a call at `end`.
    pub fn poll(&mut self, end: TransportEnd) {
        while let Some(event) = self.transport.poll_event() {
            self.events.push((self.now, event));
        }
        while let Some(datagram) = self.transport.poll_transmit(self.now, end) {
            let bytes = datagram.payload.len() as u32 + DATAGRAM_HEADER_BYTES;
            let packet = Packet { ecn: datagram.ecn, ..Packet::new(0, bytes, datagram.payload) };
            match end {
                TransportEnd::Sender => {
                    self.sent += 1;
                    self.last_sent = self.now;
                    if bytes <= self.mtu {
                        self.forward.push(self.now, packet);
                    }
                }
                TransportEnd::Receiver => self.reverse.push(self.now, packet),
            }
        }
    }

    pub fn open(&mut self) {
        self.transport.open(self.now);
        self.poll(TransportEnd::Sender);
    }

    pub fn write(&mut self, bytes: u64) {
        self.transport.write(self.now, bytes);
        self.poll(TransportEnd::Sender);
    }

    pub fn finish(&mut self, truncate: bool) {
        self.transport.finish(self.now, truncate);
        self.poll(TransportEnd::Sender);
    }

    pub fn request(&mut self, bytes: u64) {
        self.transport.request(self.now, bytes);
        self.poll(TransportEnd::Receiver);
    }

    fn deliver(&mut self, end: TransportEnd, arrivals: Vec<Packet<Vec<u8>>>) {
        for packet in arrivals {
            self.hash(self.now.as_nanos());
            self.hash(u64::from(packet.bytes));
            self.transport.on_datagram(self.now, end, Datagram { payload: packet.data, ecn: packet.ecn });
            self.poll(end);
        }
    }

    /// Runs until `end` at the latest, or until `stop`.
    pub fn run_until(&mut self, end: Time, mut stop: impl FnMut(&World) -> bool) {
        loop {
            let timer = |which| self.transport.next_timer(which).max(self.now);
            let next = self
                .forward
                .next_event()
                .min(self.reverse.next_event())
                .min(timer(TransportEnd::Sender))
                .min(timer(TransportEnd::Receiver));
            if next > end || stop(self) {
                self.now = self.now.max(end.min(next));
                return;
            }
            self.now = next;
            let mut arrivals = (Vec::new(), Vec::new());
            let mut dropped = 0;
            self.forward.advance(next, &mut |_, outcome| match outcome {
                Outcome::Delivered(packet) => arrivals.0.push(packet),
                Outcome::Dropped(..) => dropped += 1,
            });
            self.dropped += dropped;
            self.reverse.advance(next, &mut |_, outcome| {
                if let Outcome::Delivered(packet) = outcome {
                    arrivals.1.push(packet);
                }
            });
            self.deliver(TransportEnd::Receiver, arrivals.0);
            self.deliver(TransportEnd::Sender, arrivals.1);
            for end in [TransportEnd::Sender, TransportEnd::Receiver] {
                if self.transport.next_timer(end) <= next {
                    self.transport.on_timer(next, end);
                    self.poll(end);
                }
            }
        }
    }

    /// Runs for `seconds` more.
    pub fn run(&mut self, seconds: f64) {
        let end = self.now + Span::from_nanos((seconds * 1e9) as u64);
        self.run_until(end, |_| false);
    }

    /// Opens and sends without end for `seconds`. Returns the goodput in bits per second.
    pub fn bulk(&mut self, seconds: f64) -> f64 {
        self.open();
        self.write(1 << 40);
        self.run(seconds);
        self.transport.delivered() as f64 * 8.0 / seconds
    }

    /// How many events of `kind` were recorded.
    pub fn recorded(&self, kind: EventKind) -> u64 {
        let of_kind = |event: &TransportEvent| matches!(event, TransportEvent::Recorded(k, _) if *k == kind);
        self.events.iter().filter(|(_, event)| of_kind(event)).count() as u64
    }

    /// Why the connection failed, if it did.
    pub fn failure(&self) -> Option<&str> {
        self.events.iter().find_map(|(_, event)| match event {
            TransportEvent::Failed(reason) => Some(reason.as_str()),
            _ => None,
        })
    }
}
