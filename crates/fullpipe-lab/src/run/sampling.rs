//! While a run is on: every connection is looked at again and again, and the links are changed when it is time.

use super::Inside;
use crate::emulator::{Clock, Emulator, Views};
use crate::flow::{Desk, Sampler};
use crate::inspect::ControllerState;
use crate::priority;
use crate::space::Outbox;
use crate::waits::{INTERVAL, Threads, WaitAudit};
use fullpipe_experiment::scenario::Triggers;
use fullpipe_units::{Span, Time};
use hdrhistogram::Histogram;
use std::thread;
use std::time::Duration;

/// How often the caller is told how far the run is.
const PROGRESS_INTERVAL: Span = Span::from_millis(100);

/// The threads of both ends as the sampling loop sees them.
pub(super) struct Ends<'a, 'scope, T> {
    pub(super) handles: &'a [thread::ScopedJoinHandle<'scope, T>],
    /// How long they wait for a processor, if the kernel tells.
    pub(super) threads: Option<Threads<'a>>,
}

/// What the sampling loop leaves.
pub(super) struct Ran {
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
        desk: &Desk,
        views: &Views,
        mut ends: Ends<'_, '_, T>,
        outbox: &mut Outbox,
    ) -> Ran {
        priority::endpoint();
        let clock = &emulator.clock;
        let mut sampling = Sampling::new(self, clock, desk, views);
        let end = sampling.end;
        let mut waits = ends.threads.is_some().then(WaitAudit::start);
        let (mut looked, mut told) = (Time::ZERO, Time::ZERO);
        loop {
            let wake = sampling.next_event();
            let now = clock.now();
            if wake > now {
                thread::sleep(Duration::from(wake.since(now)));
            }
            let now = clock.now();
            // The kernel does not announce states: a change comes up to one sampling interval after the state, and a
            // state shorter than the interval may be missed.
            for due in sampling.triggers.due(now) {
                emulator.change(due.direction, due.change);
            }
            let is_end = now >= end || ends.handles.iter().any(thread::ScopedJoinHandle::is_finished);
            let all_over = (is_end || sampling.is_due(now)) && sampling.sample(now);
            if (now.since(looked) >= INTERVAL || is_end || all_over)
                && let Some((threads, waits)) = ends.threads.as_mut().zip(waits.as_mut())
            {
                looked = now;
                threads.sample(waits);
            }
            if now.since(told) >= PROGRESS_INTERVAL {
                told = now;
                outbox.note(&now.as_nanos().to_ne_bytes());
            }
            if is_end || all_over {
                let Sampling { samplers, late, .. } = sampling;
                return Ran { samplers, end: now.min(end), late, waits };
            }
        }
    }

    /// Fills in what the controllers of watched sockets believe at this moment.
    fn inspect(&self, states: &mut [Option<ControllerState>]) {
        if let Some(inspect) = &self.inspect {
            // Without an answer the kernel's own facts are what there is; a socket that could not be watched
            // has been told of when it was made.
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
    desk: &'a Desk,
    views: &'a Views,
    samplers: Vec<Sampler>,
    /// What the controllers of watched sockets believe, until a sample takes it.
    states: Vec<Option<ControllerState>>,
    triggers: Triggers,
    /// When the next sample is due.
    next: Time,
    /// How late samples were, in nanoseconds.
    late: Histogram<u64>,
    warmup: Time,
    /// Whether the measured time has begun.
    warm: bool,
    end: Time,
    /// As in the simulator a run ends early only where every flow has a size that can be delivered.
    sized: bool,
}

impl<'a> Sampling<'a> {
    fn new(inside: &'a Inside<'a>, clock: &'a Clock, desk: &'a Desk, views: &'a Views) -> Self {
        let scenario = inside.scenario;
        let samplers: Vec<Sampler> = inside.connections.iter().cloned().map(Sampler::new).collect();
        Sampling {
            inside,
            clock,
            desk,
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

    /// When there is something to do.
    fn next_event(&self) -> Time {
        let warmup = if self.warm { Time::NEVER } else { self.warmup };
        self.next.min(self.end).min(self.triggers.next()).min(warmup)
    }

    /// Whether a sample is due, or the one with which the measured time begins.
    fn is_due(&self, now: Time) -> bool {
        now >= self.next.min(self.end) || (!self.warm && now >= self.warmup)
    }

    /// Takes a sample of every connection; whether all of them are over, and the run with them.
    fn sample(&mut self, now: Time) -> bool {
        self.late.saturating_record(now.since(self.next.min(self.end)).as_nanos());
        let warms_up = !self.warm && now >= self.warmup;
        let mut all_over = self.sized;
        self.inside.inspect(&mut self.states);
        for (number, sampler) in self.samplers.iter_mut().enumerate() {
            let (state, over) = sampler.sample(self.clock, self.desk, self.views, self.states[number].take());
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
