//! The connections of a run: dispatch of deliveries, drops and timers to them.

use super::Simulation;
use super::access::Access;
use super::connection::{Connection, Net};
use super::one_way::{OneWay, TimedPath};
use super::queueing::Queueing;
use super::wakes::{self, PartOfWakes, Wakes};
use crate::controllers::AnyController;
use crate::error::SimError;
use crate::processor::{Incoming, Processor};
use crate::segment::{Kind, SackStore, Segment};
use crate::sender::Wheel;
use crate::transport::{Opening, Transport};
use fullpipe_cc::{Config, CongestionControl, Span, Time};
use fullpipe_experiment::recording::TransportFacts;
use fullpipe_experiment::scenario::{Direction, Fault, FlowSpec, Followers, Triggers};
use fullpipe_path::{Outcome, Packet};
use fullpipe_policy::PolicyController;

/// Most parts that the flows of a run are divided into: enough to keep some threads equally busy.
const MAX_PARTS: usize = 32;

/// The SACK information in flight of each [`Part`] of the flows.
pub(super) struct SackStores {
    stores: Vec<SackStore>,
    /// A part has two to the power of this flows.
    shift: u32,
}

impl SackStores {
    fn new(flows: usize) -> Self {
        let size = flows.div_ceil(MAX_PARTS).next_power_of_two().max(wakes::MATCH);
        let stores = (0..flows.div_ceil(size)).map(|_| SackStore::default()).collect();
        SackStores { stores, shift: size.ilog2() }
    }

    /// The store of `flow`.
    #[inline]
    pub fn of_flow(&mut self, flow: usize) -> &mut SackStore {
        &mut self.stores[flow >> self.shift]
    }

    #[cfg(test)]
    pub fn in_use(&self) -> usize {
        self.stores.iter().map(SackStore::in_use).sum()
    }
}

/// Some of the flows, with all of their state that is not on the path.
pub(super) struct Part<'a> {
    /// The number of the first.
    pub first: usize,
    pub connections: &'a mut [Connection<AnyController>],
    pub reversed: &'a [bool],
    pub wakes: PartOfWakes<'a>,
    pub sacks: &'a mut SackStore,
}

/// The connections and the state they share.
pub(super) struct Flows {
    pub connections: Vec<Connection<AnyController>>,
    pub reversed: Vec<bool>,
    pub sacks: SackStores,
    pub triggers: Triggers,
    followers: Followers,
    pub unfinished: usize,
    /// The first flow whose transport failed, and the transport's reason.
    pub failure: Option<(usize, String)>,
    /// The transports other than TCP.
    pub transports: Vec<TransportFacts>,
}

impl Flows {
    /// Creates the connections of `specs` with their controllers.
    pub fn new(
        run: &Simulation<'_>,
        specs: &[FlowSpec],
        end: Time,
        sampling: Span,
    ) -> Result<Self, SimError> {
        let scenario = run.scenario;
        let followers = Followers::new(specs).map_err(|(_, fault)| SimError::Scenario(fault))?;
        let mut connections = Vec::with_capacity(specs.len());
        for (i, spec) in specs.iter().enumerate() {
            let transport = transport(run, spec, i)?;
            // Another transport has its own controller.
            let cc = match transport {
                None => controller(run, spec, i)?,
                Some(_) => AnyController::placeholder(),
            };
            // Rows after its start, and one at the end of the run if that is the end of its last flow.
            let rows_until = |at: Time| at.as_nanos() / sampling.as_nanos().max(1);
            let rows = rows_until(end).saturating_sub(rows_until(Time::ZERO + spec.start.earliest()));
            let rows = rows as usize + usize::from(spec.size.is_some());
            let mut connection = Connection::new(i as u32, spec, cc, scenario.smss(), rows);
            if let Some(transport) = transport {
                connection = connection.over(transport);
            }
            if let Some(hz) = spec.timer_hz {
                connection.sender.wheel = Some(Wheel::new(hz, run.seed));
            }
            if let Some(costs) = spec.cpu {
                connection.sender.cpu = Some(Processor::new(costs));
                connection.incoming = Some(Box::new(Incoming::new(costs)));
            }
            if let Some(access) = &spec.access {
                let link = access.build(scenario, spec, i, run.seed);
                let link = link.map_err(|e| Fault::new(&format!("flow.{i}.access.{}", e.key), e.reason))?;
                connection.access = Some(Box::new(Access::new(access.clone(), link)));
            }
            connections.push(connection);
        }
        Ok(Flows {
            unfinished: connections.len(),
            reversed: specs.iter().map(|s| s.direction == Direction::Reverse).collect(),
            connections,
            sacks: SackStores::new(specs.len()),
            triggers: Triggers::new(&scenario.triggers),
            followers,
            failure: None,
            transports: transport_facts(run, specs),
        })
    }

    /// Divides the flows into parts, which share nothing.
    pub fn parts<'a>(&'a mut self, wakes: &'a mut Wakes) -> impl Iterator<Item = Part<'a>> + Send {
        let size = 1 << self.sacks.shift;
        let connections = self.connections.chunks_mut(size).zip(self.reversed.chunks(size));
        let state = wakes.parts(size).zip(&mut self.sacks.stores);
        (0..).step_by(size).zip(connections).zip(state).map(
            |((first, (connections, reversed)), (wakes, sacks))| Part {
                first,
                connections,
                reversed,
                wakes,
                sacks,
            },
        )
    }

    /// Number of [`parts`](Self::parts).
    pub fn count_parts(&self) -> usize {
        self.sacks.stores.len()
    }

    /// Processes what is due on `way`; packets sent in response leave by `other`. Returns the
    /// number of outcomes.
    #[inline]
    pub fn advance(&mut self, now: Time, way: &mut OneWay, other: &mut TimedPath, wakes: &mut Wakes) -> u64 {
        if way.path.next() > now {
            return 0;
        }
        let mut outcomes = 0;
        way.advance(now, &mut |at, outcome, queueing| {
            outcomes += 1;
            match outcome {
                Outcome::Delivered(packet) => self.on_delivered(at, packet, queueing, other, wakes),
                Outcome::Dropped(packet, _) => self.on_dropped(&packet),
            }
        });
        outcomes
    }

    #[inline]
    fn on_delivered(
        &mut self,
        at: Time,
        packet: Packet<Segment>,
        queueing: &Queueing,
        other: &mut TimedPath,
        wakes: &mut Wakes,
    ) {
        let flow = packet.flow as usize;
        let c = &mut self.connections[flow];
        let was_over = c.is_over();
        let net = &mut Net { out: other, sacks: self.sacks.of_flow(flow) };
        let (due, state) = c.on_arrival(at, packet, Some(queueing), net);
        self.unfinished -= usize::from(!was_over && c.is_over());
        if let Some(state) = state {
            record_state(at, flow, c, state, &mut self.triggers);
        }
        wakes.no_later(flow, due);
        self.stop_on_failure(flow);
        if !self.followers.is_empty() {
            self.start_followers(at, flow, wakes);
        }
    }

    /// Ends the run if the transport of `flow` has failed.
    #[inline]
    fn stop_on_failure(&mut self, flow: usize) {
        if let Some(reason) = self.connections[flow].failure()
            && self.failure.is_none()
        {
            self.failure = Some((flow, reason.to_owned()));
            self.unfinished = 0;
        }
    }

    /// Starts the flows whose start condition on `flow` is now true.
    #[cold]
    fn start_followers(&mut self, now: Time, flow: usize, wakes: &mut Wakes) {
        let c = &self.connections[flow];
        for follower in self.followers.started_by(flow, c.delivered(), c.has_ended()) {
            let c = &mut self.connections[follower.flow];
            c.begin(now + follower.delay);
            wakes.no_later(follower.flow, c.wake());
        }
    }

    /// Records that the path dropped a packet.
    fn on_dropped(&mut self, packet: &Packet<Segment>) {
        let flow = packet.flow as usize;
        match packet.data.kind {
            Kind::Ack => {
                self.sacks.of_flow(flow).remove(packet.data.detail);
            }
            _ => self.connections[flow].on_dropped(packet),
        }
    }

    /// Processes the timers of `flow` at `now`.
    pub fn wake(
        &mut self,
        now: Time,
        flow: usize,
        forward: &mut TimedPath,
        reverse: &mut TimedPath,
        wakes: &mut Wakes,
    ) {
        let (data_way, ack_way) = if self.reversed[flow] { (reverse, forward) } else { (forward, reverse) };
        let c = &mut self.connections[flow];
        let was_over = c.is_over();
        let next = c.on_timers(now, data_way, ack_way, self.sacks.of_flow(flow));
        self.unfinished -= usize::from(!was_over && c.is_over());
        if let Some(state) = c.new_state() {
            record_state(now, flow, c, state, &mut self.triggers);
        }
        wakes.set(flow, next);
        self.stop_on_failure(flow);
        if !self.followers.is_empty() {
            self.start_followers(now, flow, wakes);
        }
    }
}

/// Records the controller's new state, and fires the triggers on it.
#[inline]
fn record_state<C: CongestionControl>(
    now: Time,
    flow: usize,
    c: &mut Connection<C>,
    state: &'static str,
    triggers: &mut Triggers,
) {
    c.recorder.on_state(now, state);
    if !triggers.is_empty() {
        triggers.on_state(now, flow as u32, state);
    }
}

/// The seed of the `i`-th flow: neighbouring flows and seeds must draw different numbers
/// (SplitMix64's increment).
fn seed_of(run: &Simulation<'_>, i: usize) -> u64 {
    run.seed.wrapping_add((i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Opens the transport of the `i`-th flow, unless it is TCP.
fn transport(
    run: &Simulation<'_>,
    spec: &FlowSpec,
    i: usize,
) -> Result<Option<Box<dyn Transport>>, SimError> {
    let Some(transports) = run.transports.filter(|known| known.knows(&spec.cc)) else { return Ok(None) };
    let opening = Opening { flow: spec, mtu: run.scenario.mtu, seed: seed_of(run, i) };
    let opened = transports.open(&opening).map_err(|fault| fault.under(&format!("flow.{i}")))?;
    Ok(Some(opened))
}

/// The transports other than TCP, one entry for each controller.
fn transport_facts(run: &Simulation<'_>, specs: &[FlowSpec]) -> Vec<TransportFacts> {
    let mut all: Vec<TransportFacts> = Vec::new();
    let Some(transports) = run.transports else { return all };
    for spec in specs.iter().filter(|spec| transports.knows(&spec.cc)) {
        let facts = transports.facts(spec);
        if !all.contains(&facts) {
            all.push(facts);
        }
    }
    all
}

/// Creates the controller of the `i`-th flow, with its own seed derived from the run's.
fn controller(run: &Simulation<'_>, spec: &FlowSpec, i: usize) -> Result<AnyController, SimError> {
    let smss = run.scenario.smss();
    let config = Config {
        smss,
        initial_cwnd: u64::from(spec.initial_window) * u64::from(smss),
        seed: seed_of(run, i),
        paced: spec.paced,
        ..Config::default()
    };
    if let Some(network) = &spec.policy {
        return Ok(AnyController::Outside(Box::new(PolicyController::new(network.clone(), &config))));
    }
    let values: Vec<(String, String)> =
        spec.settings.iter().map(|(key, value)| (key.clone(), value.to_string())).collect();
    let pairs: Vec<(&str, &str)> = values.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    if let Some(source) = run.source_of(&spec.cc) {
        let created = source.create(i, &spec.cc, &config, &pairs);
        return created
            .map(AnyController::Outside)
            .map_err(|reason| SimError::Controller { flow: i, reason });
    }
    run.controllers.make(i, &spec.cc, &config, &pairs)
}
