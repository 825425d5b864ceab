//! The state of a run and its event loop.

use super::Simulation;
use super::flows::Flows;
use super::one_way::OneWay;
use super::wakes::Wakes;
use crate::error::SimError;
use fullpipe_cc::{Span, Time};
use fullpipe_experiment::scenario::{Direction, Fault, FlowSpec, Scenario};
use fullpipe_units::Rate;
use std::ops::ControlFlow;

/// Most rows that all flows together record: with more, the sampling interval becomes a multiple of
/// the scenario's.
const MAX_ROWS: u64 = 1 << 17;
/// Events between two checks of the budget and two reports of progress, unless controllers come from
/// a source: those can take any time and can fail.
const REPORT_INTERVAL: u64 = 1 << 14;
/// Most events of any run: minutes of processor time.
const MAX_EVENTS: u64 = 1 << 33;
/// Most events of a run over a path without a rate, where nothing else bounds their number: a
/// minute of processor time.
const MAX_EVENTS_WITHOUT_RATE: u64 = 1 << 28;

/// The state of a run.
pub(super) struct World {
    pub scenario: Box<Scenario>,
    /// The label of each flow: the rest of its specification is not needed after the start.
    pub labels: Vec<String>,
    pub seed: u64,
    pub forward: OneWay,
    pub reverse: OneWay,
    pub flows: Flows,
    pub wakes: Wakes,
    sampling: Span,
    pub next_sample: Time,
    pub warmup: Time,
    pub end: Time,
    pub events: u64,
    /// Windows that the windowed engine has processed.
    pub windows: u64,
    pub max_events: u64,
    report_at: u64,
    report_interval: u64,
}

impl World {
    pub fn new(run: &Simulation<'_>) -> Result<Self, SimError> {
        let scenario = run.scenario;
        let specs = scenario.connections();
        check_takes_time(scenario, &specs)?;
        let end = Time::ZERO + scenario.duration;
        let flows = specs.len() as u64;
        let wanted = scenario.duration.as_nanos() / scenario.sample.as_nanos().max(1);
        let stride = if flows > 1 { (wanted * flows).div_ceil(MAX_ROWS).max(1) } else { 1 };
        let sampling = scenario.sample * stride;
        let mut connections = Flows::new(run, &specs, end, sampling)?;
        if let Some(first) = connections.connections.first_mut() {
            first.receiver.replay(run.receiver_behaviour);
        }
        let forward = OneWay::new(scenario, Direction::Forward, run.seed)?;
        let reverse = OneWay::new(scenario, Direction::Reverse, run.seed)?;
        let mut wakes = Wakes::new(connections.connections.len());
        for (i, c) in connections.connections.iter().enumerate() {
            wakes.set(i, c.wake());
        }
        let max_events = run.max_events.unwrap_or_else(|| budget(scenario, flows));
        let is_sourced = specs.iter().any(|spec| run.source_of(&spec.cc).is_some());
        let report_interval = if is_sourced { 1 } else { REPORT_INTERVAL };
        // Not by `collect`, which would keep the memory of the specifications.
        let mut labels = Vec::with_capacity(specs.len());
        labels.extend(specs.into_iter().map(|spec| spec.label.unwrap_or(spec.cc)));
        Ok(World {
            scenario: Box::new(scenario.clone()),
            seed: run.seed,
            forward,
            reverse,
            wakes,
            sampling,
            next_sample: Time::ZERO + sampling,
            warmup: if scenario.warmup.is_zero() { Time::NEVER } else { Time::ZERO + scenario.warmup },
            end,
            events: 0,
            windows: 0,
            max_events,
            report_at: report_interval.min(max_events),
            report_interval,
            flows: connections,
            labels,
        })
    }

    /// The name of each flow's controller.
    pub fn controllers(&self) -> impl Iterator<Item = &str> {
        self.scenario.flows.iter().flat_map(|flow| std::iter::repeat_n(&*flow.cc, flow.count as usize))
    }

    /// Time of the next event.
    #[inline]
    pub fn next(&mut self) -> Time {
        let path = self.forward.path.next().min(self.reverse.path.next());
        let clock = self.next_sample.min(self.warmup).min(self.flows.triggers.next());
        path.min(self.wakes.first()).min(clock)
    }

    /// Runs until the end of the scenario or of its last flow.
    pub fn run(&mut self, progress: &mut dyn FnMut(Time) -> ControlFlow<()>) -> Result<(), SimError> {
        self.advance(Time::NEVER, progress).map(drop)
    }

    /// Processes all events up to and including `to`, as [`run`](Self::run) does. Returns whether
    /// the run continues.
    pub fn advance(
        &mut self,
        to: Time,
        progress: &mut dyn FnMut(Time) -> ControlFlow<()>,
    ) -> Result<bool, SimError> {
        loop {
            let now = self.next();
            if now > self.end {
                return Ok(false);
            }
            if now > to {
                return Ok(true);
            }
            self.events += 1;
            self.report_if_due(now, progress)?;
            self.step(now);
            if self.flows.unfinished == 0 {
                if let Some((flow, reason)) = self.flows.failure.take() {
                    let cc = self.controllers().nth(flow).unwrap_or_default().to_owned();
                    return Err(SimError::Transport { flow, cc, at: now.since(Time::ZERO), reason });
                }
                self.end = now;
                self.sample(now);
                return Ok(false);
            }
        }
    }

    /// Checks the budget of events and reports progress, now and then.
    #[inline]
    pub fn report_if_due(
        &mut self,
        now: Time,
        progress: &mut dyn FnMut(Time) -> ControlFlow<()>,
    ) -> Result<(), SimError> {
        if self.events >= self.report_at {
            self.report(now, progress)?;
            self.report_at = (self.events + self.report_interval).min(self.max_events);
        }
        Ok(())
    }

    #[cold]
    fn report(&self, now: Time, progress: &mut dyn FnMut(Time) -> ControlFlow<()>) -> Result<(), SimError> {
        let at = now.since(Time::ZERO);
        if self.events >= self.max_events {
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

    /// Processes all events at `now`.
    pub fn step(&mut self, now: Time) {
        let Self { forward, reverse, flows, wakes, events, .. } = self;
        // Packets sent in response to a delivery leave in the other direction, never in the one that is
        // being advanced.
        *events += flows.advance(now, forward, &mut reverse.path, wakes);
        *events += flows.advance(now, reverse, &mut forward.path, wakes);
        while wakes.first() <= now {
            *events += 1;
            let flow = wakes.first_flow();
            flows.wake(now, flow, &mut forward.path, &mut reverse.path, wakes);
        }
        if now >= self.next_sample.min(self.warmup).min(self.flows.triggers.next()) {
            self.on_clock(now);
        }
    }

    #[cold]
    pub fn on_clock(&mut self, now: Time) {
        if self.flows.triggers.next() <= now {
            for due in self.flows.triggers.due(now) {
                let way = match due.direction {
                    Direction::Forward => &mut self.forward,
                    Direction::Reverse => &mut self.reverse,
                };
                way.apply(now, &due.change);
                if let Some(app) = due.app {
                    self.flows.connections[due.flow].change_app(now, app);
                    self.wakes.set(due.flow, now);
                }
            }
        }
        if self.warmup <= now {
            self.warmup = Time::NEVER;
            for c in &mut self.flows.connections {
                let (telemetry, arrived) = (c.telemetry(), c.arrived());
                c.recorder.warmed_up(now, &telemetry, arrived);
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
                let (telemetry, arrived) = (c.telemetry(), c.arrived());
                c.recorder.sample(now, &telemetry, arrived);
            }
            if let Some(access) = &mut c.access {
                access.sample(now);
            }
        }
        self.forward.sample(now);
        self.reverse.sample(now);
    }
}

/// Refuses a path without rate and delay, on which a flow would send forever before any time
/// passes.
fn check_takes_time(scenario: &Scenario, flows: &[FlowSpec]) -> Result<(), SimError> {
    let both = [Direction::Forward, Direction::Reverse];
    let delayed = |direction| scenario.path.links(direction).iter().any(|link| !link.delay.is_zero());
    if both.into_iter().any(|d| delayed(d) || scenario.highest_rate_in(d).is_some())
        || flows.iter().all(|flow| !flow.extra_rtt.is_zero() || flow.access.is_some())
    {
        return Ok(());
    }
    Err(SimError::Scenario(Fault {
        key: "path".to_owned(),
        reason: "it has neither a rate nor a delay, so a flow would send forever at one instant".to_owned(),
        help: Some("give a link a `rate` or a `delay`".to_owned()),
    }))
}

/// Number of events that the path's rates can account for, with a wide margin. A run that exceeds
/// it is on a path that carries more packets than can be simulated.
fn budget(scenario: &Scenario, flows: u64) -> u64 {
    const SMALLEST_PACKET: u64 = 40;
    const EVENTS_PER_PACKET: u64 = 8;
    let carried = |direction| {
        let rate = scenario.highest_rate_in(direction).unwrap_or(Rate::MAX);
        rate.bytes_in(scenario.duration) / SMALLEST_PACKET
    };
    let both = [Direction::Forward, Direction::Reverse];
    let packets = carried(Direction::Forward).saturating_add(carried(Direction::Reverse));
    let clock = scenario.duration.as_nanos() / scenario.sample.as_nanos().max(1);
    let timers = flows.saturating_mul(scenario.duration.as_nanos() / 1_000_000 + 1000);
    packets
        .saturating_mul(EVENTS_PER_PACKET)
        .saturating_add(clock)
        .saturating_add(timers)
        .saturating_add(1 << 20)
        .min(if both.into_iter().any(|d| scenario.highest_rate_in(d).is_some()) {
            MAX_EVENTS
        } else {
            MAX_EVENTS_WITHOUT_RATE
        })
}
