//! A scenario on kernel TCP: from its flows and links to a recording.

use crate::LabError;
use crate::capture::{Capture, Tap};
use crate::emulator::{Access, Clock, Emulator, EmulatorReport, Known, Plan, Views};
use crate::flow::{Connection, Desk, Endpoint, FlowReport, Outset, Sampler, Steering};
use crate::health::{self, KEEPS_UP_BELOW, Verdict};
use crate::inspect::{Belief, Inspect, Steer};
use crate::kernel;
use crate::priority;
use crate::reenter::Job;
use crate::space::{Enclosure, Message, Outbox, SERVER, Topology, Use};
use crate::waits::{INTERVAL, Threads, WaitAudit};
use fullpipe_experiment::recording::{Histogram as Times, Provenance, Recording, Source, Summary};
use fullpipe_experiment::scenario::{App, Direction, Fault, Scenario, Triggers};
use fullpipe_kernel::facts::SchedulerAccount;
use fullpipe_path::BuildError;
use fullpipe_units::{Rate, Span, Time};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How a run differs from what the scenario says.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Use IPv6. Its header is 20 bytes longer, which the payload pays.
    pub ipv6: bool,
    /// Where to write captures: `PREFIX-client.pcap`, `PREFIX-server.pcap`.
    pub pcap: Option<PathBuf>,
    /// How to see what those controllers believe that the kernel tells nothing of.
    pub inspect: Option<Arc<dyn Inspect>>,
}

/// Most connections of one run: two sockets and a port each.
const MOST_CONNECTIONS: usize = 2000;

/// Longest question of a request and response: it must fit in a socket that is still small.
const MOST_REQUEST: u64 = 64 << 10;

/// Runs `scenario` on the running kernel's TCP, in real time, with all that is random on the path drawn
/// from `seed`. Tells `progress` about every 100 ms how far it is; [`ControlFlow::Break`] ends the run. The scenario's
/// checks are for the caller to judge ([`Scenario::judge`]).
///
/// Nothing of it is left when this returns, or when the calling process dies.
///
/// # Errors
/// [`LabError::Impossible`] when the machine lacks something, [`LabError::Input`] for a scenario that
/// kernel TCP cannot run, [`LabError::Stopped`] after a break.
pub fn run(
    scenario: &Scenario,
    seed: u64,
    progress: &mut dyn FnMut(Time) -> ControlFlow<()>,
) -> Result<Recording, LabError> {
    run_with(scenario, seed, &Options::default(), progress)
}

/// [`run`] with options.
///
/// # Errors
/// As there.
pub fn run_with(
    scenario: &Scenario,
    seed: u64,
    options: &Options,
    progress: &mut dyn FnMut(Time) -> ControlFlow<()>,
) -> Result<Recording, LabError> {
    for flow in &scenario.flows {
        // What is missing is told where the flow is made.
        let _ = kernel::offers(&flow.cc);
    }
    let job = Job::Run(RunJob {
        scenario: scenario.clone(),
        seed,
        ipv6: options.ipv6,
        pcap: options.pcap.clone(),
        inspects: options.inspect.is_some(),
        steered: options.inspect.as_deref().and_then(|inspect| inspect.steer()).map(Steer::controller),
    });
    let job = serde_json::to_vec(&job).map_err(|e| LabError::failed("cannot write the job", e))?;
    let lent = options.inspect.as_ref().map_or(Ok(Vec::new()), |inspect| inspect.descriptors());
    let lent = lent.map_err(|e| LabError::failed("cannot look at what controllers believe", e))?;
    let mut enclosure = Enclosure::start(&job, &lent)?;
    drop(lent);
    loop {
        match enclosure.next()? {
            Message::Note(at) => {
                let at = at.first_chunk::<8>().map_or(0, |b| u64::from_ne_bytes(*b));
                if progress(Time::from_nanos(at)).is_break() {
                    return Err(LabError::Stopped);
                }
            }
            Message::Done(outcome) => {
                return serde_json::from_slice(&outcome?)
                    .map_err(|e| LabError::failed("cannot read the recording", e));
            }
        }
    }
}

/// A run as its process is told of it.
#[derive(Serialize, Deserialize)]
pub(crate) struct RunJob {
    scenario: Scenario,
    seed: u64,
    ipv6: bool,
    pcap: Option<PathBuf>,
    /// Whether there is a way to see what controllers believe.
    pub(crate) inspects: bool,
    /// The kernel's name of the controller that obeys trained ones, if there is a way to steer.
    steered: Option<String>,
}

/// Does the run; gives the recording as JSON.
pub(crate) fn inside(
    job: &RunJob,
    inspect: Option<Arc<dyn Inspect>>,
    outbox: &mut Outbox,
) -> Result<Vec<u8>, LabError> {
    let recording = Inside::prepare(job, inspect)?.run(outbox)?;
    serde_json::to_vec(&recording).map_err(|e| LabError::failed("cannot write the recording", e))
}

/// A run inside its own namespaces.
struct Inside<'a> {
    scenario: &'a Scenario,
    seed: u64,
    topology: Topology,
    connections: Vec<Connection>,
    outset: Outset,
    inspect: Option<Arc<dyn Inspect>>,
    captures: [Option<Capture>; 2],
    notes: Vec<String>,
}

/// The threads of both ends as the sampling loop sees them.
struct Ends<'a, 'scope, T> {
    handles: &'a [thread::ScopedJoinHandle<'scope, T>],
    /// How long they wait for a processor, if the kernel tells.
    threads: Option<Threads<'a>>,
}

/// What the sampling loop leaves.
struct Ran {
    samplers: Vec<Sampler>,
    end: Time,
    sampling_late: Histogram<u64>,
    waits: Option<WaitAudit>,
}

impl<'a> Inside<'a> {
    fn prepare(job: &'a RunJob, inspect: Option<Arc<dyn Inspect>>) -> Result<Self, LabError> {
        let scenario = &job.scenario;
        let mut topology = Topology::build(scenario.mtu, Use::Scenario)?;
        if job.ipv6 && !topology.ipv6 {
            return Err(LabError::Impossible(format!(
                "no IPv6: the kernel was started without it, or the MTU of {} is below 1280",
                scenario.mtu
            )));
        }
        let specs = scenario.connections();
        if specs.len() > MOST_CONNECTIONS {
            return Err(LabError::Input(format!(
                "{} flows: the lab runs at most {MOST_CONNECTIONS} at a time",
                specs.len()
            )));
        }
        raise_open_files();
        let mut notes = Vec::new();
        let mut routes: Vec<(Direction, u32, bool)> = Vec::new();
        let mut connections = Vec::with_capacity(specs.len());
        for (number, spec) in specs.into_iter().enumerate() {
            if let App::RequestResponse { request, .. } = spec.app
                && request.0 > MOST_REQUEST
            {
                return Err(LabError::Input(format!(
                    "flow {number}: a request of {request} bytes; the lab's are at most {MOST_REQUEST}"
                )));
            }
            if !spec.settings.is_empty() {
                notes.push(format!("the settings of {} do not apply: the kernel's has none", spec.cc));
            }
            if let Some(Fault { key, reason, .. }) = spec.only_simulated() {
                return Err(LabError::Input(format!(
                    "flow {number}: `{key}`: {reason}; the simulator can be asked"
                )));
            }
            if let Some(name) = kernel::controller(&spec.cc).filter(|name| *name != spec.cc) {
                notes.push(format!("{} is {name} here", spec.cc));
            }
            let steered = spec.policy.as_ref().and(job.steered.as_ref());
            if spec.policy.is_some() && steered.is_none() {
                return Err(LabError::Impossible(format!(
                    "{}: nothing here can set the windows of a trained controller; as root, a fullpipe with the feature `ebpf` can",
                    spec.cc
                )));
            }
            let route = (spec.direction, spec.initial_window, spec.ecn);
            let known = routes.iter().position(|r| *r == route);
            let address_number = known.unwrap_or(routes.len());
            let connection = Connection {
                number,
                spec,
                steered: steered.cloned(),
                address_number,
                receive_buffer: None,
                send_buffer: None,
            };
            if known.is_none() {
                routes.push(route);
                topology.set_route(connection.sending_end(), address_number, route.1, route.2)?;
            }
            connections.push(connection);
        }
        notes.sort();
        notes.dedup();
        topology.bound_buffers(&mut connections)?;
        topology.never_defer(&connections)?;
        notes.extend(topology.refused.drain(..).map(|r| format!("setting refused: {r}")));
        let capture = |end: &str| {
            let named = |prefix: &PathBuf| crate::capture::named(prefix, end);
            job.pcap.as_ref().map(|p| Capture::create(&named(p))).transpose()
        };
        let captures = [capture("client")?, capture("server")?];
        let outset = Outset { ipv6: job.ipv6, unsent: unsent(scenario) };
        Ok(Inside { scenario, seed: job.seed, topology, connections, outset, inspect, captures, notes })
    }

    fn run(mut self, outbox: &mut Outbox) -> Result<Recording, LabError> {
        let scenario = self.scenario;
        let count = self.connections.len();
        let desk = Desk::new(&self.connections)?;
        let accesses = self.accesses()?;
        let known = Known {
            views: Views::new(count),
            extra: self.connections.iter().map(|c| c.spec.extra_rtt).collect(),
            measured_from: Time::ZERO + scenario.warmup,
        };
        let views = known.views.clone();
        let stop = AtomicBool::new(false);
        let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let ready = std::sync::Barrier::new(3);
        let shared_clock: std::sync::OnceLock<Clock> = std::sync::OnceLock::new();
        let accounts: [std::sync::OnceLock<SchedulerAccount>; 2] = Default::default();
        let (ran, report) = thread::scope(|scope| {
            let ends: Vec<_> = (0..=SERVER)
                .map(|end| {
                    let (topology, connections, desk) = (&self.topology, &self.connections, desk.clone());
                    let (outset, ready, stop, shared_clock) = (self.outset, &ready, &stop, &shared_clock);
                    let (inspect, account) = (self.inspect.as_deref(), &accounts[end]);
                    scope.spawn(move || {
                        if let Ok(own) = SchedulerAccount::of_this_thread() {
                            let _ = account.set(own);
                        }
                        let opened = topology.ends[end]
                            .enter()
                            .map_err(|e| LabError::failed("cannot enter a network namespace", e))
                            .and_then(|()| Endpoint::open(end, connections, desk, outset, inspect));
                        // Both ends are open, then the emulator and the clock start, then traffic.
                        ready.wait();
                        ready.wait();
                        match (opened, shared_clock.get()) {
                            (Ok(endpoint), Some(clock)) => endpoint.run(*clock, stop),
                            (Err(e), _) => Err(e),
                            (Ok(_), None) => Ok(()),
                        }
                    })
                })
                .collect();
            ready.wait();
            let [client, server] = [self.captures[0].as_ref(), self.captures[1].as_ref()];
            let plan = Plan {
                forward: &scenario.path.forward,
                reverse: &scenario.path.reverse,
                mtu: scenario.mtu,
                rate: scenario.highest_rate(),
                seed: self.seed,
                sample: Some(scenario.sample),
                known,
                accesses,
                taps: [Tap::between(client, server), Tap::between(server, client)],
            };
            let emulator = self.topology.attach(None).and_then(|between| Emulator::start(between, plan));
            if let Ok(emulator) = &emulator {
                let _ = shared_clock.set(emulator.clock);
            }
            ready.wait();
            let steering = Steering::of(&self.connections, self.inspect.as_deref().and_then(Inspect::steer));
            let steering = steering.zip(shared_clock.get()).map(|(steering, clock)| {
                let (desk, clock, stop) = (desk.clone(), *clock, &stop);
                scope.spawn(move || steering.run(&desk, clock, stop))
            });
            let ran = emulator.and_then(|emulator| {
                let threads = Threads::watch([accounts[0].get(), accounts[1].get()]);
                let watched = Ends { handles: &ends, threads };
                let ran = self.sample(&emulator.clock, &desk, &views, &emulator, watched, outbox);
                // The path closes before the sockets do: their farewells are not part of the run.
                emulator.stop().map(|report| (ran, report))
            });
            stop.store(true, Ordering::Relaxed);
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
        Ok(self.record(ran, report, &desk, &views, started))
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

    /// Samples all connections until the run is over.
    fn sample<T>(
        &self,
        clock: &Clock,
        desk: &Desk,
        views: &Views,
        emulator: &Emulator,
        mut ends: Ends<'_, '_, T>,
        outbox: &mut Outbox,
    ) -> Ran {
        let scenario = self.scenario;
        priority::endpoint();
        let end = Time::ZERO + scenario.duration;
        let warmup = Time::ZERO + scenario.warmup;
        let mut warm = scenario.warmup.is_zero();
        let mut triggers = Triggers::new(&scenario.triggers);
        let mut samplers: Vec<Sampler> = self.connections.iter().cloned().map(Sampler::new).collect();
        let mut late = Histogram::new_with_max(100_000_000_000, 2).unwrap_or_else(|_| unreachable!());
        let mut next = Time::ZERO + scenario.sample;
        let mut told = Time::ZERO;
        let mut waits = ends.threads.is_some().then(WaitAudit::start);
        let mut looked = Time::ZERO;
        let mut beliefs: Vec<Option<Belief>> = vec![None; samplers.len()];
        // As in the simulator a run ends early only where every flow has a size that can be delivered.
        let sized = scenario.flows.iter().all(|flow| flow.size.is_some());
        loop {
            let wake = next.min(end).min(triggers.next()).min(if warm { Time::NEVER } else { warmup });
            let now = clock.now();
            if wake > now {
                thread::sleep(Duration::from(wake.since(now)));
            }
            let now = clock.now();
            // The kernel does not announce states: a change comes up to one sampling interval after the state, and a
            // state shorter than the interval may be missed.
            for due in triggers.due(now) {
                emulator.change(due.direction, due.change);
            }
            let is_end = now >= end || ends.handles.iter().any(thread::ScopedJoinHandle::is_finished);
            let mut all_over = false;
            if now >= next.min(end) || is_end || (!warm && now >= warmup) {
                late.saturating_record(now.since(next.min(end)).as_nanos());
                all_over = sized;
                self.inspect(&mut beliefs);
                for (number, sampler) in samplers.iter_mut().enumerate() {
                    let (state, over) = sampler.look(clock, desk, views, beliefs[number].take());
                    all_over &= over;
                    if let Some(state) = state {
                        triggers.on_state(clock.now(), number as u32, &state);
                    }
                    if !warm && now >= warmup {
                        sampler.warmed_up();
                    }
                }
                warm |= now >= warmup;
                while next <= now {
                    next += scenario.sample;
                }
            }
            if (now.since(looked) >= INTERVAL || is_end || all_over)
                && let Some((threads, waits)) = ends.threads.as_mut().zip(waits.as_mut())
            {
                looked = now;
                threads.look(waits);
            }
            if now.since(told) >= Span::from_millis(100) {
                told = now;
                outbox.note(&now.as_nanos().to_ne_bytes());
            }
            if is_end || all_over {
                return Ran { samplers, end: now.min(end), sampling_late: late, waits };
            }
        }
    }

    /// Fills in what the controllers of watched sockets believe at this moment.
    fn inspect(&self, beliefs: &mut [Option<Belief>]) {
        if let Some(inspect) = &self.inspect {
            // Without an answer the kernel's own facts are what there is; a socket that could not be watched
            // has been told of when it was made.
            let _ = inspect.look(&mut |number, belief| {
                if let Some(place) = beliefs.get_mut(number) {
                    *place = Some(belief);
                }
            });
        }
    }

    fn record(
        mut self,
        ran: Ran,
        report: EmulatorReport,
        desk: &Desk,
        views: &Views,
        started: u64,
    ) -> Recording {
        let scenario = self.scenario;
        let warmup = Time::ZERO + scenario.warmup;
        let headers = fullpipe_experiment::scenario::HEADER_BYTES + if self.outset.ipv6 { 20 } else { 0 };
        let path = scenario.path.facts(scenario.mtu, scenario.mtu.saturating_sub(headers).max(1));
        let utilization = |bps: f64| path.goodput_limit_bps.filter(|&l| l > 0.0).map(|l| bps / l);
        let mut notes = std::mem::take(&mut self.notes);
        let mut flows: Vec<FlowReport> =
            ran.samplers.into_iter().map(|s| s.finish(desk, views, warmup, ran.end)).collect();
        for flow in &mut flows {
            flow.recording.summary.utilization = utilization(flow.recording.summary.goodput_bps);
            if let Some(trouble) = &flow.trouble {
                notes.push(format!("{}: {trouble}", flow.recording.label));
            }
        }
        let mut summary = total(&flows, warmup, ran.end);
        summary.utilization = utilization(summary.goodput_bps);

        let base_rtt = Span::from_secs_f64(path.base_rtt_ms.unwrap_or_default() / 1e3);
        let ran_for = ran.end.since(Time::ZERO);
        let stray = self.topology.dropped_by_interfaces();
        let Verdict { mut health, mut invalid_because } =
            health::judge(&report.audit, stray, base_rtt, ran_for);
        invalid_because.extend(flows.iter().filter_map(|flow| health::late_start(flow, ran_for)));
        // On paths that are about as fast as the machine the ends are what TCP waits for: a result of this machine, but
        // of no other.
        let keeps_up = scenario.highest_rate().is_some_and(|rate| rate < KEEPS_UP_BELOW);
        let judged = if keeps_up { &mut invalid_because } else { &mut notes };
        judged.extend(flows.iter().filter_map(health::starved));
        health.waits = ran.waits.map(|waits| waits.finish(report.audit.waited, ran_for));
        judged.extend(health.waits.iter().flat_map(health::waited));
        let late = ran.sampling_late.value_at_quantile(0.99) as f64 / 1e6;
        if late > scenario.sample.as_millis_f64().max(10.0) {
            notes.push(format!(
                "the sampler ran late (p99 {late:.1} ms): the ends may have been short of CPU, too"
            ));
        }
        let bad = self.topology.checksum_errors();
        if bad > 0 {
            invalid_because
                .push(format!("{bad} packets arrived with a wrong checksum: a bug in the emulator"));
        }
        notes.push(format!(
            "emulator in {} thread{}",
            report.threads,
            if report.threads == 1 { "" } else { "s" }
        ));
        health.notes = notes;
        let mut links: Vec<_> = report.links.into_iter().map(|l| l.recording).collect();
        scenario.path.name_links(&mut links);
        Recording {
            label: scenario.cc(),
            contender: None,
            varied: Vec::new(),
            source: Source::Lab,
            cc: scenario.cc(),
            seed: self.seed,
            valid: invalid_because.is_empty(),
            invalid_because,
            summary,
            fairness: None,
            flows: flows.into_iter().map(|f| f.recording).collect(),
            links,
            path,
            checks: Vec::new(),
            health: Some(health),
            provenance: Provenance {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                scenario: Scenario { seed: self.seed, repeats: 1, ..scenario.clone() }.to_toml(),
                kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")
                    .ok()
                    .map(|r| r.trim().to_owned()),
                ticks: fullpipe_kernel::facts::ticks(),
                started: Some(fullpipe_experiment::calendar::rfc3339(started)),
            },
        }
    }
}

/// All flows together.
fn total(flows: &[FlowReport], warmup: Time, end: Time) -> Summary {
    let last = flows.iter().map(|f| f.end).max().unwrap_or(end);
    let mut total =
        Summary::total(flows.iter().map(|f| &f.recording.summary), last.since(warmup).as_secs_f64());
    let (mut rtt, mut queue) = (Times::default(), Times::default());
    for distributions in flows.iter().filter_map(|f| f.recording.distributions.as_deref()) {
        rtt.merge(&distributions.rtt);
        queue.merge(&distributions.queue);
    }
    (total.rtt_ms, total.queue_ms) = (rtt.rtt_ms(), queue.queue_ms());
    total
}

/// How much a socket may hold that is not sent yet: 100 ms of what the path ever carries, so that an application
/// that the machine wakes late does not leave TCP without data, and stops within that time when it should.
fn unsent(scenario: &Scenario) -> u32 {
    let rate = scenario.highest_rate().unwrap_or(Rate::MAX);
    rate.bytes_in(Span::from_millis(100)).clamp(16 << 10, 16 << 20) as u32
}

/// Lets the process have as many sockets as the machine allows.
fn raise_open_files() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
