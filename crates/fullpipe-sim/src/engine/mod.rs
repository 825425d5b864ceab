//! The event loop: what happens next on the path, at an end, or on the clock of the recording.

mod connection;
mod queueing;
mod wakes;

use crate::controllers::{AnyController, Controllers};
use crate::error::SimError;
use crate::recorder::{FlowRecorder, LinkRecorder, total};
use crate::segment::{Kind, SackStore, Segment};
use connection::{Connection, Net};
use fullpipe_cc::{Config, CongestionControl, Span, Time};
use fullpipe_experiment::recording::{Provenance, Recording, Source};
use fullpipe_experiment::scenario::{Direction, FlowSpec, Scenario, Triggers, Vocabulary};
use fullpipe_path::{Chain, Outcome, Packet};
use fullpipe_units::Rate;
use queueing::Queueing;
use std::ops::ControlFlow;
use wakes::Wakes;

/// Rows that all flows together may record: beyond it the sampling interval is a multiple of the
/// scenario's.
const MOST_ROWS: u64 = 1 << 17;
/// Events between two looks at the budget and two reports of progress.
const REPORT_EVERY: u64 = 1 << 14;
/// The most events of any run: minutes of computing.
const MOST_EVENTS: u64 = 1 << 33;

/// A run of a scenario, to be adjusted before it starts.
///
/// ```
/// use fullpipe_experiment::scenario::{FlowSpec, PathSpec, Scenario};
/// use fullpipe_sim::Simulation;
///
/// let path = PathSpec::bottleneck("10mbit".parse()?, "40ms".parse()?, "1bdp".parse()?);
/// let mut scenario = Scenario::new(path, vec![FlowSpec::bulk("cubic")]);
/// scenario.duration = "5s".parse()?;
/// let recording = Simulation::new(&scenario, 1).most_events(1_000_000).run()?;
/// assert!(recording.summary.goodput_bps > 8e6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Simulation<'a> {
    scenario: &'a Scenario,
    seed: u64,
    most_events: Option<u64>,
    controllers: &'a Controllers,
}

/// The controllers of a run that does not say more.
static KNOWN: Controllers = Controllers::new();

impl<'a> Simulation<'a> {
    /// `scenario` with all that is random in it drawn from `seed`.
    pub fn new(scenario: &'a Scenario, seed: u64) -> Self {
        Simulation { scenario, seed, most_events: None, controllers: &KNOWN }
    }

    /// Flows may name any of `controllers`, not only those of `fullpipe-cc`.
    pub fn controllers(mut self, controllers: &'a Controllers) -> Self {
        self.controllers = controllers;
        self
    }

    /// Ends the run with [`SimError::TooManyEvents`] after `n` events, instead of after the number
    /// that the path's rates can account for.
    pub fn most_events(mut self, n: u64) -> Self {
        self.most_events = Some(n);
        self
    }

    /// Runs it.
    ///
    /// # Errors
    /// See [`SimError`].
    pub fn run(self) -> Result<Recording, SimError> {
        self.run_with(&mut |_| ControlFlow::Continue(()))
    }

    /// Runs it and tells `progress` now and then how far it is; [`ControlFlow::Break`] ends it.
    ///
    /// # Errors
    /// See [`SimError`].
    pub fn run_with(self, progress: &mut dyn FnMut(Time) -> ControlFlow<()>) -> Result<Recording, SimError> {
        let vocabulary = Vocabulary::new(self.controllers.names());
        self.scenario.validate(&vocabulary)?;
        let mut world = World::new(&self)?;
        world.run(progress)?;
        Ok(world.finish())
    }
}

/// One direction of the path with what is recorded of it.
struct Way {
    road: Road,
    queueing: Queueing,
    recorders: Vec<LinkRecorder>,
}

/// A chain that remembers when something happens on it next: asking costs more than all else when
/// only the other direction has changed.
pub(crate) struct Road {
    chain: Chain<Segment>,
    next: Time,
    pushed: bool,
}

impl Road {
    fn new(chain: Chain<Segment>) -> Self {
        Road { next: chain.next_event(), chain, pushed: false }
    }

    /// A packet enters.
    #[inline]
    pub fn push(&mut self, now: Time, packet: Packet<Segment>) {
        self.pushed = true;
        self.chain.push(now, packet);
    }

    /// When something happens on it next.
    #[inline]
    fn next(&mut self) -> Time {
        if self.pushed {
            self.pushed = false;
            self.next = self.chain.next_event();
        }
        self.next
    }
}

impl Way {
    fn new(scenario: &Scenario, direction: Direction, seed: u64) -> Result<Self, SimError> {
        let links = scenario.path.links(direction);
        let context = scenario.path.context(direction, scenario.mtu, seed);
        let name = match direction {
            Direction::Forward => "forward",
            Direction::Reverse => "reverse",
        };
        let chain = Chain::new(links, &context).map_err(|error| SimError::Path { direction: name, error })?;
        let changed = scenario.triggers.iter().any(|t| t.then.direction == direction);
        let queueing = Queueing::new(links, &chain, scenario.mtu, changed);
        let recorders = links.iter().map(|_| LinkRecorder::new()).collect();
        Ok(Way { road: Road::new(chain), queueing, recorders })
    }
}

/// Everything that exists during a run.
struct World<'a> {
    scenario: &'a Scenario,
    specs: Vec<FlowSpec>,
    seed: u64,
    forward: Way,
    reverse: Way,
    flows: Flows,
    wakes: Wakes,
    sampling: Span,
    next_sample: Time,
    warmup: Time,
    end: Time,
    events: u64,
    most_events: u64,
}

/// The connections, and what their packets share.
struct Flows {
    connections: Vec<Connection<AnyController>>,
    reversed: Vec<bool>,
    sacks: SackStore,
    triggers: Triggers,
    unfinished: usize,
}

impl<'a> World<'a> {
    fn new(run: &Simulation<'a>) -> Result<Self, SimError> {
        let Simulation { scenario, seed, most_events, controllers } = *run;
        let specs = scenario.connections();
        let end = Time::ZERO + scenario.duration;
        let flows = specs.len() as u64;
        let wanted = scenario.duration.as_nanos() / scenario.sample.as_nanos().max(1);
        let stride = if flows > 1 { (wanted * flows).div_ceil(MOST_ROWS).max(1) } else { 1 };
        let sampling = scenario.sample * stride;
        let smss = scenario.smss();
        let mut connections = Vec::with_capacity(specs.len());
        for (i, spec) in specs.iter().enumerate() {
            let cc = controller(controllers, scenario, spec, i, seed)?;
            let lasts = end.since(Time::ZERO + spec.start);
            let rows = (lasts.as_nanos() / sampling.as_nanos().max(1)) as usize + 1;
            connections.push(Connection::new(i as u32, spec, cc, smss, rows));
        }
        let forward = Way::new(scenario, Direction::Forward, seed)?;
        let reverse = Way::new(scenario, Direction::Reverse, seed)?;
        let mut wakes = Wakes::new(connections.len());
        for (i, c) in connections.iter().enumerate() {
            wakes.set(i, c.wake());
        }
        let most_events = most_events.unwrap_or_else(|| budget(scenario, flows));
        Ok(World {
            scenario,
            seed,
            forward,
            reverse,
            wakes,
            sampling,
            next_sample: Time::ZERO + sampling,
            warmup: if scenario.warmup.is_zero() { Time::NEVER } else { Time::ZERO + scenario.warmup },
            end,
            events: 0,
            most_events,
            flows: Flows {
                unfinished: connections.len(),
                reversed: specs.iter().map(|s| s.direction == Direction::Reverse).collect(),
                connections,
                sacks: SackStore::default(),
                triggers: Triggers::new(&scenario.triggers),
            },
            specs,
        })
    }

    /// The next time at which anything happens.
    #[inline]
    fn next(&mut self) -> Time {
        let path = self.forward.road.next().min(self.reverse.road.next());
        let clock = self.next_sample.min(self.warmup).min(self.flows.triggers.next());
        path.min(self.wakes.first()).min(clock)
    }

    fn run(&mut self, progress: &mut dyn FnMut(Time) -> ControlFlow<()>) -> Result<(), SimError> {
        let mut report_at = REPORT_EVERY.min(self.most_events);
        loop {
            let now = self.next();
            if now > self.end {
                break;
            }
            self.events += 1;
            if self.events >= report_at {
                self.report(now, progress)?;
                report_at = (self.events + REPORT_EVERY).min(self.most_events);
            }
            self.step(now);
            if self.flows.unfinished == 0 {
                self.end = now;
                self.sample(now);
                break;
            }
        }
        Ok(())
    }

    #[cold]
    fn report(&self, now: Time, progress: &mut dyn FnMut(Time) -> ControlFlow<()>) -> Result<(), SimError> {
        let at = now.since(Time::ZERO);
        if self.events >= self.most_events {
            return Err(SimError::TooManyEvents {
                events: self.events,
                at,
                duration: self.scenario.duration,
            });
        }
        match progress(now) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(SimError::Interrupted { at }),
        }
    }

    fn step(&mut self, now: Time) {
        let Self { forward, reverse, flows, wakes, events, .. } = self;
        // What a delivery sets off leaves the other way: never the way that is being advanced.
        *events += flows.advance(now, forward, &mut reverse.road, wakes);
        *events += flows.advance(now, reverse, &mut forward.road, wakes);
        while wakes.first() <= now {
            *events += 1;
            let flow = wakes.first_flow();
            flows.wake(now, flow, &mut forward.road, &mut reverse.road);
            let next = flows.connections[flow].wake();
            wakes.set(flow, next.max(now + Span::from_nanos(1)));
        }
        if now >= self.next_sample.min(self.warmup).min(self.flows.triggers.next()) {
            self.on_clock(now);
        }
    }

    #[cold]
    fn on_clock(&mut self, now: Time) {
        if self.flows.triggers.next() <= now {
            for due in self.flows.triggers.due(now) {
                let way = match due.direction {
                    Direction::Forward => &mut self.forward,
                    Direction::Reverse => &mut self.reverse,
                };
                way.road.chain.apply(now, &due.change);
                way.road.pushed = true;
                if let Some(app) = due.app {
                    self.flows.connections[due.flow].change_app(now, app);
                    self.wakes.set(due.flow, now);
                }
            }
        }
        if self.warmup <= now {
            self.warmup = Time::NEVER;
            for c in &mut self.flows.connections {
                let delivered = c.receiver.delivered();
                c.recorder.warmed_up(&c.sender, delivered);
            }
        }
        if self.next_sample <= now {
            self.sample(now);
            self.next_sample += self.sampling;
        }
    }

    fn sample(&mut self, now: Time) {
        for c in &mut self.flows.connections {
            if c.start < now && !c.is_recorded() {
                let delivered = c.receiver.delivered();
                c.recorder.sample(now, &c.sender, delivered);
            }
        }
        for way in [&mut self.forward, &mut self.reverse] {
            for (recorder, stats) in way.recorders.iter_mut().zip(way.road.chain.stats()) {
                recorder.sample(now, stats);
            }
        }
    }

    fn finish(mut self) -> Recording {
        for c in &mut self.flows.connections {
            c.recorder.settle();
        }
        let scenario = self.scenario;
        let warmup = Time::ZERO + scenario.warmup;
        let path = scenario.path.facts(scenario.mtu, scenario.smss());
        let limit = path.goodput_limit_bps;
        let utilization = |bps: f64| limit.filter(|&l| l > 0.0).map(|l| bps / l);
        let connections = &self.flows.connections;
        let summaries: Vec<_> = connections
            .iter()
            .map(|c| {
                let duration = c.end(self.end).since(c.start.max(warmup));
                let mut s = c.recorder.summary(&c.sender, c.receiver.delivered(), duration, c.start);
                s.utilization = utilization(s.goodput_bps);
                s
            })
            .collect();
        let recorders: Vec<&FlowRecorder> = connections.iter().map(|c| &c.recorder).collect();
        let last = connections.iter().map(|c| c.end(self.end)).max().unwrap_or(self.end);
        let mut summary = total(&summaries, &recorders, last.since(warmup));
        summary.utilization = utilization(summary.goodput_bps);
        let mut links = Vec::new();
        for (name, way) in [("forward", self.forward), ("reverse", self.reverse)] {
            for (i, (recorder, stats)) in way.recorders.into_iter().zip(way.road.chain.stats()).enumerate() {
                links.push(recorder.finish(format!("{name} {}", i + 1), stats));
            }
        }
        let flows = self
            .flows
            .connections
            .into_iter()
            .zip(self.specs)
            .zip(summaries)
            .map(|((c, spec), summary)| {
                let label = spec.label.unwrap_or_else(|| spec.cc.clone());
                c.recorder.finish(&c.sender, label, spec.cc, c.start, summary)
            })
            .collect();
        Recording {
            label: scenario.cc(),
            contender: None,
            varied: Vec::new(),
            source: Source::Sim,
            cc: scenario.cc(),
            seed: self.seed,
            valid: true,
            invalid_because: Vec::new(),
            summary,
            flows,
            links,
            path,
            checks: Vec::new(),
            health: None,
            provenance: Provenance {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                scenario: Scenario { seed: self.seed, repeats: 1, ..scenario.clone() }.to_toml(),
                kernel: None,
                ticks: None,
                started: None,
            },
        }
    }
}

impl Flows {
    /// Does what is due on `way`; what it sets off leaves by `other`. Returns the number of outcomes.
    #[inline]
    fn advance(&mut self, now: Time, way: &mut Way, other: &mut Road, wakes: &mut Wakes) -> u64 {
        if way.road.next() > now {
            return 0;
        }
        let mut outcomes = 0;
        way.queueing.observe(&way.road.chain);
        let queueing = &way.queueing;
        way.road.chain.advance(now, &mut |at, outcome| {
            outcomes += 1;
            self.on_outcome(at, outcome, queueing, other, wakes);
        });
        way.road.pushed = true;
        outcomes
    }

    #[inline]
    fn on_outcome(
        &mut self,
        at: Time,
        outcome: Outcome<Segment>,
        queueing: &Queueing,
        other: &mut Road,
        wakes: &mut Wakes,
    ) {
        match outcome {
            Outcome::Delivered(packet) => self.on_delivered(at, packet, queueing, other, wakes),
            Outcome::Dropped(packet, _) => self.on_dropped(&packet),
        }
    }

    #[inline]
    fn on_delivered(
        &mut self,
        at: Time,
        packet: Packet<Segment>,
        queueing: &Queueing,
        other: &mut Road,
        wakes: &mut Wakes,
    ) {
        let flow = packet.flow as usize;
        let c = &mut self.connections[flow];
        let mut net = Net { out: other, sacks: &mut self.sacks };
        match packet.data.kind {
            Kind::Data | Kind::Syn | Kind::Established => {
                if packet.data.kind == Kind::Data {
                    c.recorder.on_queued(queueing.of_packet(packet.data.stamp, at, packet.bytes));
                }
                let was_over = c.is_over();
                c.at_receiver(at, packet, &mut net);
                self.unfinished -= usize::from(!was_over && c.is_over());
            }
            Kind::Ack | Kind::SynAck | Kind::Request => {
                let was_over = c.is_over();
                c.at_sender(at, packet, &mut net);
                self.unfinished -= usize::from(!was_over && c.is_over());
                note_state(at, flow, c, &mut self.triggers);
            }
        }
        wakes.no_later(flow, c.wake());
    }

    /// The path dropped a packet.
    fn on_dropped(&mut self, packet: &Packet<Segment>) {
        match packet.data.kind {
            Kind::Data => self.connections[packet.flow as usize].recorder.dropped += 1,
            Kind::Ack => {
                self.sacks.take(packet.data.detail);
            }
            Kind::Syn | Kind::SynAck | Kind::Established | Kind::Request => {}
        }
    }

    /// Wakes `flow` at `now`.
    fn wake(&mut self, now: Time, flow: usize, forward: &mut Road, reverse: &mut Road) {
        let (data_way, ack_way) = if self.reversed[flow] { (reverse, forward) } else { (forward, reverse) };
        let c = &mut self.connections[flow];
        let was_over = c.is_over();
        c.wake_receiver(now, &mut Net { out: ack_way, sacks: &mut self.sacks });
        c.wake_sender(now, &mut Net { out: data_way, sacks: &mut self.sacks });
        self.unfinished -= usize::from(!was_over && c.is_over());
        note_state(now, flow, c, &mut self.triggers);
    }
}

/// Records the controller's state if it has changed, and tells who waits for it.
#[inline]
fn note_state<C: CongestionControl>(now: Time, flow: usize, c: &mut Connection<C>, triggers: &mut Triggers) {
    let state = c.sender.controller().state();
    if c.recorder.on_state(now, state) && !triggers.is_empty() {
        triggers.on_state(now, flow as u32, state);
    }
}

/// The controller of the `i`-th flow, its own random numbers drawn from the run's seed.
fn controller(
    controllers: &Controllers,
    scenario: &Scenario,
    spec: &FlowSpec,
    i: usize,
    seed: u64,
) -> Result<AnyController, SimError> {
    let config = Config {
        smss: scenario.smss(),
        initial_cwnd: u64::from(spec.initial_window) * u64::from(scenario.smss()),
        // Neighbouring flows and seeds must not draw alike (SplitMix64's increment).
        seed: seed.wrapping_add((i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        ..Config::default()
    };
    let values: Vec<(String, String)> =
        spec.settings.iter().map(|(key, value)| (key.clone(), value.to_string())).collect();
    let pairs: Vec<(&str, &str)> = values.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    controllers.make(i, &spec.cc, &config, &pairs)
}

/// How many events the path's rates can account for, many times over: what is beyond is a path that
/// lets through more than can be followed.
fn budget(scenario: &Scenario, flows: u64) -> u64 {
    const SMALLEST_PACKET: u64 = 40;
    const EVENTS_PER_PACKET: u64 = 8;
    let carried = |direction| {
        let rate = scenario.highest_rate_of(direction).unwrap_or(Rate::MAX);
        rate.bytes_in(scenario.duration) / SMALLEST_PACKET
    };
    let packets = carried(Direction::Forward).saturating_add(carried(Direction::Reverse));
    let clock = scenario.duration.as_nanos() / scenario.sample.as_nanos().max(1);
    let timers = flows.saturating_mul(scenario.duration.as_nanos() / 1_000_000 + 1000);
    packets
        .saturating_mul(EVENTS_PER_PACKET)
        .saturating_add(clock)
        .saturating_add(timers)
        .saturating_add(1 << 20)
        .min(MOST_EVENTS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_experiment::scenario::{App, PathSpec};
    use fullpipe_path::{LinkSpec, QueueSpec};
    use fullpipe_units::Bytes;
    use proptest::prelude::*;
    use proptest::sample::select;

    /// Bounds the time that a case may take, not what it may say.
    const EVENTS: u64 = 60_000;

    fn link() -> impl Strategy<Value = LinkSpec> {
        let rates = [
            "",
            "rate = '0bit'",
            "rate = '12kbit'",
            "rate = '1mbit'",
            "rate = '100mbit'",
            "rate = '400gbit'",
        ];
        let delays = ["0s", "1ns", "3us", "1ms", "50ms", "5s"];
        let limits = ["'1'", "'1p'", "'3000'", "'1bdp'", "'20ms'", "'1000bdp'", "'1000000p'"];
        let kinds: Vec<String> = QueueSpec::kinds().map(|(name, _)| format!("'{name}'")).collect();
        let queues = limits.iter().map(|l| (*l).to_owned()).chain(kinds).collect::<Vec<_>>();
        let losses = ["0%", "0.1%", "5%", "50%", "100%"];
        let extras = [
            "",
            "",
            "",
            "jitter = '3ms'",
            "policer = { rate = '1mbit', burst = '15k' }",
            "blackouts = [{ at = '1s', for = '90s' }]",
            "reorder = { share = '5%', by = '3ms' }",
            "ingress_loss = '2%'",
            "schedule = [{ at = '1s', delay = '200ms' }, { at = '2s', delay = '1ns' }, { at = '3s', delay = '10s' }]",
            "schedule = [{ at = '1s', loss = '100%' }, { at = '100s', loss = '0%' }]",
            "trace = { ms = [1, 1, 7, 300] }",
        ];
        (
            select(rates.to_vec()),
            select(delays.to_vec()),
            select(queues),
            select(losses.to_vec()),
            select(extras.to_vec()),
        )
            .prop_map(|(rate, delay, queue, loss, extra)| {
                let rate = if extra.starts_with("trace") { "" } else { rate };
                let text = format!("{rate}\ndelay = '{delay}'\nqueue = {queue}\nloss = '{loss}'\n{extra}");
                toml::from_str(&text).unwrap_or_else(|e| panic!("{text}: {e}"))
            })
    }

    fn app() -> impl Strategy<Value = App> {
        prop_oneof![
            3 => Just(App::Bulk),
            1 => (1u64..1 << 36, 1u64..1 << 20).prop_map(|(r, chunk)| App::Rate {
                rate: Rate::from_bytes_per_sec(r),
                chunk: Bytes(chunk),
            }),
            1 => (1u64..1 << 24, 1u64..1 << 33).prop_map(|(size, every)| App::Bursts {
                size: Bytes(size),
                every: Span::from_nanos(every),
            }),
            1 => (1u64..1 << 20, 1u64..1 << 24, 0u64..1 << 31).prop_map(|(request, response, think)| {
                App::RequestResponse {
                    request: Bytes(request),
                    response: Bytes(response),
                    think: Span::from_nanos(think),
                }
            }),
        ]
    }

    fn flow() -> impl Strategy<Value = FlowSpec> {
        let names: Vec<&str> = fullpipe_cc::CONTROLLERS.iter().map(|c| c.name).collect();
        let few = (select(names), select(vec![1u32, 10, 3000]), any::<bool>(), any::<bool>());
        let spans = (select(vec![0u64, 1, 20_000_000, 3_000_000_000]), select(vec![0u64, 7, 500_000_000]));
        let sizes = (
            select(vec![None, Some(1), Some(100_000), Some(1 << 40)]),
            select(vec![None, Some(200_000), Some(6 << 20)]),
            select(vec![None, Some(140_000)]),
            select(vec![None, Some(9u64)]),
        );
        (few, spans, sizes, app(), 1u32..4).prop_map(
            |(
                (cc, initial_window, ecn, reverse),
                (extra, start),
                (size, receive, send, stop),
                app,
                count,
            )| FlowSpec {
                count,
                initial_window,
                ecn,
                direction: if reverse { Direction::Reverse } else { Direction::Forward },
                extra_rtt: Span::from_nanos(extra),
                start: Span::from_nanos(start),
                size: size.map(Bytes),
                receive_buffer: receive.map(Bytes),
                send_buffer: send.map(Bytes),
                stop: stop.map(Span::from_secs),
                app,
                ..FlowSpec::bulk(cc)
            },
        )
    }

    fn scenario() -> impl Strategy<Value = Scenario> {
        let links = || prop::collection::vec(link(), 0..3);
        let flows = prop::collection::vec(flow(), 1..3);
        (links(), links(), flows, select(vec![68u32, 576, 1500, 65_535]), select(vec![1u64, 10, 300]))
            .prop_map(|(forward, reverse, flows, mtu, seconds)| {
                let mut s = Scenario::new(PathSpec { forward, reverse }, flows);
                s.duration = Span::from_secs(seconds);
                s.sample = s.duration / 50;
                s.mtu = mtu;
                s
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

        /// Whatever a scenario says, the run ends; every packet of every flow is accounted for at any
        /// time, at the sender, on the path and in the store of SACK blocks.
        #[test]
        fn nothing_that_a_scenario_can_say_breaks_or_hangs_a_run(s in scenario(), seed in any::<u64>()) {
            let result = Simulation::new(&s, seed).most_events(EVENTS).run();
            match result {
                Ok(r) => prop_assert!(r.flows.iter().all(|f| f.summary.goodput_bps.is_finite())),
                Err(e) => {
                    let expected = matches!(e, SimError::TooManyEvents { .. } | SimError::Scenario(_));
                    prop_assert!(expected, "{e}");
                    if matches!(e, SimError::Scenario(_)) {
                        return Ok(());
                    }
                }
            }
            let mut world = World::new(&Simulation::new(&s, seed).most_events(EVENTS)).unwrap();
            let mut now = Time::ZERO;
            for audit in 1..=8 {
                let pause = world.most_events / 8 * audit;
                while world.events < pause && world.next() <= world.end && world.flows.unfinished > 0 {
                    world.events += 1;
                    now = world.next();
                    world.step(now);
                }
                let mut dropped = 0;
                for c in &world.flows.connections {
                    c.sender.audit();
                    dropped += c.recorder.dropped;
                    prop_assert!(c.recorder.arrived() + c.recorder.dropped <= c.sender.counts.sent);
                    prop_assert!(c.receiver.delivered() >= c.sender.acknowledged());
                    prop_assert!(c.sender.counts.arrived <= c.recorder.arrived());
                }
                let mut inside = 0;
                let mut dropped_on_path = 0;
                for way in [&world.forward, &world.reverse] {
                    for stats in way.road.chain.stats() {
                        inside += stats.inside_packets();
                        dropped_on_path += stats.dropped_packets();
                    }
                }
                prop_assert!(dropped <= dropped_on_path);
                // What comes out of the path at this very time may not have been handed over yet.
                let at_the_end = world.next() <= now;
                let stored = world.flows.sacks.in_use() as u64;
                prop_assert!(at_the_end || stored <= inside + dropped_on_path + world.waiting_outside());
                let (sent, arrived): (u64, u64) = world.flows.connections.iter().fold((0, 0), |(s, a), c| {
                    (s + c.sender.counts.sent, a + c.recorder.arrived())
                });
                // A loss on the wire is counted when it is decided and reported when the packet would have left.
                let under_way = inside + (dropped_on_path - dropped);
                let missing = sent - arrived - dropped;
                prop_assert!(at_the_end || missing <= under_way, "{sent} {arrived} {dropped} {under_way}");
            }
        }
    }

    impl World<'_> {
        /// Packets in the flows' own delays.
        fn waiting_outside(&self) -> u64 {
            self.flows.connections.iter().map(|c| c.waiting_outside() as u64).sum()
        }
    }
}
