//! The windowed engine: the flows one after another, each for a whole window of time, then the path
//! for the same window.
//!
//! A packet that leaves the last link's server arrives after that link's delay. So at any time the
//! arrivals of a whole delay are known, and whatever the flows send meanwhile does not change them.
//! In such a window no flow sees another: each processes all its arrivals and timers at once, while
//! its state is in the processor's caches. What the flows sent is then put in the order in which the
//! sequential engine would have passed it to the path, and passed to it by the same calls, at the
//! same times, so that every counter and every sample is the same.
//!
//! What couples flows without delay keeps a run from having windows: see
//! [`Windows::reason_against`].

mod arrivals;
mod passing;
mod pushes;
mod runner;
#[cfg(test)]
mod tests;

use super::Simulation;
use super::connection::Connection;
use super::one_way::OneWay;
use super::workers::{Queue, Workers};
use super::world::World;
use crate::error::SimError;
use arrivals::Arrivals;
use fullpipe_cc::{Span, Time};
use fullpipe_experiment::scenario::{Direction, Scenario, Start};
use fullpipe_path::LinkSpec;
use passing::{Outcomes, Passing};
use pushes::Merge;
use runner::{Runner, Window};
use std::ops::ControlFlow;

/// After a window with fewer events than one for so many flows, which costs more than it saves, the
/// sequential engine continues for a while.
const FLOWS_PER_EVENT: usize = 32;
/// The longest such while: two to the power of this, in delays.
const LONGEST_REST: u32 = 10;
/// Windows are shared among threads while each has as many events for every thread, since waking a
/// thread takes as long as tens of events.
const EVENTS_PER_THREAD: u64 = 500;

/// Most arrivals of a window from one direction, with few flows: when thousands of flows start at
/// once, each sends ten packets on its first arrival, and what they all send has to be stored.
const MAX_ARRIVALS: usize = 1 << 16;

/// The threads and the buffers of a windowed run.
pub(super) struct Windows {
    /// The shortest delay of the last link in either direction.
    delay: Span,
    workers: Workers,
    arrivals: [Arrivals; 2],
    /// One per thread.
    runners: Vec<Runner>,
    outcomes: [Outcomes; 2],
    /// A window ends with the arrival after so many from one direction.
    most_arrivals: usize,
    /// The number of events that make a window worth its cost.
    pub least_events: u64,
    /// The number of events that make a window worth sharing among threads.
    least_shared: u64,
    /// Whether the last window had as many.
    shared: bool,
    /// A flow that has more to send.
    witness: usize,
    ties: Ties,
    /// Whether the parts of the flows are divided evenly among the threads, whatever their speed.
    #[cfg(test)]
    dealt: bool,
}

/// The order of packets that enter a path at the same time.
#[derive(Clone, Copy, Debug)]
enum Ties {
    /// That of the sequential engine.
    Kept,
    /// A wrong one, which tests must find.
    #[cfg(test)]
    Reversed,
    /// That of the sequential engine for the flows of each thread, and a wrong one among threads.
    #[cfg(test)]
    ByThread,
}

impl Windows {
    /// Why `run` can have no windows, if it cannot.
    pub fn reason_against(run: &Simulation<'_>) -> Option<&'static str> {
        let scenario = run.scenario;
        let flows = || scenario.flows.iter();
        if run.max_events.is_some() {
            return Some("a limit of events is kept event by event");
        }
        if !scenario.triggers.is_empty() {
            return Some("a trigger couples flows and path without delay");
        }
        if flows().any(|flow| matches!(flow.start, Start::After(_))) {
            return Some("a flow starts when another has delivered its data");
        }
        if flows().any(|flow| run.transports.is_some_and(|known| known.knows(&flow.cc))) {
            return Some("a flow has another transport than the simulated TCP");
        }
        if flows().any(|flow| run.source_of(&flow.cc).is_some()) {
            return Some("a controller runs outside the simulator");
        }
        if shortest_delay(scenario).is_none_or(|delay| delay.is_zero()) {
            return Some("the last link of a direction has no constant delay");
        }
        None
    }

    /// The threads, at most `threads`, and the buffers for the run of `world`.
    pub fn new(world: &World, threads: usize) -> Self {
        let flows = world.flows.connections.len();
        let workers = Workers::new(threads.min(world.flows.count_parts()));
        Windows {
            most_arrivals: MAX_ARRIVALS.max(flows / 4),
            least_events: (flows / FLOWS_PER_EVENT) as u64,
            least_shared: workers.count() as u64 * EVENTS_PER_THREAD,
            shared: false,
            delay: shortest_delay(&world.scenario).unwrap_or(Span::ZERO),
            arrivals: [Arrivals::new(flows), Arrivals::new(flows)],
            runners: (0..workers.count()).map(Runner::new).collect(),
            workers,
            outcomes: Default::default(),
            witness: 0,
            ties: Ties::Kept,
            #[cfg(test)]
            dealt: false,
        }
    }

    /// Whether the run goes on for at least the shortest delay.
    fn goes_on(&mut self, world: &World) -> bool {
        let connections = &world.flows.connections;
        if !connections.get(self.witness).is_some_and(Connection::has_more_to_send) {
            self.witness = connections.iter().position(Connection::has_more_to_send).unwrap_or(usize::MAX);
        }
        self.witness < connections.len()
    }

    /// The end of a window that begins after `now`: what is sent in it arrives later.
    fn end(&self, world: &mut World, now: Time) -> Time {
        let known =
            world.forward.path.known_until(self.delay).min(world.reverse.path.known_until(self.delay));
        let last = |way: &OneWay| way.propagating().nth(self.most_arrivals).map_or(Time::NEVER, |(at, _)| at);
        known.min(now + self.delay).min(last(&world.forward)).min(last(&world.reverse))
    }

    /// Processes all events of `world` after `after` and until `until`; returns the number of arrivals
    /// and timers.
    fn run(&mut self, world: &mut World, after: Time, until: Time) -> u64 {
        self.run_flows(world, after, until);
        let events: u64 = self.runners.iter().map(|runner| runner.events).sum();
        world.flows.unfinished -= self.runners.iter().map(|runner| runner.over).sum::<usize>();
        self.run_path(world, until);
        self.shared = events >= self.least_shared;
        events
    }

    /// Processes the events of the flows.
    fn run_flows(&mut self, world: &mut World, after: Time, until: Time) {
        let World { forward, reverse, flows, wakes, .. } = world;
        let [from_forward, from_reverse] = &mut self.arrivals;
        let mut collecting = [(from_forward, &*forward), (from_reverse, &*reverse)];
        self.workers.each(self.shared, &mut collecting, |(arrivals, way)| arrivals.collect(way, until));

        let queueing = [forward.constant_queueing(), reverse.constant_queueing()];
        let window = &Window { until, arrivals: &self.arrivals, queueing };
        let parts = Queue::new(flows.parts(wakes));
        let (ties, threads) = (self.ties, self.runners.len());
        #[cfg(test)]
        let dealt = self.dealt;
        self.workers.each(self.shared, &mut self.runners, |runner| {
            runner.clear();
            #[cfg(not(test))]
            let accepts = |_| true;
            #[cfg(test)]
            let (number, all) = (runner.number, !dealt);
            #[cfg(test)]
            let accepts = |part| all || part % threads == number;
            while let Some(part) = parts.next(accepts) {
                runner.run(window, part);
            }
            for pushes in &mut runner.pushes {
                pushes.sort(after, until, ties);
                if threads > 1 {
                    pushes.gather();
                }
            }
        });
    }

    /// Processes the path, and rows that are due at `until`.
    fn run_path(&mut self, world: &mut World, until: Time) {
        let merge = |way: usize| Merge::new(self.runners.iter().map(move |r| &r.pushes[way]), self.ties);
        let [of_forward, of_reverse] = &mut self.outcomes;
        let mut passing = [
            Passing { pushes: merge(0), outcomes: of_forward, answers_first: false },
            Passing { pushes: merge(1), outcomes: of_reverse, answers_first: true },
        ];
        let mut pass_on = |world: &mut World, until: Time, at_end: usize| {
            let World { forward, reverse, flows, .. } = world;
            let [forwards, backwards] = &mut passing;
            let mut both = [(&mut *forwards, forward), (&mut *backwards, reverse)];
            self.workers.each(self.shared, &mut both, |(passing, way)| {
                passing.pass_on(way, Time::from_nanos(until.as_nanos() - 1), usize::MAX);
                passing.pass_on(way, until, at_end);
            });
            passing.iter_mut().for_each(|passing| passing.outcomes.deliver(flows));
        };
        if world.next_sample.min(world.warmup) <= until {
            // A row has what the path is after the first call at its time.
            pass_on(world, until, 1);
            world.on_clock(until);
        }
        pass_on(world, until, usize::MAX);
    }
}

impl World {
    /// Runs until the end of the scenario or of its last flow, in windows where that is worth it.
    pub fn run_in_windows(
        &mut self,
        windows: &mut Windows,
        progress: &mut dyn FnMut(Time) -> ControlFlow<()>,
    ) -> Result<(), SimError> {
        let mut now = Time::ZERO;
        if !self.advance(now, progress)? {
            return Ok(());
        }
        let (mut wakes_are_current, mut poor) = (true, 0);
        while now < self.end {
            let goes_on = windows.goes_on(self);
            let clock = self.next_sample.min(self.warmup).min(self.end);
            let until = windows.end(self, now).min(clock);
            let mut rest = Span::ZERO;
            if goes_on && until > now {
                let events = windows.run(self, now, until);
                wakes_are_current = false;
                self.windows += 1;
                self.events += events;
                self.report_if_due(until, progress)?;
                now = until;
                // A sample that is due cuts a window short, which does not say that there is little to do.
                if events >= windows.least_events || until == clock {
                    poor = 0;
                    continue;
                }
                rest = windows.delay * (1 << poor);
                poor = (poor + 1).min(LONGEST_REST);
            }
            if !std::mem::replace(&mut wakes_are_current, true) {
                self.wakes.rebuild();
            }
            let to = if goes_on { self.next().max(now + rest) } else { Time::NEVER };
            if !self.advance(to, progress)? {
                return Ok(());
            }
            now = to;
        }
        Ok(())
    }
}

/// The shortest delay of the last link in either direction, if what is on its line is known.
fn shortest_delay(scenario: &Scenario) -> Option<Span> {
    let of_link = |link: &LinkSpec| {
        let scheduled = link.schedule.iter().filter_map(|change| change.delay);
        // A ramp passes only through delays between those that it begins and ends with.
        scheduled.fold(link.delay, Span::min)
    };
    let plain =
        |link: &&LinkSpec| link.jitter.is_none() && link.reorder.is_none() && link.aggregate.is_none();
    let of_way = |way| scenario.path.links(way).last().filter(plain).map(of_link);
    Some(of_way(Direction::Forward)?.min(of_way(Direction::Reverse)?))
}
