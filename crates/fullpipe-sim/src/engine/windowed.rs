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

use super::Simulation;
use super::connection::{Connection, Net};
use super::one_way::{OneWay, Outlet};
use super::queueing::Queueing;
use super::wakes::Wakes;
use super::world::World;
use crate::controllers::AnyController;
use crate::error::SimError;
use crate::segment::{Kind, SackStore, Segment};
use fullpipe_cc::{Span, Time};
use fullpipe_experiment::scenario::{Direction, Scenario, Start};
use fullpipe_path::{LinkSpec, Outcome, Packet};
use std::ops::ControlFlow;

/// After a window with fewer events than one for so many flows, which costs more than it saves, the
/// sequential engine continues for a while.
const FLOWS_PER_EVENT: usize = 32;
/// The longest such while: two to the power of this, in delays.
const LONGEST_REST: u32 = 10;

/// The place of a packet among those that enter a path at the same time: first those sent on the
/// arrival of a packet, in the order of those arrivals, then those sent by timers, in the order of
/// the flows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Rank(u64);

impl Rank {
    const TIMER: u64 = 1 << 63;

    /// Of what is sent on the `n`-th arrival of the window.
    fn arrival(n: u32) -> Self {
        Rank(u64::from(n))
    }

    /// Of what `flow` sends for a timer.
    fn timer(flow: usize) -> Self {
        Rank(Self::TIMER | flow as u64)
    }

    fn is_timer(self) -> bool {
        self.0 & Self::TIMER != 0
    }
}

/// What the flows send on one direction of the path in a window.
struct Pushes {
    /// Of the packets that are added now.
    rank: Rank,
    packets: Vec<Packet<Segment>>,
    /// When and in which order they enter the path: time, rank and index of each.
    order: Vec<(Time, Rank, u32)>,
    /// Buffers for sorting.
    sorted: Vec<(Time, Rank, u32)>,
    ends: Vec<u32>,
}

impl Outlet for Pushes {
    #[inline]
    fn push(&mut self, at: Time, packet: Packet<Segment>) {
        self.order.push((at, self.rank, self.packets.len() as u32));
        self.packets.push(packet);
    }
}

impl Pushes {
    fn new() -> Self {
        Pushes { rank: Rank(0), packets: Vec::new(), order: Vec::new(), sorted: Vec::new(), ends: Vec::new() }
    }

    fn clear(&mut self) {
        self.packets.clear();
        self.order.clear();
    }

    /// Sorts what was sent after `begin` and until `end`.
    fn sort(&mut self, begin: Time, end: Time, ties: Ties) {
        match ties {
            Ties::Kept => self.sort_by_buckets(begin, end),
            #[cfg(test)]
            Ties::Reversed => self
                .order
                .sort_unstable_by_key(|&(at, rank, i)| (at, rank.is_timer(), std::cmp::Reverse(rank), i)),
        }
    }

    /// Distributes the packets over as many short intervals of time, and sorts those.
    fn sort_by_buckets(&mut self, begin: Time, end: Time) {
        let Pushes { order, ends, sorted, .. } = self;
        let Some(&first) = order.first() else { return };
        let most = order.len().next_power_of_two() as u64;
        let shift = (end.since(begin).as_nanos() / most).checked_ilog2().map_or(0, |log| log + 1);
        let bucket = |at: Time| (at.since(begin).as_nanos() >> shift) as usize;
        ends.clear();
        ends.resize(bucket(end) + 1, 0);
        for &(at, ..) in order.iter() {
            ends[bucket(at)] += 1;
        }
        let mut sum = 0;
        for end in ends.iter_mut() {
            (*end, sum) = (sum, sum + *end);
        }
        sorted.clear();
        sorted.resize(order.len(), first);
        for &push in order.iter() {
            let place = &mut ends[bucket(push.0)];
            sorted[*place as usize] = push;
            *place += 1;
        }
        let mut begin = 0;
        for &end in ends.iter() {
            sorted[begin..end as usize].sort_unstable();
            begin = end as usize;
        }
        std::mem::swap(order, sorted);
    }

    /// Loads the packet that is `ahead` after the `next`-th into the processor's caches.
    #[inline]
    fn touch(&self, next: usize, ahead: usize) {
        if let Some(&(.., i)) = self.order.get(next + ahead) {
            std::hint::black_box(self.packets[i as usize].bytes);
        }
    }
}

/// A packet that arrives in a window.
#[derive(Clone)]
struct Arrival {
    at: Time,
    /// Its number among the window's arrivals from this direction.
    number: u32,
    packet: Packet<Segment>,
}

/// The arrivals of a window from one direction, by flow.
struct Arrivals {
    sorted: Vec<Arrival>,
    /// Where those of each flow end.
    ends: Vec<u32>,
}

impl Arrivals {
    fn new(flows: usize) -> Self {
        Arrivals { sorted: Vec::new(), ends: vec![0; flows] }
    }

    /// Collects the arrivals from `way` until `until`.
    fn collect(&mut self, way: &OneWay, until: Time) {
        let arrivals = || way.propagating().take_while(|&(at, _)| at <= until);
        self.ends.fill(0);
        let mut count = 0;
        for (_, packet) in arrivals() {
            self.ends[packet.flow as usize] += 1;
            count += 1;
        }
        let mut sum = 0;
        for end in &mut self.ends {
            let begin = sum;
            sum += *end;
            *end = begin;
        }
        let Some((at, packet)) = arrivals().next() else { return self.sorted.clear() };
        self.sorted.resize(count, Arrival { at, number: 0, packet: packet.clone() });
        for (number, (at, packet)) in (0..).zip(arrivals()) {
            let place = &mut self.ends[packet.flow as usize];
            self.sorted[*place as usize] = Arrival { at, number, packet: packet.clone() };
            *place += 1;
        }
    }

    /// The arrivals for `flow`.
    #[inline]
    fn for_flow(&self, flow: usize) -> &[Arrival] {
        let begin = if flow == 0 { 0 } else { self.ends[flow - 1] };
        &self.sorted[begin as usize..self.ends[flow] as usize]
    }
}

/// The buffers of a windowed run.
pub(super) struct Windows {
    /// The shortest delay of the last link in either direction.
    delay: Span,
    arrivals: [Arrivals; 2],
    pushes: [Pushes; 2],
    /// The number of events that make a window worth its cost.
    pub least_events: u64,
    /// A flow that has more to send.
    witness: usize,
    ties: Ties,
}

/// The order of packets that enter a path at the same time.
#[derive(Clone, Copy, Debug)]
enum Ties {
    /// That of the sequential engine.
    Kept,
    /// A wrong one, which tests must find.
    #[cfg(test)]
    Reversed,
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

    /// The buffers for the run of `world`.
    pub fn new(world: &World) -> Self {
        let flows = world.flows.connections.len();
        Windows {
            least_events: (flows / FLOWS_PER_EVENT) as u64,
            delay: shortest_delay(&world.scenario).unwrap_or(Span::ZERO),
            arrivals: [Arrivals::new(flows), Arrivals::new(flows)],
            pushes: [Pushes::new(), Pushes::new()],
            witness: 0,
            ties: Ties::Kept,
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
        known.min(now + self.delay)
    }

    /// Processes all events of `world` after `after` and until `until`; returns the number of arrivals
    /// and timers.
    fn run(&mut self, world: &mut World, after: Time, until: Time) -> u64 {
        let World { forward, reverse, flows, wakes, .. } = world;
        for ((arrivals, pushes), way) in
            self.arrivals.iter_mut().zip(&mut self.pushes).zip([&*forward, &*reverse])
        {
            arrivals.collect(way, until);
            pushes.clear();
        }
        let [from_forward, from_reverse] = &self.arrivals;
        let mut shared = Shared {
            until,
            queueing: [forward.constant_queueing(), reverse.constant_queueing()],
            sacks: &mut flows.sacks,
            pushes: &mut self.pushes,
            events: 0,
            over: 0,
        };
        for (flow, (c, &reversed)) in flows.connections.iter_mut().zip(&flows.reversed).enumerate() {
            let arrivals = [from_forward.for_flow(flow), from_reverse.for_flow(flow)];
            if arrivals.iter().any(|of_way| !of_way.is_empty()) || wakes.due(flow) <= until {
                shared.run_flow(flow, c, reversed, arrivals, wakes);
            }
        }
        let events = shared.events;
        flows.unfinished -= shared.over;
        self.pushes.iter_mut().for_each(|pushes| pushes.sort(after, until, self.ties));

        let mut passing = [0, 0];
        self.pass_on(world, &mut passing, Time::from_nanos(until.as_nanos() - 1), usize::MAX);
        if world.next_sample.min(world.warmup) <= until {
            self.pass_on(world, &mut passing, until, 1);
            world.on_clock(until);
        }
        self.pass_on(world, &mut passing, until, usize::MAX);
        events
    }

    /// Makes the sequential engine's calls to both directions of the path until `until`, at `steps`
    /// times at most; `next` counts the packets that have entered.
    fn pass_on(&self, world: &mut World, next: &mut [usize; 2], until: Time, steps: usize) {
        let connections = &mut world.flows.connections;
        let sacks = &mut world.flows.sacks;
        let mut sink = |_: Time, outcome: Outcome<Segment>, queueing: &Queueing| match outcome {
            Outcome::Delivered(packet) => {
                if let (Queueing::Observed(queued), Kind::Data) = (queueing, packet.data.kind) {
                    connections[packet.flow as usize].recorder.on_queued(*queued);
                }
            }
            Outcome::Dropped(packet, _) => match packet.data.kind {
                Kind::Ack => {
                    sacks.remove(packet.data.detail);
                }
                _ => connections[packet.flow as usize].on_dropped(&packet),
            },
        };
        let mut pass_on = |way: &mut OneWay, pushes: &Pushes, next: &mut usize, answers_first: bool| {
            for _ in 0..steps {
                let order = &pushes.order;
                let entering = order.get(*next).map_or(Time::NEVER, |&(at, ..)| at);
                let now = entering.min(way.path.next());
                if now > until {
                    break;
                }
                // In one step of the sequential engine the forward direction delivers first, then the reverse
                // one, which the answers to those deliveries have already entered.
                let mut enter = |way: &mut OneWay, timers: bool| {
                    while let Some(&(at, rank, i)) = order.get(*next)
                        && at <= now
                        && (timers || !rank.is_timer())
                    {
                        pushes.touch(*next, 8);
                        way.path.push(at, pushes.packets[i as usize].clone());
                        *next += 1;
                    }
                };
                if answers_first {
                    enter(way, false);
                }
                if way.path.next() <= now {
                    way.advance(now, &mut sink);
                }
                enter(way, true);
            }
        };
        let [forward, reverse] = &self.pushes;
        let [next_forward, next_reverse] = next;
        pass_on(&mut world.forward, forward, next_forward, false);
        pass_on(&mut world.reverse, reverse, next_reverse, true);
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

/// What the flows use in a window.
struct Shared<'a> {
    until: Time,
    queueing: [Option<&'a Queueing>; 2],
    sacks: &'a mut SackStore,
    pushes: &'a mut [Pushes; 2],
    events: u64,
    /// Flows that are over since the window began.
    over: usize,
}

impl Shared<'_> {
    /// Processes the arrivals and timers of `flow`, in the order of the sequential engine: at one
    /// time first arrivals from the forward direction, then those from the reverse one, then timers.
    #[inline]
    fn run_flow(
        &mut self,
        flow: usize,
        c: &mut Connection<AnyController>,
        reversed: bool,
        [mut from_forward, mut from_reverse]: [&[Arrival]; 2],
        wakes: &mut Wakes,
    ) {
        let was_over = c.is_over();
        let mut wake = wakes.due(flow);
        loop {
            let first = |arrivals: &[Arrival]| arrivals.first().map_or(Time::NEVER, |arrival| arrival.at);
            let now = first(from_forward).min(first(from_reverse)).min(wake);
            if now > self.until {
                break;
            }
            for (way, arrivals) in [(0, &mut from_forward), (1, &mut from_reverse)] {
                while let Some(arrival) = arrivals.first().filter(|arrival| arrival.at <= now) {
                    *arrivals = &arrivals[1..];
                    self.arrive(c, arrival, way, &mut wake);
                }
            }
            if wake <= now {
                self.wake(flow, c, reversed, now, &mut wake);
            }
        }
        wakes.put(flow, wake);
        self.over += usize::from(!was_over && c.is_over());
    }

    /// An arrival from the direction `way`.
    #[inline]
    fn arrive(&mut self, c: &mut Connection<AnyController>, arrival: &Arrival, way: usize, wake: &mut Time) {
        self.events += 1;
        let out = &mut self.pushes[1 - way];
        out.rank = Rank::arrival(arrival.number);
        let net = &mut Net { out, sacks: self.sacks };
        let (due, state) = c.on_arrival(arrival.at, arrival.packet.clone(), self.queueing[way], net);
        *wake = due.min(*wake);
        if let Some(state) = state {
            c.recorder.on_state(arrival.at, state);
        }
    }

    #[inline]
    fn wake(
        &mut self,
        flow: usize,
        c: &mut Connection<AnyController>,
        reversed: bool,
        now: Time,
        wake: &mut Time,
    ) {
        self.events += 1;
        // Otherwise the order among the flows would depend on when their timers were due.
        debug_assert_eq!(*wake, now);
        let rank = Rank::timer(flow);
        let [forward, reverse] = self.pushes;
        (forward.rank, reverse.rank) = (rank, rank);
        let (data_way, ack_way) = if reversed { (reverse, forward) } else { (forward, reverse) };
        *wake = c.on_timers(now, data_way, ack_way, self.sacks);
        if let Some(state) = c.new_state() {
            c.recorder.on_state(now, state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::random_scenarios::scenario;
    use super::*;
    use crate::segment::ACK_BYTES;
    use fullpipe_experiment::scenario::{App, CpuSpec, FlowSpec, PathSpec};
    use fullpipe_units::Bytes;
    use proptest::prelude::*;
    use proptest::sample::select;
    use proptest::test_runner::TestRunner;
    use std::cell::Cell;

    /// Bounds the time per case, not its contents.
    const EVENTS: u64 = 6_000;

    /// Runs `scenario` with the sequential engine, or in windows with `ties`. Returns the recording
    /// and the number of windows.
    fn run(scenario: &Scenario, seed: u64, ties: Option<Ties>) -> Result<(String, u64), SimError> {
        let has_windows = Windows::reason_against(&Simulation::new(scenario, seed)).is_none();
        let mut world = World::new(&Simulation::new(scenario, seed).max_events(8 * EVENTS))?;
        match ties {
            Some(ties) if has_windows => {
                let windows = &mut Windows { least_events: 1, ties, ..Windows::new(&world) };
                world.run_in_windows(windows, &mut |_| ControlFlow::Continue(()))?;
            }
            _ => world.run(&mut |_| ControlFlow::Continue(()))?,
        }
        let windows = world.windows;
        // Compared as text: missing values are NaN, which never compares equal.
        Ok((serde_json::to_string(&world.finish()).unwrap(), windows))
    }

    /// A random scenario of few events, mostly with constant delays at the end of the path.
    fn short_scenario() -> impl Strategy<Value = (Scenario, u64)> {
        let delays = (select(vec![0u64, 1, 1_000, 3_000_000]), select(vec![0u64, 1, 3_000_000, 50_000_000]));
        let more = (select(vec![1u32, 1, 7]), select(vec![0u64, 3, 10]), any::<u64>());
        (scenario(), delays, more).prop_map(|(mut s, delays, (more, warmup, seed))| {
            for (links, ns) in [(&mut s.path.forward, delays.0), (&mut s.path.reverse, delays.1)] {
                if ns > 0 {
                    links.push(LinkSpec { delay: Span::from_nanos(ns), ..LinkSpec::default() });
                }
            }
            for flow in &mut s.flows {
                flow.count *= more;
            }
            // Shortened rather than cut off: the engines count events differently.
            if let Err(SimError::TooManyEvents { at, .. }) =
                Simulation::new(&s, seed).max_events(EVENTS).run()
            {
                s.duration = (at - at / 8).max(Span::from_nanos(50));
            }
            s.sample = s.duration / 50;
            s.warmup = s.duration / 30 * warmup;
            (s, seed)
        })
    }

    /// A packet with data has the bytes of this many ACKs, so that both keep the links in step.
    const ACKS_PER_PACKET: u32 = 29;

    /// A link on which everything happens at whole steps of 10 µs: an ACK takes one, or a fraction.
    fn link_in_step() -> impl Strategy<Value = LinkSpec> {
        let limits = select(vec!["'1p'", "'3p'", "'20p'", "'10000p'"]);
        let faults = select(vec![
            "",
            "loss = '5%'",
            "ingress_loss = '5%'",
            // The queueing delay is then observed, which depends on the order of calls.
            "schedule = [{ at = '30ms', delay = '3ms' }, { at = '90ms', delay = '1ms' }]",
        ]);
        (select(vec![0u32, 1, 1, 5]), select(vec![1u64, 1, 2, 7]), limits, faults).prop_map(
            |(speed, delay, limit, faults)| {
                let rate = speed * ACK_BYTES * 8 * 100_000;
                let text = format!("rate = '{rate}bit'\ndelay = '{delay}ms'\nqueue = {limit}\n{faults}");
                toml::from_str(&text).unwrap_or_else(|e| panic!("{text}: {e}"))
            },
        )
    }

    /// A random scenario in which nearly all events coincide with others.
    fn scenario_in_step() -> impl Strategy<Value = (Scenario, u64)> {
        let flow = (
            select(vec!["reno", "cubic", "bbr", "bbr3"]),
            (select(vec![1u32, 7, 40]), any::<(bool, bool)>()),
            (select(vec![0u64, 1, 20]), select(vec![None, None, Some(20_000u64)])),
            (
                select(vec![None, Some(100), Some(1000)]),
                select(vec![None, Some(100_000u64), Some(1_000_000)]),
            ),
            (select(vec![1u32, 10]), select(vec![None, None, Some(3u64), Some(40)])),
        );
        let flow = flow.prop_map(
            |(cc, (count, (reverse, paced)), (start, size), (timer_hz, cpu), (window, every))| FlowSpec {
                count,
                paced,
                timer_hz,
                direction: if reverse { Direction::Reverse } else { Direction::Forward },
                start: Start::At(Span::from_millis(start)),
                size: size.map(Bytes),
                cpu: cpu.map(|ns| CpuSpec { per_segment: Span::from_nanos(ns), rate: None }),
                initial_window: window,
                receive_buffer: Some(Bytes(60_000)),
                app: every.map_or(App::Bulk, |ms| App::Bursts {
                    size: Bytes(5 * 1448),
                    every: Span::from_millis(ms),
                }),
                ..FlowSpec::bulk(cc)
            },
        );
        let links = || prop::collection::vec(link_in_step(), 1..3);
        let flows = prop::collection::vec(flow, 1..4);
        (links(), links(), flows, any::<u64>()).prop_map(|(forward, reverse, flows, seed)| {
            let mut s = Scenario::new(PathSpec { forward, reverse }, flows);
            s.mtu = ACKS_PER_PACKET * ACK_BYTES;
            s.duration = Span::from_millis(300);
            s.sample = Span::from_millis(7);
            (s, seed)
        })
    }

    /// Compares the engines by random scenarios. Returns the number of windows.
    fn compare(
        cases: u32,
        scenarios: &impl Strategy<Value = (Scenario, u64)>,
        ties: Ties,
    ) -> Result<u64, String> {
        let windows = Cell::new(0);
        let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
        TestRunner::new(config)
            .run(scenarios, |(s, seed)| {
                match (run(&s, seed, None), run(&s, seed, Some(ties))) {
                    (Ok((one, _)), Ok((other, n))) => {
                        windows.set(windows.get() + n);
                        prop_assert!(one == other);
                    }
                    (Ok(_), Err(e)) => prop_assert!(false, "{e}"),
                    // Invalid, or more events than a case may have.
                    (Err(_), _) => {}
                }
                Ok(())
            })
            .map_err(|e| e.to_string())?;
        Ok(windows.get())
    }

    #[test]
    fn both_engines_record_the_same_bytes() {
        let windows = compare(4_000, &short_scenario(), Ties::Kept).unwrap();
        assert!(windows > 10_000, "{windows}");
    }

    #[test]
    fn both_engines_record_the_same_bytes_if_events_coincide() {
        let windows = compare(1_000, &scenario_in_step(), Ties::Kept).unwrap();
        assert!(windows > 10_000, "{windows}");
    }

    #[test]
    fn a_wrong_order_of_simultaneous_packets_is_found() {
        assert!(compare(10_000, &short_scenario(), Ties::Reversed).is_err());
    }
}
