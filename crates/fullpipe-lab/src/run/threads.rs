//! The threads of a run: the two ends, the emulator between them, steering, and the calling thread,
//! which samples.

use super::Inside;
use super::sampling::Ends;
use crate::LabError;
use crate::capture::Tap;
use crate::emulator::{Access, Clock, Emulator, KnownFlows, Plan, Views};
use crate::flow::{Connection, Endpoint, Registry, Steering};
use crate::inspect::Inspect;
use crate::space::{Outbox, SERVER};
use crate::waits::Threads;
use fullpipe_experiment::recording::Recording;
use fullpipe_kernel::facts::SchedStatFile;
use fullpipe_path::BuildError;
use fullpipe_units::Time;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

/// State that the threads of a run share.
struct Shared {
    registry: Registry,
    /// Both ends and the caller pass it twice: when both ends are open, before the emulator and the
    /// clock start, and afterwards, before traffic starts.
    ready: Barrier,
    /// The emulator's clock, once it has started.
    clock: OnceLock<Clock>,
    /// The scheduler statistics of the two ends.
    accounts: [OnceLock<SchedStatFile>; 2],
    stop: AtomicBool,
}

impl Shared {
    fn new(connections: &[Connection]) -> Result<Self, LabError> {
        Ok(Shared {
            registry: Registry::new(connections)?,
            ready: Barrier::new(3),
            clock: OnceLock::new(),
            accounts: Default::default(),
            stop: AtomicBool::new(false),
        })
    }
}

fn no_thread(e: std::io::Error) -> LabError {
    LabError::failed("cannot start a thread", e)
}

impl Inside<'_> {
    pub(super) fn run(mut self, outbox: &mut Outbox) -> Result<Recording, LabError> {
        let shared = Shared::new(&self.connections)?;
        let accesses = self.accesses()?;
        let views = Views::new(self.connections.len());
        let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let (ran, report) = thread::scope(|scope| {
            let (inside, shared) = (&self, &shared);
            let (mut ends, mut gates) = (Vec::new(), Vec::new());
            for end in 0..=SERVER {
                // An end without the other would wait for it for ever.
                let (gate, opened) = channel();
                let run = move || opened.recv().map_or(Ok(()), |()| inside.run_end(end, shared));
                ends.push(thread::Builder::new().spawn_scoped(scope, run).map_err(no_thread)?);
                gates.push(gate);
            }
            for gate in gates {
                // An end that has panicked is noticed below.
                let _ = gate.send(());
            }
            shared.ready.wait();
            let emulator = self.emulate(accesses, &views);
            if let Ok(emulator) = &emulator {
                let _ = shared.clock.set(emulator.clock);
            }
            shared.ready.wait();
            let steering = Steering::new(&self.connections, self.inspect.as_deref().and_then(Inspect::steer));
            let steering = steering.zip(shared.clock.get()).map(|(steering, clock)| {
                let run = move || steering.run(&shared.registry, *clock, &shared.stop);
                thread::Builder::new().spawn_scoped(scope, run).map_err(no_thread)
            });
            let (steering, missing) = match steering.transpose() {
                Ok(steering) => (steering, None),
                Err(e) => (None, Some(e)),
            };
            let ran = emulator.and_then(|emulator| {
                if let Some(e) = missing {
                    return emulator.stop().and(Err(e));
                }
                let threads = Threads::watch([shared.accounts[0].get(), shared.accounts[1].get()]);
                let watched = Ends { handles: &ends, threads };
                let ran = self.sample(&emulator, &shared.registry, &views, watched, outbox);
                // The path closes before the sockets: their FINs are not part of the run.
                emulator.stop().map(|report| (ran, report))
            });
            shared.stop.store(true, Ordering::Relaxed);
            if let Some(steering) = steering {
                steering.join().map_err(|_| LabError::Failed("the steering thread panicked".to_owned()))?;
            }
            for end in ends {
                end.join().map_err(|_| LabError::Failed("an end of the path panicked".to_owned()))??;
            }
            ran
        })?;
        for capture in std::mem::take(&mut self.captures).into_iter().flatten() {
            capture.finish()?;
        }
        Ok(self.record(ran, report, &shared.registry, &views, started))
    }

    /// The access links of the flows that have one.
    fn accesses(&self) -> Result<Vec<Access>, LabError> {
        let access = |c: &Connection| {
            let spec = c.spec.access.clone()?;
            let wrong =
                |e: BuildError| LabError::Input(format!("flow {}: access.{}: {}", c.number, e.key, e.reason));
            let link = spec.build(self.scenario, &c.spec, c.number, self.seed).map_err(wrong);
            let label = c.spec.label.clone().unwrap_or_else(|| c.spec.cc.clone());
            Some(link.map(|link| Access { flow: c.number, way: c.spec.direction, label, spec, link }))
        };
        self.connections.iter().filter_map(access).collect()
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
            known: KnownFlows {
                views: views.clone(),
                extra: self.connections.iter().map(|c| c.spec.extra_rtt).collect(),
                measured_from: Time::ZERO + scenario.warmup,
            },
            accesses,
            taps: [Tap::between(client, server), Tap::between(server, client)],
        };
        Emulator::start(self.topology.attach(None)?, plan)
    }

    /// Runs an end on its thread.
    fn run_end(&self, end: usize, shared: &Shared) -> Result<(), LabError> {
        if let Ok(own) = SchedStatFile::for_current_thread() {
            let _ = shared.accounts[end].set(own);
        }
        let opened = self.open_end(end, &shared.registry);
        shared.ready.wait();
        shared.ready.wait();
        match (opened, shared.clock.get()) {
            (Ok(endpoint), Some(clock)) => endpoint.run(*clock, &shared.stop),
            (Err(e), _) => Err(e),
            (Ok(_), None) => Ok(()),
        }
    }

    fn open_end(&self, end: usize, registry: &Registry) -> Result<Endpoint, LabError> {
        self.topology.ends[end]
            .enter()
            .map_err(|e| LabError::failed("cannot enter a network namespace", e))?;
        Endpoint::open(end, &self.connections, registry.clone(), self.start_options, self.inspect.as_deref())
    }
}
