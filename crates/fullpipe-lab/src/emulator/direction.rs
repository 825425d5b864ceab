//! One direction of the path: from one interface through a chain of links to the other.

use super::access::Access;
use super::audit::Audit;
use super::clock::Clock;
use super::frames::{FrameSegment, Frames};
use super::rtt::Views;
use crate::capture::Tap;
use crate::wire::{Frame, MAX_HEADERS, Protocol, VnetHeader};
use fullpipe_kernel::packets::{Port, Sender};
use fullpipe_path::{self as path, Ecn, LinkStats, Outcome, Packet, Path};
use fullpipe_units::{Rate, Span, Time};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// The listening port of the scenario's first flow; the others follow.
pub(crate) const FIRST_PORT: u16 = 20_000;

/// Frames read in one go before deliveries have their turn.
const BATCH: usize = 128;

/// Which flows are known and how their packets are treated.
#[derive(Clone)]
pub(crate) struct KnownFlows {
    /// What is recorded of them.
    pub(crate) views: Views,
    /// Extra delay of each flow, by number, applied to packets towards its sending end.
    pub(crate) extra: Arc<[Span]>,
    /// Start of the measured time.
    pub(crate) measured_from: Time,
}

/// Segments of one frame that leave together.
struct Run {
    slot: u32,
    first: u16,
    count: u16,
    ecn: Ecn,
    due: Time,
}

impl Run {
    /// Whether the segment due at `due` is sent with this run: it is the next of the same frame,
    /// and due at the same time, or already due with `coalesce`. If a late thread merged
    /// segments that the path had separated, the receiving kernel would overestimate the fill
    /// of packets and give the connection a larger window for its whole life
    /// (`tcp_measure_rcv_mss`).
    fn takes(&self, next: FrameSegment, ecn: Ecn, due: Time, coalesce: bool) -> bool {
        (self.slot, self.first + self.count, self.ecn) == (next.slot, next.index, ecn)
            && (coalesce || self.due == due)
    }
}

/// A run in its flow's extra delay. The earliest is the greatest, as the heap requires.
struct DelayedRun {
    at: Time,
    /// Keeps the order of runs due at the same time.
    number: u64,
    run: Run,
}

impl Ord for DelayedRun {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for DelayedRun {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for DelayedRun {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for DelayedRun {}

/// A running direction.
pub(crate) struct Direction {
    pub(crate) way: path::Direction,
    pub(crate) chain: Path<FrameSegment>,
    /// The flows' access links in front of it, in the order of their numbers.
    pub(crate) accesses: Vec<Access>,
    /// When a packet entered the chain last.
    entered: Time,
    from: Port,
    to: Sender,
    frames: Frames,
    known: KnownFlows,
    clock: Clock,
    latest: Time,
    pub(crate) tap: Option<Tap>,
    /// Whether the latest delivered packet had a payload.
    data: bool,
    held: BinaryHeap<DelayedRun>,
    /// How many have been held so far.
    holds: u64,
    /// Whether the transit time beyond propagation and transmission is queueing delay, because the
    /// links have no other elements that delay packets.
    plain: bool,
}

impl Direction {
    pub(crate) fn new(
        way: path::Direction,
        (chain, accesses): (Path<FrameSegment>, Vec<Access>),
        (from, to): (Port, Sender),
        known: KnownFlows,
        clock: Clock,
        tap: Option<Tap>,
        plain: bool,
    ) -> Self {
        let frames = Frames::default();
        Direction {
            way,
            chain,
            accesses,
            entered: Time::ZERO,
            from,
            to,
            frames,
            known,
            clock,
            latest: Time::ZERO,
            tap,
            data: false,
            held: BinaryHeap::new(),
            holds: 0,
            plain,
        }
    }

    /// Whether it currently carries data, not just acknowledgements.
    pub(crate) fn carries_data(&self) -> bool {
        self.data
    }

    pub(crate) fn port(&self) -> &Port {
        &self.from
    }

    /// The scenario's flow that the frame belongs to, and whether this is its data direction.
    fn flow_of(&self, frame: &Frame) -> Option<(usize, bool)> {
        let Protocol::Tcp { .. } = frame.protocol else { return None };
        let number = |port: u16| {
            let n = usize::from(port.checked_sub(FIRST_PORT)?);
            (n < self.known.extra.len()).then_some(n)
        };
        if let Some(n) = number(frame.ports.1) {
            return Some((n, true));
        }
        number(frame.ports.0).map(|n| (n, false))
    }

    /// Reads the frames that have arrived.
    pub(crate) fn receive(&mut self, audit: &mut Audit) {
        if !self.from.ready() {
            return;
        }
        let offset = self.clock.realtime();
        let now = self.clock.now();
        for _ in 0..BATCH {
            let mut taken = None;
            let latest = self.latest;
            let (frames, tap) = (&mut self.frames, &mut self.tap);
            let more = self.from.receive(|received| {
                let Some(received) = received else { return };
                // Both clocks are read with an error of microseconds; time must not go backwards.
                let at = offset.apply(received.realtime).min(now).max(latest);
                let Some(frame) = Frame::parse(VnetHeader::decode(received.vnet), received.frame) else {
                    return;
                };
                if let Some(tap) = tap {
                    tap.arrival(at, received.frame);
                }
                taken = Some((at, frame, frames.insert(received.frame, frame, at)));
            });
            if !more {
                break;
            }
            let Some((at, frame, slot)) = taken else {
                audit.not_ours += 1;
                continue;
            };
            audit.read(now.since(at));
            self.latest = at;
            self.enter(at, &frame, slot);
        }
    }

    fn enter(&mut self, at: Time, frame: &Frame, slot: u32) {
        let flow = self.flow_of(frame);
        if let Some((n, true)) = flow {
            self.frames.set_flow(slot, n);
            if let Protocol::Tcp { seq, .. } = frame.protocol
                && frame.payload() > 0
            {
                let mut view = self.known.views.flow(n);
                view.on_data(seq.wrapping_add(frame.payload()), at);
                if !self.plain && at >= self.known.measured_from {
                    let waits = self.chain.stats().map(LinkStats::queue_delay).filter(|&d| d < Span::MAX);
                    view.queue.add(waits.max().unwrap_or_default().as_nanos());
                }
            }
        }
        let own = flow
            .filter(|&(_, data)| data)
            .and_then(|(n, _)| self.accesses.binary_search_by_key(&n, |access| access.flow).ok());
        self.pass_on(at);
        let id = flow.map_or(frame.flow_hash, |(n, _)| n as u32);
        let pure_ack = matches!(frame.protocol, Protocol::Tcp { pure_ack: true, .. });
        for index in 0..frame.segments() {
            let mut packet = Packet::new(id, frame.l3_bytes(index), FrameSegment { slot, index });
            packet.ecn = frame.ecn;
            packet.pure_ack = pure_ack;
            match own {
                Some(own) => self.accesses[own].link.push(at, packet),
                None => {
                    self.entered = self.entered.max(at);
                    self.chain.push(self.entered, packet);
                }
            }
        }
    }

    /// Passes segments that leave the access links by `to` into the chain, in order of time.
    fn pass_on(&mut self, to: Time) {
        let Direction { accesses, chain, entered, frames, known, .. } = self;
        loop {
            let first = accesses.iter_mut().min_by_key(|access| access.link.next_event());
            let Some(access) = first.filter(|access| access.link.next_event() <= to) else { return };
            let at = access.link.next_event();
            access.link.advance(at, &mut |at, outcome| match outcome {
                Outcome::Delivered(packet) => {
                    *entered = at.max(*entered);
                    chain.push(*entered, packet);
                }
                Outcome::Dropped(packet, _) => drop_parcel(frames, known, packet.data),
            });
        }
    }

    /// State and counters of all links: the chain's, then the access links.
    pub(crate) fn stats(&self) -> impl Iterator<Item = &LinkStats> {
        self.chain.stats().chain(self.accesses.iter().flat_map(|access| access.link.stats()))
    }

    /// When [`deliver`](Self::deliver) is due.
    pub(crate) fn next_event(&self) -> Time {
        let own = self.accesses.iter().map(|access| access.link.next_event()).min();
        let held = self.held.peek().map_or(Time::NEVER, |h| h.at);
        self.chain.next_event().min(held).min(own.unwrap_or(Time::NEVER))
    }

    /// Sends everything due until `now`, merging segments that belong together, or all of a frame
    /// with `coalesce`.
    pub(crate) fn deliver(&mut self, now: Time, coalesce: bool, audit: &mut Audit) {
        if self.next_event() > now {
            return;
        }
        self.pass_on(now);
        // Propagation delay and rates of the links, the same for every packet now.
        let links: Vec<(Span, Rate)> =
            if self.plain { self.chain.stats().map(|l| (l.delay, l.rate)).collect() } else { Vec::new() };
        let mut run: Option<Run> = None;
        let Direction {
            chain, accesses, frames, to, clock, known, tap, held, holds, data: carries_data, ..
        } = self;
        let mut out = Out { frames, to, clock, known, accesses, audit, tap, held, holds };
        chain.advance(now, &mut |at, outcome| match outcome {
            Outcome::Delivered(Packet { data, ecn, bytes, .. }) => {
                out.time(&links, data, bytes, at);
                match &mut run {
                    Some(r) if r.takes(data, ecn, at, coalesce) => r.count += 1,
                    _ => {
                        let next = Run { slot: data.slot, first: data.index, count: 1, ecn, due: at };
                        if let Some(done) = run.replace(next) {
                            out.dispatch(done);
                        }
                    }
                }
            }
            Outcome::Dropped(packet, _) => drop_parcel(out.frames, out.known, packet.data),
        });
        if let Some(done) = run {
            *carries_data = out.frames.get(done.slot).frame.payload() > 0;
            out.dispatch(done);
        }
        while out.held.peek().is_some_and(|h| h.at <= now) {
            if let Some(DelayedRun { run, .. }) = out.held.pop() {
                out.send(&run);
            }
        }
    }

    /// Adds the kernel's drops before the ring to the audit.
    pub(crate) fn close_account(&self, audit: &mut Audit) {
        audit.ring_drops += self.from.take_drops();
    }
}

/// A link has dropped a segment.
fn drop_parcel(frames: &mut Frames, known: &KnownFlows, frame_segment: FrameSegment) {
    let slot = frames.get(frame_segment.slot);
    if let Some(n) = slot.flow
        && slot.frame.payload() > 0
    {
        known.views.flow(n).dropped += 1;
    }
    frames.release(frame_segment.slot, 1);
}

/// The borrowed parts that sending needs while the chain is being advanced.
struct Out<'a> {
    frames: &'a mut Frames,
    to: &'a Sender,
    clock: &'a Clock,
    known: &'a KnownFlows,
    accesses: &'a [Access],
    audit: &'a mut Audit,
    tap: &'a mut Option<Tap>,
    held: &'a mut BinaryHeap<DelayedRun>,
    holds: &'a mut u64,
}

impl Out<'_> {
    /// Records the queueing delay of a data segment that leaves at `at`.
    fn time(&self, links: &[(Span, Rate)], frame_segment: FrameSegment, bytes: u32, at: Time) {
        let slot = self.frames.get(frame_segment.slot);
        let Some(n) = slot.flow else { return };
        if links.is_empty() || slot.frame.payload() == 0 || at < self.known.measured_from {
            return;
        }
        let sending = |rate: Rate| {
            if rate == Rate::MAX { Span::ZERO } else { rate.time_to_send(bytes.into()) }
        };
        let empty = links.iter().fold(Span::ZERO, |sum, &(delay, rate)| sum + delay + sending(rate));
        let own = self.accesses.binary_search_by_key(&n, |access| access.flow).ok();
        let own = own.map_or(Span::ZERO, |own| self.accesses[own].spec.unloaded_delay(bytes));
        let waited = at.since(slot.arrived) - empty - own;
        self.known.views.flow(n).queue.add(waited.as_nanos());
    }

    /// Sends a run, or delays it by its flow's extra delay.
    fn dispatch(&mut self, mut run: Run) {
        let flow = self.ack_of(&self.frames.get(run.slot).frame);
        let extra = flow.map_or(Span::ZERO, |n| self.known.extra[n]);
        if extra.is_zero() {
            return self.send(&run);
        }
        run.due += extra;
        *self.holds += 1;
        self.held.push(DelayedRun { at: run.due, number: *self.holds, run });
    }

    fn send(&mut self, run: &Run) {
        let slot = self.frames.get(run.slot);
        let mut headers = [0; MAX_HEADERS];
        let (vnet, length, payload) =
            slot.frame.piece(&slot.bytes, (run.first, run.count), run.ecn, &mut headers);
        let payload = &slot.bytes[payload];
        let now = self.clock.now();
        if self.to.send(&vnet.encode(), &headers[..length], payload).is_err() {
            self.audit.send_failures += 1;
        }
        self.audit.late(now.since(run.due), run.count.into());
        if let Some(tap) = self.tap {
            tap.departure(now, &headers[..length], payload);
        }
        if let Some(n) = slot.flow
            && let Some((start, end)) = slot.frame.sequence_of(run.first, run.count)
        {
            self.known.views.flow(n).on_arrival(start, end);
        }
        if let Some(n) = self.ack_of(&slot.frame)
            && let Some(highest) = slot.frame.highest_received(&slot.bytes)
        {
            self.known.views.flow(n).on_ack(highest, now, now >= self.known.measured_from);
        }
        self.frames.release(run.slot, run.count);
    }

    /// The flow that a frame acknowledges.
    fn ack_of(&self, frame: &Frame) -> Option<usize> {
        let n = usize::from(frame.ports.0.checked_sub(FIRST_PORT)?);
        (n < self.known.extra.len()).then_some(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segmented_packets_leave_separately_unless_coalescing_is_allowed() {
        let at = |us| Time::ZERO + Span::from_micros(us);
        let run = Run { slot: 3, first: 4, count: 2, ecn: Ecn::NotEct, due: at(120) };
        let next = FrameSegment { slot: 3, index: 6 };
        assert!(run.takes(next, Ecn::NotEct, at(120), false), "due at the same time");
        assert!(!run.takes(next, Ecn::NotEct, at(240), false), "due later, and the thread was late for both");
        assert!(run.takes(next, Ecn::NotEct, at(240), true));
        // Of another frame, not the next segment, and marked differently.
        assert!(!run.takes(FrameSegment { slot: 2, index: 6 }, Ecn::NotEct, at(120), true));
        assert!(!run.takes(FrameSegment { slot: 3, index: 7 }, Ecn::NotEct, at(120), true));
        assert!(!run.takes(next, Ecn::Ce, at(120), true));
    }
}
