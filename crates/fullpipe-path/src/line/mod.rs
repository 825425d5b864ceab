//! From the server to the far end: propagation, with all that can happen to order and spacing.

mod aggregate;
mod jitter;
mod reorder;

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use fullpipe_units::{Span, Time};

use crate::Packet;
use crate::build::{BuildContext, Wrong};
use crate::random::Stream;
use crate::spec::LinkSpec;

use aggregate::Aggregate;
pub use aggregate::AggregateSpec;
use jitter::Jitter;
pub use jitter::{Distribution, JitterSpec};
use reorder::Reorder;
pub use reorder::ReorderSpec;

/// Packets under way.
pub(crate) struct Line<T> {
    pub delay: Span,
    jitter: Option<Jitter>,
    /// Jitter may change the order.
    overtakes: bool,
    reorder: Option<Reorder>,
    aggregate: Option<Aggregate>,
    /// In the order of their arrival, which is that of their departure.
    ordered: VecDeque<Arrival<T>>,
    /// Number of the first of them; they are numbered without gaps.
    first: u64,
    /// When the latest of them would have arrived by itself, had no burst been waited for.
    latest: Time,
    /// Those that may be overtaken or overtake.
    free: BinaryHeap<Free<T>>,
    freed: u64,
}

/// A packet and when it comes out.
struct Arrival<T> {
    at: Time,
    /// A later acknowledgement has replaced it.
    thinned: bool,
    packet: Packet<T>,
}

/// An arrival outside the order; of two at one time the one that left first comes first.
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
    pub fn new(spec: &LinkSpec, index: usize, ctx: &BuildContext) -> Result<Self, Wrong> {
        let aggregate = spec.aggregate.as_ref().map(Aggregate::new).transpose()?;
        let overtakes = spec.jitter.is_some_and(|jitter| jitter.reorder);
        if aggregate.is_some() && (overtakes || spec.reorder.is_some()) {
            return Err(Wrong::new(
                "aggregate",
                "bursts keep the order and cannot be had with reordering in one link: write a second link",
            ));
        }
        let random = |element| Stream::new(ctx, index, element);
        Ok(Line {
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
        })
    }

    /// When the next of the packets under way comes out.
    pub fn next_arrival(&self) -> Time {
        let ordered = self.ordered.front().map_or(Time::NEVER, |first| first.at);
        let free = self.free.peek().map_or(Time::NEVER, |first| first.arrival.at);
        ordered.min(free)
    }

    /// Nothing comes out before that time, if the next packet comes in at `departs` at the
    /// earliest and the delay may change at `changes`.
    pub fn wake(&self, departs: Time, changes: Time) -> Time {
        let unordered = self.overtakes || self.reorder.is_some();
        let early = unordered || self.aggregate.as_ref().is_some_and(Aggregate::may_be_early);
        if !early && !self.ordered.is_empty() {
            // What comes in now comes out behind these.
            return self.next_arrival();
        }
        if early || self.jitter.is_some() || changes < departs {
            return self.next_arrival().min(departs.min(changes));
        }
        departs + self.delay
    }

    /// A packet leaves the server.
    pub fn push(&mut self, departed: Time, packet: Packet<T>) {
        let mut at = match &mut self.jitter {
            Some(jitter) => jitter.arrival(departed, self.delay),
            None => departed + self.delay,
        };
        let late = self.reorder.as_mut().and_then(Reorder::delays);
        if self.overtakes || late.is_some() {
            at += late.unwrap_or(Span::ZERO);
            self.free.push(Free { arrival: Arrival { at, thinned: false, packet }, number: self.freed });
            self.freed += 1;
            return;
        }
        // What is behind stays behind, also when the delay has become shorter meanwhile.
        self.latest = self.latest.max(at);
        at = self.latest;
        if self.aggregate.is_some() {
            at = self.join(at, &packet);
        }
        self.ordered.push_back(Arrival { at, thinned: false, packet });
    }

    /// The packet that comes out at [`Line::next_arrival`], and whether another has replaced it.
    pub fn pop(&mut self) -> Option<(Packet<T>, bool)> {
        let ordered = self.ordered.front().map_or(Time::NEVER, |first| first.at);
        let arrival = if self.free.peek().is_some_and(|first| first.arrival.at < ordered) {
            self.free.pop()?.arrival
        } else {
            self.first += 1;
            self.ordered.pop_front()?
        };
        Some((arrival.packet, arrival.thinned))
    }

    /// The packet that would arrive at `at` joins a burst; when it comes out instead.
    fn join(&mut self, at: Time, packet: &Packet<T>) -> Time {
        let Some(aggregate) = &mut self.aggregate else {
            return at;
        };
        let number = self.first + self.ordered.len() as u64;
        let joined = aggregate.join(at, number, packet.flow, packet.pure_ack);
        for before in self.ordered.iter_mut().rev().take(joined.early) {
            before.at = joined.release;
        }
        let replaced = joined.replaces.and_then(|number| number.checked_sub(self.first));
        if let Some(replaced) = replaced.and_then(|index| self.ordered.get_mut(index as usize)) {
            replaced.thinned = true;
        }
        joined.release
    }
}
