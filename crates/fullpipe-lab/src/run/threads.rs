//! The threads of a run: the two ends, the emulator's between them, what steers, and the caller's own, which samples.

use super::Inside;
use super::sampling::Ends;
use crate::LabError;
use crate::capture::Tap;
use crate::emulator::{Access, Clock, Emulator, Known, Plan, Views};
use crate::flow::{Connection, Desk, Endpoint, Steering};
use crate::inspect::Inspect;
use crate::space::{Outbox, SERVER};
use crate::waits::Threads;
use fullpipe_experiment::recording::Recording;
use fullpipe_kernel::facts::SchedStatFile;
use fullpipe_path::BuildError;
use fullpipe_units::Time;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

/// Where the threads of a run meet.
struct Meeting {
    desk: Desk,
    /// Both ends are open, then the emulator and the clock start, then traffic: both ends and the caller pass it twice.
    ready: Barrier,
    /// The emulator's, once it has started; if it has not, there is nothing to do.
    clock: OnceLock<Clock>,
    /// The scheduler's accounts of the two ends.
    accounts: [OnceLock<SchedStatFile>; 2],
    stop: AtomicBool,
}

impl Meeting {
    fn new(connections: &[Connection]) -> Result<Self, LabError> {
        Ok(Meeting {
            desk: Desk::new(connections)?,
            ready: Barrier::new(3),
            clock: OnceLock::new(),
            accounts: Default::default(),
            stop: AtomicBool::new(false),
        })
    }
}

impl Inside<'_> {
    pub(super) fn run(mut self, outbox: &mut Outbox) -> Result<Recording, LabError> {
        let meeting = Meeting::new(&self.connections)?;
        let accesses = self.accesses()?;
        let views = Views::new(self.connections.len());
        let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let (ran, report) = thread::scope(|scope| {
            let (inside, meeting) = (&self, &meeting);
            let ends: Vec<_> =
                (0..=SERVER).map(|end| scope.spawn(move || inside.run_end(end, meeting))).collect();
            meeting.ready.wait();
            let emulator = self.emulate(accesses, &views);
            if let Ok(emulator) = &emulator {
                let _ = meeting.clock.set(emulator.clock);
            }
            meeting.ready.wait();
            let steering = Steering::new(&self.connections, self.inspect.as_deref().and_then(Inspect::steer));
            let steering = steering.zip(meeting.clock.get()).map(|(steering, clock)| {
                scope.spawn(move || steering.run(&meeting.desk, *clock, &meeting.stop))
            });
            let ran = emulator.and_then(|emulator| {
                let threads = Threads::watch([meeting.accounts[0].get(), meeting.accounts[1].get()]);
                let watched = Ends { handles: &ends, threads };
                let ran = self.sample(&emulator, &meeting.desk, &views, watched, outbox);
                // The path closes before the sockets do: their farewells are not part of the run.
                emulator.stop().map(|report| (ran, report))
            });
            meeting.stop.store(true, Ordering::Relaxed);
            if let Some(steering) = steering {
                steering.join().map_err(|_| LabError::Failed("what steers panicked".to_owned()))?;
            }
            for end in ends {
                end.join().map_err(|_| LabError::Failed("an end of the path panicked".to_owned()))??;
            }
            ran
        })?;
        for capture in std::mem::take(&mut self.captures).into_iter().flatten() {
            capture.finish()?;
        }
        Ok(self.record(ran, report, &meeting.desk, &views, started))
    }

    /// The access links of the flows that have one.
    fn accesses(&self) -> Result<Vec<Access>, LabError> {
        let of = |c: &Connection| {
            let spec = c.spec.access.clone()?;
            let wrong =
                |e: BuildError| LabError::Input(format!("flow {}: access.{}: {}", c.number, e.key, e.reason));
            let link = spec.build(self.scenario, &c.spec, c.number, self.seed).map_err(wrong);
            let label = c.spec.label.clone().unwrap_or_else(|| c.spec.cc.clone());
            Some(link.map(|link| Access { flow: c.number, way: c.spec.direction, label, spec, link }))
        };
        self.connections.iter().filter_map(of).collect()
    }

    /// Starts the path.
    fn emulate(&self, accesses: Vec<Access>, views: &Views) -> Result<Emulator, LabError> {
        let scenario = self.scenario;
        let [client, server] = [self.captures[0].as_ref(), self.captures[1].as_ref()];
        let plan = Plan {
            forward: &scenario.path.forward,
            reverse: &scenario.path.reverse,
            mtu: scenario.mtu,
            rate: scenario.highest_rate(),
            seed: self.seed,
            sample: Some(scenario.sample),
            known: Known {
                views: views.clone(),
                extra: self.connections.iter().map(|c| c.spec.extra_rtt).collect(),
                measured_from: Time::ZERO + scenario.warmup,
            },
            accesses,
            taps: [Tap::between(client, server), Tap::between(server, client)],
        };
        Emulator::start(self.topology.attach(None)?, plan)
    }

    /// What an end's thread does.
    fn run_end(&self, end: usize, meeting: &Meeting) -> Result<(), LabError> {
        if let Ok(own) = SchedStatFile::for_current_thread() {
            let _ = meeting.accounts[end].set(own);
        }
        let opened = self.open_end(end, &meeting.desk);
        meeting.ready.wait();
        meeting.ready.wait();
        match (opened, meeting.clock.get()) {
            (Ok(endpoint), Some(clock)) => endpoint.run(*clock, &meeting.stop),
            (Err(e), _) => Err(e),
            (Ok(_), None) => Ok(()),
        }
    }

    fn open_end(&self, end: usize, desk: &Desk) -> Result<Endpoint, LabError> {
        self.topology.ends[end]
            .enter()
            .map_err(|e| LabError::failed("cannot enter a network namespace", e))?;
        Endpoint::open(end, &self.connections, desk.clone(), self.outset, self.inspect.as_deref())
    }
}
