//! s2n-quic's packets over `fullpipe_path` in virtual time.

use fullpipe_path::{BuildContext, Direction, DropCause, Ecn, LinkSpec, Outcome, Packet, Path};
use fullpipe_units::{Span, Time};
use s2n_quic::provider::io::testing::{self, Network, network};
use s2n_quic_core::inet::{ExplicitCongestionNotification, SocketAddress};
use s2n_quic_core::time::Timestamp;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// IPv4 and UDP headers, which a path's rates and limits count.
const HEADERS: u32 = 28;

/// Largest packet of the path in bytes, from the IP header on.
const MTU: u32 = 1500;

/// Interval between two samples of the queue.
const SAMPLE_INTERVAL: Span = Span::from_millis(10);

/// Both directions of a path, and what arrived.
pub struct Wire {
    forward: Path<network::Packet>,
    reverse: Path<network::Packet>,
    /// Address of the data's sender.
    pub sender: Option<SocketAddress>,
    start: Option<Timestamp>,
    /// When the executor is woken next.
    armed: Time,
    next_sample: Time,
    /// Queue in bytes, every 10 ms.
    pub queue: Vec<u64>,
    /// FNV-1a over time, direction and size of each arrival.
    pub hash: u64,
    /// Packets from the sender.
    pub sent: u64,
    /// Packets from the sender that a full queue dropped.
    pub overflowed: u64,
    /// When the sender's latest packet left.
    pub last_sent: Time,
    /// Longest time between two packets of the sender.
    pub silence: Span,
}

impl Wire {
    /// A path with these links in the data's direction and in the other.
    pub fn new(forward: &LinkSpec, reverse: &LinkSpec, seed: u64) -> Self {
        let (forward, reverse) = ([forward.clone()], [reverse.clone()]);
        let build = |links: &[LinkSpec], direction| {
            let context = BuildContext::for_path(&forward, &reverse, direction, MTU, seed);
            Path::new(links, &context).expect("the test's links are valid")
        };
        Wire {
            forward: build(&forward, Direction::Forward),
            reverse: build(&reverse, Direction::Reverse),
            sender: None,
            start: None,
            armed: Time::NEVER,
            next_sample: Time::ZERO,
            queue: Vec::new(),
            hash: 0xcbf2_9ce4_8422_2325,
            sent: 0,
            overflowed: 0,
            last_sent: Time::ZERO,
            silence: Span::ZERO,
        }
    }

    /// Virtual time since the first call.
    pub fn now(&mut self) -> Time {
        let now = testing::now();
        let since = now.saturating_duration_since(*self.start.get_or_insert(now));
        Time::from_nanos(u64::try_from(since.as_nanos()).expect("a test takes less than 584 years"))
    }

    fn push(&mut self, now: Time, packet: network::Packet) {
        let forward = Some(*packet.path.local_address) == self.sender;
        let bytes = packet.payload.len() as u32 + HEADERS;
        let ecn = match packet.ecn {
            ExplicitCongestionNotification::NotEct => Ecn::NotEct,
            ExplicitCongestionNotification::Ect0 => Ecn::Ect0,
            ExplicitCongestionNotification::Ect1 => Ecn::Ect1,
            ExplicitCongestionNotification::Ce => Ecn::Ce,
        };
        let packet = Packet { ecn, ..Packet::new(0, bytes, packet) };
        if forward {
            self.sent += 1;
            if self.sent > 1 {
                self.silence = self.silence.max(now.since(self.last_sent));
            }
            self.last_sent = now;
            self.forward.push(now, packet);
        } else {
            self.reverse.push(now, packet);
        }
    }

    /// Moves time in both directions to `now`; returns what arrived.
    fn advance(&mut self, now: Time) -> Vec<network::Packet> {
        let Wire { hash, overflowed, .. } = self;
        let mut arrived = Vec::new();
        let sink = |direction: u64| {
            move |hash: &mut u64,
                  overflowed: &mut u64,
                  arrived: &mut Vec<network::Packet>,
                  at: Time,
                  outcome| {
                match outcome {
                    Outcome::Delivered(packet) => {
                        let Packet { bytes, ecn, data: mut packet, .. }: Packet<network::Packet> = packet;
                        for word in [at.as_nanos(), direction, u64::from(bytes)] {
                            *hash = (*hash ^ word).wrapping_mul(0x0000_0100_0000_01b3);
                        }
                        if ecn == Ecn::Ce {
                            packet.ecn = ExplicitCongestionNotification::Ce;
                        }
                        packet.switch();
                        arrived.push(packet);
                    }
                    Outcome::Dropped(_, DropCause::QueueFull) if direction == 0 => *overflowed += 1,
                    Outcome::Dropped(..) => {}
                }
            }
        };
        let (forward, reverse) = (sink(0), sink(1));
        self.forward.advance(now, &mut |at, outcome| forward(hash, overflowed, &mut arrived, at, outcome));
        self.reverse.advance(now, &mut |at, outcome| reverse(hash, overflowed, &mut arrived, at, outcome));
        arrived
    }

    /// Packets of the sender that the queue marked.
    pub fn marked(&self) -> u64 {
        self.forward.stats().map(|link| link.marked_packets).sum()
    }

    fn sample_queue(&mut self, now: Time) {
        if now >= self.next_sample {
            self.next_sample = now + SAMPLE_INTERVAL;
            self.queue.extend(self.forward.stats().map(|link| link.queue_bytes));
        }
    }

    /// How long until the executor must be woken for the next arrival, if it is not going to be.
    fn arm(&mut self, now: Time) -> Option<Duration> {
        let next = self.forward.next_event().min(self.reverse.next_event());
        if next == Time::NEVER {
            return None;
        }
        // The executor's clock counts microseconds: wake it in the first one that is not too early.
        let micros = next.since(now).as_nanos().div_ceil(1000);
        let wake = now + Span::from_micros(micros);
        if wake >= self.armed {
            return None;
        }
        self.armed = wake;
        Some(Duration::from_micros(micros))
    }
}

/// The network that s2n-quic's test executor runs.
#[derive(Clone)]
pub struct SharedWire(pub Arc<Mutex<Wire>>);

impl Network for SharedWire {
    fn execute(&mut self, buffers: &network::Buffers) -> usize {
        let mut wire = self.0.lock().expect("no test panics while it holds the wire");
        let now = wire.now();
        let mut events = 0;
        buffers.drain_pending_transmissions(|packet| {
            events += 1;
            wire.push(now, packet);
            Ok(())
        });
        let arrived = wire.advance(now);
        wire.sample_queue(now);
        events += arrived.len();
        for packet in arrived {
            buffers.rx(*packet.path.local_address, |queue| queue.enqueue(packet));
        }
        if let Some(delay) = wire.arm(now) {
            let wire = self.0.clone();
            testing::spawn(async move {
                testing::time::delay(delay).await;
                // The clock reads 1 µs at 0 as well as at 1 µs: this may be a microsecond early,
                // and another timer due.
                wire.lock().expect("nothing panicked").armed = Time::NEVER;
            });
        }
        events
    }
}
