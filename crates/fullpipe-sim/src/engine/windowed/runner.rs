//! A thread's work on the flows of a window.

use super::super::connection::{Connection, Net};
use super::super::flows::Part;
use super::super::queueing::Queueing;
use super::arrivals::{Arrival, Arrivals};
use super::pushes::{Pushes, Rank};
use crate::controllers::AnyController;
use crate::segment::SackStore;
use fullpipe_cc::Time;

/// The window, as its flows see it.
pub(super) struct Window<'a> {
    pub until: Time,
    pub arrivals: &'a [Arrivals; 2],
    pub queueing: [Option<&'a Queueing>; 2],
}

/// What one thread has done in a window.
pub(super) struct Runner {
    #[cfg(test)]
    pub number: usize,
    /// What its flows have sent in each direction.
    pub pushes: [Pushes; 2],
    /// Arrivals and timers.
    pub events: u64,
    /// Flows that are over since the window began.
    pub over: usize,
}

impl Runner {
    #[cfg_attr(not(test), expect(unused_variables))]
    pub fn new(number: usize) -> Self {
        Runner {
            #[cfg(test)]
            number,
            pushes: [Pushes::new(), Pushes::new()],
            events: 0,
            over: 0,
        }
    }

    pub fn clear(&mut self) {
        self.pushes.iter_mut().for_each(Pushes::clear);
        (self.events, self.over) = (0, 0);
    }

    /// Processes the arrivals and timers of the flows of `part`.
    pub fn run(&mut self, window: &Window<'_>, part: Part<'_>) {
        let Part { first, connections, reversed, mut wakes, sacks } = part;
        for (i, (c, &reversed)) in connections.iter_mut().zip(reversed).enumerate() {
            let flow = first + i;
            let arrivals = window.arrivals.each_ref().map(|of_way| of_way.for_flow(flow));
            let mut wake = wakes.due(i);
            if arrivals.iter().any(|of_way| !of_way.is_empty()) || wake <= window.until {
                let was_over = c.is_over();
                let mut events = Events { runner: self, window, flow, reversed, sacks, wake: &mut wake };
                events.run(c, arrivals);
                wakes.put(i, wake);
                self.over += usize::from(!was_over && c.is_over());
            }
        }
    }
}

/// The events of one flow in a window.
struct Events<'a> {
    runner: &'a mut Runner,
    window: &'a Window<'a>,
    flow: usize,
    reversed: bool,
    sacks: &'a mut SackStore,
    wake: &'a mut Time,
}

impl Events<'_> {
    /// Processes the arrivals and timers of `c`, in the order of the sequential engine: at one time
    /// first arrivals from the forward direction, then those from the reverse one, then timers.
    #[inline]
    fn run(
        &mut self,
        c: &mut Connection<AnyController>,
        [mut from_forward, mut from_reverse]: [&[Arrival]; 2],
    ) {
        loop {
            let first = |arrivals: &[Arrival]| arrivals.first().map_or(Time::NEVER, |arrival| arrival.at);
            let now = first(from_forward).min(first(from_reverse)).min(*self.wake);
            if now > self.window.until {
                break;
            }
            for (way, arrivals) in [(0, &mut from_forward), (1, &mut from_reverse)] {
                while let Some(arrival) = arrivals.first().filter(|arrival| arrival.at <= now) {
                    *arrivals = &arrivals[1..];
                    self.arrive(c, arrival, way);
                }
            }
            if *self.wake <= now {
                self.wake(c, now);
            }
        }
    }

    /// An arrival from the direction `way`.
    #[inline]
    fn arrive(&mut self, c: &mut Connection<AnyController>, arrival: &Arrival, way: usize) {
        self.runner.events += 1;
        let out = &mut self.runner.pushes[1 - way];
        out.rank = Rank::arrival(arrival.number);
        let net = &mut Net { out, sacks: self.sacks };
        let (due, state) = c.on_arrival(arrival.at, arrival.packet.clone(), self.window.queueing[way], net);
        *self.wake = due.min(*self.wake);
        if let Some(state) = state {
            c.recorder.on_state(arrival.at, state);
        }
    }

    #[inline]
    fn wake(&mut self, c: &mut Connection<AnyController>, now: Time) {
        self.runner.events += 1;
        // Otherwise the order among the flows would depend on when their timers were due.
        debug_assert_eq!(*self.wake, now);
        let rank = Rank::timer(self.flow);
        let [forward, reverse] = &mut self.runner.pushes;
        (forward.rank, reverse.rank) = (rank, rank);
        let (data_way, ack_way) = if self.reversed { (reverse, forward) } else { (forward, reverse) };
        *self.wake = c.on_timers(now, data_way, ack_way, self.sacks);
        if let Some(state) = c.new_state() {
            c.recorder.on_state(now, state);
        }
    }
}
