//! Propagation from the server to the far end, with jitter, reordering and aggregation.

mod aggregate;
mod jitter;
mod reorder;

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use fullpipe_units::{Span, Time};

use crate::Packet;
use crate::build::{BuildContext, LinkError};
use crate::random::Stream;
use crate::spec::LinkSpec;

use aggregate::Aggregate;
pub use aggregate::AggregateSpec;
use jitter::Jitter;
pub use jitter::{Distribution, JitterSpec};
use reorder::Reorder;
pub use reorder::ReorderSpec;

/// Packets in propagation.
pub(crate) struct Line<T> {
    pub delay: Span,
    jitter: Option<Jitter>,
    /// Jitter may change the order.
    overtakes: bool,
    reorder: Option<Reorder>,
    aggregate: Option<Aggregate>,
    /// In order of arrival, which is the order of departure.
    ordered: VecDeque<Arrival<T>>,
    /// Number of the first of them; they are numbered without gaps.
    first: u64,
    /// When the latest of them would have arrived without aggregation.
    latest: Time,
    /// Packets that may overtake or be overtaken.
    free: BinaryHeap<Free<T>>,
    freed: u64,
    /// Without jitter, reordering and aggregation.
    plain: bool,
    /// The earliest arrival.
    next: Time,
    /// Whether packets may arrive before others that departed earlier.
    unordered: bool,
}

/// A packet and its arrival time.
struct Arrival<T> {
    at: Time,
    /// A later acknowledgement has replaced it.
    thinned: bool,
    packet: Packet<T>,
}

/// An arrival out of order; of two at the same time the one that departed first comes first.
struct Free<T> {
    arrival: Arrival<T>,
    number: u64,
}

impl<T> Ord for Free<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.arrival.at, other.number).cmp(&(self.arrival.at, self.number))
    }
}

impl<T> PartialOrd for Free<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Free<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Free<T> {}

impl<T> Line<T> {
    pub fn new(spec: &LinkSpec, index: usize, ctx: &BuildContext) -> Result<Self, LinkError> {
        let aggregate = spec.aggregate.as_ref().map(|spec| Aggregate::new(spec, ctx.mtu)).transpose()?;
        let overtakes = spec.jitter.is_some_and(|jitter| jitter.reorder);
        if aggregate.is_some() && (overtakes || spec.reorder.is_some()) {
            return Err(LinkError::new(
                "aggregate",
                "aggregation keeps the order and cannot be combined with reordering in one link: write \
                 a second link",
            ));
        }
        let random = |element| Stream::new(ctx, index, element);
        let plain = spec.jitter.is_none() && spec.reorder.is_none() && aggregate.is_none();
        Ok(Line {
            plain,
            delay: spec.delay,
            jitter: spec.jitter.as_ref().map(|jitter| Jitter::new(jitter, random("jitter"))),
            overtakes,
            reorder: spec.reorder.as_ref().map(|reorder| Reorder::new(reorder, random("reorder"))),
            aggregate,
            ordered: VecDeque::new(),
            first: 0,
            latest: Time::ZERO,
            free: BinaryHeap::new(),
            freed: 0,
            next: Time::NEVER,
            unordered: overtakes || spec.reorder.is_some(),
        })
    }

    /// Time of the next arrival.
    #[inline]
    pub fn next_arrival(&self) -> Time {
        self.next
    }

    /// The earliest possible arrival, if the next packet departs at `departs` at the earliest and
    /// the delay may change at `changes`.
    #[inline(always)]
    pub fn wake(&self, departs: Time, changes: Time) -> Time {
        let early = self.unordered || self.aggregate.as_ref().is_some_and(Aggregate::may_be_early);
        if !early && !self.ordered.is_empty() {
            // Packets that depart now arrive after these.
            return self.next_arrival();
        }
        if early || self.jitter.is_some() || changes < departs {
            return self.next_arrival().min(departs.min(changes));
        }
        departs + self.delay
    }

    /// A packet departs from the server. Packets stay in order even if the delay becomes shorter,
    /// unless jitter or reordering is configured.
    #[inline(always)]
    pub fn push(&mut self, departed: Time, packet: Packet<T>) {
        if self.plain {
            self.latest = self.latest.max(departed + self.delay);
            self.next = self.next.min(self.latest);
            self.ordered.push_back(Arrival { at: self.latest, thinned: false, packet });
        } else {
            self.push_with_all(departed, packet);
        }
    }

    #[inline(never)]
    fn push_with_all(&mut self, departed: Time, packet: Packet<T>) {
        let mut at = match &mut self.jitter {
            Some(jitter) => jitter.arrival(departed, self.delay),
            None => departed + self.delay,
        };
        let late = self.reorder.as_mut().and_then(Reorder::delays);
        if self.overtakes || late.is_some() {
            at += late.unwrap_or(Span::ZERO);
            self.free.push(Free { arrival: Arrival { at, thinned: false, packet }, number: self.freed });
            self.freed += 1;
            self.next = self.next.min(at);
            return;
        }
        self.latest = self.latest.max(at);
        at = self.join(self.latest, &packet);
        self.next = self.next.min(at);
        self.ordered.push_back(Arrival { at, thinned: false, packet });
    }

    /// The packets in propagation and their arrival times, in their order, if those are final.
    pub fn propagating(&self) -> impl Iterator<Item = (Time, &Packet<T>)> {
        let known = if self.plain { self.ordered.len() } else { 0 };
        self.ordered.iter().take(known).map(|arrival| (arrival.at, &arrival.packet))
    }

    /// The packet that arrives at [`Line::next_arrival`], and whether a later ACK has replaced it.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<(Packet<T>, bool)> {
        let arrival = if self.unordered && self.free_is_first() {
            self.free.pop()?.arrival
        } else {
            self.first += 1;
            self.ordered.pop_front()?
        };
        self.next = self.ordered.front().map_or(Time::NEVER, |first| first.at);
        if self.unordered
            && let Some(first) = self.free.peek()
        {
            self.next = self.next.min(first.arrival.at);
        }
        Some((arrival.packet, arrival.thinned))
    }

    fn free_is_first(&self) -> bool {
        let ordered = self.ordered.front().map_or(Time::NEVER, |first| first.at);
        self.free.peek().is_some_and(|first| first.arrival.at < ordered)
    }

    /// Adds the packet that would arrive at `at` to a burst, with aggregation; returns when it
    /// arrives.
    fn join(&mut self, at: Time, packet: &Packet<T>) -> Time {
        let Some(aggregate) = &mut self.aggregate else {
            return at;
        };
        let number = self.first + self.ordered.len() as u64;
        let joined = aggregate.join(at, number, packet.flow, packet.bytes, packet.pure_ack);
        for before in self.ordered.iter_mut().rev().take(joined.early) {
            before.at = at;
            self.next = self.next.min(at);
        }
        let replaced = joined.replaces.and_then(|number| number.checked_sub(self.first));
        if let Some(replaced) = replaced.and_then(|index| self.ordered.get_mut(index as usize)) {
            replaced.thinned = true;
        }
        joined.release
    }
}
