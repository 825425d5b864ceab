//! From the server to the far end: propagation.

use std::collections::VecDeque;

use fullpipe_units::{Span, Time};

use crate::{DropCause, Packet};

/// Packets under way, in the order of their arrival.
pub(crate) struct Line<T> {
    pub delay: Span,
    ordered: VecDeque<Arrival<T>>,
}

/// A packet, when it comes out, and whether it will have been lost by then.
struct Arrival<T> {
    at: Time,
    lost: Option<DropCause>,
    packet: Packet<T>,
}

impl<T> Line<T> {
    pub fn new(delay: Span) -> Self {
        Line { delay, ordered: VecDeque::new() }
    }

    /// When the next packet comes out; `departing` is when the next one comes in.
    pub fn next(&self, departing: Time) -> Time {
        match self.ordered.front() {
            Some(first) => first.at,
            None if departing == Time::NEVER => Time::NEVER,
            None => departing + self.delay,
        }
    }

    /// When the next of the packets under way comes out.
    pub fn next_arrival(&self) -> Time {
        self.ordered.front().map_or(Time::NEVER, |first| first.at)
    }

    /// A packet leaves the server.
    pub fn push(&mut self, departed: Time, packet: Packet<T>, lost: Option<DropCause>) {
        let earliest = self.ordered.back().map_or(Time::ZERO, |last| last.at);
        let at = (departed + self.delay).max(earliest);
        self.ordered.push_back(Arrival { at, lost, packet });
    }

    /// The packet that comes out at [`Line::next_arrival`], and why not if it is lost.
    pub fn pop(&mut self) -> Option<(Packet<T>, Option<DropCause>)> {
        self.ordered.pop_front().map(|a| (a.packet, a.lost))
    }
}
