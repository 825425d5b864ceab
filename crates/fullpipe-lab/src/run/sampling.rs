//! The sampling loop of a run: samples every connection, and changes links when triggers fire.

use super::Inside;
use crate::emulator::{Clock, Emulator, Views};
use crate::flow::{Registry, Sampler};
use crate::inspect::ControllerState;
use crate::priority;
use crate::space::Outbox;
use crate::waits::{INTERVAL, Threads, WaitAudit};
use fullpipe_experiment::scenario::Triggers;
use fullpipe_units::{Span, Time};
use hdrhistogram::Histogram;
use std::thread;
use std::time::Duration;

/// How often progress is reported to the caller.
const PROGRESS_INTERVAL: Span = Span::from_millis(100);

/// The threads of both ends as the sampling loop sees them.
pub(super) struct Ends<'a, 'scope, T> {
    pub(super) handles: &'a [thread::ScopedJoinHandle<'scope, T>],
    /// How long they wait for a processor, if the kernel reports it.
    pub(super) threads: Option<Threads<'a>>,
}

/// The results of the sampling loop.
pub(super) struct SampledRun {
    pub(super) samplers: Vec<Sampler>,
    pub(super) end: Time,
    pub(super) late: Histogram<u64>,
    pub(super) waits: Option<WaitAudit>,
}

impl Inside<'_> {
    /// Samples all connections until the run is over.
    pub(super) fn sample<T>(
        &self,
        emulator: &Emulator,
        registry: &Registry,
        views: &Views,
        mut ends: Ends<'_, '_, T>,
        outbox: &mut Outbox,
    ) -> SampledRun {
        priority::endpoint();
        let clock = &emulator.clock;
        let mut sampling = Sampling::new(self, clock, registry, views);
        let end = sampling.end;
        let mut waits = ends.threads.is_some().then(WaitAudit::start);
        let (mut waits_sampled, mut reported) = (Time::ZERO, Time::ZERO);
        loop {
            let wake = sampling.next_event();
            let now = clock.now();
            if wake > now {
                thread::sleep(Duration::from(wake.since(now)));
            }
            let now = clock.now();
            // The kernel does not notify of state changes: one is detected up to a sampling interval late,
            // and a state shorter than the interval may be missed.
            for due in sampling.triggers.due(now) {
                emulator.change(due.direction, due.change);
            }
            let is_end = now >= end || ends.handles.iter().any(thread::ScopedJoinHandle::is_finished);
            let all_over = (is_end || sampling.is_due(now)) && sampling.sample(now);
            if (now.since(waits_sampled) >= INTERVAL || is_end || all_over)
                && let Some((threads, waits)) = ends.threads.as_mut().zip(waits.as_mut())
            {
                waits_sampled = now;
                threads.sample(waits);
            }
            if now.since(reported) >= PROGRESS_INTERVAL {
                reported = now;
                outbox.note(&now.as_nanos().to_ne_bytes());
            }
            if is_end || all_over {
                let Sampling { samplers, late, .. } = sampling;
                return SampledRun { samplers, end: now.min(end), late, waits };
            }
        }
    }

    /// Reads the current state of the controllers of watched sockets.
    fn inspect(&self, states: &mut [Option<ControllerState>]) {
        if let Some(inspect) = &self.inspect {
            // On an error the kernel's own information remains; a socket that cannot be watched was reported
            // when it was created.
            let _ = inspect.sample(&mut |number, controller_state| {
                if let Some(place) = states.get_mut(number) {
                    *place = Some(controller_state);
                }
            });
        }
    }
}

/// All connections as they are sampled.
struct Sampling<'a> {
    inside: &'a Inside<'a>,
    clock: &'a Clock,
    registry: &'a Registry,
    views: &'a Views,
    samplers: Vec<Sampler>,
    /// State of the controllers of watched sockets, until the next sample uses it.
    states: Vec<Option<ControllerState>>,
    triggers: Triggers,
    /// When the next sample is due.
    next: Time,
    /// Lateness of samples, in nanoseconds.
    late: Histogram<u64>,
    warmup: Time,
    /// Whether the measured time has begun.
    warm: bool,
    end: Time,
    /// Whether every flow has a size: only then, as in the simulator, can the run end early.
    sized: bool,
}

impl<'a> Sampling<'a> {
    fn new(inside: &'a Inside<'a>, clock: &'a Clock, registry: &'a Registry, views: &'a Views) -> Self {
        let scenario = inside.scenario;
        let samplers: Vec<Sampler> = inside.connections.iter().cloned().map(Sampler::new).collect();
        Sampling {
            inside,
            clock,
            registry,
            views,
            states: vec![None; samplers.len()],
            samplers,
            triggers: Triggers::new(&scenario.triggers),
            next: Time::ZERO + scenario.sample,
            late: Histogram::new_with_max(100_000_000_000, 2).unwrap_or_else(|_| unreachable!()),
            warmup: Time::ZERO + scenario.warmup,
            warm: scenario.warmup.is_zero(),
            end: Time::ZERO + scenario.duration,
            sized: scenario.flows.iter().all(|flow| flow.size.is_some()),
        }
    }

    /// Time of the next event.
    fn next_event(&self) -> Time {
        let warmup = if self.warm { Time::NEVER } else { self.warmup };
        self.next.min(self.end).min(self.triggers.next()).min(warmup)
    }

    /// Whether a sample is due, or the one with which the measured time begins.
    fn is_due(&self, now: Time) -> bool {
        now >= self.next.min(self.end) || (!self.warm && now >= self.warmup)
    }

    /// Samples every connection; returns whether all of them, and so the run, are over.
    fn sample(&mut self, now: Time) -> bool {
        self.late.saturating_record(now.since(self.next.min(self.end)).as_nanos());
        let warms_up = !self.warm && now >= self.warmup;
        let mut all_over = self.sized;
        self.inside.inspect(&mut self.states);
        for (number, sampler) in self.samplers.iter_mut().enumerate() {
            let (state, over) =
                sampler.sample(self.clock, self.registry, self.views, self.states[number].take());
            all_over &= over;
            if let Some(state) = state {
                self.triggers.on_state(self.clock.now(), number as u32, &state);
            }
            if warms_up {
                sampler.warmed_up();
            }
        }
        self.warm |= warms_up;
        while self.next <= now {
            self.next += self.inside.scenario.sample;
        }
        all_over
    }
}
